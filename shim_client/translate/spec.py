"""Facts from a pod's spec.

The facts are equal for all pods with equal specs, and are read once for all such pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shim_client.messages import NodeConstraints, PreferredTerm
from shim_client.translate.alike import ReadOnce
from shim_client.translate.constraints import (
    device_claims,
    ephemeral_volumes,
    named_node,
    needs_check_here,
    node_constraints,
    preferred_terms,
    volume_claims,
)
from shim_client.translate.fields import Fields, items, text, whole
from shim_client.translate.priority import may_preempt_others
from shim_client.translate.resources import Resource, resize_is_infeasible, taken

_PRIORITIES = (-(2**31), 2**31 - 1)
_GRACES = (0, 2**31)
GRACE_SECONDS_DEFAULT = 30
"""The API server's default of terminationGracePeriodSeconds."""
_READ = (
    "affinity",
    "containers",
    "hostNetwork",
    "initContainers",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
"""Fields of a spec that are read here."""
_READ_OF_STATUS = (
    "allocatedResources",
    "containerStatuses",
    "initContainerStatuses",
    "resources",
)


@dataclass(frozen=True, slots=True)
class SpecFacts:
    """Facts from a pod's spec. For a pod of another scheduler, only resource, gates, class and claims are used."""

    resource: Resource
    gates: tuple[str, ...]
    priority_class: str
    priority: int = 0
    allow_preempt_other: bool = True
    constraints: NodeConstraints | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    """The preferred node affinity."""
    named_node: str = ""
    """The only node that the affinity names, as for a DaemonSet's pod."""
    rm_check: bool = False
    grace_seconds: int = 0
    claims: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    """Names of the volumes whose claims a controller makes for the pod."""
    devices: tuple[str, ...] = ()
    """The device claims in words (see `constraints.device_claims`)."""


def read_spec(spec: Fields, status: Fields, *, ours: bool) -> SpecFacts:
    """Return the facts.

    The status has the resources that the kubelet has already allocated to the pod. Raises BadObjectError if a field
    has another form than in the Kubernetes API.
    """
    parts = [spec.get(key) for key in _READ]
    given = [resize_is_infeasible(status), *(status.get(key) for key in _READ_OF_STATUS)]
    return own(parts, given) if ours else foreign(parts, given)


@ReadOnce
def own(parts: Sequence[object], given: Sequence[object]) -> SpecFacts:
    """Read the spec of a pod that names the shim's scheduler, from the relevant parts of spec and status."""
    spec = _fields(_READ, parts)
    return SpecFacts(
        resource=_taken(spec, given),
        gates=_gates(spec),
        priority_class=_priority_class(spec),
        priority=whole(spec, "priority", _PRIORITIES, "spec."),
        allow_preempt_other=may_preempt_others(spec),
        constraints=node_constraints(spec),
        preferred=preferred_terms(spec),
        named_node=named_node(spec),
        rm_check=needs_check_here(spec),
        grace_seconds=_grace(spec),
        claims=volume_claims(spec),
        ephemeral=ephemeral_volumes(spec),
        devices=device_claims(spec),
    )


@ReadOnce
def foreign(parts: Sequence[object], given: Sequence[object]) -> SpecFacts:
    """Read the spec of another scheduler's pod.

    Constraints on nodes are not read, because only that scheduler has to meet them. Volume claims are read, because
    their volumes count against the attach limits of the node.
    """
    spec = _fields(_READ, parts)
    return SpecFacts(
        _taken(spec, given),
        _gates(spec),
        _priority_class(spec),
        claims=volume_claims(spec),
        ephemeral=ephemeral_volumes(spec),
    )


def _fields(names: Sequence[str], values: Sequence[object]) -> Fields:
    """Return values by the names of their fields; an absent field is equal to null."""
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _taken(spec: Fields, given: Sequence[object]) -> Resource:
    infeasible, *states = given
    return taken(spec, _fields(_READ_OF_STATUS, states), infeasible=bool(infeasible))


def _gates(spec: Fields) -> tuple[str, ...]:
    return tuple(text(gate, "name") for gate in items(spec, "schedulingGates", "spec."))


def _priority_class(spec: Fields) -> str:
    return text(spec, "priorityClassName", "spec.")


def _grace(spec: Fields) -> int:
    if spec.get("terminationGracePeriodSeconds") is None:
        return GRACE_SECONDS_DEFAULT
    return whole(spec, "terminationGracePeriodSeconds", _GRACES, "spec.")
