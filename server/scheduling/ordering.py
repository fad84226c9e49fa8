"""Which ask is next: down the tree by the best entry of each heap, claims verified on the way (design 6.3, 6.4)."""

from server.books import ranking
from server.books.applications import Application, Group, Job
from server.books.partition import Partition
from server.books.queues import Child, Queue


def next_group(partition: Partition) -> Group | Job | None:
    """The group whose first ask is next in the order, among those that nothing is known against."""
    root = partition.root
    while True:
        child = ranking.first_child(root)
        if child is None:
            return None
        group = _descend(root, child)
        if group is not None:
            return group


def _descend(root: Queue, child: Child) -> Group | Job | None:
    """Follow the best entries to a group; None when an entry on the way had to be mended first."""
    queue = root
    while isinstance(child, Queue):
        below = ranking.first_child(child)
        if below is None or child.blocked_asks == child.pending_asks:
            ranking.leave(queue, child)
            return None
        best = ranking.best_priority(child, below)
        if best != child.best:
            child.best = best
            ranking.enter(queue, child, child.seen(best))
            return None
        queue, child = child, below
    return _first_of(queue, child)


def _first_of(leaf: Queue, application: Application) -> Group | Job | None:
    group = ranking.first_group(application)
    if group is None:
        ranking.leave(leaf, application)
        return None
    if group.priority != application.priority:
        ranking.enter(leaf, application, group.priority)
        return None
    return group
