"""Decisions of the core about pods, and the results of the actions that carry them out."""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import (
    Action,
    Bind,
    ClusterError,
    CreatePod,
    DeletePod,
    ElsewhereError,
    PatchPod,
    ReadOwner,
    RecordEvent,
    ReleasePod,
)
from shim_client.messages import (
    Placed,
    PodRefused,
    PodRelease,
    PodReport,
    StillWaiting,
    TerminationType,
    Waiting,
)
from shim_client.state_machine import (
    evictions,
    node_suitability,
    placeholders,
    pods,
    promises,
    volume_matching,
)
from shim_client.state_machine.state import PodRecord, State

_CONDITION_REASONS = {Waiting.SKIPPED: "SchedulingSkipped", Waiting.FAILED: "Unschedulable"}


def placed(state: State, decision: Placed) -> None:
    """Bind a pod to its node.

    If the pod is gone or being deleted, or if the node does not suit the pod, give the placement back. If the pod is
    on another node, report the pod with that node. Do nothing if the pod is on this node already, or if the node is
    gone.
    """
    pod = state.pods.get(decision.key)
    if pod is not None and pod.sent is None and pod.refused is not None:
        pod.sent, pod.refused = pod.refused, None
    if pod is not None:
        promises.end_of(state, pod)
    if pod is None or pod.sent is None or pod.facts.deleting:
        _give_back(state, pod, decision)
    elif pod.node == decision.node:
        return
    elif pod.node:
        _insist(state, pod)
    elif why := node_suitability.obstacle(state, pod, decision.node):
        _unsuitable(state, pod, decision, why)
    elif decision.node in state.nodes:
        _bind(state, pod, pod.sent, decision.node)
    # When the node is gone, the removal of the node is reported. The core then releases the pod.


def _bind(state: State, pod: PodRecord, sent: PodReport, node: str) -> None:
    """Bind a pod to the node on which the core placed it, once the volumes of its claims are bound."""
    volumes = volume_matching.plan(state, pod, node) or {}
    volume_matching.pledge(state, pod, volumes)
    pods.assign(state, pod, node)
    pod.sent = replace(sent, node=node)
    pod.said = pod.freed = None
    if pod.application is not None:
        pod.application.ran = True
    if volumes:
        why = f"waits for the volumes of its claims on node {node}: {', '.join(volumes)}"
        state.say_once(pod, "WaitingForVolumes", why)
    state.actions.append(Bind(pod.facts.ref, node, tuple(volumes.items())))


def _give_back(state: State, pod: PodRecord | None, decision: Placed) -> None:
    """Give a placement back at once, because the pod is gone or is being deleted."""
    stopped = TerminationType.STOPPED_BY_RM
    state.session_of(decision.partition).reports.append(
        PodRelease(decision.key, decision.application, decision.partition, stopped)
    )
    if pod is not None:
        pod.sent = None


def _unsuitable(state: State, pod: PodRecord, decision: Placed, why: str) -> None:
    """Give a placement back because the node, as it is known now, does not suit the pod (design 1.8).

    The core then avoids the node until the ask is reported with other suitable nodes. If the list of suitable nodes is
    short enough to be sent, the ask is reported with this list at once. The ask keeps its place in the order of asks.
    """
    sent = pod.sent
    assert sent is not None
    failed = TerminationType.SCHEDULING_FAILED_ON_RM
    message = f"{decision.node}: {why}"
    session = state.session_of(sent.partition)
    session.reports.append(PodRelease(sent.key, sent.application, sent.partition, failed, message))
    pods.offer(state, pod)


def _insist(state: State, pod: PodRecord) -> None:
    """Report the pod with the node to which another scheduler has bound it meanwhile."""
    pods.withdraw(state, pod, TerminationType.SCHEDULING_FAILED_ON_RM)
    pods.offer(state, pod)


def refused(state: State, decision: PodRefused) -> None:
    """Record an event that the core refused a pod.

    The pod is reported again when it has changed. When the core refuses a later report of a pod, the core keeps the pod
    as it was reported before. For this reason the end of a refused pod must still be reported.
    """
    pod = state.pods.get(decision.key)
    if pod is None or pod.sent is None:
        return
    state.note_once(pod, "TaskRejected", decision.reason, warning=True)
    if pod.updated:
        return
    pod.sent, pod.refused = None, pod.sent
    if not pod.node:
        state.say_once(pod, "TaskRejected", decision.reason)


def waiting(state: State, decision: StillWaiting) -> None:
    """Write into a pod's condition why the pod waits, but only when the reason has changed."""
    pod = state.pods.get(decision.key)
    if pod is None or pod.node:
        return
    state.say_once(pod, _CONDITION_REASONS[decision.state], decision.reason)


def outcome(state: State, action: Action, error: ClusterError | None) -> None:
    """Process the result of an action on the cluster after its last attempt."""
    if isinstance(action, CreatePod):
        placeholders.made(state, action, error)
        return
    if isinstance(action, RecordEvent | ReadOwner):
        return
    pod = state.pods.get(action.pod.uid)
    if pod is None:
        return
    if isinstance(action, Bind):
        _bound(state, pod, action, error)
    elif isinstance(action, PatchPod):
        pod.said = None  # The reason was not written to the pod. The shim writes the reason when the core sends it again.
    elif isinstance(action, DeletePod):
        placeholders.dropped(state, pod, error)
    elif isinstance(action, ReleasePod):
        evictions.outcome(state, pod, action, error)


def _bound(state: State, pod: PodRecord, action: Bind, error: ClusterError | None) -> None:
    ref = pod.facts.ref
    if error is None:
        state.note(ref, "Scheduled", f"assigned {ref.namespace}/{ref.name} to {action.node}")
        return
    if pod.facts.report.node or pod.node != action.node:
        return
    if isinstance(error, ElsewhereError):
        _moved(state, pod, error)
        return
    volume_matching.release(state, ref.uid)
    state.note(ref, "FailedBinding", f"binding to {action.node} failed: {error}", warning=True)
    pods.unassign(state, pod)
    if pod.sent is None:
        pods.offer(state, pod)
        return
    sent = pod.sent
    pods.withdraw(state, pod, TerminationType.SCHEDULING_FAILED_ON_RM)
    pod.sent = replace(sent, node="")


def _moved(state: State, pod: PodRecord, error: ElsewhereError) -> None:
    """Report that another scheduler bound the pod, with the node."""
    state.note(pod.facts.ref, "FailedBinding", str(error), warning=True)
    pods.assign(state, pod, error.node)
    _insist(state, pod)
