"""Soft evictions: a victim is marked, and another operator has it go when it is ready (seed 003; J11).

The mark is a label for whoever selects by it, and an annotation of the same key that says for whom.  Whoever
takes the label away again says that the pod stays: the core hears a veto and looks for somebody else.
"""

from __future__ import annotations

import json

from shim_client.mirror import marks, rooms
from shim_client.mirror.state import PodRecord, State
from shim_client.reports import Releasing
from shim_client.translate import labels

LABELS = {labels.SOFT_EVICTION: "true"}
"""JSON is no legal value of a label, so that it stands in the annotation."""
KEPT = f"the label {labels.SOFT_EVICTION} was taken away: whoever has marked pods go keeps this one"


def annotation(state: State, pod: PodRecord, order: Releasing) -> str:
    """Return what the victim's owner may read of who gets the room: a decision, and a job of its own namespace.

    The seed names the job always; here the names of other tenants are nobody's to read (specification 9).
    """
    written = {"preemptJob": _job(state, pod, order) or order.decision, "decision": order.decision}
    return json.dumps(written, separators=(",", ":"))


def _job(state: State, pod: PodRecord, order: Releasing) -> str:
    other = state.pods.get(order.beneficiary)
    if other is None or other.facts.ref.namespace != pod.facts.ref.namespace:
        return ""
    return other.facts.report.job_key


def is_marked(pod: PodRecord) -> bool:
    """Return whether the mark stands on the pod."""
    return pod.facts.labels.get(labels.SOFT_EVICTION) == "true"


def stands(pod: PodRecord, order: Releasing) -> bool:
    """Return whether this order's mark stands; one that was taken back may be there for a moment yet."""
    found = pod.facts.report.releasing
    return is_marked(pod) and found is not None and found.decision == order.decision


def observe(state: State, pod: PodRecord) -> None:
    """Take in whether the mark stands on a victim; one from which it was taken away stays."""
    if not pod.soft or pod.order is None or pod.facts.deleting:
        return
    if stands(pod, pod.order):
        pod.marked = True
    elif pod.marked and not is_marked(pod):
        order = pod.order
        state.note(pod.facts.ref, "PreemptionWithdrawn", KEPT, warning=True)
        marks.veto(state, pod.facts.ref.uid, order.decision, KEPT)
        rooms.take_back(state, pod, order, KEPT)
