"""Constraints of a pod on its node, as data, and whether the pod has further demands that the core cannot check (design 1.8)."""

from __future__ import annotations

from functools import lru_cache

from shim_client.messages import (
    HostPort,
    NodeConstraints,
    PreferredTerm,
    Requirement,
    SelectorTerm,
    Toleration,
)
from shim_client.translate.fields import (
    BadObjectError,
    Fields,
    flag,
    items,
    mapping,
    names,
    text,
    texts,
    whole,
)

_JUDGED_HERE = frozenset({"volumes", "affinity", "topologySpreadConstraints"})
OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_TOLERATING = frozenset({"Equal", "Exists", "Gt", "Lt"})
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PORTS = (0, 65535)
WEIGHTS = (1, 100)
_DEMANDS = frozenset({"nodeSelector", "affinity", "tolerations"})
NO_CONSTRAINTS = NodeConstraints()


def node_constraints(spec: Fields) -> NodeConstraints | None:
    """Return the node selector, required affinity, tolerations and host ports.

    Return None when the pod has none of these constraints.
    """
    host_ports = _host_ports(spec)
    if not host_ports and _DEMANDS.isdisjoint(spec):
        return None
    found = NodeConstraints(
        node_selector=tuple(sorted(texts(spec, "nodeSelector", "spec.").items())),
        required_terms=_required_terms(spec),
        tolerations=_tolerations(spec),
        host_ports=host_ports,
    )
    return _shared(found) if found != NO_CONSTRAINTS else None


@lru_cache(maxsize=8192)
def _shared(found: NodeConstraints) -> NodeConstraints:
    """Return the common object for equal constraints."""
    return found


def named_node(spec: Fields) -> str:
    """Return the node that the pod's affinity names by matchFields on metadata.name.

    Return "" when the affinity names no node.
    """
    for term in _required_terms(spec):
        for requirement in term.match_fields:
            if requirement.key == "metadata.name" and requirement.values:
                return requirement.values[0]
    return ""


def needs_check_here(spec: Fields) -> bool:
    """Return whether the pod has demands that only the shim can check (`rmCheck` on the wire).

    Demands that only the shim can check are volumes with claims, generic ephemeral volumes, required affinity or
    anti-affinity between pods, and required topology spread. A pod with device claims is not reported until it has a
    node.
    """
    if _JUDGED_HERE.isdisjoint(spec):
        return False
    affinity = mapping(spec, "affinity", "spec.")
    return (
        bool(volume_claims(spec))
        or any("ephemeral" in volume for volume in items(spec, "volumes", "spec."))
        or bool(mapping(affinity, "podAffinity", "spec.affinity.").get(REQUIRED))
        or bool(mapping(affinity, "podAntiAffinity", "spec.affinity.").get(REQUIRED))
        or _spreads(spec)
    )


def volume_claims(spec: Fields) -> tuple[str, ...]:
    """Return the names of the volume claims that the pod mounts, without claims of ephemeral volumes."""
    claims = (
        text(mapping(volume, "persistentVolumeClaim", "spec.volumes[]."), "claimName")
        for volume in items(spec, "volumes", "spec.")
    )
    return tuple(claim for claim in claims if claim)


def ephemeral_volumes(spec: Fields) -> tuple[str, ...]:
    """Return the names of the generic ephemeral volumes; the claim of each is called `<pod>-<volume>`."""
    volumes = items(spec, "volumes", "spec.")
    return tuple(
        text(volume, "name", "spec.volumes[].") for volume in volumes if volume.get("ephemeral")
    )


def device_claims(spec: Fields) -> tuple[str, ...]:
    """Return the pod's device claims as text: the name of the claim or template.

    If a device claim names neither a claim nor a template, return the name that the pod gives it.
    """
    found = []
    for item in items(spec, "resourceClaims", "spec."):
        where = "spec.resourceClaims[]."
        own = text(item, "name", where)
        claim, template = (
            text(item, key, where) for key in ("resourceClaimName", "resourceClaimTemplateName")
        )
        found.append(claim or (f"template {template}" if template else own))
    return tuple(found)


def _spreads(spec: Fields) -> bool:
    return any(
        rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        for rule in items(spec, "topologySpreadConstraints", "spec.")
    )


def _required_terms(spec: Fields) -> tuple[SelectorTerm, ...]:
    where = "spec.affinity.nodeAffinity.required."
    return selector_terms(mapping(_node_affinity(spec), REQUIRED, where), where)


def preferred_terms(spec: Fields) -> tuple[PreferredTerm, ...]:
    """Return the terms of the preferred node affinity; a term without requirements prefers nothing and is left out."""
    where = f"spec.affinity.nodeAffinity.{PREFERRED}[]."
    found = []
    for item in items(_node_affinity(spec), PREFERRED, "spec.affinity.nodeAffinity."):
        term = _term(mapping(item, "preference", where))
        weight = whole(item, "weight", WEIGHTS, where)
        if term != SelectorTerm():
            found.append(PreferredTerm(weight, term))
    return tuple(found)


def selector_terms(selector: Fields, where: str) -> tuple[SelectorTerm, ...]:
    """Return the terms of a node selector.

    A node must meet at least one term. Raises BadObjectError if a field is invalid.
    """
    return tuple(_term(term) for term in items(selector, "nodeSelectorTerms", where))


def _node_affinity(spec: Fields) -> Fields:
    return mapping(mapping(spec, "affinity", "spec."), "nodeAffinity", "spec.affinity.")


def _term(term: Fields) -> SelectorTerm:
    return SelectorTerm(_requirements(term, "matchExpressions"), _requirements(term, "matchFields"))


def _requirements(term: Fields, key: str) -> tuple[Requirement, ...]:
    return tuple(_requirement(item) for item in items(term, key, "nodeSelectorTerms[]."))


def _requirement(item: Fields) -> Requirement:
    operator = text(item, "operator", "nodeSelectorTerms[].")
    if operator not in OPERATORS:
        raise BadObjectError("nodeSelectorTerms[].operator", f"{operator[:40]!r} is not known")
    return Requirement(text(item, "key"), operator, names(item, "values", "nodeSelectorTerms[]."))


def _tolerations(spec: Fields) -> tuple[Toleration, ...]:
    """Return the tolerations.

    A toleration with an unknown operator tolerates nothing and is left out.
    """
    found = (_toleration(item) for item in items(spec, "tolerations", "spec."))
    return tuple(one for one in found if one.operator in _TOLERATING)


def _toleration(item: Fields) -> Toleration:
    where = "spec.tolerations[]."
    operator = text(item, "operator", where) or "Equal"
    return Toleration(
        text(item, "key", where), operator, text(item, "value", where), text(item, "effect", where)
    )


def _host_ports(spec: Fields) -> tuple[HostPort, ...]:
    on_host = flag(spec, "hostNetwork", "spec.")
    found = [
        port
        for key in ("initContainers", "containers")
        for container in items(spec, key, "spec.")
        if key == "containers" or container.get("restartPolicy") == "Always"
        for item in items(container, "ports", f"spec.{key}[].")
        if (port := _host_port(item, on_host=on_host)) is not None
    ]
    return tuple(found)


def _host_port(item: Fields, *, on_host: bool) -> HostPort | None:
    """Return the port that a container needs on the node.

    With hostNetwork that is the container port. Return None if the container needs no port on the node.
    """
    port = whole(item, "hostPort", _PORTS, "ports[].")
    if not port and on_host:
        port = whole(item, "containerPort", _PORTS, "ports[].")
    if not port:
        return None
    return HostPort(text(item, "protocol") or "TCP", text(item, "hostIP"), port)
