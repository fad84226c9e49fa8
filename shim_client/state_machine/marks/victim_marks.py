"""Marks: annotations on victims.

A restarted shim reads these marks, so that it evicts exactly the pods whose eviction was ordered (C8). The annotation
is read once, when a session begins. Later, the annotation is valid only on pods whose eviction this shim carries out.
The shim removes an annotation that a user has written, or has copied with the manifest of a victim.
"""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import KINDS, PatchPod
from shim_client.messages import Releasing, TerminationType, Veto
from shim_client.state_machine.state import PodRecord, State
from shim_client.translate import labels

DISRUPTED = "DisruptionTarget"
"""The condition of a victim, written before its deletion."""
SOFT = "soft"
"""The way of eviction in which the shim only marks the victim (J11)."""
_STAYS = (DISRUPTED, "False", "PreemptionWithdrawn")


def mark_of(pod: PodRecord) -> Releasing | None:
    """Return why a pod on a node is ending: the order of the core, or a deletion that the core did not order.

    Return None if the pod is not ending.
    """
    if not pod.node:
        return None
    if pod.order is None and pod.facts.deleting:
        return Releasing(TerminationType.STOPPED_BY_RM)
    return pod.order


def written(pod: PodRecord) -> Releasing | None:
    """Return the facts in the annotation that marks the pod as a victim.

    Return None if the pod has no such annotation, or if the annotation is being removed.
    """
    found = pod.facts.report.releasing
    return found if found is not None and found.decision and found != pod.void else None


def take_back(state: State, pod: PodRecord, mark: Releasing, why: str) -> None:
    """Remove the annotation of a victim.

    The pod stays, and the shim reports that the pod is no longer being evicted.
    """
    was_soft = pod.soft or pod.facts.delivery == SOFT
    pod.void, pod.order, pod.soft, pod.marked = mark, None, False, False
    if pod.sent is not None:
        pod.sent = replace(pod.sent, releasing=None)
    if not mark.decision:
        return
    nothing: dict[str, str | None] = {labels.RELEASED_FOR: None, labels.DELIVERY: None}
    softly: dict[str, str | None] = {labels.SOFT_EVICTION: None} if was_soft else {}
    state.actions.append(
        PatchPod(
            pod.facts.ref,
            annotations={**nothing, **softly},
            labels=softly,
            condition=(*_STAYS, why[:1024]),
        )
    )


def veto(state: State, key: str, decision: str, why: str) -> None:
    """Report to the core that a victim stays.

    Without a session nothing is reported.
    """
    pod = state.pods.get(key)
    session = state.session_for(pod) if pod is not None else state.session_of("")
    if session.may_tell_pods():
        session.reports.append(Veto(key, decision, why))


def refuse_strange(state: State, pod: PodRecord, before: Releasing | None) -> None:
    """Remove the annotation that marks victims from a pod whose eviction the core did not order."""
    if pod.order is not None or pod.facts.deleting or not state.listed.issuperset(KINDS):
        return
    mark = written(pod)
    if mark is not None and mark != before:
        take_back(state, pod, mark, "this mark was not written by the core")
