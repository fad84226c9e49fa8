"""Waiting asks: their groups, gangs and counts, and the groups that are parked until something changes (design 6.5)."""

import bisect
import heapq

from server.model.asks import UNSIZED, AskSpec
from server.state import ranking, usage
from server.state.applications import Application, Ask, Gang, Group
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.placeholders import Hold, is_held
from server.state.queues import Queue


def enqueue(partition: Partition, ask: Ask) -> None:
    """Add a waiting ask to its application.

    The ask joins the asks that wait for placeholders if it has to wait for one. A member of a gang joins its gang. Any other ask
    joins its group.

    A gang member joins a group instead of its gang in two cases: as many members as the gang needs are placed, or the ask has a
    pledge.
    """
    application, ask_class, spec = ask.application, ask.ask_class, ask.spec
    application.asks[ask.key] = ask
    _count_new(partition, application.leaf, ask_class)
    if application.reserve is not None and is_held(ask):
        _join_hold(partition, ask)
        return
    if spec.gang_key and spec.min_members > 1 and ask.pledge is None:
        gang = gang_of(partition, application, spec)
        if gang.placed < gang.min_members:
            _join_gang(partition, gang, ask)
            return
    group = application.groups.get((ask_class, spec.priority))
    if group is None:
        group = Group(partition.next_number(), application, ask_class, spec.priority)
        application.groups[ask_class, spec.priority] = group
        partition.classes.groups += 1
    _join_group(partition, group, ask)
    search = partition.round.claim_search
    if search is not None:
        search.joined[group] = None


def enqueue_unqueued(partition: Partition) -> None:
    """Enqueue the partition's unqueued asks, in the order in which they arrived."""
    if not partition.unqueued:
        return
    asks, partition.unqueued = partition.unqueued, []
    for ask in asks:
        enqueue(partition, ask)


def gang_of(partition: Partition, application: Application, spec: AskSpec) -> Gang:
    """Return the gang that the spec of a member names. If the application does not have the gang, it is created without members."""
    gang = application.gangs.get(spec.gang_key)
    if gang is None:
        number = partition.next_number()
        gang = application.gangs[spec.gang_key] = Gang(
            number, application, spec.gang_key, spec.min_members
        )
        gang.counted = spec.counted
    return gang


def _count_new(partition: Partition, leaf: Queue, ask_class: AskClass) -> None:
    """Add one waiting ask to the counts of its class, its queues and the partition."""
    ask_class.pending += 1
    if not ask_class.dead:
        partition.classes.live_asks += 1
    partition.ask_count += 1
    if ask_class.firm and ask_class.pledge is None:
        _count_firm(partition, leaf, ask_class, 1)
    queue: Queue | None = leaf
    while queue is not None:
        queue.pending[ask_class] = queue.pending.get(ask_class, 0) + 1
        queue.pending_asks += 1
        if queue.limiter is not None and ask_class in queue.limiter.blocked:
            queue.blocked_asks += 1
        queue = queue.above


def _count_gone(partition: Partition, leaf: Queue, ask_class: AskClass) -> None:
    """Subtract one waiting ask from the counts of its class, its queues and the partition.

    If the class has no waiting asks left, it no longer counts as unschedulable.
    """
    blocking: Queue | None = leaf
    while blocking is not None:
        if blocking.limiter is not None and ask_class in blocking.limiter.blocked:
            blocking.blocked_asks -= 1
        blocking = blocking.above
    if ask_class.dead:
        partition.classes.live_asks += 1  # because `_count_placed` subtracts one
    _count_placed(partition, leaf, ask_class)
    if ask_class.dead and not ask_class.pending:
        revive_class(partition, ask_class)


def _count_firm(partition: Partition, leaf: Queue, ask_class: AskClass, count: int) -> None:
    """Add ``count`` to the number of waiting firm asks for which queues on the path keep headroom (J4). ``count`` may be negative."""
    usage.await_firm(leaf, ask_class.demand, count)
    if count < 0:
        usage.relieve_firm(partition, leaf)


def _join_group(partition: Partition, group: Group, ask: Ask) -> None:
    ask.group = group
    asks = group.asks
    first = not group.live
    if first:
        asks.clear()
        group.in_turn = True
        asks.append(ask)
    else:
        first = _insert(group, ask)
    group.live += 1
    partition.classes.joined += 1
    if group.rests or group.beside is not None:
        group.wake()
    if not group.untold:
        partition.untold[group] = None
    group.untold.append(ask)
    if group.parked:
        return
    if group.ask_class.dead:
        park(group, group.ask_class.waiting)
        partition.round.reservations_moved = True
        return
    if first or group.entry is None:
        ranking.push_group(group)
    else:
        ranking.raise_path(group.application, group.priority)


def _by_age(ask: Ask) -> tuple[int, int]:
    return ask.pending_since, ask.arrival


def _insert(group: Group, ask: Ask) -> bool:
    """Insert an ask among the group's waiting asks, sorted by `Ask.sort_key`. Return whether the ask is now the first one."""
    asks = group.asks
    last = asks[-1]
    since = last.pending_since
    younger = since < ask.pending_since or (
        since == ask.pending_since and last.arrival < ask.arrival
    )
    if last.cycle != ask.cycle:
        group.in_turn = group.in_turn and younger and by_turn(last) < by_turn(ask)
    if younger:
        asks.append(ask)
        return False
    first = ask.sort_key < asks[0].sort_key
    bisect.insort(asks, ask, key=_by_age)
    return first


def by_turn(ask: Ask) -> tuple[int, int, int]:
    """Return the sort key of an ask by P4: most missed opportunities first, then age, then arrival."""
    return ask.cycle, ask.pending_since, ask.arrival


def claims_in_turn(ask: Ask) -> tuple[int, int, int, int]:
    """Return the sort key of an ask by P4 among all asks of its leaf. The key begins with the priority.

    `WaitingAsk.turn` has the same order as this key.
    """
    return -ask.spec.priority, *by_turn(ask)


def _join_hold(partition: Partition, ask: Ask) -> None:
    """Add an ask to the asks that wait for a placeholder of their application. The next tick looks for a placeholder."""
    application, name = ask.application, ask.spec.task_group
    hold = application.holds.get(name)
    if hold is None:
        hold = application.holds[name] = Hold(partition.next_number(), application, name, 0)
    ask.group = hold
    bisect.insort(hold.members, ask, key=lambda one: one.sort_key)
    partition.untold[hold] = None
    partition.gangs.holding[application] = None


def let_go(partition: Partition, ask: Ask) -> None:
    """End an ask's wait for placeholders. The ask becomes an ordinary ask."""
    dequeue(partition, ask)
    ask.ordinary = True
    enqueue(partition, ask)


def _join_gang(partition: Partition, gang: Gang, ask: Ask) -> None:
    ask.group = gang
    bisect.insort(gang.members, ask, key=lambda one: one.sort_key)
    gang.min_members = ask.spec.min_members
    gang.counted = ask.spec.counted
    partition.untold[gang] = None
    gang_changed(partition, gang)


def gang_changed(partition: Partition, gang: Gang) -> None:
    """Unpark a gang whose members changed.

    If the gang is complete, add its entry, with the sort key of its first member, to the application's heap.
    """
    gang.entry = None
    gang.tried_reserved = (-1, -1)
    if gang.parked:
        gang.parked = False
        partition.gangs.parked.remove(gang)
    if gang.counted:
        partition.gangs.came.setdefault(gang, False)
    partition.gangs.ready.pop(gang, None)
    if gang.gathered:
        partition.gangs.ready[gang] = None
        gang.priority = gang.members[0].spec.priority
        ranking.push_group(gang)


def park_gang(partition: Partition, gang: Gang) -> None:
    """Park a gang that does not fit now, until something changes."""
    partition.gangs.ready.pop(gang, None)
    gang.parked = True
    gang.tried = (partition.relief, partition.placements)
    gang.entry = None
    partition.gangs.parked.append(gang)
    partition.round.reservations_moved = True


def regroup(partition: Partition, gang: Gang) -> None:
    """Enqueue a gang's waiting members again, because the number of placed members has reached, or has fallen below, the number that the gang needs.

    If enough members are placed, the waiting members become ordinary asks. Otherwise the waiting members wait again until the
    gang can be placed as a whole.
    """
    waiting = [
        ask
        for ask in gang.application.asks.values()
        if ask.spec.gang_key == gang.key and ask.pledge is None and ask.group is not None
    ]
    for ask in waiting:
        dequeue(partition, ask)
        enqueue(partition, ask)


def dequeue(partition: Partition, ask: Ask, *, for_good: bool = False) -> None:
    """Remove a waiting ask from its group or gang, because it was placed, released or changed.

    If ``for_good`` is true, the ask may stay in the list of its group until it comes to the front of the list. ``for_good``
    must be false if the ask may be enqueued again with another sort key, because such an ask must be removed from the list at
    once.
    """
    group = ask.group
    ask.group = None
    del ask.application.asks[ask.key]
    _count_gone(partition, ask.application.leaf, ask.ask_class)
    if isinstance(group, Gang):
        group.members.remove(ask)
        _gang_lost(partition, group)
    elif group is not None:
        if not for_good and group.asks[0] is not ask:
            group.asks.remove(ask)
        _group_lost(partition, group)


def pop_first(partition: Partition, group: Group) -> Ask:
    """Remove the first ask of a group, which is then placed. The group must be on top of its application's heap."""
    application, asks = group.application, group.asks
    ask = asks.popleft()
    ask.group = None
    del application.asks[ask.key]
    group.live -= 1
    if group.live:
        first = asks[0]
        while first.group is not group:
            asks.popleft()
            first = asks[0]
        group.entry = entry = (
            -group.priority,
            first.pending_since,
            first.arrival,
            group.number,
            group,
        )
        heapq.heapreplace(application.heap, entry)
    else:
        heapq.heappop(application.heap)
        _drop_group(partition, group)
    _count_placed(partition, application.leaf, group.ask_class)
    if not application.asks:
        ranking.leave_empty(application)
    return ask


def _count_placed(partition: Partition, leaf: Queue, ask_class: AskClass) -> None:
    """Subtract one ask that is being placed from the counts of waiting asks.

    The ask's class must be neither unschedulable nor blocked by a limit on the path. For an ask of an unschedulable or blocked
    class, call `_count_gone` instead.
    """
    if ask_class.firm and ask_class.pledge is None:
        _count_firm(partition, leaf, ask_class, -1)
    ask_class.pending -= 1
    partition.classes.live_asks -= 1
    partition.ask_count -= 1
    queue: Queue | None = leaf
    while queue is not None:
        pending = queue.pending
        waiting = pending[ask_class] - 1
        if waiting:
            pending[ask_class] = waiting
        else:
            del pending[ask_class]
        queue.pending_asks -= 1
        queue = queue.above


def _gang_lost(partition: Partition, gang: Gang) -> None:
    gang.entry = None
    if gang.parked:
        gang.parked = False
        partition.gangs.parked.remove(gang)
    drop_empty_gang(partition, gang)
    if gang.members:
        gang_changed(partition, gang)


def drop_empty_gang(partition: Partition, gang: Gang) -> None:
    """Remove a gang that has neither waiting nor placed members. A gang without waiting members is no longer tried or reported."""
    if not gang.members and not gang.placed:
        known = gang.application.holds if isinstance(gang, Hold) else gang.application.gangs
        known.pop(gang.key, None)
    if not gang.members:
        partition.gangs.ready.pop(gang, None)
        partition.untold.pop(gang, None)
        if not gang.placed or gang.min_members != UNSIZED:
            partition.gangs.gathering.pop(gang, None)


def _group_lost(partition: Partition, group: Group) -> None:
    group.live -= 1
    if not group.live:
        _drop_group(partition, group)
        return
    asks = group.asks
    if asks[0].group is not group:
        while asks[0].group is not group:
            asks.popleft()
        if group.entry is not None:
            ranking.push_group(group)


def _drop_group(partition: Partition, group: Group) -> None:
    """Remove a group without asks. Its entry in the heap, if there is one, is outdated from now on."""
    group.entry = None
    group.asks.clear()
    group.untold.clear()
    partition.untold.pop(group, None)
    application = group.application
    key = (group.ask_class, group.priority)
    if application.groups.get(key) is group:
        del application.groups[key]
        partition.classes.groups -= 1


def park(group: Group, waiting: list[Group]) -> None:
    """Park a group in ``waiting``, the list of the unschedulable class or of the limiter because of which the group cannot be placed."""
    group.parked = True
    group.entry = None
    waiting.append(group)


def wake(groups: list[Group]) -> None:
    """Unpark groups that may be placeable again."""
    for group in groups:
        group.parked = False
        if group.live:
            ranking.push_group(group)


def kill_class(partition: Partition, ask_class: AskClass) -> None:
    """Mark a class as unschedulable, because no node can take it now.

    The class stays unschedulable until a node has more free capacity (design 6.5).
    """
    ask_class.dead = True
    partition.classes.dead.add(ask_class)
    partition.classes.live_asks -= ask_class.pending


def revive_class(partition: Partition, ask_class: AskClass) -> None:
    """Mark a class as schedulable, because a node may take the class again, and unpark its groups."""
    ask_class.dead = False
    partition.classes.dead.discard(ask_class)
    partition.classes.live_asks += ask_class.pending
    waiting = ask_class.waiting
    ask_class.waiting = []
    wake(waiting)


def block_class(limiter: Limiter, ask_class: AskClass) -> list[Group]:
    """Block a class for which the limiter has no headroom. Return the list in which the groups of the class are parked."""
    waiting = limiter.blocked.get(ask_class)
    if waiting is None:
        waiting = limiter.blocked[ask_class] = []
        if limiter.kind == "queue":
            limiter.queue.blocked_asks += limiter.queue.pending.get(ask_class, 0)
    return waiting


def unblock_class(limiter: Limiter, ask_class: AskClass) -> None:
    """Unblock a class for which the limiter may have headroom again, and unpark its groups."""
    waiting = limiter.blocked.pop(ask_class)
    queue = limiter.queue
    if limiter.kind == "queue":
        queue.blocked_asks -= queue.pending.get(ask_class, 0)
        ranking.reenter(queue)
    wake(waiting)
