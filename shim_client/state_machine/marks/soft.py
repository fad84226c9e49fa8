"""Soft evictions: a victim is marked, and another operator deletes it at a time of its choice (J11).

A victim is marked with a label, by which operators select pods, and with an annotation. The annotation has the label's
key and names the preemptor. If an operator removes the label, the pod stays: the core receives a veto and looks for
another victim.
"""

from __future__ import annotations

import json

from shim_client.messages import Releasing
from shim_client.state_machine.marks import notices, victim_marks
from shim_client.state_machine.state import PodRecord, State
from shim_client.translate import labels

LABELS = {labels.SOFT_EVICTION: "true"}
"""The label that is written in addition to the annotation.

The annotation has JSON, which is not a valid value of a label.
"""
KEPT = f"the label {labels.SOFT_EVICTION} was removed: the operator that evicts marked pods keeps this one"


def annotation(state: State, pod: PodRecord, order: Releasing) -> str:
    """Return the annotation for a victim: the decision, and the preemptor's job if it is in the victim's namespace.

    Jobs of other namespaces are not named, so that tenants stay hidden from each other.
    """
    written = {"preemptJob": _job(state, pod, order) or order.decision, "decision": order.decision}
    return json.dumps(written, separators=(",", ":"))


def _job(state: State, pod: PodRecord, order: Releasing) -> str:
    other = state.pods.get(order.beneficiary)
    if other is None or other.facts.ref.namespace != pod.facts.ref.namespace:
        return ""
    return other.job.key if other.job else ""


def is_marked(pod: PodRecord) -> bool:
    """Return whether the pod carries the label of a soft eviction."""
    return pod.facts.labels.get(labels.SOFT_EVICTION) == "true"


def stands(pod: PodRecord, order: Releasing) -> bool:
    """Return whether the pod carries the label and the annotation of this order.

    After their removal, label and annotation of an earlier order may remain visible for a moment.
    """
    found = pod.facts.report.releasing
    return is_marked(pod) and found is not None and found.decision == order.decision


def observe(state: State, pod: PodRecord) -> None:
    """Check whether a victim still carries its label and annotation. A victim without them is not evicted."""
    if not pod.soft or pod.order is None or pod.facts.deleting:
        return
    if stands(pod, pod.order):
        pod.marked = True
    elif pod.marked and not is_marked(pod):
        order = pod.order
        state.note(pod.facts.ref, "PreemptionWithdrawn", KEPT, warning=True)
        victim_marks.veto(state, pod.facts.ref.uid, order.decision, KEPT)
        notices.take_back(state, pod, order, KEPT)
