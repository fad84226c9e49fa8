"""Victims: pods that the core orders to be evicted.

The shim observes each victim until the pod has ended, or until a veto reports that the pod is not evicted.
"""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import (
    ClusterError,
    DeletePod,
    EvictPod,
    MissingError,
    ObjectRef,
    PatchPod,
    ReleasePod,
)
from shim_client.messages import PodRelease, Released, Releasing, TerminationType, Withdrawn
from shim_client.state_machine import pods
from shim_client.state_machine.marks import notices, soft, victim_marks
from shim_client.state_machine.state import CoreSession, PodRecord, State
from shim_client.translate import labels

ORDERS = frozenset(
    {
        TerminationType.TIMEOUT,
        TerminationType.PREEMPTED_BY_SCHEDULER,
        TerminationType.PLACEHOLDER_REPLACED,
    }
)
"""Termination types that order a pod's deletion.

All other types report a pod that has already ended.
"""
EVICT = "evict"
DELIVERIES = frozenset({"", "delete", EVICT, victim_marks.SOFT})
"""Ways to end a pod that this shim knows."""

_REASONS = {
    TerminationType.TIMEOUT: "TimedOut",
    TerminationType.PREEMPTED_BY_SCHEDULER: "Preempted",
    TerminationType.PLACEHOLDER_REPLACED: "PlaceholderReplaced",
}
_GOES = (victim_marks.DISRUPTED, "True", "PreemptionByScheduler")


def released(state: State, decision: Released) -> None:
    """Evict a pod as the core ordered.

    If the pod is gone already, confirm the order. If the core has released a running pod, but has not ordered its
    eviction, report the pod again.
    """
    pod = state.pods.get(decision.key)
    if decision.termination in ORDERS:
        _end(state, pod, decision)
    elif decision.termination is TerminationType.STOPPED_BY_RM and pod and pod.sent:
        pod.sent = None
        pods.offer(state, pod)


def _end(state: State, pod: PodRecord | None, decision: Released) -> None:
    if pod is None:
        _confirm(state, decision)
        return
    node = decision.nodes[0] if decision.nodes else ""
    mark = (decision.termination, decision.decision, decision.beneficiary, node)
    order = Releasing(*mark, delivery=decision.delivery)
    if pod.order == order:
        return
    if decision.decision and (why := _obstacle(pod, decision.delivery)):
        victim_marks.veto(state, decision.key, decision.decision, why)
        return
    reminded = _is_reminded(pod, decision)
    if reminded is None:
        _put(pod, order, softly=decision.delivery == victim_marks.SOFT)
        if order.termination is TerminationType.PREEMPTED_BY_SCHEDULER:
            notices.make(state, order)
    why = decision.message or "the scheduler takes the pod's place back"
    state.note(pod.facts.ref, _REASONS[decision.termination], why)
    note = _note(state, pod, reminded or order, why, decision.delivery)
    end = _end_of(pod.facts.ref, decision.delivery)
    state.actions.append(ReleasePod(pod.facts.ref, end, note, decision.decision))


def _is_reminded(pod: PodRecord, decision: Released) -> Releasing | None:
    """Return the order to evict a pod that another operator is to delete, if the core repeats that order.

    Return None in all other cases. After a decision has expired, the core repeats the order, and then names no
    preemptor. The annotation on the pod still names the preemptor of the first order.
    """
    order = pod.order
    again = order is not None and order.decision == decision.decision != ""
    return order if again and pod.soft and decision.delivery == victim_marks.SOFT else None


def _confirm(state: State, decision: Released) -> None:
    """Report that a pod is gone.

    The report confirms the core's order to evict the pod.
    """
    state.session_of(decision.partition).reports.append(
        PodRelease(
            decision.key,
            decision.application,
            decision.partition,
            decision.termination,
            decision=decision.decision,
        )
    )


def withdrawn(state: State, decision: Withdrawn) -> None:
    """Remove the annotation that marks a victim, because the capacity of this victim is no longer needed.

    A victim that is already ending cannot be kept. After a withdrawal, the core treats every victim as a pod that stays. If a
    victim is already ending, the shim reports again that this pod is being deleted.
    """
    pod = state.pods.get(decision.key)
    if pod is None or pod.order is None or pod.order.decision != decision.decision:
        return
    if pod.soft and not pod.facts.deleting:
        why = decision.reason or "no pod waits for its capacity any more"
        state.note(pod.facts.ref, "PreemptionWithdrawn", why)
        notices.take_back(state, pod, pod.order, why)
        return
    if pod.soft:
        pod.void, pod.order = pod.order, None  # Another client's deletion voids the order.
        pod.soft = pod.marked = False
    if pod.sent is not None:
        pod.sent = replace(pod.sent, releasing=None)
    pods.offer(state, pod)


def _obstacle(pod: PodRecord, delivery: str) -> str:
    """Return why a victim cannot be evicted in the requested way; "" when it can be evicted."""
    if delivery not in DELIVERIES:
        return f"this shim does not know the delivery {delivery[:40]!r}"
    groups = pod.sent.disruption_groups if pod.sent else ()
    if delivery == EVICT and len(groups) > 1:
        return f"{len(groups)} disruption budgets count it, and an eviction takes one at most"
    return ""


def _put(pod: PodRecord, order: Releasing, *, softly: bool) -> None:
    """Record the core's order on a pod.

    The order is not reported back to the core.
    """
    pod.order, pod.void = order, None
    pod.soft, pod.marked = softly, softly and soft.stands(pod, order)
    if pod.sent is not None:
        pod.sent = replace(pod.sent, releasing=order)


def _end_of(ref: ObjectRef, delivery: str) -> DeletePod | EvictPod | None:
    """Return the action that ends the pod. Return None when another operator is to delete the pod (J11)."""
    if delivery == victim_marks.SOFT:
        return None
    return EvictPod(ref) if delivery == EVICT else DeletePod(ref)


def _note(
    state: State, pod: PodRecord, order: Releasing, why: str, delivery: str
) -> PatchPod | None:
    """Return the annotations and condition to write on a pod before it is evicted.

    Return None when there is nothing to write.
    """
    preempted = order.termination is TerminationType.PREEMPTED_BY_SCHEDULER
    if not preempted and not order.decision:
        return None
    written: dict[str, str | None] = {}
    if order.decision:
        written[labels.RELEASED_FOR] = f"{order.decision}/{order.beneficiary}/{order.node}"
        if delivery in {EVICT, victim_marks.SOFT}:
            written[labels.DELIVERY] = delivery
    softly = delivery == victim_marks.SOFT
    if softly:
        written[labels.SOFT_EVICTION] = soft.annotation(state, pod, order)
    condition = (*_GOES, why[:1024]) if preempted else None
    labelled = soft.LABELS if softly else {}
    return PatchPod(pod.facts.ref, annotations=written, labels=labelled, condition=condition)


def outcome(state: State, pod: PodRecord, action: ReleasePod, error: ClusterError | None) -> None:
    """Process the result of an eviction.

    If the victim of a decision stays, report a veto; the core then makes another plan. A pod that is gone or is being
    deleted is not vetoed, because its capacity becomes free.
    """
    if error is None or isinstance(error, MissingError) or pod.facts.deleting:
        return
    state.note(pod.facts.ref, "FailedDeletion", f"the pod stays: {error}", warning=True)
    if action.decision:
        victim_marks.veto(state, pod.facts.ref.uid, action.decision, str(error))
    if pod.order is not None and pod.order.decision == action.decision:
        notices.take_back(state, pod, pod.order, f"the pod stays: {error}")


# Functions for the evictions that continue after a restart of the shim.


def take_up(state: State, session: CoreSession) -> None:
    """Resume or give up the evictions that the core ordered from an earlier run of the shim (C8).

    The function is called before any report is sent. Annotations of the shim mark the victims. A victim is evicted when
    its preemptor still waits, or when a quota run ordered its eviction. A victim stays if its preemptor has a node or
    is gone. A victim also stays if another operator was to delete it, and the label for this operator was removed
    meanwhile.
    """
    for pod in list(state.pods.values()):
        mark = victim_marks.written(pod)
        if mark is None or pod.order is not None or state.session_for(pod) is not session:
            continue
        softly = pod.facts.delivery == victim_marks.SOFT
        kept = softly and not soft.is_marked(pod)
        if pod.facts.deleting or (pod.node and not kept and _is_wanted(state, mark)):
            _put(pod, mark, softly=softly)
            session.taken_up.append(pod.facts.ref.uid)
        else:
            why = soft.KEPT if kept else "no pod waits for its capacity any more"
            victim_marks.take_back(state, pod, mark, why)


def carry_on(state: State, session: CoreSession) -> None:
    """Evict the pods of resumed orders once the core knows these pods.

    If a victim ended before it was reported, the core would not keep the freed capacity for the preemptor.
    """
    for uid in session.taken_up:
        pod = state.pods.get(uid)
        if pod is None or pod.order is None or pod.facts.deleting:
            continue
        end = _end_of(pod.facts.ref, pod.facts.delivery)
        if end is not None:
            state.actions.append(ReleasePod(pod.facts.ref, end, None, pod.order.decision))
    session.taken_up.clear()


def _is_wanted(state: State, mark: Releasing) -> bool:
    """Return whether the preemptor in the annotation still waits.

    A quota run has no preemptor, so its evictions are always wanted.
    """
    if not mark.beneficiary:
        return True
    pod = state.pods.get(mark.beneficiary)
    return pod is not None and pod.facts.ours and not pod.node and not pod.facts.deleting
