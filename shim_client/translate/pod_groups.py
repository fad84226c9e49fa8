"""PodGroups of Kubernetes' own API (scheduling.k8s.io): the group that a pod names, and the size of a gang (J1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from shim_client.translate.fields import BadObjectError, Fields, mapping, text, whole
from shim_client.translate.jobs import MEMBERS_MAX

GROUP = "scheduling.k8s.io"
VERSIONS = ("v1beta1", "v1alpha2")
"""Versions of the API that are read (Kubernetes 1.37 and 1.36), the preferred one first.

Both versions have all fields that are read.
"""
_POLICY = "spec.schedulingPolicy"
_WITHOUT_EFFECT = (
    "disruptionMode",
    "parentCompositePodGroupName",
    "preemptionPolicy",
    "priorityClassName",
    "resourceClaims",
    "schedulingConstraints",
)
_DEFAULT_MODES: tuple[object, ...] = ("Pod", {"single": {}})


@dataclass(frozen=True, slots=True)
class PodGroupFacts:
    """A PodGroup: the minimum number of pods that are placed together, or 0 for a group whose pods are placed one by one."""

    members: int
    without_effect: tuple[str, ...] = field(default=(), compare=False)
    """Fields of the PodGroup's spec that have no effect here."""


def group_of(spec: Fields) -> str:
    """Return the name of the PodGroup that a pod's spec names; "" for none.

    Raises BadObjectError if the field is not a text.
    """
    path = "spec.schedulingGroup."
    return text(mapping(spec, "schedulingGroup", "spec."), "podGroupName", path)


def read_pod_group(item: Fields) -> PodGroupFacts:
    """Return the facts of a PodGroup.

    Raises BadObjectError, which names the unreadable field.
    """
    spec = mapping(item, "spec")
    policy = mapping(spec, "schedulingPolicy", "spec.")
    given = [one for one in ("basic", "gang") if policy.get(one) is not None]
    if len(given) != 1:
        raise BadObjectError(_POLICY, "is neither basic nor gang")
    ignored = tuple(name for name in _WITHOUT_EFFECT if _has_effect_elsewhere(spec, name))
    return PodGroupFacts(_members(policy) if given == ["gang"] else 0, ignored)


def _members(policy: Fields) -> int:
    gang = mapping(policy, "gang", f"{_POLICY}.")
    if gang.get("minCount") is None:
        raise BadObjectError(f"{_POLICY}.gang.minCount", f"is not 1 to {MEMBERS_MAX}")
    return whole(gang, "minCount", (1, MEMBERS_MAX), f"{_POLICY}.gang.")


def _has_effect_elsewhere(spec: Fields, name: str) -> bool:
    value = spec.get(name)
    return bool(value) and not (name == "disruptionMode" and value in _DEFAULT_MODES)
