"""The fast path of `reranking` after a configuration that changes shares and limits, but not the sort policies of queues.

Such a configuration leaves the heaps valid. Shares change only for queues whose measure changed. Groups are unparked unless the
new limits certainly still block them. Afterwards the order, the parked groups and the shares are the same as after
`reranking.rebuild_in_parts`. As at any other time, an entry may have a priority that is too high.
"""

import heapq
from collections import defaultdict

from server.model.fit import share
from server.model.parts import PART, Parts
from server.state import pending, ranking
from server.state.applications import Application, Group
from server.state.equivalence import AskClass
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.prepared import Prepared
from server.state.queues import Child, Queue
from server.state.reranking import measure_prepared, stays_blocked, still_blocked

Opened = list[tuple[Limiter, AskClass]]


def rebuild_in_parts(partition: Partition, prepared: Prepared) -> Parts[None]:
    """Bring the shares, the heaps and the parked groups up to date in parts.

    Call this function only if `reranking.is_kept` is true for the partition.
    """
    partition.ranking_stale = False
    partition.shared_for = None
    partition.relief += 1
    moved = yield from measure_prepared(partition, prepared)
    yield from _rank(moved)
    opened, entered = yield from _reblock(partition, prepared)
    yield from _unblock(opened, entered)


def _rank(moved: list[Queue]) -> Parts[None]:
    """Renew the heap entries of the queues in ``moved``, whose measures have changed, and of the applications in these queues."""
    changed: dict[Queue, None] = {}
    for at, queue in enumerate(moved):
        if not at % PART:
            yield
        if queue.fair and queue.applications:
            changed[queue] = None
            for application in queue.applications.values():
                application.share = share(application.usage, queue.measure)
        if queue.entry is not None and queue.parent is not None:
            changed[queue.parent] = None
    for at, queue in enumerate(changed):
        if not at % PART:
            yield
        _renew(queue)


def _renew(queue: Queue) -> None:
    """Rebuild the heap of a queue from the children that have entries in it."""
    heap = []
    children: list[Child] = [*queue.children.values(), *queue.applications.values()]
    for child in children:
        if child.entry is not None:
            child.entry = entry = ranking.child_entry(queue, child)
            heap.append(entry)
    heapq.heapify(heap)
    queue.heap = heap


def _reblock(partition: Partition, prepared: Prepared) -> Parts[tuple[Opened, dict[Queue, None]]]:
    """Unblock all classes except the classes that `still_blocked` returns.

    Park all groups of the classes that are still blocked. Return the classes that `_unblock` has to unblock, and the queues whose
    heaps got entries at their ends and have to be put in order.
    """
    used = prepared.used
    opened: Opened = []
    entered: dict[Queue, None] = {}
    for at, queue in enumerate(partition.queues.values()):
        if not at % PART:
            yield
        if queue in used:
            continue
        limiter, firm = queue.limiter, queue.firm
        if limiter is not None:
            limiter.relieved = False
            if limiter.blocked:
                _open(queue, limiter, opened, entered)
        if firm is not None:
            firm.relieved = False
            if firm.blocked:
                _open(queue, firm, opened, entered)
    return opened, entered


def _open(queue: Queue, limiter: Limiter, opened: Opened, entered: dict[Queue, None]) -> None:
    """Unblock the classes that a limiter blocks, or add them to ``opened``, except the classes that `still_blocked` returns.

    Park all groups of the classes that are still blocked.
    """
    if len(queue.applications) == 1 and not queue.children:
        (application,) = queue.applications.values()
        if len(application.groups) == 1 and not application.gangs:
            (group,) = application.groups.values()
            _open_only(queue, limiter, group, opened, entered)
            return
    kept = still_blocked(queue, limiter)
    if kept:
        _park(queue, limiter, kept)
    opened += [(limiter, one) for one in limiter.blocked if one not in kept]


def _open_only(
    queue: Queue, limiter: Limiter, group: Group, opened: Opened, entered: dict[Queue, None]
) -> None:
    """Do what `_open` does, for a leaf in which only one group waits. This is the usual case. To save time, make no tables.

    A class without waiting asks is only removed from the table of blocked classes. Such classes remain after all asks of a group
    got another class.
    """
    blocked = limiter.blocked
    for ask_class in tuple(blocked):
        is_own = ask_class is group.ask_class
        if is_own and group.told == limiter.code and stays_blocked(limiter, ask_class):
            if not group.parked:
                pending.park(group, blocked[ask_class])
        elif is_own and _is_first(queue, group) and group in blocked[ask_class]:
            _enter_only(queue, limiter, group, entered)
        elif ask_class not in queue.pending:
            _unpark(blocked.pop(ask_class))
        else:
            opened.append((limiter, ask_class))


def _unpark(groups: list[Group]) -> None:
    for group in groups:
        group.parked = False


def _is_first(queue: Queue, group: Group) -> bool:
    """Return whether the only group of a queue has waiting asks, and the queue has no entry in its parent's heap.

    If the group's application has an entry, the application's priority must be at least that of the group.
    """
    if queue.entry is not None or not group.live:
        return False
    application = group.application
    return application.entry is None or application.priority >= group.priority


def _enter_only(queue: Queue, limiter: Limiter, group: Group, entered: dict[Queue, None]) -> None:
    """Unblock the class of the only group of a queue. Add the entries of the group, its application and the queue.

    The heaps of the application and the queue have one valid entry each, so that they need no sorting. The heap of the queue's
    parent gets the new entry at its end. Add the parent to ``entered``.
    """
    _unpark(limiter.blocked.pop(group.ask_class))
    if limiter.kind == "queue":
        queue.blocked_asks -= queue.pending[group.ask_class]
    application, parent, first = group.application, queue.parent, group.asks[0]
    assert parent is not None, "the root has no limiter"
    priority = -group.priority
    group.entry = entry = (priority, first.pending_since, first.arrival, group.number, group)
    application.heap = [entry]
    if application.entry is None:
        queue.heap.clear()
        ranking.append(queue, application, group.priority)
    queue.best = application.priority
    ranking.append(parent, queue, queue.seen(queue.best))
    entered[parent] = None


def _unblock(opened: Opened, changed: dict[Queue, None]) -> Parts[None]:
    """Unblock classes as `pending.unblock_class` does, but put each heap in order only once.

    ``changed`` has further queues whose heaps have to be put in order.
    """
    applications: dict[Application, None] = {}
    for at, (limiter, ask_class) in enumerate(opened):
        if not at % PART:
            yield
        queue = limiter.queue
        changed[queue] = None
        if limiter.kind == "queue":
            queue.blocked_asks -= queue.pending.get(ask_class, 0)
        for group in limiter.blocked.pop(ask_class):
            group.parked = False
            if group.live:
                first = group.asks[0]
                group.entry = entry = (
                    -group.priority, first.pending_since, first.arrival, group.number, group,
                )  # fmt: skip
                group.application.heap.append(entry)
                applications[group.application] = None
    for at, application in enumerate(applications):
        if not at % PART:
            yield
        leaf, heap = application.leaf, application.heap
        heapq.heapify(heap)
        _enter(leaf, application, -heap[0][0])
        changed[leaf] = None
    yield from _order(changed)


def _enter(queue: Queue, child: Child, priority: int) -> None:
    """Add or replace the entry of a child that has placeable asks of a priority. `_order` puts the queue's heap in order."""
    if child.entry is None:
        ranking.append(queue, child, priority)
    elif child.priority < priority:
        ranking.enter(queue, child, priority)


def _order(changed: dict[Queue, None]) -> Parts[None]:
    """Put the heaps of queues in order, deepest first, and add the entries of these queues to the heaps of their parents."""
    levels: defaultdict[int, dict[Queue, None]] = defaultdict(dict)
    for queue in changed:
        levels[len(queue.climb)][queue] = None
    for level in range(max(levels, default=-1), -1, -1):
        for at, queue in enumerate(levels[level]):
            if not at % PART:
                yield
            heapq.heapify(queue.heap)
            first, parent = ranking.first_child(queue), queue.parent
            if first is not None and parent is not None:
                best = ranking.best_priority(queue, first)
                if queue.entry is None or queue.best < best:
                    queue.best = best
                    _enter(parent, queue, queue.seen(best))
                    levels[level - 1][parent] = None


def _park(queue: Queue, limiter: Limiter, kept: dict[AskClass, list[Group]]) -> None:
    for application in queue.applications.values():
        for group in application.groups.values():
            if not group.parked and group.ask_class in kept:
                pending.park(group, limiter.blocked[group.ask_class])
