"""Priority and protection of a pod: whether it may be preempted, by class, annotation and label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shim_client.messages import Protection
from shim_client.translate import labels
from shim_client.translate.fields import Fields, mapping, text, texts

SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """The facts of a PriorityClass that preemption depends on."""

    name: str
    allow_preemption: bool


def read_priority_class(item: Fields) -> ClassFacts:
    """Return a PriorityClass's facts; only the exact annotation text `false` opts out."""
    metadata = mapping(item, "metadata")
    annotations = texts(metadata, "annotations", "metadata.")
    allowed = annotations.get(labels.ALLOW_PREEMPTION) != "false"
    return ClassFacts(text(metadata, "name", "metadata."), allowed)


def pod_opinion(annotations: Mapping[str, str], *, honoured: bool) -> bool | None:
    """Return the value of the pod's own annotation about preemption.

    Return None when the annotation is absent or is not honoured.
    """
    written = annotations.get(labels.ALLOW_PREEMPTION) if honoured else None
    return {"true": True, "false": False}.get(written or "")


def may_preempt_others(spec: Fields) -> bool:
    """Return whether the pod may preempt: False only when preemptionPolicy is Never."""
    return spec.get("preemptionPolicy") != "Never"


def protection(class_name: str, *, preemptible: bool | None, pinned: bool) -> Protection:
    """Return the level of protection that does not depend on the class's annotation.

    A pod is untouchable when it was created for its node, or is critical to the system. A pod is firm when it is
    labelled not preemptible. The partition decides about a pod without that label (J2). For this reason a pod without
    the label has another level than a pod that is labelled preemptible.
    """
    if pinned or class_name in SYSTEM_CLASSES:
        return Protection.UNTOUCHABLE
    if preemptible is None:
        return Protection.UNSPECIFIED
    return Protection.NORMAL if preemptible else Protection.FIRM


def lowered(step: Protection, *, allow_preempt_self: bool) -> Protection:
    """Return the level of protection after an opt-out: a pod that opted out gets the level prefer-not.

    A pod that is labelled preemptible keeps its level even if it opted out (J2). Its opt-out is reported to the core in
    another field.
    """
    if step is Protection.UNSPECIFIED and not allow_preempt_self:
        return Protection.PREFER_NOT
    return step
