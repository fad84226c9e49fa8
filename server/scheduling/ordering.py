"""The order of asks (O1 to O4).

The search for the next ask goes from the root down: at each queue, the search follows the best entry of the queue's heap (6.3,
6.4).

An entry in a heap has the priority that a child queue, application or group announced when the entry was added. The search
verifies this priority, because it may be outdated.
"""

import heapq
from collections.abc import Callable

from server.state import ranking
from server.state.applications import Application, Gang, Group
from server.state.partition import Partition
from server.state.queues import Child, Queue

Probe = Callable[[Group | Gang], bool]
"""A function that returns whether the first ask of a group can be placed now.

If the ask cannot be placed, the function parks the group before it returns.
"""


def next_group(partition: Partition, probe: Probe) -> Group | Gang | None:
    """Return the group whose first ask comes next in the order, among the groups that are not parked.

    Return None if all groups are parked.

    ``probe`` is called only if the order depends on whether an ask can be placed.
    """
    root = partition.root
    while True:
        group = _straight(root)
        if group is not None:
            return group
        child = ranking.first_child(root)
        if child is None:
            return None
        group = _descend(root, child, probe)
        if group is not None:
            return group


def _straight(root: Queue) -> Group | Gang | None:
    """Return the group to which the top entries of the heaps lead, in one pass from the root.

    In most calls, this pass finds the group. Return None if a queue on the way has one of three properties: the priority that
    the queue announces is not its best priority, the queue does not compare by priority first, or all asks of the queue are
    blocked. Outdated entries on top of queues' heaps are removed. If the result is None, `_descend` has to search. A group that
    is returned is the group that `_descend` would return.
    """
    queue, heap = root, root.heap
    while heap:
        entry = heap[0]
        child = entry[-1]
        if child.entry is not entry:
            heapq.heappop(heap)
            continue
        if isinstance(child, Application):
            return _on_top(child) if queue is root or child.priority == queue.best else None
        if (
            child.blocked_asks == child.pending_asks
            or not child.priority_first
            or (child.priority != queue.best and queue is not root)
        ):
            return None
        queue, heap = child, child.heap
    return None


def _on_top(application: Application) -> Group | Gang | None:
    """Return the group on top of an application's heap.

    Return None if the group's entry is outdated, or has another priority than the application announces.
    """
    heap = application.heap
    if heap:
        first = heap[0]
        group: Group | Gang = first[4]
        if group.entry is first and group.priority == application.priority:
            return group
    return None


def _descend(root: Queue, child: Child, probe: Probe) -> Group | Gang | None:
    """Return the group to which the best entries of the heaps lead.

    If an entry on the way is outdated, update it and return None.
    """
    queue = root
    while isinstance(child, Queue):
        below = _verified(queue, child)
        if below is None:
            return None
        # If the heap is not sorted by priority, the announced priority may belong to a child that is not on top.
        if child.best != below.priority and not _holds(child, probe):
            return None
        queue, child = child, below
    return _first_of(queue, child)


def _verified(parent: Queue, queue: Queue) -> Child | None:
    """Return the first child of a queue, or None if the queue has to be compared again.

    None means that all asks of the queue are blocked, or that the queue announces a priority that is not its best priority. In
    both cases, the queue's entry in the parent's heap is removed or updated.
    """
    below = ranking.first_child(queue)
    if below is None or queue.blocked_asks == queue.pending_asks:
        ranking.leave(parent, queue)
        return None
    best = ranking.best_priority(queue, below)
    if best != queue.best:
        queue.best = best
        ranking.enter(parent, queue, queue.seen(best))
        return None
    return below


def _holds(queue: Queue, probe: Probe) -> bool:
    """Return whether an ask that can be placed has the priority that the queue announces.

    If no ask has that priority, update one entry or park one group.
    """
    child = min(entry for entry in queue.heap if _claims(entry[-1], entry, queue.best))[-1]
    if isinstance(child, Queue):
        return _verified(queue, child) is not None and _holds(child, probe)
    group = _first_of(queue, child)
    return group is not None and probe(group)


def _claims(child: Child, entry: object, priority: int) -> bool:
    return child.entry is entry and child.priority == priority


def _first_of(leaf: Queue, application: Application) -> Group | Gang | None:
    group = ranking.first_group(application)
    if group is None:
        ranking.leave(leaf, application)
        return None
    if group.priority != application.priority:
        ranking.enter(leaf, application, group.priority)
        return None
    return group
