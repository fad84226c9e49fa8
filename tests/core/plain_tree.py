"""The plain twin of `server.state.tree`: how a configuration is applied and ranks are rebuilt, queue by queue, with nothing prepared.

`patch` puts it in the place of the product's functions.
"""

import pytest

from server.model.asks import has_classes
from server.model.fit import share
from server.model.parts import Parts, whole
from server.model.quota import PartitionSpec, QueueSpec
from server.state import ranking, reclassing, reranking, tree
from server.state.applications import Application
from server.state.limits import Limiter
from server.state.partition import Partition
from server.state.prepared import Prepared
from server.state.queues import Queue, QueueState


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a core use this module."""
    for function in (apply_spec_in_parts, relimit_in_parts, sweep_path):
        monkeypatch.setattr(tree, function.__name__, function)
    monkeypatch.setattr(reranking, "rebuild_in_parts", rebuild_in_parts)


def apply_spec_in_parts(
    partition: Partition,
    spec: PartitionSpec,
    _prepared: Prepared | None = None,
    *,
    classes_later: bool = False,
) -> Parts[list[str]]:
    yield
    return apply_spec(partition, spec, classes_later=classes_later)


def relimit_in_parts(partition: Partition) -> Parts[None]:
    yield
    relimit(partition)


def rebuild_in_parts(partition: Partition) -> Parts[None]:
    yield
    rebuild_ranking(partition)


def apply_spec(partition: Partition, spec: PartitionSpec, *, classes_later: bool) -> list[str]:
    if spec == partition.spec:
        spec = partition.spec
    before, partition.spec = partition.classed_by, spec
    for name, _ in spec.node_weights:
        partition.types.intern(name)
    _apply_queue(partition, partition.root, spec.root)
    partition.grow()
    weights = tuple((partition.types.index[name], weight) for name, weight in spec.node_weights)
    if weights != partition.index.weights or partition.index.packing != (
        spec.node_sort == "binpacking"
    ):
        partition.index.reorder(spec.node_sort, weights)
    whole(reclassing.reclass_in_parts(partition, before, later=classes_later))
    removed = sweep(partition)
    relimit(partition)
    rebuild_ranking(partition)
    return removed


def _apply_queue(partition: Partition, queue: Queue, spec: QueueSpec) -> None:
    queue.configure(spec)
    queue.managed = True
    queue.state = QueueState.ACTIVE
    for name in (*dict(spec.guaranteed), *dict(spec.max or ())):
        partition.types.intern(name)
    named = {child.name: child for child in spec.children}
    for name, child in queue.children.items():
        if name not in named and child.managed:
            _drain(child)
    for child_spec in spec.children:
        found = queue.children.get(child_spec.name)
        if found is None:
            found = tree.add_queue(partition, queue, child_spec)
        _apply_queue(partition, found, child_spec)


def _drain(queue: Queue) -> None:
    for one in queue.walk():
        if one.managed:
            one.state = QueueState.DRAINING


def relimit(partition: Partition) -> None:
    """Rebuild all limiters from usage and the limits in force. The order is rebuilt before its next use (`ranking_stale`)."""
    for queue in partition.queues.values():
        queue.blocked_asks = 0
        _make_limiter(partition, queue)
    whole(tree._limit_applications(partition))
    partition.ranking_stale = True


def _make_limiter(partition: Partition, queue: Queue) -> None:
    queue.firm = _firm_limiter(partition, queue)
    left = tree.bound(partition, queue)
    if left is None:
        queue.limiter = None
        return
    for index in range(len(left)):
        left[index] -= queue.usage[index] + queue.promised[index]
    queue.limiter = Limiter("queue", queue.path, queue, left)


def _firm_limiter(partition: Partition, queue: Queue) -> Limiter | None:
    """Return the limiter that bounds firm use by the queue's guarantee; None if asks have no classes (J4), or if the queue guarantees nothing."""
    if not has_classes(partition.spec.preemption):
        return None
    named = tuple((name, quantity) for name, quantity in queue.spec.guaranteed if quantity)
    if not named:
        return None
    left = tree._limits(partition, named)
    for index in range(len(left)):
        left[index] -= queue.firm_held[index]
    return Limiter("firm", queue.path, queue, left)


def rebuild_ranking(partition: Partition) -> None:
    """Rebuild shares, heaps and the parked groups after a configuration or a change of the total."""
    partition.ranking_stale = False
    partition.shared_for = None
    partition.relief += 1
    _forget_blocks(partition)
    for queue in partition.queues.values():
        queue.compare(reranking.measure(partition, queue))
        queue.heap = []
        queue.live = 0
        queue.entry = None
        queue.child_priorities.clear()
        queue.share = share(queue.usage, queue.measure)
    for application in partition.applications.values():
        _rank_application(application)


def _forget_blocks(partition: Partition) -> None:
    own = ((queue.limiter, queue.firm) for queue in partition.queues.values())
    limiters = [one for pair in own for one in pair if one is not None]
    for limiter in (*limiters, *partition.limits.by_key.values()):
        limiter.blocked.clear()
        limiter.relieved = False
        limiter.queue.blocked_asks = 0
    partition.limits.forget_relieved()
    for ask_class in partition.classes.dead:
        ask_class.waiting = []


def _rank_application(application: Application) -> None:
    """Rebuild an application's heap, and raise the entries on its path to their best priority."""
    reranking.fill_heap(application)
    if application.heap:
        ranking.raise_path(application, -application.heap[0][0])


def sweep(partition: Partition) -> list[str]:
    """Remove all empty queues that are dynamic or draining, and return their paths."""
    removed: list[str] = []
    for path in sorted(partition.queues, reverse=True):
        queue = partition.queues.get(path)
        if queue is not None and queue.leaf:
            removed += sweep_path(partition, queue)
    return removed


def sweep_path(partition: Partition, leaf: Queue) -> list[str]:
    """Remove a leaf and its ancestors as long as they are empty and dynamic or draining; return their paths."""
    removed: list[str] = []
    queue = leaf
    while queue.parent is not None and _unneeded(queue):
        parent = queue.parent
        ranking.leave(parent, queue)
        del parent.children[queue.name]
        del partition.queues[queue.path]
        removed.append(queue.path)
        queue.untie()
        queue = parent
    if removed:
        partition.lost.by_queue.forget(removed)
        partition.lost.by_owner.forget(removed)
        partition.thrashing.forget_queues(removed)
    return removed


def _unneeded(queue: Queue) -> bool:
    wanted = queue.managed and queue.state is not QueueState.DRAINING
    return not (wanted or queue.children or queue.applications)
