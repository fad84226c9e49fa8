"""Messages of `evenhand.v1` for the core's reports. The functions are pure.

An empty map is passed as None, because protobuf needs three times as long to construct a message with an empty map.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from evenhand.v1 import inspect_pb2 as pb
from server.model.reports import (
    AllocationReport,
    ApplicationReport,
    Finding,
    NodeReport,
    PartitionReport,
    QueueReport,
    ShareReport,
    UserLimitReport,
)
from server.rpc.memory import Memory
from server.rpc.pod_names import name_in
from server.rpc.tags import decoded

_QUEUE_STATES: Final = {
    "active": pb.QUEUE_STATE_ACTIVE,
    "draining": pb.QUEUE_STATE_DRAINING,
    "stopped": pb.QUEUE_STATE_STOPPED,
}
_SEVERITIES: Final = {
    "error": pb.FINDING_SEVERITY_ERROR,
    "warning": pb.FINDING_SEVERITY_WARNING,
    "note": pb.FINDING_SEVERITY_NOTE,
}

Reasons = Mapping[str, Mapping[str, int]]
"""The number of waiting asks by the code of their reason, for each queue or application."""
Limits = Mapping[str, Sequence[UserLimitReport]]
"""The user and group limits that each queue sets, by its path."""


def reasons_by_queue(asks: Iterable[AllocationReport]) -> Reasons:
    """Return, for each queue, the number of its waiting asks by the code of their reason."""
    counts: dict[str, Counter[str]] = {}
    for ask in asks:
        if not ask.node_id:
            counts.setdefault(ask.queue, Counter())[ask.code] += 1
    return counts


def reasons(counts: Mapping[str, int]) -> list[pb.ReasonCount]:
    """Return the messages of the numbers of asks by reason, most frequent reason first."""
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [pb.ReasonCount(code=code, count=count) for code, count in ranked if count]


def queue(report: QueueReport, waiting: Reasons, limits: Limits) -> pb.Queue:
    """Return the message of a queue with all queues below it."""
    return _queue(pb.Queue, report, waiting, limits)


def _queue(
    make: Callable[..., pb.Queue], report: QueueReport, waiting: Reasons, limits: Limits
) -> pb.Queue:
    """Return the message of a queue, made by ``make``.

    The messages of the queues below are made inside this message, because a message that is put into another one is copied.
    """
    properties = dict(report.properties)
    made = make(
        name=report.path.rpartition(".")[2],
        path=report.path,
        state=_QUEUE_STATES.get(report.state.lower(), pb.QUEUE_STATE_UNSPECIFIED),
        leaf=report.leaf,
        dynamic=not report.managed,
        guaranteed=report.guaranteed or None,
        max=report.max or None,
        usage=report.usage or None,
        promised=report.promised or None,
        head_room=report.headroom or None,
        pending=report.pending or None,
        weight=report.weight,
        share_millionths=report.share_ppm,
        priority_offset=_whole(properties.pop("priority.offset", "")),
        priority_policy=properties.pop("priority.policy", ""),
        preemption_policy=properties.pop("preemption.policy", ""),
        preemption_delay_ms=report.preemption_delay_ms,
        application_sort_policy=properties.pop("application.sort.policy", ""),
        submit_acl=properties.pop("submitacl", ""),
        admin_acl=properties.pop("adminacl", ""),
        applications_max=report.max_applications,
        applications=report.applications,
        applications_waiting=report.applications_waiting,
        allocations=report.allocations,
        asks_waiting=report.pending_asks,
        waiting_reasons=reasons(waiting[report.path]) if report.path in waiting else None,
        limits=map(_limit, limits[report.path]) if report.path in limits else None,
        properties=properties or None,
        releasing=report.releasing or None,
        quota_due_ms=report.quota_due_ms,
        over_max=report.over_max or None,
        not_enforced=report.not_enforced,
        proportional_share=_share(report.proportional),
    )
    for child in report.children:
        _queue(made.children.add, child, waiting, limits)
    return made


def _limit(report: UserLimitReport) -> pb.UserLimit:
    return pb.UserLimit(
        queue=report.queue,
        user=report.name if report.kind == "user" else "",
        group=report.name if report.kind == "group" else "",
        max=report.max,
        usage=report.usage,
        applications_max=report.max_applications,
        applications=report.applications,
    )


def _share(report: ShareReport | None) -> pb.ProportionalShare | None:
    if report is None:
        return None
    return pb.ProportionalShare(
        deserved=report.deserved or None,
        entitled=report.entitled or None,
        allocated=report.allocated or None,
        preempting=report.preempting or None,
        standing=report.standing or None,
    )


def _whole(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0


def count_queues(report: QueueReport) -> int:
    """Return the number of queues in a report: the queue and all queues below it."""
    return 1 + sum(map(count_queues, report.children))


def partition(report: PartitionReport) -> pb.Partition:
    """Return the message of a partition's totals."""
    return pb.Partition(
        name=report.name,
        node_sort_policy=report.node_sort,
        capacity=report.capacity,
        usage=report.usage,
        foreign_usage=report.foreign_usage,
        promised=report.promised,
        pending=report.pending,
        counts=pb.ClusterCounts(
            nodes=report.nodes,
            draining_nodes=report.nodes - report.schedulable_nodes,
            queues=report.queues,
            applications=report.applications,
            allocations=report.allocations,
            foreign_allocations=report.foreign,
            waiting_asks=report.asks,
            commitments=report.reservations,
        ),
    )


def application(report: ApplicationReport, waiting: Reasons) -> pb.Application:
    """Return the message of an application."""
    return pb.Application(
        application_id=report.application_id,
        queue=report.queue,
        state=report.state,
        user=report.user,
        groups=report.groups,
        submitted_at_ms=report.submitted_ms,
        usage=report.usage or None,
        pending=report.pending or None,
        allocations=report.allocations,
        asks_waiting=report.asks,
        waiting_reasons=reasons(waiting.get(report.application_id, {})),
        tags=report.tags or None,
        rm_id=report.rm_id,
    )


def node(report: NodeReport) -> pb.Node:
    """Return the message of a node."""
    return pb.Node(
        node_id=report.node_id,
        schedulable=report.schedulable,
        capacity=report.capacity or None,
        usage=report.usage or None,
        foreign_usage=report.foreign or None,
        pledged=report.pledged or None,
        available=report.free or None,
        allocations=report.allocations,
        foreign_allocations=report.foreign_pods,
        reservations=len(report.reserved_for),
        labels=report.labels or None,
        taints=[_taint(text) for text in report.taints],
        attributes=report.attributes or None,
        rm_id=report.rm_id,
    )


def _taint(text: str) -> pb.NodeTaint:
    """Return the message of a taint from `key=value:effect`, as Kubernetes writes it."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return pb.NodeTaint(key=key, value=value, effect=effect)


def allocation(report: AllocationReport) -> pb.Allocation:
    """Return the message of an allocation or waiting ask. The tags of the allocation or ask are decoded only here."""
    known = decoded(report.tags)
    return pb.Allocation(
        allocation_key=report.key,
        application_id=report.application_id,
        queue=report.queue,
        node_id=report.node_id,
        state=_state(report),
        resources=report.resource,
        priority=report.priority,
        since_ms=report.placed_ms or report.waiting_since_ms or report.created_ms,
        originator=report.originator,
        placeholder=report.placeholder,
        job_key=report.gang_key,
        task_group=report.task_group,
        protection=report.protection,
        may_be_preempted=report.may_be_preempted,
        may_preempt=report.may_preempt,
        waiting_code=report.code,
        since_at_the_latest=report.placed_at_the_latest,
        tags=known,
        name=name_in(known),
    )


def _state(report: AllocationReport) -> pb.AllocationState:
    if report.foreign:
        return pb.ALLOCATION_STATE_FOREIGN
    if report.releasing:
        return pb.ALLOCATION_STATE_RELEASING
    if report.pledged:
        return pb.ALLOCATION_STATE_PLEDGED
    return pb.ALLOCATION_STATE_ALLOCATED if report.node_id else pb.ALLOCATION_STATE_WAITING


def finding(report: Finding) -> pb.Finding:
    """Return the message of a finding of the doctor."""
    return pb.Finding(
        severity=_SEVERITIES.get(report.severity, pb.FINDING_SEVERITY_UNSPECIFIED),
        subject=report.subject,
        code=report.code,
        message=report.message,
        advice=report.advice,
    )


def memory(use: Memory) -> pb.MemoryUse:
    """Return the message of the memory that the core uses, and of its memory budget."""
    return pb.MemoryUse(
        resident_bytes=use.resident_bytes,
        budget_bytes=use.budget_bytes,
        nodes=use.load.held.nodes,
        pods=use.load.held.pods,
        applications=use.load.held.applications,
        queues=use.load.held.queues,
        streams=use.load.streams,
        waiting_bytes=use.load.waiting_bytes,
    )
