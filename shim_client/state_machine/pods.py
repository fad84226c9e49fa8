"""Pods. A pod is reported to the core when everything for which the pod waits exists, and again when the pod changes.

A pod may be reported when its scheduling gates are gone, and its volume claims and PodGroup exist. The core must also
have accepted the pod's application and, for a pod with a node, the node (design 1.10). A pod on an unknown node is
reported when the node appears.
"""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import KubeObject, ObjectRef
from shim_client.messages import PodRelease, PodReport, TerminationType
from shim_client.state_machine import (
    applications,
    jobs,
    node_suitability,
    pod_groups,
    preferences,
    promises,
    settling,
    volume_matching,
)
from shim_client.state_machine.marks import soft, victim_marks
from shim_client.state_machine.state import ApplicationRecord, Phase, PodRecord, Standing, State
from shim_client.translate.fields import BadObjectError, mapping
from shim_client.translate.matching import selects
from shim_client.translate.neighbours import Demands
from shim_client.translate.pod import PodFacts, for_core, is_terminated, read_pod, read_ref
from shim_client.translate.volumes import ClaimFacts


def observe(state: State, item: KubeObject) -> None:
    """Record a pod that is new or has changed.

    A pod that has ended counts as deleted.
    """
    if is_terminated(item):
        forget(state, item)
        return
    facts = _read(state, item)
    if facts is None:
        return
    pod = state.pods.get(facts.ref.uid)
    before = pod.facts.report.releasing if pod else None
    if pod is None:
        pod = PodRecord(facts, state.arrivals)
        state.arrivals += 1
        state.pods[facts.ref.uid] = pod
    pod.facts = facts
    pod_groups.enroll(state, pod)
    _demand(state, pod, None if facts.report.node or not facts.ours else facts.demands)
    victim_marks.refuse_strange(state, pod, before)
    soft.observe(state, pod)
    if facts.report.node and facts.report.node != pod.node:
        promises.end_of(state, pod)
        assign(state, pod, facts.report.node)
    elif at := pod.node or pod.promised:
        settling.settle(state, pod, at)
    for problem in facts.problems:
        state.note_once(pod, "PodNotClear", problem, warning=True)
    offer(state, pod)


def forget(state: State, item: KubeObject) -> None:
    """Record that a pod was deleted.

    Report the deletion if the core knows the pod.
    """
    uid = mapping(item, "metadata").get("uid")
    if isinstance(uid, str):
        state.bad.pop(uid, None)
        remove(state, uid)


def remove(state: State, uid: str) -> None:
    """Remove a pod by uid.

    If the core ordered the eviction of the pod, the report of the pod's release confirms that order.
    """
    pod = state.pods.pop(uid, None)
    if pod is None:
        return
    promises.end_of(state, pod)
    unassign(state, pod)
    volume_matching.release(state, uid)
    _demand(state, pod, None)
    if pod.sent is not None:
        order = pod.order
        withdraw(
            state,
            pod,
            order.termination if order else TerminationType.STOPPED_BY_RM,
            order.decision if order else "",
        )
    jobs.leave(state, pod)
    pod_groups.leave(state, pod)
    applications.leave(state, pod)


def withdraw(state: State, pod: PodRecord, why: TerminationType, decision: str = "") -> None:
    """Tell the core to release the pod as it was last reported.

    Do nothing if the core does not know the pod.
    """
    if pod.sent is None:
        return
    state.session_of(pod.sent.partition).reports.append(
        PodRelease(
            key=pod.sent.key,
            application=pod.sent.application,
            partition=pod.sent.partition,
            termination=why,
            decision=decision,
        )
    )
    pod.sent = None


def offer(state: State, pod: PodRecord) -> None:
    """Report a new or changed pod to the core.

    The pod is reported as soon as everything for which it waits exists, and the nodes and applications of the session
    were reported. Without a session nothing is done. Within a session, a pod of this scheduler joins its application
    and its job as soon as everything that it waits for exists, even before the pod is reported. A pod on a node that
    the core has not accepted is withdrawn from the core.
    """
    session = state.session_for(pod)
    if session.phase is Phase.AWAY or not _is_ripe(state, pod):
        return
    if pod.facts.ours:
        application = _join(state, pod)
        if application.standing is not Standing.ACCEPTED:
            return
    if not session.may_tell_pods() or jobs.lacks_size(state, pod):
        return
    if pod.node and not state.node_accepts(pod.node):
        if pod.facts.ours and pod.node not in state.nodes:
            state.note_once(pod, "NodeUnknown", f"there is no node {pod.node!r}", warning=True)
        withdraw(state, pod, TerminationType.STOPPED_BY_RM)
        return
    _tell(state, pod)


def enroll(state: State, pod: PodRecord) -> ApplicationRecord | None:
    """Add a pod to its application without reporting the pod yet, if everything that the pod waits for exists."""
    if not pod.facts.ours or not _is_ripe(state, pod):
        return None
    return _join(state, pod)


def _join(state: State, pod: PodRecord) -> ApplicationRecord:
    """Add the pod to its application and to its job."""
    application = applications.join(state, pod)
    jobs.join(state, pod)
    return application


def assign(state: State, pod: PodRecord, node: str) -> None:
    """Record the node of the pod."""
    unassign(state, pod)
    pod.node = node
    state.assigned.setdefault(node, {})[pod.facts.ref.uid] = None
    settling.settle(state, pod, node)


def unassign(state: State, pod: PodRecord) -> None:
    """Record that the pod is on no node."""
    others = state.assigned.get(pod.node)
    if others is not None:
        others.pop(pod.facts.ref.uid, None)
        if not others:
            del state.assigned[pod.node]
    pod.node = ""
    settling.unsettle(state, pod)


def _demand(state: State, pod: PodRecord, demands: Demands | None) -> None:
    """Start counting the neighbouring pods for the demands of a pod without a node, or stop counting them."""
    before, pod.demanded = pod.demanded, demands
    if before == demands:
        return
    if demands is not None:
        state.neighbourhood.use(demands)
    if before is not None:
        state.neighbourhood.release(before)


def report_of(state: State, pod: PodRecord) -> PodReport:
    """Return the report of the pod for the core, from the present state."""
    facts, application = pod.facts, pod.application
    report = for_core(
        facts,
        class_allows=state.classes.get(facts.priority_class, True),
        originator=(
            application is not None
            and application.originator == facts.ref.uid
            and not facts.report.placeholder
        ),
    )
    if application is None:
        partition = state.nodes[pod.node].facts.partition
        return report if partition == report.partition else replace(report, partition=partition)
    if groups := _groups(state, facts):
        report = replace(report, disruption_groups=groups)
    if not pod.node:
        report = node_suitability.narrowed(state, pod, report)
    report = preferences.weighed(state, pod, report)
    now = {
        "node": pod.node,
        "application": application.id,
        "partition": application.partition,
        "job_key": jobs.reported_key(pod),
        "job_members": jobs.reported_size(pod),
        "releasing": victim_marks.mark_of(pod),
    }
    same = all(getattr(report, name) == value for name, value in now.items())
    return report if same else replace(report, **now)  # type: ignore[arg-type]


def _groups(state: State, facts: PodFacts) -> tuple[str, ...]:
    """Return the names of the disruption budgets that count the pod."""
    namespace = facts.ref.namespace
    budgets = state.budgets.get(namespace, {})
    return tuple(
        f"{namespace}/{name}"
        for name in sorted(budgets)
        if selects(budgets[name].selector, facts.labels)
    )


def _read(state: State, item: KubeObject) -> PodFacts | None:
    """Return the pod's facts.

    For an unreadable pod, record an event once and return None.
    """
    try:
        facts = read_pod(item, state.settings, _known_names(state, item))
    except BadObjectError as bad:
        _complain(state, item, str(bad))
        return None
    state.bad.pop(facts.ref.uid, None)
    return facts


def _known_names(state: State, item: KubeObject) -> ObjectRef:
    """Return the pod's reference. If an equal reference is already stored, return the stored object.

    Raises BadObjectError if the object has no valid name, namespace or uid.
    """
    ref = read_ref(item)
    pod = state.pods.get(ref.uid)
    return pod.facts.ref if pod is not None and pod.facts.ref == ref else ref


def _complain(state: State, item: KubeObject, message: str) -> None:
    try:
        ref = read_ref(item)
    except BadObjectError:
        ref = ObjectRef("Pod", "", "unnamed")
    if state.bad.get(ref.uid) != message:
        state.bad[ref.uid] = message
        state.note(ref, "PodNotReadable", message, warning=True)
        if ref.uid and _waits_for_us(state, item):
            state.say(ref, "PodNotReadable", message)


def _waits_for_us(state: State, item: KubeObject) -> bool:
    """Return whether an unreadable pod names this scheduler and has no node."""
    spec = item.get("spec")
    if not isinstance(spec, dict):
        return False
    return spec.get("schedulerName") in state.settings.scheduler_names and not spec.get("nodeName")


def _is_ripe(state: State, pod: PodRecord) -> bool:
    facts = pod.facts
    if not facts.ours:
        return bool(pod.node)
    if pod.node:
        return True
    if pod.failed:
        return False
    if facts.gates:
        state.note_once(pod, "SchedulingGated", f"waits for its gates {', '.join(facts.gates)}")
        return False
    if facts.deleting:
        return False
    needs = _needs_devices(facts) or pod_groups.lacking(state, pod)
    why = needs or _lacks_volume(state, pod)
    if why:
        state.note_once(pod, "FailedScheduling", why, warning=True)
        # More nodes would not help a pod with device claims or without its group. Autoscalers add no nodes for a pod
        # whose condition has the reason SchedulingSkipped.
        state.say_once(pod, "SchedulingSkipped" if needs else "Unschedulable", why)
        pod.held = True
    return not why


def _needs_devices(facts: PodFacts) -> str:
    """Return why a pod with device claims is not reported as an ask; "" for a pod without device claims."""
    if not facts.devices:
        return ""
    names = ", ".join(facts.devices)
    return f"device claims are not supported: {names}; use another scheduler for this pod"


def _lacks_volume(state: State, pod: PodRecord) -> str:
    """Return the name of a volume that does not exist yet and without which the pod can have no node.

    Return "" when no volume is missing. An ask that the core already knows stays there, even if its free volumes are
    gone. No node suits the ask then.
    """
    for name in pod.facts.claims:
        claim = state.claim_of(pod, name)
        if why := _foreign_claim(pod, name, claim) or _unready(state, name, claim):
            return why
    return "" if pod.sent is not None else volume_matching.lacking(state, pod)


def _foreign_claim(pod: PodRecord, name: str, claim: ClaimFacts | None) -> str:
    """Return why the claim of the pod's ephemeral volume was not made for this pod.

    Return "" when the claim was made for this pod, when the claim does not exist, or when the volume is not
    ephemeral.
    """
    if claim is None or name not in pod.facts.own_claims or claim.owner == pod.facts.ref.uid:
        return ""
    return f"persistentvolumeclaim {name!r} was not made for this pod"


def _unready(state: State, name: str, claim: ClaimFacts | None) -> str:
    """Return why a claim cannot be mounted yet.

    Return "" when the claim can be mounted now, or as soon as the pod has a node.
    """
    if claim is None:
        return f"persistentvolumeclaim {name!r} is not there"
    if claim.phase == "Bound" and claim.volume not in state.volumes:
        return f"persistentvolume {claim.volume!r} of claim {name!r} is not there"
    if claim.phase == "Lost":
        return f"persistentvolumeclaim {name!r} has lost its volume"
    kind = state.storage_classes.get(claim.storage_class)
    if claim.phase == "Pending" and not (kind and kind.waits_for_pod):
        return f"persistentvolumeclaim {name!r} has no volume yet"
    return ""


def _tell(state: State, pod: PodRecord) -> None:
    report = report_of(state, pod)
    if report in (pod.sent, pod.refused):
        return
    if pod.sent is None:
        _explain(state, pod, report)
    if pod.held:
        pod.held, pod.said = False, None
    pod.updated = pod.sent is not None
    pod.sent, pod.refused = report, None
    if report.node and pod.application is not None:
        pod.application.ran = True
    state.session_of(report.partition).reports.append(report)


def _explain(state: State, pod: PodRecord, report: PodReport) -> None:
    """Record events about settings that have another effect than the pod's author may expect."""
    name = pod.facts.priority_class
    if name and name not in state.classes:
        why = f"there is no PriorityClass {name!r}; the pod's priority is {report.priority}"
        state.note_once(pod, "PriorityClassUnknown", why, warning=True)
