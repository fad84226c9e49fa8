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
    opened = yield from _reblock(partition, prepared)
    yield from _unblock(opened)


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


def _reblock(partition: Partition, prepared: Prepared) -> Parts[Opened]:
    """Unblock all classes except the classes that `still_blocked` returns. Return the unblocked classes.

    Park all groups of the classes that are still blocked.
    """
    used = prepared.used
    opened: Opened = []
    for at, queue in enumerate(partition.queues.values()):
        if not at % PART:
            yield
        if queue in used:
            continue
        limiter, firm = queue.limiter, queue.firm
        if limiter is not None:
            limiter.relieved = False
            if limiter.blocked:
                opened += _opened(queue, limiter, limiter.blocked)
        if firm is not None:
            firm.relieved = False
            if firm.blocked:
                opened += _opened(queue, firm, firm.blocked)
    return opened


def _opened(queue: Queue, limiter: Limiter, blocked: dict[AskClass, list[Group]]) -> Opened:
    """Return the classes that a limiter blocks and that `still_blocked` does not return.

    Park all groups of the classes that are still blocked.

    Usually a limiter blocks one class, and one group of this class waits. In this usual case, the function makes no table, to
    save time.
    """
    if len(blocked) == 1 == len(queue.applications) and not queue.children:
        (ask_class,), (application,) = blocked, queue.applications.values()
        group = None if application.gangs else next(iter(application.groups.values()), None)
        if group is not None and group.ask_class is ask_class and len(application.groups) == 1:
            if group.told != limiter.code or not stays_blocked(limiter, ask_class):
                return [(limiter, ask_class)]
            if not group.parked:
                pending.park(group, blocked[ask_class])
            return []
    kept = still_blocked(queue, limiter)
    if kept:
        _park(queue, limiter, kept)
    return [(limiter, one) for one in blocked if one not in kept]


def _unblock(opened: Opened) -> Parts[None]:
    """Unblock classes as `pending.unblock_class` does, but put each heap in order only once."""
    changed: dict[Queue, None] = {}
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
