"""The cycle: place asks one after another until none fits, and park the asks that do not fit (O1, design 6.3-6.6)."""

from collections.abc import Iterator, Set
from functools import partial
from itertools import islice
from typing import Final

from server.model.reasons import Code
from server.scheduling import outranking
from server.scheduling.freed_nodes import FreedNodes
from server.scheduling.gangs import try_gang
from server.scheduling.ordering import next_group
from server.scheduling.placement import fits_pledged, pick_node
from server.state import journal, pending
from server.state.applications import Application, Ask, Gang, Group
from server.state.commitments import Pledge
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.nodes import Node
from server.state.partition import Partition

REVIVE_MOST: Final = 2_000
"""The largest number of equivalence classes that are requeued at once.

If more classes are left, the next tick requeues them before it places anything (`is_reviving`).
"""


def open_tick(partition: Partition, now: int, placed: list[Ask]) -> None:
    """Begin a tick (design 6.5, 6.6).

    Requeue the asks that events since the last tick may have made placeable, and place pledged asks.

    Placed asks are appended to ``placed``. If `is_reviving` is true afterwards, nothing else may be placed in this tick.
    """
    if partition.decisions.reservations:
        outranking.note(partition)
    freed = refresh(partition)
    if partition.decisions.pledges:
        _serve_reservations(partition, freed, now, placed)
        refresh(partition)
    wake_gangs(partition)


def refresh(partition: Partition) -> list[Node]:
    """Requeue the parked groups that freed capacity or headroom may serve.

    Return the nodes that have more free capacity than at the last call. If `is_reviving` is true afterwards, more classes have
    to be requeued by later calls. Until then nothing may be placed, because an ask of these classes may come first in the order
    of asks. Because nothing is placed in between, decisions do not depend on how the work is spread over calls.
    """
    if partition.limits.relieved or partition.index.freed:
        partition.round.reservations_moved = partition.round.reservations_untold = True
    partition.limits.take_relieved()
    left = _unblock(partition) if partition.limits.unblocking else REVIVE_MOST
    freed = partition.index.take_freed()
    if freed and partition.classes.dead:
        partition.index.reviving.update(dict.fromkeys(freed))
    if partition.index.reviving and left:
        _revive(partition, left)
    return freed


def is_reviving(partition: Partition) -> bool:
    """Return whether classes still have to be requeued, because a node has more free capacity or a limit has more headroom than before."""
    return bool(partition.index.reviving or partition.limits.unblocking)


def wake_gangs(partition: Partition) -> None:
    """Try parked gangs again if the partition has changed since they were found not to fit."""
    for gang in stale_gangs(partition):
        pending.gang_changed(partition, gang)


def stale_gangs(partition: Partition) -> list[Gang]:
    """Return the parked gangs for which the partition has changed since they were last tried."""
    mark = (partition.relief, partition.placements)
    return [gang for gang in partition.gangs.parked if gang.tried != mark]


def _unblock(partition: Partition) -> int:
    """Requeue up to REVIVE_MOST classes for which limits have headroom again.

    Return REVIVE_MOST minus the number of requeued classes.
    """
    unblocking, left = partition.limits.unblocking, REVIVE_MOST
    for limiter in [*unblocking]:
        fits = (one for one in limiter.blocked if limiter.has_headroom(one))
        found = [*islice(fits, left + 1)]
        for ask_class in found[:left]:
            pending.unblock_class(limiter, ask_class)
        if len(found) > left:
            return 0
        left -= len(found)
        del unblocking[limiter]
    return left


def _revive(partition: Partition, left: int) -> None:
    """Requeue unschedulable classes, at most ``left``.

    A class is requeued if a node that has more free capacity than before may take one of its asks.
    """
    index = partition.index
    nodes = [node for node in index.reviving if node.opened]
    index.reviving.clear()
    if not nodes:
        return
    for ask_class in _revivable(partition, nodes):
        if not left:
            index.reviving.update(dict.fromkeys(nodes))
            return
        pending.revive_class(partition, ask_class)
        left -= 1


def _revivable(partition: Partition, nodes: list[Node]) -> Iterator[AskClass]:
    """Yield each unschedulable class of which at least one of these nodes may take an ask."""
    freed, slots = FreedNodes(nodes), {node.slot for node in nodes}
    owners = [
        one.ask.ask_class for one in partition.decisions.pledges.values() if one.node.slot in slots
    ]
    most = list(map(max, zip(*(node.free for node in nodes), strict=True)))
    for ask_class in partition.classes.dead.within(most, owners):
        if ask_class.pending and not _waits_for_placeholder(ask_class) and freed.take(ask_class):
            yield ask_class


def _waits_for_placeholder(ask_class: AskClass) -> bool:
    """Return whether an ask of the class waits for a placeholder to end.

    An ask that waits for a placeholder can use no other capacity.
    """
    return ask_class.pledge is not None and ask_class.pledge.replaces


def _serve_reservations(
    partition: Partition, freed: list[Node], now: int, placed: list[Ask]
) -> None:
    """Place the pledged asks that fit now and whose nodes changed, in the order of their pledges (design 6.6)."""
    changed = {node.slot for node in freed}
    ready = [one for one in partition.decisions.pledges.values() if _may_be_ready(one, changed)]
    gangs = {one.commitment: one for one in reversed(ready) if one.commitment.together}
    for held in [one for one in ready if gangs.get(one.commitment, one) is one]:
        ask = held.ask
        if fits_pledged(ask.ask_class, held) and all(
            limiter.has_headroom(ask.ask_class)
            for limiter in ask.application.limits_of(ask.ask_class)
        ):
            pending.enqueue_unqueued(partition)
            fulfil(partition, held, held.node, now, placed)


def _may_be_ready(held: Pledge, changed: Set[int]) -> bool:
    """Return whether a pledged ask may fit now.

    The ask may fit if its node changed. An ask of a gang whose decision has no victims may fit even if its node did not change,
    because such a gang may lack only headroom (J8).
    """
    commitment = held.commitment
    return held.node.slot in changed or (commitment.together and not commitment.victims)


def fulfil(partition: Partition, held: Pledge, node: Node, now: int, placed: list[Ask]) -> int:
    """Place a pledged ask. If the ask is a gang member, place all other members of the gang, too (J10). Return the number of placed asks."""
    commitment = held.commitment
    others = list(commitment.pledges.values()) if commitment.together else [held]
    for one in others:
        at = node if one is held else one.node
        journal.fulfil(partition, one)
        journal.place(partition, one.ask, at, now)
        placed.append(one.ask)
    return len(others)


def run(partition: Partition, now: int, budget: int, placed: list[Ask]) -> int:
    """Place asks within a budget of steps, and append them to ``placed`` in order. Return the budget that is left.

    A step places an ask or parks a group. A gang costs one step for each member. A result above 0 means that nothing more can
    be placed now. Return 0 if classes have to be requeued first.
    """
    probe = partial(_is_placeable, partition)
    if is_reviving(partition):
        return 0
    while budget > 0 and partition.classes.live_asks:
        group = next_group(partition, probe)
        if group is None:
            break
        if isinstance(group, Gang):
            budget -= _step_gang(partition, group, now, placed)
        else:
            held, before = group.ask_class.pledge, len(placed)
            budget -= _step(partition, group, now, placed)
            if held is not None and len(placed) > before:
                refresh(partition)
                wake_gangs(partition)
                if is_reviving(partition):
                    return 0
    if budget > 0:
        _put_gangs_aside(partition)
    return budget


def settle(partition: Partition) -> None:
    """Park the groups that are still in the order after the cycle has ended, because nothing more can be placed (see `run`)."""
    probe = partial(_is_placeable, partition)
    while (group := next_group(partition, probe)) is not None and not probe(group):
        pass


def run_woken(partition: Partition, now: int, placed: list[Ask]) -> int:
    """Place asks of the groups that were requeued because reservations are lifted. Return the number of steps that were spent.

    Stop if a placement may have made asks of other groups placeable, because ordinary placement must try such asks first.
    """
    probe, spent = partial(_is_placeable, partition), 0
    while partition.classes.live_asks:
        group = next_group(partition, probe)
        if group is None or isinstance(group, Gang):
            break
        spent += _step(partition, group, now, placed)
        if partition.index.freed or partition.limits.relieved:
            break
    return spent


def _is_placeable(partition: Partition, group: Group | Gang) -> bool:
    if isinstance(group, Gang):
        return bool(_nodes_for(partition, group))
    return _node_for(partition, group) is not None


def _put_gangs_aside(partition: Partition) -> None:
    """Park the gangs that were not tried because a gang with members of the same class found no capacity (J8).

    The parked gangs would find no capacity either.
    """
    for gang in [one for one in partition.gangs.ready if _is_held_back(one)]:
        pending.park_gang(partition, gang)


def _is_held_back(gang: Gang) -> bool:
    limits_of, classes = gang.application.limits_of, {ask.ask_class for ask in gang.members}
    return any(
        one.dead or any(one in limiter.blocked for limiter in limits_of(one)) for one in classes
    )


def _step(partition: Partition, group: Group, now: int, placed: list[Ask]) -> int:
    """Place the group's first ask, or park the group. Return the number of steps that were spent."""
    node = _node_for(partition, group)
    if node is None:
        return 1
    held = group.ask_class.pledge
    if held is not None:
        return fulfil(partition, held, node, now, placed)
    placed.append(journal.place_first(partition, group, node, now))
    return 1


def _node_for(partition: Partition, group: Group) -> Node | None:
    """Return the node for the group's first ask.

    If no node takes the ask, park the group: at the limit that blocks the ask, or at the ask's class if no node fits.
    """
    application, ask_class = group.application, group.ask_class
    limited = application.limiters or ask_class.firm
    blocker = _blocker(application, ask_class) if limited else None
    if blocker is not None:
        _put_aside(partition, group, pending.block_class(blocker, ask_class), blocker.code)
        return None
    node = None if ask_class.dead else pick_node(partition.index, ask_class)
    if node is None:
        if not ask_class.dead:
            pending.kill_class(partition, ask_class)
        _put_aside(partition, group, ask_class.waiting, Code.NO_NODE)
    return node


def _put_aside(partition: Partition, group: Group, waiting: list[Group], code: Code) -> None:
    """Park a group. If the waiting reason that was last sent to the shim for the group's asks is not ``code``, have the new reason sent."""
    pending.park(group, waiting)
    partition.round.reservations_moved = True
    if group.told != code:
        partition.untold[group] = None


def _blocker(application: Application, ask_class: AskClass) -> Limiter | None:
    """Return the first limit of the application without headroom for the class, leaf first (design 6.5).

    Return None if every limit has headroom.
    """
    for limiter in application.limits_of(ask_class):
        if ask_class in limiter.blocked or not limiter.has_headroom(ask_class):
            return limiter
    return None


def _step_gang(partition: Partition, gang: Gang, now: int, placed: list[Ask]) -> int:
    """Place all members of a gang, or park the whole gang. Return the number of steps that were spent."""
    members = len(gang.members)
    for ask, node in _nodes_for(partition, gang):
        journal.place(partition, ask, node, now)
        placed.append(ask)
    return members


def _nodes_for(partition: Partition, gang: Gang) -> list[tuple[Ask, Node]]:
    """Return a node for each waiting member. If a member gets no node, park the gang and return an empty list."""
    assignments = try_gang(partition, gang)
    if not assignments:
        pending.park_gang(partition, gang)
    return assignments
