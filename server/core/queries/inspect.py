"""The state of the core as plain values, for the read side.

No function changes the state.

Lists of applications, nodes and allocations are empty for an unknown partition. All other functions that have a partition as
argument raise KeyError for an unknown partition. The order of lists changes only with events and decisions, so that callers can
page with `start` and `size`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from server.core.core import Core
from server.core.events.managers import held
from server.core.queries.doctor import doctor
from server.core.queries.explain import explain
from server.core.queries.queue_reports import pending_of, queue_report
from server.core.queries.queue_settings import settings_report
from server.core.queries.reach import reach
from server.core.queries.user_limits import Reports, limit_reports
from server.core.wait_reasons.obstacles import Obstacles
from server.model.asks import Taint
from server.model.fit import Amounts
from server.model.queue_settings import ReachReport, SettingsReport
from server.model.quota import ROOT, is_below
from server.model.reports import (
    AllocationReport,
    ApplicationReport,
    Holdings,
    ManagerReport,
    NodeReport,
    PartitionReport,
    QueueReport,
)
from server.state.applications import Application, Ask
from server.state.nodes import Foreign, Node
from server.state.partition import Partition
from server.state.types import ResourceTypes

__all__ = [
    "allocations",
    "applications",
    "doctor",
    "explain",
    "holdings",
    "managers",
    "nodes",
    "partitions",
    "queue_reach",
    "queue_settings",
    "queue_tree",
    "user_limits",
]

Row = TypeVar("Row")


def managers(core: Core) -> list[ManagerReport]:
    """Return the registered resource managers, in the order of their first registrations."""
    return [
        ManagerReport(
            one.rm_id,
            one.version,
            one.registered_ms,
            one.explicit_sync,
            one.synced,
            one.policy_group,
            **held(core.state, one.rm_id),
            recovered=one.recovered,
            recovered_asks=one.recovered_asks,
        )
        for one in core.state.managers.values()
    ]


def holdings(core: Core) -> Holdings:
    """Return how many nodes, pods, applications and queues all partitions have. Waiting asks and foreign pods count as pods."""
    known = core.state.partitions.values()
    return Holdings(
        nodes=sum(len(one.index.nodes) for one in known),
        pods=sum(len(one.asks) + len(one.foreign.pods) for one in known),
        applications=sum(len(one.applications) for one in known),
        queues=sum(len(one.queues) for one in known),
    )


def partitions(core: Core, *, counted: bool = True) -> list[PartitionReport]:
    """Return the totals of every partition, by name.

    If ``counted``, examine every waiting ask, and count asks by the reason for waiting.
    """
    known = core.state.partitions
    return [_partition(core, known[name], counted=counted) for name in sorted(known)]


def _partition(core: Core, partition: Partition, *, counted: bool) -> PartitionReport:
    index, types, root = partition.index, partition.types, partition.root
    return PartitionReport(
        name=partition.name,
        node_sort=partition.spec.node_sort.value,
        nodes=len(index.nodes),
        schedulable_nodes=len(index.numbered),
        applications=len(partition.applications),
        allocations=len(partition.asks) - partition.ask_count,
        foreign=len(partition.foreign.pods),
        asks=partition.ask_count,
        reservations=len(partition.decisions.pledges),
        capacity=types.named(partition.capacity),
        usage=types.named(root.usage),
        foreign_usage=types.named(partition.foreign.usage),
        waiting=_waiting(core, partition) if counted else {},
        synced=core.state.synced(partition),
        promised=types.named(root.promised),
        pending=types.named(pending_of(partition, root.waiting())),
        queues=len(partition.queues),
    )


def _waiting(core: Core, partition: Partition) -> dict[str, int]:
    """Return the number of waiting asks for each reason code, the most frequent code first."""
    obstacles = Obstacles(core.state, partition)
    counts: Counter[str] = Counter()
    for application in partition.applications.values():
        counts.update(obstacles.code(ask).value for ask in application.asks.values())
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def queue_tree(core: Core, partition: str, path: str = ROOT) -> QueueReport:
    """Return a queue of a partition with all queues below it. Raise KeyError for an unknown partition or queue."""
    one_partition = core.state.partitions[partition]
    return queue_report(one_partition, one_partition.queues[path])


def user_limits(core: Core, partition: str) -> Reports:
    """Return the user and group limits of each queue with the usage that counts against them. Raise KeyError for an unknown partition."""
    return limit_reports(core.state.partitions[partition])


def queue_settings(
    core: Core, partition: str, path: str = "", *, start: int = 0, size: int | None = None
) -> list[SettingsReport]:
    """Return the settings of a queue and all queues below it, parents first.

    Return [] for an unknown queue. The path "" means the root. Raise KeyError for an unknown partition.
    """
    one_partition = core.state.partitions[partition]
    top = one_partition.queues.get(path) if path else one_partition.root
    rows = top.walk() if top is not None else iter(())
    return [settings_report(one_partition, one) for one in _page(rows, start, size)]


def queue_reach(core: Core, partition: str, path: str) -> ReachReport:
    """Return the queues from which a queue may claim, and the queues that may claim from it.

    Raise KeyError for an unknown partition or queue.
    """
    one_partition = core.state.partitions[partition]
    return reach(one_partition, one_partition.queues[path])


# Applications ---------------------------------------------------------------------------------------------------


def applications(
    core: Core, partition: str, queue: str = "", *, start: int = 0, size: int | None = None
) -> list[ApplicationReport]:
    """Return the applications of a queue and all queues below it, in order of submission.

    If ``queue`` is "", return the applications of the whole partition.
    """
    one_partition = core.state.partitions.get(partition)
    if one_partition is None:
        return []
    return [
        _application(one_partition, one) for one in _page(_below(one_partition, queue), start, size)
    ]


def _page(rows: Iterable[Row], start: int, size: int | None) -> Iterator[Row]:
    return islice(rows, start, None if size is None else start + size)


def _below(partition: Partition, path: str) -> Iterable[Application]:
    if not path:
        return partition.applications.values()
    queue = partition.queues.get(path)
    if queue is None:
        return []
    below = [one for each in queue.walk() for one in each.applications.values()]
    return sorted(below, key=lambda one: one.number)


def _application(partition: Partition, application: Application) -> ApplicationReport:
    types = partition.types
    pending = _sum(types, (one.ask_class.demand for one in application.asks.values()))
    return ApplicationReport(
        application_id=application.application_id,
        queue=application.leaf.path,
        state=application.state.value,
        user=application.user,
        groups=application.user_groups,
        submitted_ms=application.submitted_ms,
        usage=types.named(application.usage),
        pending=types.named(pending),
        asks=len(application.asks),
        allocations=len(application.allocations),
        tags=dict(application.tags),
        rm_id=application.rm_id,
    )


# Nodes ----------------------------------------------------------------------------------------------------------


def nodes(
    core: Core, partition: str, *, start: int = 0, size: int | None = None
) -> list[NodeReport]:
    """Return the nodes of a partition in order of arrival."""
    one_partition = core.state.partitions.get(partition)
    if one_partition is None:
        return []
    return [
        _node(one_partition, one) for one in _page(one_partition.index.nodes.values(), start, size)
    ]


def _node(partition: Partition, node: Node) -> NodeReport:
    types = partition.types
    none = types.zeros()
    foreign = _sum(types, (one.demand for one in node.foreign.values())) if node.foreign else none
    held = node.pledges.values()
    pledged = _sum(types, (one.demand for one in held)) if held else none
    kept = _sum(types, (one.node_demand for one in held)) if held else none
    # Usage follows from the other amounts, so that a list of all nodes can be made without examining every pod.
    usage = map(_used, node.capacity, node.free, foreign, kept)
    return NodeReport(
        node_id=node.node_id,
        schedulable=node.schedulable,
        capacity=types.named(node.capacity),
        usage=types.named(usage),
        foreign={} if foreign is none else types.named(foreign),
        pledged={} if pledged is none else types.named(pledged),
        free=types.named(node.free),
        allocations=len(node.allocations),
        labels=dict(node.labels),
        taints=tuple(taint_text(one) for one in node.taints),
        reserved_for=tuple(node.pledges),
        rm_id=node.rm_id,
        foreign_pods=len(node.foreign),
        attributes=dict(node.attributes),
    )


def _used(capacity: int, free: int, foreign: int, kept: int) -> int:
    """Return the amount of a type that the allocations of a node use. ``kept`` is the amount that pledges keep."""
    return capacity - free - foreign - kept


def _sum(types: ResourceTypes, demands: Iterable[Iterable[tuple[int, int]]]) -> Amounts:
    """Return the sum of demands by type."""
    amounts = types.zeros()
    for demand in demands:
        for index, quantity in demand:
            amounts[index] += quantity
    return amounts


def taint_text(taint: Taint) -> str:
    """Return a taint as Kubernetes writes it: key=value:effect."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


# Allocations ----------------------------------------------------------------------------------------------------


def allocations(  # noqa: PLR0913, PLR0917 - each argument narrows what is asked
    core: Core,
    partition: str,
    queue: str = "",
    application_id: str = "",
    node_id: str = "",
    asks: bool = False,  # noqa: FBT001, FBT002 - the flag of the wire
    *,
    start: int = 0,
    size: int | None = None,
) -> list[AllocationReport]:
    """Return allocations and, unless a queue or application is named, foreign pods.

    With ``asks``, waiting asks are returned as well, unless a node is named. If a queue is named, the allocations of all queues
    below it are included.
    """
    one_partition = core.state.partitions.get(partition)
    if one_partition is None:
        return []
    obstacles = Obstacles(core.state, one_partition)
    if node_id:
        rows = _on_node(one_partition, queue, application_id, node_id)
    else:
        rows = _in_applications(one_partition, queue, application_id, asks=asks)
    return [_allocation(one_partition, obstacles, one) for one in _page(rows, start, size)]


def _on_node(
    partition: Partition, path: str, application_id: str, node_id: str
) -> Iterator[Ask | Foreign]:
    node = partition.index.nodes.get(node_id)
    if node is None:
        return
    for ask in node.allocations.values():
        own = not application_id or ask.application.application_id == application_id
        if own and (not path or is_below(ask.application.leaf.path, path)):
            yield ask
    if not path and not application_id:
        yield from node.foreign.values()


def _in_applications(
    partition: Partition, path: str, application_id: str, *, asks: bool
) -> Iterator[Ask | Foreign]:
    for application in _chosen(partition, path, application_id):
        yield from application.allocations.values()
        if asks:
            yield from application.asks.values()
    if not path and not application_id:
        yield from partition.foreign.pods.values()


def _chosen(partition: Partition, path: str, application_id: str) -> Iterable[Application]:
    if not application_id:
        return _below(partition, path)
    application = partition.applications.get(application_id)
    if application is None or (path and not is_below(application.leaf.path, path)):
        return []
    return [application]


def _allocation(partition: Partition, obstacles: Obstacles, one: Ask | Foreign) -> AllocationReport:
    if isinstance(one, Foreign):
        return _foreign(partition, one)
    spec = one.spec
    waits = one.node is None
    since, at_the_latest = one.runs_since
    return AllocationReport(
        key=one.key,
        application_id=one.application.application_id,
        queue=one.application.leaf.path,
        node_id="" if one.node is None else one.node.node_id,
        resource=dict(spec.resource),
        priority=spec.priority,
        created_ms=one.created_ms,
        placed_ms=since,
        placed_at_the_latest=at_the_latest,
        releasing=one.releasing or one.is_replaced,
        originator=spec.leads,
        placeholder=spec.placeholder,
        code=obstacles.code(one).value if waits else "",
        waiting_since_ms=one.pending_since if waits else 0,
        gang_key=spec.gang_key,
        task_group=spec.task_group,
        protection=spec.protection.name.lower().replace("_", "-"),
        may_be_preempted=spec.allow_preempt_self,
        may_preempt=spec.allow_preempt_other,
        tags=one.tags,
        pledged=waits and one.pledge is not None,
    )


def _foreign(partition: Partition, foreign: Foreign) -> AllocationReport:
    names = partition.types.names
    return AllocationReport(
        key=foreign.key,
        application_id="",
        queue="",
        node_id=foreign.node.node_id,
        resource=dict(sorted((names[index], quantity) for index, quantity in foreign.demand)),
        priority=0,
        created_ms=0,
        placed_ms=0,
        foreign=True,
        tags=foreign.tags,
    )
