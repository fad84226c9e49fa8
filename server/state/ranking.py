"""The heaps of queues, applications and groups, which determine the ask that comes next (O2, O3, O4; design 6.3 and 6.4).

The order is exact although the heaps are updated lazily. The *share* in an entry is always current, because every change of
usage renews the entries on the path. The *priority* in an entry may be too high, because asks below the entry may have been
removed or parked. The search checks the priorities on its way down, and lowers priorities that are too high. The priority in an
entry is never too low: when an ask or a class that may be placeable is added, the priorities on its path are raised at once.
"""

import heapq
from typing import Final

from server.state.applications import Application, Gang, Group, GroupEntry
from server.state.nodes import HEAP_SLACK
from server.state.queues import Child, ChildEntry, Queue, QueueState

_STOPPED: Final = QueueState.STOPPED
"""The enumeration member, stored here because each access through the enumeration is slow."""


def child_entry(queue: Queue, child: Child) -> ChildEntry:
    """Return the entry of a child in a queue's heap: its sort key and the child.

    The sort key has the priority of the child. The key also has the share of the child, except for applications of a leaf that
    sorts by arrival.
    """
    if isinstance(child, Queue):
        return _queue_entry(queue, child)
    return _application_entry(queue, child)


def _queue_entry(parent: Queue, queue: Queue) -> ChildEntry:
    if parent.priority_first:
        return (-queue.priority, queue.share, queue.name, queue.number, queue)
    return (queue.share, -queue.priority, queue.name, queue.number, queue)


def _application_entry(leaf: Queue, application: Application) -> ChildEntry:
    """Return the entry of an application.

    The entry has an empty name in place of a queue's name, so that entries of applications and queues can be compared. The empty
    name sorts before every queue's name.

    A leaf that was a parent before may have child queues for a while: draining or dynamic queues.
    """
    number = application.number
    if leaf.fair:
        if leaf.priority_first:
            return (-application.priority, application.share, "", number, application)
        return (application.share, -application.priority, "", number, application)
    if leaf.priority_first:
        return (-application.priority, number, "", number, application)
    return (number, -application.priority, "", number, application)


def renew_queue(parent: Queue, queue: Queue) -> None:
    """Replace the entry of a queue in its parent's heap after the share of the queue changed.

    The old entry is outdated from then on.
    """
    old, heap = queue.entry, parent.heap
    queue.entry = entry = _queue_entry(parent, queue)
    if heap[0] is old:
        heapq.heapreplace(heap, entry)
    else:
        _push(parent, entry)


def renew_application(leaf: Queue, application: Application) -> None:
    """Replace the entry of an application in its leaf's heap after the share of the application changed.

    The old entry is outdated from then on.
    """
    old, heap = application.entry, leaf.heap
    application.entry = entry = _application_entry(leaf, application)
    if heap[0] is old:
        heapq.heapreplace(heap, entry)
    else:
        _push(leaf, entry)


def _push(queue: Queue, entry: ChildEntry) -> None:
    heap = queue.heap
    heapq.heappush(heap, entry)
    if len(heap) > 2 * queue.live + HEAP_SLACK:
        queue.heap = [one for one in heap if one[-1].entry is one]
        heapq.heapify(queue.heap)


def enter(queue: Queue, child: Child, priority: int) -> None:
    """Add the entry of a child to a queue's heap.

    ``priority`` is an upper bound on the priorities of the child's placeable asks, as the queue sees these priorities.
    """
    if not queue.priority_first:
        _count(queue, child, priority)
    child.priority = priority
    if child.entry is None:
        queue.live += 1
        child.entry = entry = child_entry(queue, child)
        _push(queue, entry)
    elif isinstance(child, Queue):
        renew_queue(queue, child)
    else:
        renew_application(queue, child)


def append(queue: Queue, child: Child, priority: int) -> None:
    """Add the entry of a child to a queue whose heap is being rebuilt. `complete` puts the heap in order."""
    child.priority = priority
    if not queue.priority_first:
        _count(queue, child, priority)
    child.entry = entry = child_entry(queue, child)
    queue.heap.append(entry)
    queue.live += 1


def complete(queue: Queue) -> None:
    """Put the heap of a queue in order after all its children were appended. Then append the queue to its parent's heap.

    A stopped queue is not appended.
    """
    heapq.heapify(queue.heap)
    if queue.state is _STOPPED:
        return
    queue.best = best_priority(queue, queue.heap[0][-1])
    if queue.parent is not None:
        append(queue.parent, queue, queue.seen(queue.best))


def leave(queue: Queue, child: Child) -> None:
    """Remove the entry of a child in which no ask is placeable for now."""
    if child.entry is None:
        return
    if not queue.priority_first:
        _count(queue, child, None)
    child.entry = None
    queue.live -= 1


def leave_empty(application: Application) -> None:
    """Remove the entry of an application that has no waiting asks left.

    Also remove the entries of queues on its path that have no waiting asks left.

    The next search would also remove these entries. Until then, each change of usage would renew the entries, which costs time.
    """
    leave(application.leaf, application)
    for queue, parent in application.leaf.climb:
        if queue.pending_asks:
            return
        leave(parent, queue)


def _count(queue: Queue, child: Child, priority: int | None) -> None:
    """Update the table that counts the queue's children by priority, because the priority of a child changes.

    ``priority`` is the new priority, or None if the child leaves the heap. The table is kept only if the queue's heap does not
    sort by priority first.
    """
    counts = queue.child_priorities
    if child.entry is not None:
        counts[child.priority] -= 1
        if not counts[child.priority]:
            del counts[child.priority]
    if priority is not None:
        counts[priority] = counts.get(priority, 0) + 1


def raise_path(application: Application, priority: int) -> None:
    """Raise the heap entries of an application and of the queues above it, because an ask of this priority may be placeable.

    The entry of the application is raised to ``priority``. The entry of each queue is raised to the value that this priority
    has for the queue's parent (`Queue.seen`). No entry above a stopped queue is raised.
    """
    if (
        application.entry is not None
        and application.priority >= priority
        and _present(application.leaf)
    ):
        return
    child: Child = application
    queue: Queue | None = application.leaf
    while queue is not None:
        if child.entry is None or child.priority < priority:
            enter(queue, child, priority)
        if queue.state is _STOPPED:
            return
        if queue.entry is None:
            queue.best = _best_inside(queue)
        elif queue.best < priority:
            queue.best = priority
        priority = queue.seen(queue.best)
        child = queue
        queue = queue.parent


def _best_inside(queue: Queue) -> int:
    """Return the highest priority inside a queue that has no entry in its parent's heap.

    At least one queue or application below the queue must have an entry.
    """
    first = first_child(queue)
    assert first is not None
    return best_priority(queue, first)


def _present(queue: Queue) -> bool:
    """Return whether a queue and all its ancestors have entries.

    If all of them have entries, every entry on the path has at least the priority of the entries below it.
    """
    for one, _ in queue.climb:  # noqa: SIM110 - each new ask asks, and all() costs a generator
        if one.entry is None:
            return False
    return True


def push_group(group: Group | Gang) -> None:
    """Add the entry of a group whose first ask may be placeable. Also raise the priorities on the path above the group."""
    first = group.asks[0] if isinstance(group, Group) else group.members[0]
    application = group.application
    entry: GroupEntry = (-group.priority, first.pending_since, first.arrival, group.number, group)
    group.entry = entry
    heapq.heappush(application.heap, entry)
    if len(application.heap) > 2 * (len(application.groups) + len(application.gangs)) + HEAP_SLACK:
        application.heap = [one for one in application.heap if one[4].entry is one]
        heapq.heapify(application.heap)
    raise_path(application, group.priority)


def reenter(queue: Queue) -> None:
    """Add the entry of a queue to its parent's heap again.

    While the queue had no entry there, its own heap kept the entries of its children.
    """
    child = first_child(queue)
    if child is None:
        return
    best = best_priority(queue, child)
    here: Queue = queue
    while here.parent is not None and here.state is not _STOPPED:
        if here.entry is None or here.best < best:
            here.best = best
            enter(here.parent, here, here.seen(best))
        best = here.priority
        here = here.parent


def first_child(queue: Queue) -> Child | None:
    """Return the child on top of the queue's heap after removing outdated entries. Return None if no entry is left."""
    heap = queue.heap
    while heap:
        entry = heap[0]
        child: Child = entry[-1]
        if child.entry is entry:
            return child
        heapq.heappop(heap)
    return None


def first_group(application: Application) -> Group | Gang | None:
    """Return the group on top of the application's heap after removing outdated entries. Return None if no entry is left."""
    heap = application.heap
    while heap:
        entry = heap[0]
        group = entry[4]
        if group.entry is entry:
            return group
        heapq.heappop(heap)
    return None


def best_priority(queue: Queue, first: Child) -> int:
    """Return the highest priority among the entries of the queue's children. ``first`` is the child on top of the queue's heap."""
    if queue.priority_first:
        return first.priority
    return max(queue.child_priorities)
