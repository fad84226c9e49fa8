"""Marks: what stands on a pod that has to go, so that nobody else dies after a restart (specification 1.7).

A mark counts until its order is carried out or given up.  One that is given up is taken from the
pod, and does not count from that moment on, whenever the pod without it is seen.
"""

from __future__ import annotations

from dataclasses import replace

from shim_client.cluster import PatchPod
from shim_client.mirror.state import PodRecord, State
from shim_client.reports import Releasing, TerminationType
from shim_client.translate import labels

DISRUPTED = "DisruptionTarget"
"""The condition of a pod that has to make room, written before its deletion (1.10)."""
_STAYS = (DISRUPTED, "False", "PreemptionWithdrawn")


def mark_of(pod: PodRecord) -> Releasing | None:
    """Return why a pod on a node is going: the core's order, our mark on it, or its deletion."""
    if not pod.node:
        return None
    if pod.order is not None:
        return pod.order
    found = pod.facts.report.releasing
    if found is not None and found == pod.void:
        return Releasing(TerminationType.STOPPED_BY_RM) if pod.facts.deleting else None
    return found


def pending(pod: PodRecord) -> Releasing | None:
    """Return our mark on a pod that nobody has deleted yet, unless it is void."""
    found = pod.facts.report.releasing
    if found is None or not found.decision or found == pod.void or pod.facts.deleting:
        return None
    return found


def take_back(state: State, pod: PodRecord, mark: Releasing, why: str) -> None:
    """Give a mark up: the pod stays, and the core counts it as one that stays."""
    pod.void, pod.order = mark, None
    if pod.sent is not None:
        pod.sent = replace(pod.sent, releasing=None)
    if mark.decision:
        nothing = {labels.RELEASED_FOR: None, labels.DELIVERY: None}
        state.actions.append(
            PatchPod(pod.facts.ref, annotations=nothing, condition=(*_STAYS, why[:1024]))
        )


def refuse_copy(state: State, pod: PodRecord) -> None:
    """Take a mark away that came with a new pod: its manifest was copied from a victim."""
    if (mark := pending(pod)) is not None:
        take_back(state, pod, mark, "the mark came with the manifest, it is of another pod")
