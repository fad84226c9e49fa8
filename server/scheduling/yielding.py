"""The step that offers reserved capacity to asks of higher priority, once nothing else can be placed.

All reservations that an ask outranks are lifted together: the capacity that these reservations keep, on nodes and in limits,
counts as free. Asks that outrank the same set of reservations form one offer. These asks are put into the order again and placed
as usual, while all other asks stay parked. Larger sets of reservations are offered first. An ask is thus tried before the asks
that it outranks, because it outranks all reservations that these asks outrank. Afterwards, gangs are offered reserved capacity in
the same way, each gang as a whole. At the end, the reservations keep the capacity that is left. An owner that waited for these
asks and gangs then takes its node, if the owner fits.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from server.model.fit import fits
from server.scheduling import cycle
from server.scheduling.gangs import try_gang
from server.scheduling.outranking import (
    Below,
    Ranks,
    lifted,
    limits_of,
    may_use,
    most_free,
    most_headroom,
    takes_without,
    try_again,
)
from server.scheduling.placement import fits_pledged, may_take
from server.state import journal, pending, ranking
from server.state.applications import Ask, Gang, Group
from server.state.commitments import Pledge
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.nodes import Node
from server.state.partition import Partition


@dataclass(slots=True)
class _Woken:
    """The groups and classes that are requeued while reservations are lifted, and the lists in which the groups were parked."""

    groups: dict[Group, None] = field(default_factory=dict)
    classes: dict[AskClass, None] = field(default_factory=dict)
    blocked: list[tuple[Limiter, AskClass, list[Group]]] = field(default_factory=list)


def run(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Offer reserved capacity to asks that outrank reservations, until no such ask takes any reserved capacity.

    Return the budget of steps that is left. The caller calls this function when the cycle has ended. If a placement makes asks
    placeable without reserved capacity, ordinary placement is done before the next offer. If the budget ends between two
    offers, the next tick continues with the sets of reservations that are still to be offered.
    """
    turn = partition.round
    while budget > 0 and partition.decisions.reservations and _is_due(partition):
        if _has_moved(partition):
            budget = _place_others(partition, now, budget, placed)
            continue
        cycle.settle(partition)
        if turn.reservations_moved:
            turn.reservations_offered.clear()
        before = len(placed)
        budget = _round(partition, now, budget, placed)
        turn.reservations_moved = False  # groups parked by the offers are no change
        if len(placed) > before:
            budget = _place_others(partition, now, budget, placed)
            turn.reservations_moved = True
        elif not _has_moved(partition):
            if budget > 0:
                turn.reservations_offered.clear()
            return budget
    return budget


def _has_moved(partition: Partition) -> bool:
    """Return whether capacity became free that ordinary placement has not tried yet."""
    return bool(partition.index.freed or partition.limits.relieved)


def _place_others(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Place the asks that can now be placed on capacity that is not reserved. Return the budget that is left."""
    cycle.refresh(partition)
    cycle.wake_gangs(partition)
    return cycle.run(partition, now, budget, placed)


def _is_due(partition: Partition) -> bool:
    """Return whether to offer reserved capacity.

    Reserved capacity is offered in three cases. First, reserved nodes or the asks that wait for these nodes have changed.
    Second, the budget ended the last offers early. Third, the owner of a reservation would fit on its node but has to wait for
    asks that outrank the owner.
    """
    turn = partition.round
    return (
        turn.reservations_moved
        or bool(turn.reservations_offered)
        or any(held.yields for held in partition.decisions.reservations.values())
    )


def _round(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Offer each set of reservations once, and return the budget that is left.

    Stop early when ordinary placement has to be done before the next offer.
    """
    offered = partition.round.reservations_offered
    held = len(partition.decisions.reservations)
    for below, groups in _offers(partition):
        names = tuple(one.ask.key for one in below)
        if names in offered:
            continue
        offered.add(names)
        budget -= _offer(partition, below, groups, now, placed)
        if budget <= 0 or _has_moved(partition) or len(partition.decisions.reservations) < held:
            return budget
    before = len(placed)
    budget = _offer_to_gangs(partition, now, budget, placed)
    if budget <= 0 or len(placed) > before:
        return budget
    for owner in list(partition.decisions.reservations.values()):
        budget -= _serve(partition, owner, now, placed)
        if budget <= 0 or _has_moved(partition):
            return budget
    return budget


def _serve(partition: Partition, held: Pledge, now: int, placed: list[Ask]) -> int:
    """Place an owner that had to wait, if the asks of higher priority left enough capacity on its reserved node.

    Return the number of steps that were spent. If the node or a limit no longer has capacity for the owner, ordinary placement
    tries the owner.
    """
    if not held.yields:
        return 0
    held.yields = False
    ask_class = held.ask.ask_class
    limits = held.ask.application.limits_of(ask_class)
    if fits_pledged(ask_class, held) and all(one.has_headroom(ask_class) for one in limits):
        return cycle.fulfil(partition, held, held.node, now, placed)
    try_again(partition, held)
    return 0


def _offers(partition: Partition) -> list[tuple[Below, list[Group]]]:
    """Return the offers: for each offer, the reservations to lift and the groups that may then be placed.

    The offer with the most reservations comes first.
    """
    ranks = Ranks(partition)
    found: dict[Below, dict[Group, None]] = {}
    for group, below in chain(_without_node(partition, ranks), _over_limits(partition, ranks)):
        found.setdefault(below, {})[group] = None
    number = {held: at for at, held in enumerate(partition.decisions.reservations.values())}

    def rank(below: Below) -> tuple[int, list[int]]:
        return -len(below), [number[one] for one in below]

    return [(below, list(found[below])) for below in sorted(found, key=rank)]


_Found = Iterator[tuple[Group, Below]]


def _without_node(partition: Partition, ranks: Ranks) -> _Found:
    """Yield the groups that wait for a node and fit the node of a reservation that they outrank."""
    for ask_class in partition.classes.dead.within(most_free(partition)):
        if not may_use(ask_class):
            continue
        takes: dict[Below, bool] = {}
        for group in ask_class.waiting:
            below = _below(group, ranks)
            if below and below not in takes:
                takes[below] = any(takes_without(ask_class, held) for held in below)
            if below and takes[below]:
                yield group, below


def _over_limits(partition: Partition, ranks: Ranks) -> _Found:
    """Yield the groups that a limit blocks, and that may have headroom without the reservations that they outrank."""
    for limiter, most in most_headroom(partition).items():
        kept: dict[Below, Counter[int]] = {}
        for ask_class, waiting in limiter.blocked.items():
            if ask_class.pledge is None and not fits(ask_class.demand, most):
                continue
            for group in waiting if may_use(ask_class) else ():
                below = _below(group, ranks)
                if below and below not in kept:
                    kept[below] = _kept(limiter, below)
                if below and _may_have_headroom(limiter, ask_class, kept[below]):
                    yield group, below


def _below(group: Group, ranks: Ranks) -> Below:
    if not (group.live and group.parked):
        return ()
    return ranks.below(group.application.leaf, group.priority)


def _kept(limiter: Limiter, below: Below) -> Counter[int]:
    """Return, by type, the sum of the amounts with which these reservations count against a limit."""
    found: Counter[int] = Counter()
    for held in below:
        if limiter in limits_of(held):
            found.update(dict(held.demand))
    return found


def _may_have_headroom(limiter: Limiter, ask_class: AskClass, kept: Counter[int]) -> bool:
    """Return whether the limit may have headroom once the amounts ``kept`` are free.

    This quick test compares sums. The limit itself decides later.
    """
    own = dict(ask_class.demand) if ask_class.pledge is not None else {}
    return bool(kept) and all(
        limiter.headroom[at] + kept[at] + own.get(at, 0) >= wanted
        for at, wanted in ask_class.demand
    )


def _offer(
    partition: Partition, below: Below, groups: list[Group], now: int, placed: list[Ask]
) -> int:
    """Lift the reservations in ``below``, place asks of these groups, and return the number of steps that were spent.

    An offer is always completed, whatever budget is left. An offer costs one step for each ask that takes capacity, and one
    step for each class of asks that finds no capacity.
    """
    woken, spent = _Woken(), 0
    with lifted(partition, below):
        for group in groups:
            if _finds_capacity(group, below):
                _wake(partition, group, woken)
        if woken.groups:
            spent = cycle.run_woken(partition, now, placed)
    _put_back(partition, woken)
    return spent


def _finds_capacity(group: Group, below: Below) -> bool:
    """Return whether the group's limits have headroom and a node may take the group, while the reservations in ``below`` are lifted."""
    ask_class = group.ask_class
    takes = not ask_class.dead or any(may_take(ask_class, held.node) for held in below)
    return takes and all(
        one.has_headroom(ask_class) for one in group.application.limits_of(ask_class)
    )


def _wake(partition: Partition, group: Group, woken: _Woken) -> None:
    """Remove the group from the list in which it is parked, and put it into the order of asks again."""
    ask_class = group.ask_class
    if ask_class.dead:
        ask_class.dead = False
        partition.classes.dead.discard(ask_class)
        partition.classes.live_asks += ask_class.pending
        woken.classes[ask_class] = None
    for limiter in group.application.limits_of(ask_class):
        if ask_class in limiter.blocked:
            woken.blocked.append((limiter, ask_class, limiter.blocked.pop(ask_class)))
            if limiter.kind == "queue":
                limiter.queue.blocked_asks -= limiter.queue.pending.get(ask_class, 0)
                ranking.reenter(limiter.queue)
    for waiting in (ask_class.waiting, *(one for _, _, one in woken.blocked)):
        if group in waiting:
            waiting.remove(group)
    group.parked = False
    woken.groups[group] = None
    ranking.push_group(group)


def _put_back(partition: Partition, woken: _Woken) -> None:
    """Put each group that still waits back into the list in which the group was parked."""
    for limiter, ask_class, waiting in woken.blocked:
        rest = [one for one in waiting if one.live]
        if rest:
            pending.block_class(limiter, ask_class).extend(rest)
    for ask_class in woken.classes:
        if ask_class.pending and not ask_class.dead:
            pending.kill_class(partition, ask_class)
    for group in woken.groups:
        if group.live and not group.parked and group.ask_class in woken.classes:
            pending.park(group, group.ask_class.waiting)


# Gangs --------------------------------------------------------------------------------------------------------------


def _offer_to_gangs(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Place the first parked gang that fits while reservations are lifted: the reservations that all members of the gang outrank.

    Return the budget that is left. Each gang that is tried costs one step for each member.
    """
    mark, ranks = (partition.relief, partition.placements), Ranks(partition)
    for gang in sorted(partition.gangs.parked, key=lambda one: one.members[0].sort_key):
        below = () if gang.tried_reserved == mark else ranks.below_gang(gang)
        if not below:
            continue
        assignments = _nodes_for(partition, gang, below)
        budget -= len(gang.members)
        for ask, node in assignments:
            journal.place(partition, ask, node, now)
            placed.append(ask)
        if not assignments:
            gang.tried_reserved = mark
        if assignments or budget <= 0:
            return budget
    return budget


def _nodes_for(partition: Partition, gang: Gang, below: Below) -> list[tuple[Ask, Node]]:
    dead = list(dict.fromkeys(one.ask_class for one in gang.members if one.ask_class.dead))
    with lifted(partition, below):
        for ask_class in dead:
            ask_class.dead = False
        assignments = try_gang(partition, gang)
        for ask_class in dead:
            ask_class.dead = True
    return assignments
