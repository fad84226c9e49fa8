"""The queue tree, which configuration and applications change: limits, measures, order, dynamic queues."""

import heapq
from collections.abc import Set
from dataclasses import replace
from typing import Any, Final

from server.model.asks import PLAIN, AskSpec, job_class
from server.model.fit import Amounts, share
from server.model.quota import (
    ChildTemplate,
    PartitionSpec,
    PreemptionSettings,
    QueueSpec,
    UserLimit,
    inherited,
)
from server.model.resources import NOTHING, Limit
from server.state import journal, ranking
from server.state.applications import Application, GroupEntry
from server.state.limits import Limiter, group_limit, matched_group, user_limit
from server.state.partition import Partition
from server.state.queues import Queue, QueueState
from server.state.types import NO_LIMIT

_TAGGED: Final = {"guaranteed": "guaranteed", "max": "max", "maxapplications": "max_applications"}
"""The properties that tags may set, each with its field of `QueueSpec` and of `ChildTemplate`."""
SAMPLES: Final = tuple(AskSpec(NOTHING, lendable=one) for one in (None, False, True))
"""One spec for each class that owners may declare for a pod, and one without a class. The settings decide whether it is firm (J2)."""


def apply_spec(partition: Partition, spec: PartitionSpec) -> list[str]:
    """Apply a partition's configuration: removed queues drain, and all other queues and settings change in place.

    Return the paths of queues that were deleted because they were empty. A specification that equals the one in force does not
    replace it, so that a shadow, which belongs to its specification, continues.
    """
    if spec == partition.spec:
        spec = partition.spec
    before, partition.spec = partition.spec.preemption, spec
    for name, _ in spec.node_weights:
        partition.types.intern(name)
    _apply_queue(partition, partition.root, spec.root)
    partition.grow()
    weights = tuple((partition.types.index[name], weight) for name, weight in spec.node_weights)
    if weights != partition.index.weights or partition.index.packing != (
        spec.node_sort == "binpacking"
    ):
        partition.index.reorder(spec.node_sort, weights)
    _reclass(partition, before)
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
            drain(child)
    for child_spec in spec.children:
        found = queue.children.get(child_spec.name)
        if found is None:
            found = add_queue(partition, queue, child_spec)
        _apply_queue(partition, found, child_spec)


def drain(queue: Queue) -> None:
    """Drain a queue that is no longer configured and the configured queues below it, so that they take no new applications.

    Dynamic queues below it keep their state.
    """
    for one in queue.walk():
        if one.managed:
            one.state = QueueState.DRAINING


def stop(partition: Partition) -> None:
    """Stop a partition that is no longer configured, so that it places nothing any more."""
    partition.retired = True
    for queue in partition.queues.values():
        queue.state = QueueState.STOPPED
    partition.ranking_stale = True


def add_queue(partition: Partition, parent: Queue, spec: QueueSpec) -> Queue:
    """Add a new queue below a parent and return it. The caller calls `relimit` or `limit_queue` next, to set limits and order."""
    queue = Queue(spec, parent, partition.next_number(), partition.types.zeros())
    parent.children[queue.name] = queue
    partition.queues[queue.path] = queue
    return queue


def create_path(partition: Partition, path: str) -> Queue:
    """Return the leaf at a path; create it and missing parents as dynamic queues.

    A new leaf gets the settings of the nearest template above it; new parents have no limits.
    """
    names = path.split(".")
    queue = partition.root
    for depth, name in enumerate(names[1:], start=2):
        child = queue.children.get(name)
        if child is None:
            child = add_queue(
                partition, queue, _dynamic_spec(queue, name, leaf=depth == len(names))
            )
            child.managed = False
            for kind in (*dict(child.spec.guaranteed), *dict(child.spec.max or ())):
                partition.types.intern(kind)
            partition.grow()
            _make_limiter(partition, child)
            child.compare(measure(partition, child))
        queue = child
    return queue


def _dynamic_spec(parent: Queue, name: str, *, leaf: bool) -> QueueSpec:
    """Return the specification of a new dynamic queue: for a leaf that of the nearest template, for a parent one without limits."""
    template = nearest_template(parent)
    properties = inherited(parent.spec.properties)
    if not leaf:
        return QueueSpec(name=name, parent=True, properties=properties, template=template)
    if template is None:
        return QueueSpec(name=name, properties=properties)
    if template.properties is not None:
        properties = template.properties
    return QueueSpec(
        name=name,
        guaranteed=template.guaranteed,
        max=template.max,
        max_applications=template.max_applications,
        properties=properties,
        origin=template,
    )


def nearest_template(queue: Queue) -> ChildTemplate | None:
    """Return the child template of the queue or of its nearest ancestor that has one; None if none has."""
    return next((one.spec.template for one in queue.path_up() if one.spec.template), None)


def retag_queue(  # noqa: PLR0913, PLR0917 - the values of one quota
    partition: Partition,
    queue: Queue,
    guaranteed: Limit,
    maximum: Limit | None,
    max_applications: int,
    names: Set[str],
) -> None:
    """Set the quota of a dynamic leaf from its application's tags (docs/yunikorn/migrate.md).

    An empty ``guaranteed``, a ``maximum`` of None and a ``max_applications`` of 0 leave the value as it is. ``names`` are the
    properties that the tags set. The caller rebuilds limits and order afterwards.
    """
    for kind, _ in guaranteed:
        partition.types.intern(kind)
    partition.grow()
    queue.spec = replace(
        queue.spec,
        guaranteed=guaranteed or queue.spec.guaranteed,
        max=queue.spec.max if maximum is None else maximum,
        max_applications=max_applications or queue.spec.max_applications,
        tagged=queue.spec.tagged | names,
    )


def untag_queue(queue: Queue, names: Set[str]) -> None:
    """Give properties of a dynamic leaf that tags had set the values of its template again.

    ``names`` are the names of the properties in `QueueSpec.tagged`. The caller rebuilds limits and order afterwards.
    """
    spec, origin = queue.spec, queue.spec.origin or ChildTemplate()
    gone = spec.tagged & names
    values: dict[str, Any] = {
        field: getattr(origin, field) for name, field in _TAGGED.items() if name in gone
    }
    queue.spec = replace(spec, tagged=spec.tagged - gone, **values)


# Limits ---------------------------------------------------------------------------------------------------------


def relimit(partition: Partition) -> None:
    """Rebuild all limiters from usage and the limits in force. The order is rebuilt before its next use (`ranking_stale`)."""
    for queue in partition.queues.values():
        queue.blocked_asks = 0
        _make_limiter(partition, queue)
    partition.limits.by_key.clear()
    partition.limits.forget_relieved()
    alike: dict[tuple[Queue, str, tuple[str, ...]], tuple[Limiter, ...]] = {}
    for application in partition.applications.values():
        whose = (application.leaf, application.user, application.user_groups)
        known = alike.get(whose)
        if known is None:
            known = alike[whose] = limiters_of(partition, application)
        application.limiters = known
        _count_in(application)
    partition.ranking_stale = True


def limit_queue(partition: Partition, queue: Queue) -> None:
    """Rebuild the limiter of a queue whose limits are new or changed. Classes that the old limiter blocked are tried again."""
    before = queue.limiter
    queue.blocked_asks = 0
    _make_limiter(partition, queue)
    partition.ranking_stale = True
    for leaf in queue.leaves():
        for application in leaf.applications.values():
            application.limiters = limiters_of(partition, application)
    if before is not None:
        partition.limits.unblocking.pop(before, None)
    if before is not None and before.relieved:
        partition.limits.relieved.remove(before)


def _make_limiter(partition: Partition, queue: Queue) -> None:
    queue.firm = _firm_limiter(partition, queue)
    left = bound(partition, queue)
    if left is None:
        queue.limiter = None
        return
    for index in range(len(left)):
        left[index] -= queue.usage[index] + queue.promised[index]
    queue.limiter = Limiter("queue", queue.path, queue, left)


def bound(partition: Partition, queue: Queue) -> Amounts | None:
    """Return by type how much a queue may use: its max, and at most its deserved share if it is a leaf that shares by weights (W2).

    NO_LIMIT means that a type has no limit, None that no type has one. The root has no max, even if its specification has one.
    """
    deserved = partition.deserved.get(queue.path)
    if queue.parent is None or (queue.spec.max is None and deserved is None):
        return None
    left = _limits(partition, queue.spec.max or ())
    for index, amount in enumerate(deserved or ()):  # a new type has no value until the next tick
        if amount is not None:
            left[index] = min(left[index], amount)
    return left


def _firm_limiter(partition: Partition, queue: Queue) -> Limiter | None:
    """Return the limiter that bounds firm use by the queue's guarantee; None if asks have no classes (J4), or if the queue guarantees nothing."""
    if job_class(PLAIN, partition.spec.preemption) is None:
        return None
    named = tuple((name, quantity) for name, quantity in queue.spec.guaranteed if quantity)
    if not named:
        return None
    left = _limits(partition, named)
    for index in range(len(left)):
        left[index] -= queue.firm_held[index]
    return Limiter("firm", queue.path, queue, left)


def _reclass(partition: Partition, before: PreemptionSettings) -> None:
    """Give all asks their new class, because the settings that say which are firm may have changed (J2)."""
    now = partition.spec.preemption
    if all(job_class(one, before) is job_class(one, now) for one in SAMPLES):
        return
    partition.classes.forget_specs()
    rebuild_ranking(partition)  # asks join heaps that have the new order
    for ask in partition.asks.values():
        kind = job_class(ask.spec, now)
        if ask.ask_class.job_class is kind:
            continue
        if ask.node is None:
            journal.reclassify(partition, ask)
        else:
            journal.reclassify_placed(partition, ask)


def _limits(partition: Partition, limit: Limit) -> Amounts:
    for name, _ in limit:
        partition.types.intern(name)
    partition.grow()
    left = [NO_LIMIT] * len(partition.types)
    for name, quantity in limit:
        left[partition.types.index[name]] = quantity
    return left


def limiters_of(partition: Partition, application: Application) -> tuple[Limiter, ...]:
    """Return all limits of an application: queues from the leaf up, then its user's, then its group's at each level."""
    path = list(application.leaf.path_up())
    limiters = [queue.limiter for queue in path if queue.limiter is not None]
    group = matched_group(application.leaf, application.user_groups)
    limiters += [
        _person(partition, queue, "user", application.user, entry)
        for queue in path
        if (entry := user_limit(queue.spec, application.user))
    ]
    limiters += [
        _person(partition, queue, "group", group, entry)
        for queue in path
        if group and (entry := group_limit(queue.spec, group))
    ]
    return tuple(limiters)


def _person(partition: Partition, queue: Queue, kind: str, name: str, entry: UserLimit) -> Limiter:
    key = (queue.path, kind, name)
    found = partition.limits.by_key.get(key)
    if found is None:
        found = Limiter(kind, name, queue, _limits(partition, entry.max_resources))
        found.max_applications = entry.max_applications
        partition.limits.by_key[key] = found
    return found


def _count_in(application: Application) -> None:
    """Charge the user and group limiters of an application with its present usage."""
    people = [limiter for limiter in application.limiters if limiter.kind != "queue"]
    if not people:
        return
    usage = tuple((index, used) for index, used in enumerate(application.usage) if used)
    for limiter in people:
        limiter.take(usage)
        limiter.applications += 1


# Order ----------------------------------------------------------------------------------------------------------


def measure(partition: Partition, queue: Queue) -> Amounts:
    """Return the amounts by which a queue's usage is divided (6.3).

    In each type this is the queue's guarantee, else the max of the queue or of its nearest ancestor with one, else the partition's
    capacity.
    """
    index = partition.types.index
    amounts = list(partition.capacity)
    for one in reversed(list(queue.path_up())):
        for name, quantity in one.spec.max or ():
            amounts[index[name]] = quantity
    for name, quantity in queue.spec.guaranteed:
        amounts[index[name]] = quantity
    return amounts


def rebuild_ranking(partition: Partition) -> None:
    """Rebuild shares, heaps and the parked groups after a configuration or a change of the total."""
    partition.ranking_stale = False
    partition.shared_for = None
    partition.relief += 1
    _forget_blocks(partition)
    for queue in partition.queues.values():
        queue.compare(measure(partition, queue))
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
    """Rebuild an application's heap from its groups and jobs that are not parked, and raise the entries on its path to their best priority."""
    application.entry = None
    application.share = share(application.usage, application.leaf.measure)
    entries: list[GroupEntry] = []
    for group in application.groups.values():
        group.parked = group.ask_class.dead
        if group.parked:
            group.entry = None
            group.ask_class.waiting.append(group)
            continue
        first = group.asks[0]
        group.entry = (-group.priority, first.pending_since, first.arrival, group.number, group)
        entries.append(group.entry)
    for job in application.jobs.values():
        job.entry = None
        if job.gathered and not job.parked:
            first = job.members[0]
            job.entry = (-job.priority, first.pending_since, first.arrival, job.number, job)
            entries.append(job.entry)
    heapq.heapify(entries)
    application.heap = entries
    if entries:
        ranking.raise_path(application, -entries[0][0])


# Ends -----------------------------------------------------------------------------------------------------------


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
        _untie(queue)
        queue = parent
    if removed:
        partition.lost.by_queue.forget(removed)
        partition.lost.by_owner.forget(removed)
        partition.thrashing.forget_queues(removed)
    return removed


def _untie(queue: Queue) -> None:
    """Cut the references of a removed queue to itself, so that no garbage collection has to free it (`rpc/garbage`)."""
    queue.climb = ()
    queue.heap.clear()
    queue.limiter = queue.firm = None


def _unneeded(queue: Queue) -> bool:
    wanted = queue.managed and queue.state is not QueueState.DRAINING
    return not (wanted or queue.children or queue.applications)
