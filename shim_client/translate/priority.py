"""May a pod be preempted, and how well is it kept: class, annotation, label (specification 1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shim_client.reports import Protection
from shim_client.translate import labels
from shim_client.translate.fields import Fields, mapping, text, texts

SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """What a PriorityClass says about preemption."""

    name: str
    allow_preemption: bool


def read_priority_class(item: Fields) -> ClassFacts:
    """Return a PriorityClass's facts; only the exact annotation text `false` opts out."""
    metadata = mapping(item, "metadata")
    annotations = texts(metadata, "annotations", "metadata.")
    allowed = annotations.get(labels.ALLOW_PREEMPTION) != "false"
    return ClassFacts(text(metadata, "name", "metadata."), allowed)


def pod_opinion(annotations: Mapping[str, str], *, honoured: bool) -> bool | None:
    """Return what the pod's own annotation says, None when it says nothing that counts."""
    written = annotations.get(labels.ALLOW_PREEMPTION) if honoured else None
    return {"true": True, "false": False}.get(written or "")


def may_preempt_others(spec: Fields) -> bool:
    """Return False for preemptionPolicy Never; absent and unknown policies may."""
    return spec.get("preemptionPolicy") != "Never"


def protection(class_name: str, *, preemptible: bool | None, pinned: bool) -> Protection:
    """Return the step of the protection ladder that does not depend on the class (7.6).

    Untouchable: made for its node, or critical to the system.  Firm: labelled not preemptible.  A pod
    without that label is told apart from one that is labelled preemptible: the partition decides (J2).
    """
    if pinned or class_name in SYSTEM_CLASSES:
        return Protection.UNTOUCHABLE
    if preemptible is None:
        return Protection.UNSPECIFIED
    return Protection.NORMAL if preemptible else Protection.FIRM


def lowered(step: Protection, *, allow_preempt_self: bool) -> Protection:
    """Return the step with the opt-out counted in: a pod that opted out is prefer-not.

    One that is labelled preemptible stays lendable (J2); the core hears of the opt-out beside it.
    """
    if step is Protection.UNSPECIFIED and not allow_preempt_self:
        return Protection.PREFER_NOT
    return step
