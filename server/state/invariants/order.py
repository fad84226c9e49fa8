"""Checks of the heaps of queues, applications and groups: shares must be exact, and no priority may be too low (design 6.4).

The checks do not apply while `Partition.ranking_stale` says that the ranking must be rebuilt before its next use.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from server.model.fit import scales, share
from server.state import ranking, reranking
from server.state.applications import Application, Gang, Group
from server.state.invariants.amounts import same
from server.state.invariants.waiting import holder_name
from server.state.partition import Partition
from server.state.queues import Child, Queue, QueueState


def check_order(partition: Partition) -> None:
    """Assert that the entries, shares and priorities are correct, from the groups up to the root."""
    for queue in partition.queues.values():
        _check_queue(partition, queue)
    for application in partition.applications.values():
        _check_entries(application)
        best = max((one.priority for one in _placeable(application)), default=None)
        if best is not None:
            _check_path(application, best)


def is_heap(entries: Sequence[Any]) -> bool:
    """Return whether the entries form a heap: no entry sorts before its parent."""
    return all(entries[(at - 1) // 2] <= entries[at] for at in range(1, len(entries)))


def keys(entries: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the sort key of each entry: the entry without the object at its end."""
    return [entry[:-1] for entry in entries]


# Queues ---------------------------------------------------------------------------------------------------------


def _check_queue(partition: Partition, queue: Queue) -> None:
    name = f"queue {queue.path}"
    same(partition.types, f"measure of {name}", queue.measure, reranking.measure(partition, queue))
    for amounts, kept in (
        (queue.measure, queue.measure_scales),
        (queue.basis, queue.basis_scales),
    ):
        assert kept == scales(amounts), f"{name}: {kept} are not the scales of {amounts}"
    if queue.parent is not None:
        want = share(queue.usage, queue.basis)
        assert queue.share == want, f"share of {name} is {queue.share}, not {want}"
    assert is_heap(keys(queue.heap)), f"the heap of {name} is out of order"
    entered = [child for child in _children(queue) if child.entry is not None]
    assert queue.live == len(entered), (
        f"{name} counts {queue.live} children in its heap, {len(entered)} are"
    )
    standing = {id(entry) for entry in queue.heap}
    for child in entered:
        _check_entry(queue, child)
        assert id(child.entry) in standing, (
            f"{_child_name(child)} has an entry that the heap of {name} lacks"
        )
    if not queue.priority_first:
        counts = Counter(child.priority for child in entered)
        assert queue.child_priorities == counts, (
            f"priorities below {name} are counted as {queue.child_priorities}"
        )


def _children(queue: Queue) -> Iterator[Child]:
    yield from queue.children.values()
    yield from queue.applications.values()


def _child_name(child: Child) -> str:
    return (
        f"queue {child.path}" if isinstance(child, Queue) else f"application {child.application_id}"
    )


def _check_entry(queue: Queue, child: Child) -> None:
    """Assert that the share in an entry is current."""
    if isinstance(child, Application) and queue.fair:
        want = share(child.usage, queue.measure)
        assert child.share == want, f"share of {_child_name(child)} is {child.share}, not {want}"
    entry = ranking.child_entry(queue, child)
    assert child.entry == entry, f"{_child_name(child)} is ranked by {child.entry}, not by {entry}"


# Applications ---------------------------------------------------------------------------------------------------


def _check_entries(application: Application) -> None:
    """Assert that groups and complete gangs have their entries.

    Parked groups and gangs have no entries.
    """
    name = f"application {application.application_id}"
    assert is_heap(keys(application.heap)), f"the heap of {name} is out of order"
    standing = {id(entry) for entry in application.heap}
    for group in application.groups.values():
        first = group.asks[0]
        key = (-group.priority, first.pending_since, first.arrival)
        _check_holder(group, None if group.parked else key, standing)
    for gang in application.gangs.values():
        tried = gang.gathered and not gang.parked
        _check_holder(gang, gang.members[0].sort_key if tried else None, standing)


def _check_holder(one: Group | Gang, want: tuple[int, int, int] | None, standing: set[int]) -> None:
    entry = one.entry
    have = None if entry is None else entry[:3]
    assert have == want, f"{holder_name(one)} is ranked by {have}, not by {want}"
    assert entry is None or entry[-1] is one, f"{holder_name(one)} has the entry of another"
    assert entry is None or id(entry) in standing, (
        f"{holder_name(one)} has an entry that the heap lacks"
    )


def _placeable(application: Application) -> list[Group | Gang]:
    """Return the groups and gangs that are not parked and whose classes are neither unschedulable nor blocked."""
    blocked = [limiter.blocked for limiter in application.limiters if limiter.blocked]
    found: list[Group | Gang] = [
        group
        for group in application.groups.values()
        if not group.parked
        and not group.ask_class.dead
        and not any(group.ask_class in classes for classes in blocked)
    ]
    for gang in application.gangs.values():
        members = [ask.ask_class for ask in gang.members]
        known_against = any(
            one.dead or any(one in classes for classes in blocked) for one in members
        )
        if gang.gathered and not gang.parked and not known_against:
            found.append(gang)
    return found


def _check_path(application: Application, priority: int) -> None:
    """Assert that the path of a placeable ask has entries, up to the root or to a stopped queue.

    No entry may have a lower priority than the ask has at that level.
    """
    child: Child = application
    queue: Queue | None = application.leaf
    while queue is not None:
        where = f"{_child_name(child)} has something placeable of priority {priority}"
        assert child.entry is not None, f"{where} and no entry in queue {queue.path}"
        assert child.priority >= priority, (
            f"{where} and stands in queue {queue.path} with {child.priority}"
        )
        if queue.state is QueueState.STOPPED:
            return
        priority = queue.seen(priority)
        child, queue = queue, queue.parent
