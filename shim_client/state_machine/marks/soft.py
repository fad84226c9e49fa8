"""Soft evictions: a victim is marked, and another operator deletes it when it is ready (seed 003; J11).

The mark is a label, by which operators select, and an annotation with the same key that names the preemptor. An
operator that removes the label again says that the pod stays: the core receives a veto and looks for another victim.
"""

from __future__ import annotations

import json

from shim_client.messages import Releasing
from shim_client.state_machine.marks import notices, victim_marks
from shim_client.state_machine.state import PodRecord, State
from shim_client.translate import labels

LABELS = {labels.SOFT_EVICTION: "true"}
"""The label beside the annotation: JSON is no legal value of a label."""
KEPT = f"the label {labels.SOFT_EVICTION} was removed: the operator that evicts marked pods keeps this one"


def annotation(state: State, pod: PodRecord, order: Releasing) -> str:
    """Return what the victim's owner may read about the preemptor: a decision, and a job of its own namespace.

    The seed always names the job; here the names of other tenants stay hidden (specification 9).
    """
    written = {"preemptJob": _job(state, pod, order) or order.decision, "decision": order.decision}
    return json.dumps(written, separators=(",", ":"))


def _job(state: State, pod: PodRecord, order: Releasing) -> str:
    other = state.pods.get(order.beneficiary)
    if other is None or other.facts.ref.namespace != pod.facts.ref.namespace:
        return ""
    return other.facts.report.job_key


def is_marked(pod: PodRecord) -> bool:
    """Return whether the pod carries the mark."""
    return pod.facts.labels.get(labels.SOFT_EVICTION) == "true"


def stands(pod: PodRecord, order: Releasing) -> bool:
    """Return whether the pod carries this order's mark; one that was taken back may remain for a moment."""
    found = pod.facts.report.releasing
    return is_marked(pod) and found is not None and found.decision == order.decision


def observe(state: State, pod: PodRecord) -> None:
    """Check whether a victim still carries its mark; a victim without it stays."""
    if not pod.soft or pod.order is None or pod.facts.deleting:
        return
    if stands(pod, pod.order):
        pod.marked = True
    elif pod.marked and not is_marked(pod):
        order = pod.order
        state.note(pod.facts.ref, "PreemptionWithdrawn", KEPT, warning=True)
        victim_marks.veto(state, pod.facts.ref.uid, order.decision, KEPT)
        notices.take_back(state, pod, order, KEPT)
