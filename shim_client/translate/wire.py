"""The conversion of the shim's values to messages of `si.v1` and back.

Only this module knows the wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import intern
from typing import cast

from shim_client.messages import (
    ApplicationAnswer,
    ApplicationRemoval,
    ApplicationReport,
    ApplicationState,
    ApplicationTags,
    BudgetReport,
    Decision,
    NodeAnswer,
    NodeConstraints,
    NodePreferences,
    NodeReport,
    Placed,
    PlanCheck,
    PlanCheckAnswer,
    PlanCheckEnded,
    PodRefused,
    PodRelease,
    PodReport,
    Released,
    Releasing,
    Requirement,
    SelectorTerm,
    StillWaiting,
    SyncComplete,
    TagsRefused,
    TerminationType,
    Veto,
    Waiting,
    Withdrawn,
)
from shim_client.translate import labels
from si.v1 import si_pb2

_WAITING = {
    si_pb2.UpdateContainerSchedulingStateRequest.SKIPPED: Waiting.SKIPPED,
    si_pb2.UpdateContainerSchedulingStateRequest.FAILED: Waiting.FAILED,
}


PARTITION_OWNED = "partition-owned"
"""The reason code of a node that is refused because its partition belongs to another resource manager."""
ALIKE_MAX = 1024
"""Maximum number of common message parts that are kept. Pods of one owner share one common part."""
_alike: dict[tuple[int, int, int, int], tuple[PodReport, si_pb2.Allocation]] = {}


def allocation(report: PodReport) -> si_pb2.Allocation:
    """Return the message about a pod. A pod without a node is an ask."""
    message = si_pb2.Allocation()
    message.CopyFrom(_alike_message(report))
    return filled(message, report)


def _alike_message(report: PodReport) -> si_pb2.Allocation:
    """Return the common part of the messages about pods of one owner.

    The cache key has the identities (`id`) of the objects that these pods share. The report, which holds these objects,
    is stored with the message: while the objects exist, no other object has their identities.
    """
    wanted = report.constraints
    preferred = report.preferences
    if wanted is not None and (wanted.allowed_nodes or wanted.excluded_nodes):
        return part_alike(report)  # Long lists of nodes seldom occur twice.
    key = (id(report.resource), id(report.tags), id(wanted), id(preferred))
    found = _alike.get(key)
    if found is None:
        if len(_alike) >= ALIKE_MAX:
            _alike.clear()
        found = _alike[key] = (report, part_alike(report))
    return found[1]


def part_alike(report: PodReport) -> si_pb2.Allocation:
    """Return the part of the message that all pods of one owner have in common."""
    message = si_pb2.Allocation(
        allocationTags=report.tags, resourcePerAlloc=resource(report.resource)
    )
    if report.constraints is not None:
        message.constraints.CopyFrom(_constraints(report.constraints))
    if report.preferences is not None:
        message.preferences.CopyFrom(_preferences(report.preferences))
    return message


def filled(message: si_pb2.Allocation, report: PodReport) -> si_pb2.Allocation:
    """Complete the message with the fields that differ between pods, and return it."""
    message.allocationKey = report.key
    message.priority = report.priority
    message.nodeID = report.node
    message.applicationID = report.application
    message.partitionName = report.partition
    message.taskGroupName = report.task_group
    message.placeholder = report.placeholder
    message.originator = report.originator
    message.preemptionPolicy.allowPreemptSelf = report.allow_preempt_self
    message.preemptionPolicy.allowPreemptOther = report.allow_preempt_other
    message.jobKey = report.job_key
    message.jobMembers = report.job_members
    message.jobTrigger = cast("si_pb2.JobTrigger", report.job_trigger)
    message.protection = cast("si_pb2.Protection", report.protection)
    message.startedAt = report.started_ms
    message.graceSeconds = report.grace_seconds
    message.rmCheck = message.answersPlanChecks = report.rm_check
    message.disruptionGroups.extend(report.disruption_groups)
    for tag, value in own_tags(report):
        message.allocationTags[tag] = value
    if report.releasing is not None:
        _mark(message.releasing, report.releasing)
    return message


def _mark(message: si_pb2.ReleasingMark, mark: Releasing) -> None:
    message.terminationType = _termination(mark.termination)
    message.decisionID = mark.decision
    message.releasedFor = mark.beneficiary
    message.nodeID = mark.node
    message.delivery = mark.delivery


def own_tags(report: PodReport) -> Iterator[tuple[str, str]]:
    """Yield the tags that distinguish pods of one owner."""
    if report.pod_name:
        yield labels.TAG_POD_NAME, report.pod_name
    if report.created_s is not None:
        yield labels.TAG_CREATION, str(report.created_s)


def release(report: PodRelease) -> si_pb2.AllocationRelease:
    """Return the message that ends an allocation or an ask."""
    return si_pb2.AllocationRelease(
        partitionName=report.partition,
        applicationID=report.application,
        terminationType=_termination(report.termination),
        message=report.message,
        allocationKey=report.key,
        decisionID=report.decision,
    )


def veto(report: Veto) -> si_pb2.VictimVeto:
    """Return the message about a victim that stays."""
    return si_pb2.VictimVeto(
        decisionID=report.decision, allocationKey=report.key, reason=report.reason
    )


def plan_check_answer(report: PlanCheckAnswer) -> si_pb2.PlanCheckAnswer:
    """Return the message that answers a plan check."""
    return si_pb2.PlanCheckAnswer(
        checkID=report.check,
        partitionName=report.partition,
        fits=not report.refused,
        refused=[
            si_pb2.RefusedPlacement(allocationKey=key, reason=reason)
            for key, reason in report.refused
        ],
    )


def budget(report: BudgetReport) -> si_pb2.DisruptionBudget:
    """Return the message about a disruption budget."""
    if report.allowed is None:
        return si_pb2.DisruptionBudget(name=report.key, removed=True)
    return si_pb2.DisruptionBudget(name=report.key, allowed=report.allowed)


def application(report: ApplicationReport) -> si_pb2.AddApplicationRequest:
    """Return the message that announces an application."""
    return si_pb2.AddApplicationRequest(
        applicationID=report.application,
        queueName=report.queue,
        partitionName=report.partition,
        ugi=si_pb2.UserGroupInformation(user=report.user, groups=report.groups),
        tags=report.tags,
        executionTimeoutMilliSeconds=report.timeout_ms,
        placeholderAsk=resource(report.placeholder_ask),
        gangSchedulingStyle=report.gang_style,
    )


def application_tags(report: ApplicationTags) -> si_pb2.ApplicationUpdate:
    """Return the message that changes the tags of an application."""
    return si_pb2.ApplicationUpdate(
        applicationID=report.application, partitionName=report.partition, tags=report.tags
    )


def application_removal(report: ApplicationRemoval) -> si_pb2.RemoveApplicationRequest:
    """Return the message that removes an application."""
    return si_pb2.RemoveApplicationRequest(
        applicationID=report.application, partitionName=report.partition
    )


def node(report: NodeReport) -> si_pb2.NodeInfo:
    """Return the message about a node."""
    message = si_pb2.NodeInfo(
        nodeID=report.node,
        action=cast("si_pb2.NodeInfo.ActionFromRM", report.action),
        attributes=report.attributes,
        labels=report.labels,
        taints=[
            si_pb2.Taint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in report.taints
        ],
    )
    if report.capacity:
        message.schedulableResource.CopyFrom(resource(report.capacity))
    return message


def sync_complete(report: SyncComplete) -> si_pb2.SyncComplete:
    """Return the message that ends a sync."""
    return si_pb2.SyncComplete(
        nodes=report.nodes,
        applications=report.applications,
        allocations=report.allocations,
        asks=report.asks,
    )


def resource(amounts: Mapping[str, int]) -> si_pb2.Resource:
    """Return amounts, by resource type, as a Resource message."""
    return si_pb2.Resource(
        resources={kind: si_pb2.Quantity(value=amount) for kind, amount in amounts.items()}
    )


def pod_decisions(response: si_pb2.AllocationResponse) -> Iterator[Decision]:
    """Yield the decisions of an allocation response, releases first, so that their capacity counts as free.

    One response carries several decisions, and may both place and evict the same pod. As an exception, if a pod is both
    placed and evicted, the placement comes first. If the eviction came first, it would end a pod that never ran.
    """
    placed = {placement.allocationKey for placement in response.new}
    later: list[Released | Withdrawn] = []
    for end in _ends(response):
        if end.key in placed:
            later.append(end)
        else:
            yield end
    for placement in response.new:
        yield Placed(
            placement.allocationKey,
            intern(placement.nodeID),
            placement.applicationID,
            placement.partitionName,
        )
    yield from later
    for refusal in response.rejectedAllocations:
        yield PodRefused(refusal.allocationKey, refusal.reason)
    for ask_refusal in response.rejected:
        yield PodRefused(ask_refusal.allocationKey, ask_refusal.reason)
    for state in response.schedulingStates:
        if (why := _WAITING.get(state.state)) is not None:
            yield StillWaiting(state.allocationKey, why, state.reason)
    yield from _plan_checks(response)


def _plan_checks(response: si_pb2.AllocationResponse) -> Iterator[PlanCheck | PlanCheckEnded]:
    """Yield the plan checks that ended, then the plan checks that began.

    A check that began and ended within the response is left out, because it needs no answer.
    """
    begun = {(check.partitionName, check.checkID) for check in response.planChecks}
    ended = {(end.partitionName, end.checkID) for end in response.endedPlanChecks}
    for end in response.endedPlanChecks:
        if (end.partitionName, end.checkID) not in begun:
            yield PlanCheckEnded(end.checkID, end.partitionName)
    for check in response.planChecks:
        if (check.partitionName, check.checkID) not in ended:
            yield PlanCheck(
                check.checkID,
                check.partitionName,
                tuple((one.allocationKey, intern(one.nodeID)) for one in check.placements),
                tuple(check.victims),
            )


def _ends(response: si_pb2.AllocationResponse) -> Iterator[Released | Withdrawn]:
    """Yield the releases of allocations, then the withdrawn evictions, then the releases of asks."""
    for end in response.released:
        yield Released(
            key=end.allocationKey or end.UUID,
            termination=_read_termination(end.terminationType),
            application=end.applicationID,
            partition=end.partitionName,
            message=end.message,
            decision=end.decisionID,
            beneficiary=end.beneficiary,
            nodes=tuple(end.nodes),
            delivery=end.delivery,
        )
    for stays in response.withdrawn:
        yield Withdrawn(
            stays.allocationKey, stays.decisionID, stays.reason, partition=stays.partitionName
        )
    for ask_end in response.releasedAsks:
        yield Released(
            key=ask_end.allocationKey,
            termination=_read_termination(ask_end.terminationType),
            application=ask_end.applicationID,
            partition=ask_end.partitionName,
            message=ask_end.message,
        )


def application_decisions(response: si_pb2.ApplicationResponse) -> Iterator[Decision]:
    """Yield the decisions of an application response."""
    for taken in response.accepted:
        yield ApplicationAnswer(taken.applicationID, accepted=True)
    for refused in response.rejected:
        yield ApplicationAnswer(refused.applicationID, accepted=False, reason=refused.reason)
    for unchanged in response.rejectedUpdates:
        yield TagsRefused(unchanged.applicationID, unchanged.reason)
    for update in response.updated:
        yield ApplicationState(update.applicationID, update.state, update.message)


def node_decisions(response: si_pb2.NodeResponse) -> Iterator[Decision]:
    """Yield the decisions of a node response."""
    for taken in response.accepted:
        yield NodeAnswer(taken.nodeID, accepted=True)
    for refused in response.rejected:
        owned = refused.code == PARTITION_OWNED
        yield NodeAnswer(refused.nodeID, accepted=False, reason=refused.reason, is_owned=owned)


def _termination(kind: TerminationType) -> si_pb2.TerminationType:
    return cast("si_pb2.TerminationType", kind)


def _read_termination(number: int) -> TerminationType:
    """Return the termination type; UNKNOWN for a number that this version does not know."""
    try:
        return TerminationType(number)
    except ValueError:
        return TerminationType.UNKNOWN


def _constraints(constraints: NodeConstraints) -> si_pb2.NodeConstraints:
    return si_pb2.NodeConstraints(
        nodeSelector=dict(constraints.node_selector),
        requiredTerms=[_term(term) for term in constraints.required_terms],
        tolerations=[
            si_pb2.Toleration(
                key=item.key, operator=item.operator, value=item.value, effect=item.effect
            )
            for item in constraints.tolerations
        ],
        hostPorts=[
            si_pb2.HostPort(protocol=port.protocol, hostIP=port.host_ip, port=port.port)
            for port in constraints.host_ports
        ],
        allowedNodes=constraints.allowed_nodes,
        excludedNodes=constraints.excluded_nodes,
    )


def _preferences(preferences: NodePreferences) -> si_pb2.NodePreferences:
    return si_pb2.NodePreferences(
        terms=[
            si_pb2.PreferredTerm(weight=one.weight, term=_term(one.term))
            for one in preferences.terms
        ],
        groups=[
            si_pb2.GroupPreference(group=one.group, topologyKey=one.topology_key, weight=one.weight)
            for one in preferences.groups
        ],
    )


def _term(term: SelectorTerm) -> si_pb2.NodeSelectorTerm:
    return si_pb2.NodeSelectorTerm(
        matchExpressions=[_requirement(item) for item in term.match_expressions],
        matchFields=[_requirement(item) for item in term.match_fields],
    )


def _requirement(item: Requirement) -> si_pb2.NodeSelectorRequirement:
    return si_pb2.NodeSelectorRequirement(key=item.key, operator=item.operator, values=item.values)
