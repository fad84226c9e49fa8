"""The asks that are due for reservations (C7). The live state is searched one group of equal asks after another.

The checks in this module take little time, because they test only necessary conditions. The policy and the rules decide later
whether a node is reserved. If at most SEARCH_MOST groups wait, each tick of a round checks all of them. If more groups wait, a
*search* of all groups takes several ticks (see `_in_turns`). If one tick searched all groups, a tenant whose asks have many
different sizes would make the tick long.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from server.core.preemption import due
from server.model.fit import Amounts
from server.preemption.nodes import reservation
from server.scheduling.outranking import in_order
from server.state.applications import Ask, Group
from server.state.partition import Partition
from server.state.queues import Queue, QueueState
from server.state.rounds import ReservationSearch

SEARCH_MOST: Final = 5_000
"""The largest number of groups of equal asks that one tick checks. A search of several ticks keeps at most this many asks."""
ANY_PORT: Final = 1 << 62
"""A number that is larger than every demand for a port type.

It is used as the free capacity of an empty node, because all ports of an empty node are free.
"""


def reserving(partition: Partition, now: int) -> list[Ask]:
    """Return the asks that may reserve, in the order in which they may reserve.

    Only the oldest asks of each group are returned. Also set the instant at which the next ask may reserve.
    """
    state = partition.round
    state.due_ms = None
    search, state.reservation_search = state.reservation_search, None
    if not partition.spec.reservations.enabled:
        return []
    held = _held(partition) if partition.classes.dead else Counter()
    if not partition.classes.dead or held.total() >= reservation.most(len(partition.index.nodes)):
        if partition.untold:
            state.ineligible.clear()
        return []
    _refresh_hopeless(partition)
    if partition.classes.groups > SEARCH_MOST:
        state.reservation_search = _in_turns(partition, search, held, now)
        return [] if state.reservation_search.groups else state.reservation_search.found
    asks: list[Ask] = []
    ineligible: set[int] = set()
    for group in _stuck(partition, held):
        oldest = reservable(group, known_ineligible=group.number in state.ineligible)
        if not oldest:
            ineligible.add(group.number)
        asks += come_of_age(partition, oldest, now)
    state.ineligible = ineligible
    return in_order(asks)


def may_reserve_more(partition: Partition) -> bool:
    """Return whether fewer nodes are reserved than the limit on reservations allows."""
    return _held(partition).total() < reservation.most(len(partition.index.nodes))


def _held(partition: Partition) -> Counter[str]:
    """Return the number of reservations of each leaf."""
    return Counter(
        one.ask.application.leaf.path
        for one in partition.decisions.pledges.values()
        if one.reserves
    )


def _refresh_hopeless(partition: Partition) -> None:
    """Clear the record of the classes that are too large for every node.

    Do so only if a node began to take placements or was updated, or if a pledge ended.
    """
    state = partition.round
    now = (partition.index.entered, state.pledges_ended)
    if now != state.hopeless_seen:
        state.hopeless_seen = now
        state.hopeless.clear()


def _stuck(partition: Partition, held: Counter[str]) -> Iterator[Group]:
    """Yield each group that lacks only a node: its limits have headroom, but no node can take one of its asks.

    Leaves that have as many reservations as a leaf may have are skipped.
    """
    for leaf in _open_leaves(partition, held):
        for application in leaf.applications.values():
            for group in application.groups.values():
                if is_stuck(partition, group):
                    yield group


def _open_leaves(partition: Partition, held: Counter[str]) -> Iterator[Queue]:
    """Yield the leaves with waiting asks that may have one more reservation."""
    for leaf in partition.queues.values():
        if leaf.leaf and leaf.pending_asks and _may_reserve(leaf, held):
            yield leaf


def _may_reserve(leaf: Queue, held: Counter[str]) -> bool:
    return held[leaf.path] < reservation.RESERVATIONS_PER_LEAF and not any(
        queue.state is QueueState.STOPPED for queue in leaf.path_up()
    )


def is_stuck(partition: Partition, group: Group) -> bool:
    """Return whether the group lacks only a node, has no pledge, and is not known to be too large for every node."""
    ask_class = group.ask_class
    return (
        ask_class.dead
        and ask_class.pledge is None
        and ask_class.number not in partition.round.hopeless
        and all(
            limiter.has_headroom(ask_class) for limiter in group.application.limits_of(ask_class)
        )
    )


def reservable(group: Group, *, known_ineligible: bool) -> list[Ask]:
    """Return the first asks of the group that qualify for a reservation.

    The number of returned asks is at most the largest number of reservations of a leaf, plus one.

    ``known_ineligible`` says that no ask of the group qualified in the last search. The group is then searched again only if an
    ask that qualifies has joined it.
    """
    if known_ineligible and not _is_plain_again(group):
        return []
    found: list[Ask] = []
    for ask in group.asks:
        if _is_plain(ask, group):
            found.append(ask)
            if len(found) > reservation.RESERVATIONS_PER_LEAF:
                break
    return found


def _is_plain_again(group: Group) -> bool:
    """Return whether an ask that qualifies has joined the group since the reasons for waiting were last reported."""
    return any(_is_plain(ask, group) for ask in group.untold)


def _is_plain(ask: Ask, group: Group) -> bool:
    """Return whether the ask is still in the group, needs no check by its manager, and is not a member of a gang."""
    spec = ask.spec
    return ask.group is group and not spec.rm_check and not (spec.gang_key and spec.min_members > 1)


def come_of_age(partition: Partition, oldest: list[Ask], now: int) -> Iterator[Ask]:
    """Yield asks from the given list, which must be sorted by age, up to the first ask that may not reserve yet.

    Record the instant from which that first ask may reserve. An ask may reserve `reservation.RESERVE_AFTER_MS` after it began
    to wait, but not while its application has to pause after a reservation that timed out.
    """
    for ask in oldest:
        comes = ask.pending_since + reservation.RESERVE_AFTER_MS
        instant = max(comes, ask.application.reserves_from_ms)
        if instant > now:
            state = partition.round
            state.due_ms = instant if state.due_ms is None else min(instant, state.due_ms)
            return
        yield ask


# More groups than one tick looks at ----------------------------------------------------------------------------------


def is_searching(partition: Partition) -> bool:
    """Return whether the search has groups left. In these groups there may be asks that come before the asks that were found so far."""
    search = partition.round.reservation_search
    return search is not None and bool(search.groups)


def settle(partition: Partition, now: int, *, all_tried: bool) -> bool:
    """From the list of the search, remove the asks that the round tried.

    Return whether the next tick has to continue the search or begin another.

    ``all_tried`` is true if the round tried every ask of the search, and false if the budget or a takeover stopped the round
    earlier. An ask that was left out of the snapshot counts as tried only if no more nodes may be reserved. If more nodes may be
    reserved, the ask was left out because the asks before it used up the budget, and the next tick has to try the ask. When a
    reservation ends, the round's record of refused asks (`Round.masked`) is cleared, because the end of a reservation may make a
    decision possible.
    """
    state = partition.round
    search = state.reservation_search
    if search is None:
        return False
    if not search.groups:
        if all_tried:
            state.masked.update(_masks(one) for one in search.found if one.pledge is None)
        search.found = [one for one in search.found if _masks(one) not in state.masked]
        if all_tried:
            search.found.clear()
    return bool(search.groups) or (not search.found and _is_outdated(partition, search, now))


def _masks(ask: Ask) -> tuple[str, str]:
    return reservation.NAME, ask.key


def _in_turns(
    partition: Partition, search: ReservationSearch | None, held: Counter[str], now: int
) -> ReservationSearch:
    """Return the search after this tick's share of the work.

    Begin another search if the last search has ended and the state has changed since it began. Groups whose asks are larger
    than every node are not checked one by one: the search leaves them out from its beginning. When all other groups are
    checked, the round tries the found asks in order, over as many ticks as its budget requires. Each ask is checked again
    before it is tried. A reservation may therefore be made some ticks later than without this distribution of the work. An ask
    may become old enough, or able to reserve, after its group was checked. The next search finds such an ask.
    """
    state = partition.round
    _requalify(partition)
    if search is None or (search.is_over and _is_outdated(partition, search, now)):
        search = _begin(partition, held)
    state.due_ms = search.due_ms
    if search.groups:
        found = list(_of_share(partition, search, now))
        found = [ask for ask in found if _masks(ask) not in state.masked]
        ordered = in_order((*search.found, *found))
        search.found, search.cut = ordered[:SEARCH_MOST], search.cut or len(ordered) > SEARCH_MOST
    if not search.groups:
        leaves = set(_open_leaves(partition, held))
        may = [ask for ask in search.found if _still_may(partition, ask, leaves)]
        # A reservation that timed out meanwhile makes the other asks of its application wait again.
        search.found = [one for ask in may for one in come_of_age(partition, [ask], now)]
    search.due_ms = state.due_ms
    return search


def _begin(partition: Partition, held: Counter[str]) -> ReservationSearch:
    """Begin a search of the groups whose asks are not known to be too large for every node."""
    state = partition.round
    classes = {
        one
        for one in partition.classes.dead.within(_largest(partition))
        if one.number not in state.hopeless
    }
    groups = [
        group
        for leaf in (_open_leaves(partition, held) if classes else ())
        for application in leaf.applications.values()
        for group in application.groups.values()
        if group.ask_class in classes
    ]
    if state.ineligible:
        state.ineligible &= {group.number for group in groups}
    return ReservationSearch(due.changes(partition), groups)


def _largest(partition: Partition) -> Amounts:
    """Return, by type, the largest capacity of a node that takes placements.

    For ports, return a number that no demand exceeds.
    """
    largest = partition.index.largest()
    return [
        ANY_PORT if synthetic else much
        for synthetic, much in zip(partition.types.synthetic, largest, strict=False)
    ]


def _is_outdated(partition: Partition, search: ReservationSearch, now: int) -> bool:
    """Return whether the state has changed so that another search may find more asks."""
    comes = search.due_ms is not None and search.due_ms <= now
    return search.cut or comes or search.mark != due.changes(partition)


def _requalify(partition: Partition) -> None:
    """Reconsider each group in which no ask could reserve when the group was last searched.

    A group is reconsidered if an ask that may reserve has joined the group since the group's reason for waiting was last
    reported.
    """
    ineligible = partition.round.ineligible
    for group in partition.untold if ineligible else ():
        if isinstance(group, Group) and group.number in ineligible and _is_plain_again(group):
            ineligible.discard(group.number)


def _of_share(partition: Partition, search: ReservationSearch, now: int) -> Iterator[Ask]:
    """Yield the asks that may reserve, from the groups that this tick examines."""
    ineligible, left = partition.round.ineligible, SEARCH_MOST
    while search.groups and left > 0:
        group = search.groups.pop()
        left -= 1
        if not group.live or group.number in ineligible or not is_stuck(partition, group):
            continue
        oldest = reservable(group, known_ineligible=False)
        left -= len(oldest) or len(group.asks)
        if not oldest:
            ineligible.add(group.number)
        yield from come_of_age(partition, oldest, now)


def _still_may(partition: Partition, ask: Ask, leaves: set[Queue]) -> bool:
    """Return whether an ask that was found earlier still waits, and may still reserve."""
    group = ask.group
    return (
        isinstance(group, Group)
        and ask.application.leaf in leaves
        and _is_plain(ask, group)
        and is_stuck(partition, group)
    )
