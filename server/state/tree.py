"""The queue tree: its limits and its dynamic queues, which configurations and applications change.

`reranking` rebuilds the measures and the heaps.
"""

from collections.abc import Set
from dataclasses import replace
from itertools import count
from operator import attrgetter
from typing import Any, Final

from server.model.asks import has_classes
from server.model.fit import Amounts
from server.model.parts import PART, Parts, whole
from server.model.quota import (
    ChildTemplate,
    PartitionSpec,
    QueueSpec,
    UserLimit,
    inherited,
)
from server.model.resources import Limit
from server.state import ranking, reranking, reranking_fast
from server.state.applications import Application
from server.state.limits import Limiter, group_limit, matched_group, spread, user_limit
from server.state.partition import Partition
from server.state.prepared import Bounds, Kept, Prepared
from server.state.queues import Queue, QueueState
from server.state.reclassing import reclass_in_parts

_TAGGED: Final = {"guaranteed": "guaranteed", "max": "max", "maxapplications": "max_applications"}
"""The properties that tags may set, each with its field of `QueueSpec` and of `ChildTemplate`."""
_ORDER: Final = attrgetter("leaf", "fair", "priority_first", "fence", "offset")
"""A getter for the settings of a queue that determine the order below the queue and the priority that its parent sees."""

_ACTIVE: Final = QueueState.ACTIVE
_DRAINING: Final = QueueState.DRAINING
"""The enumeration members, stored here because each access through the enumeration is slow."""


def apply_spec_in_parts(
    partition: Partition,
    spec: PartitionSpec,
    prepared: Prepared | None = None,
    *,
    classes_later: bool = False,
) -> Parts[list[str]]:
    """Apply a partition's configuration: removed queues drain, and all other queues and settings change in place.

    Return the paths of the queues that were deleted because they were empty. If the new specification equals the specification
    in force, the object in force is kept. A shadow belongs to the object in force, and thus continues. The values in
    ``prepared`` make this function faster, and do not affect the outcome. With ``classes_later``, asks that lose their gang
    classes keep them until the caller removes the classes in the next ticks (`reclassing`).
    """
    if prepared is not None and prepared.before is partition.spec:
        is_same = prepared.is_same
    else:
        is_same, prepared = spec == partition.spec, None
    if is_same:
        spec = partition.spec
    before, partition.spec = partition.classed_by, spec
    for name in (name for name, _ in spec.node_weights) if prepared is None else prepared.names:
        partition.types.intern(name)
    if prepared is None:
        _intern_all(partition, spec.root)
    partition.grow()
    fitting = prepared if prepared is not None and prepared.fits() else None
    was_ranked = not partition.ranking_stale
    yield from _apply_queues(partition, spec.root, fitting)
    weights = tuple((partition.types.index[name], weight) for name, weight in spec.node_weights)
    if weights != partition.index.weights or partition.index.packing != (
        spec.node_sort == "binpacking"
    ):
        partition.index.reorder(spec.node_sort, weights)
    yield from reclass_in_parts(partition, before, later=classes_later)
    removed = yield from sweep_in_parts(partition, None if prepared is None else prepared.removed)
    is_relisted = yield from relimit_in_parts(partition, fitting)
    if (
        fitting is not None
        and was_ranked
        and not is_relisted
        and reranking.is_kept(partition, fitting)
    ):
        yield from reranking_fast.rebuild_in_parts(partition, fitting)
    else:
        yield from reranking.rebuild_in_parts(partition, fitting)
    return removed


def _apply_queues(partition: Partition, spec: QueueSpec, prepared: Prepared | None) -> Parts[None]:
    """Configure the root and all queues below it, parents first, and add the new queues."""
    if prepared is not None and prepared.has_queues():
        yield from _apply_prepared(partition, prepared)
        return
    if prepared is not None:
        prepared.is_bound, prepared.is_reordered = False, True
    _configure(partition.root, spec)
    rest = [(partition.root, one) for one in reversed(spec.children)]
    for at in count():
        if not rest:
            return
        if not at % PART:
            yield
        parent, child = rest.pop()
        queue = parent.children.get(child.name)
        if queue is None:
            queue = add_queue(partition, parent, child)
        _configure(queue, child)
        rest += [(queue, one) for one in reversed(child.children)]


def _apply_prepared(partition: Partition, prepared: Prepared) -> Parts[None]:
    """Configure and add the prepared queues, which are all queues of the specification, in the same order as `_apply_queues`."""
    added = prepared.take_all()
    for at, (queue, spec, before) in enumerate(prepared.queues):
        if not at % PART:
            yield
        if queue in added:
            assert queue.parent is not None, "the root is never added"
            _enter(partition, queue.parent, queue)
            continue
        if queue.spec is before:
            queue.spec = spec
        else:
            order = _ORDER(queue)
            queue.configure(spec)
            prepared.is_reordered |= order != _ORDER(queue)
        queue.managed = True
        queue.state = _ACTIVE
    for queue in prepared.missing:
        drain(queue)


def _configure(queue: Queue, spec: QueueSpec) -> None:
    """Apply a specification to a queue, and drain the children that are no longer in the specification."""
    queue.configure(spec)
    queue.managed = True
    queue.state = _ACTIVE
    if queue.children:
        _drain_missing(queue, spec)


def _drain_missing(queue: Queue, spec: QueueSpec) -> None:
    """Drain the children of a queue that are no longer in its specification."""
    named = {child.name for child in spec.children}
    for name, child in queue.children.items():
        if name not in named and child.managed:
            if child.children:
                drain(child)
            else:
                child.state = _DRAINING


def _intern_all(partition: Partition, spec: QueueSpec) -> None:
    """Register the resource types that a specification and the specifications below it name."""
    _intern(partition, spec)
    for child in spec.children:
        _intern_all(partition, child)


def _intern(partition: Partition, spec: QueueSpec) -> None:
    index = partition.types.index
    for limit in (spec.guaranteed, spec.max or ()):
        for name, _ in limit:
            if name not in index:
                partition.types.intern(name)


def drain(queue: Queue) -> None:
    """Drain a queue that is no longer configured, and the configured queues below it.

    Drained queues take no new applications.

    Dynamic queues below the drained queue keep their state.
    """
    if queue.managed:
        queue.state = _DRAINING
    for child in queue.children.values():
        drain(child)


def stop(partition: Partition) -> None:
    """Stop a partition that is no longer configured. The partition places nothing from now on."""
    partition.retired = True
    for queue in partition.queues.values():
        queue.state = QueueState.STOPPED
    partition.ranking_stale = True


def restart(partition: Partition) -> None:
    """Undo `stop`, because a configuration lists the partition again. The caller then applies that configuration."""
    partition.retired = False
    for queue in partition.queues.values():
        queue.state = _ACTIVE


def add_queue(partition: Partition, parent: Queue, spec: QueueSpec) -> Queue:
    """Add a new queue below a parent and return it.

    The caller then gives the queue its limiters and its place in the order of queues.
    """
    queue = Queue(spec, parent, 0, partition.types.zeros())
    _enter(partition, parent, queue)
    return queue


def _enter(partition: Partition, parent: Queue, queue: Queue) -> None:
    queue.number = partition.next_number()
    parent.children[queue.name] = queue
    partition.queues[queue.path] = queue


def create_path(partition: Partition, path: str) -> Queue:
    """Return the leaf at a path.

    If the leaf or some of its parents are missing, create them as dynamic queues.

    A new leaf gets the settings of the nearest template above the leaf. New parents have no limits.
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
            _intern(partition, child.spec)
            partition.grow()
            _make_limiter(partition, child)
            child.compare(reranking.measure(partition, child))
        queue = child
    return queue


def _dynamic_spec(parent: Queue, name: str, *, leaf: bool) -> QueueSpec:
    """Return the specification of a new dynamic queue. A leaf gets the settings of the nearest template. A parent gets no limits."""
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
    """Return the child template of the queue, or of its nearest ancestor with a template. Return None if no template exists."""
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

    A value stays as it is if ``guaranteed`` is empty, if ``maximum`` is None, or if ``max_applications`` is 0. ``names`` has the
    properties that the tags set. The caller then rebuilds the limiters, and the heaps that order queues and applications.
    """
    queue.spec = replace(
        queue.spec,
        guaranteed=guaranteed or queue.spec.guaranteed,
        max=queue.spec.max if maximum is None else maximum,
        max_applications=max_applications or queue.spec.max_applications,
        tagged=queue.spec.tagged | names,
    )
    _intern(partition, queue.spec)
    partition.grow()


def untag_queue(queue: Queue, names: Set[str]) -> None:
    """Reset the properties of a dynamic leaf that tags had changed: they get the values of the leaf's template.

    ``names`` has the names of these properties, as in `QueueSpec.tagged`. The caller then rebuilds the limiters, and the heaps
    that order queues and applications.
    """
    spec, origin = queue.spec, queue.spec.origin or ChildTemplate()
    gone = spec.tagged & names
    values: dict[str, Any] = {
        field: getattr(origin, field) for name, field in _TAGGED.items() if name in gone
    }
    queue.spec = replace(spec, tagged=spec.tagged - gone, **values)


# Limits ---------------------------------------------------------------------------------------------------------


def relimit(partition: Partition) -> None:
    """Rebuild all limiters at once: see `relimit_in_parts`."""
    whole(relimit_in_parts(partition))


def relimit_in_parts(partition: Partition, prepared: Prepared | None = None) -> Parts[bool]:
    """Rebuild all limiters from the usage and the limits in force.

    The heaps that order queues and applications are rebuilt before they are used again (`ranking_stale`).

    If the partition has no deserved shares in force, the ``prepared`` bounds are used. Limiters of applications are rebuilt in
    three cases: there are limits of users or groups, a queue gained or lost its limiter, or a queue lost a limiter of firm use
    that blocked a class. Return whether limiters of applications were rebuilt.
    """
    is_classed = has_classes(partition.spec.preemption)
    usable = None if partition.deserved else prepared
    used, known = (set(), {}) if usable is None else (usable.used, usable.bounds)
    firms = {} if usable is None else usable.firms
    is_bound = usable is not None and usable.is_bound
    is_moved = bool(partition.limits.by_key)
    for at, queue in enumerate(partition.queues.values()):
        if not at % PART:
            yield
        if queue in used or (is_bound and queue not in known):
            continue
        limiter, before = queue.limiter, queue.firm
        found = known.get(queue)
        if found is None:
            _bind(partition, queue, is_classed=is_classed)
        else:
            _bind_prepared(queue, *found, firms.get(queue))
        if (
            (limiter is None) is not (queue.limiter is None)
            or queue.spec.limits
            or (queue.firm is None and before is not None and before.blocked)
        ):
            is_moved = True
    partition.limits.forget_relieved()
    if is_moved:
        yield from _limit_applications(partition)
    partition.ranking_stale = True
    return is_moved


def _bind_prepared(queue: Queue, bounds: Bounds, kept: Kept, made: Limiter | None) -> None:
    """Bound the usage and the firm usage of a queue by prepared amounts, unless its limiters have these bounds already."""
    if queue.limiter is None or queue.limiter is not kept[0]:
        _set_limit(queue, bounds[0])
    if queue.firm is not kept[1] or (queue.firm is None and bounds[1] is not None):
        _set_firm(queue, bounds[1], made)


def _set_limit(queue: Queue, most: Amounts | None) -> None:
    """Bound the usage of a queue by the given amounts. If the amounts are None, remove the bound.

    If the queue already has a limiter, that limiter is kept, with the classes that it blocks, until `reranking` examines these
    classes.
    """
    limiter = queue.limiter
    if most is None:
        queue.limiter = None
        queue.blocked_asks = 0
    else:
        headroom = _less(most, queue.usage)
        if any(queue.promised):
            headroom = _less(headroom, queue.promised)
        if limiter is None:
            queue.limiter = Limiter("queue", queue.path, queue, headroom)
        else:
            limiter.headroom = headroom
            limiter.relieved = False


def _set_firm(queue: Queue, most: Amounts | None, made: Limiter | None = None) -> None:
    """Bound the firm usage of a queue by the given amounts, as `_set_limit` bounds the usage of a queue.

    A queue without a limiter of firm usage gets the limiter ``made``.
    """
    if most is None:
        queue.firm = None
        return
    headroom = _less(most, queue.firm_held)
    queue.firm = queue.firm or made or Limiter("firm", queue.path, queue, headroom)
    queue.firm.headroom = headroom
    queue.firm.relieved = False


def _less(most: Amounts, used: Amounts) -> Amounts:
    """Return ``most`` minus ``used``.

    Because few types are used, a loop over the used types takes a third of the time of `zip`.
    """
    left = most.copy()
    for index, amount in enumerate(used):
        if amount:
            left[index] -= amount
    return left


def _limit_applications(partition: Partition) -> Parts[None]:
    """Rebuild the limiters of users and groups, and give each application its limiters."""
    partition.limits.by_key.clear()
    alike: dict[tuple[Queue, str, tuple[str, ...]], tuple[Limiter, ...]] = {}
    for at, application in enumerate(partition.applications.values()):
        if not at % PART:
            yield
        whose = (application.leaf, application.user, application.user_groups)
        known = alike.get(whose)
        if known is None:
            known = alike[whose] = limiters_of(partition, application)
        application.limiters = known
        _count_in(application)


def limit_queue(partition: Partition, queue: Queue) -> None:
    """Rebuild the limiter of a queue whose limits are new or changed. The classes that the old limiter blocked are tried again."""
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
    """Give a queue new limiters, which do not block any class yet."""
    queue.limiter = queue.firm = None
    _bind(partition, queue, is_classed=has_classes(partition.spec.preemption))


def _bind(partition: Partition, queue: Queue, *, is_classed: bool) -> None:
    """Bound the usage of a queue as its specification says.

    ``is_classed`` says whether the firm usage of the queue is bounded, too.
    """
    firm = _firm_bound(partition, queue) if is_classed else None
    _set_limit(queue, bound(partition, queue))
    _set_firm(queue, firm)


def bound(partition: Partition, queue: Queue) -> Amounts | None:
    """Return the amounts that a queue may use, by type: its max (W2).

    If a leaf has a deserved share, the amounts are at most that share.

    NO_LIMIT means that the type has no limit. Return None if no type has a limit. The root has no max, even if its
    specification has one.
    """
    deserved = partition.deserved.get(queue.path)
    if queue.parent is None or (queue.spec.max is None and deserved is None):
        return None
    left = _limits(partition, queue.spec.max or ())
    for index, amount in enumerate(deserved or ()):  # a new type has no value until the next tick
        if amount is not None:
            left[index] = min(left[index], amount)
    return left


def _firm_bound(partition: Partition, queue: Queue) -> Amounts | None:
    """Return the amounts that the firm asks of a queue may use, by type: its guarantee (J4).

    Return None if the queue has no guarantee.
    """
    named = tuple((name, quantity) for name, quantity in queue.spec.guaranteed if quantity)
    return _limits(partition, named) if named else None


def _limits(partition: Partition, limit: Limit) -> Amounts:
    index = partition.types.index
    for name, _ in limit:
        if name not in index:
            partition.types.intern(name)
    partition.grow()
    return spread(limit, index)


def limiters_of(partition: Partition, application: Application) -> tuple[Limiter, ...]:
    """Return the limits of an application: first the limits of the queues, from the leaf up.

    The limits of its user come next, from the leaf up, and then the limits of its group, from the leaf up.
    """
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
    """Charge the user and group limiters of an application with the usage that the application has now."""
    people = [limiter for limiter in application.limiters if limiter.kind != "queue"]
    if not people:
        return
    usage = tuple((index, used) for index, used in enumerate(application.usage) if used)
    for limiter in people:
        limiter.take(usage)
        limiter.applications += 1


# Ends -----------------------------------------------------------------------------------------------------------


def sweep_in_parts(partition: Partition, kept: list[Queue] | None = None) -> Parts[list[str]]:
    """Remove all empty queues that are dynamic or draining, and return their paths.

    If ``kept`` is a list, the removed queues are added to it. The caller can then free their memory later.
    """
    removed: list[str] = []
    leaves = [
        path
        for path, queue in partition.queues.items()
        if not queue.applications and queue.leaf and _is_unwanted(queue)
    ]
    for at, path in enumerate(sorted(leaves, reverse=True)):
        if not at % PART:
            yield
        queue = partition.queues.get(path)
        if queue is not None:
            _remove_path(partition, queue, removed, kept)
    _forget_paths(partition, removed)
    return removed


def sweep_path(partition: Partition, leaf: Queue) -> list[str]:
    """Remove a leaf and then its ancestors, up to the first queue that must stay. Return the paths of the removed queues.

    A queue is removed only if it is empty, and dynamic or draining.
    """
    removed: list[str] = []
    _remove_path(partition, leaf, removed)
    _forget_paths(partition, removed)
    return removed


def _remove_path(
    partition: Partition, leaf: Queue, removed: list[str], kept: list[Queue] | None = None
) -> None:
    queue, parent = leaf, leaf.parent
    while parent is not None and not queue.children and not queue.applications:
        if not _is_unwanted(queue):
            return
        if queue.entry is not None:
            ranking.leave(parent, queue)
        del parent.children[queue.name]
        del partition.queues[queue.path]
        removed.append(queue.path)
        if kept is None:
            queue.untie()
        else:
            kept.append(queue)
        queue, parent = parent, parent.parent


def _forget_paths(partition: Partition, removed: list[str]) -> None:
    """Remove the entries of removed queues from the totals of lost work and from the thrashing monitor."""
    if removed:
        partition.lost.by_queue.forget(removed)
        partition.lost.by_owner.forget(removed)
        partition.thrashing.forget_queues(removed)


def _is_unwanted(queue: Queue) -> bool:
    """Return whether a queue is dynamic or draining, and thus missing in the configuration in force."""
    return queue.state is _DRAINING or not queue.managed
