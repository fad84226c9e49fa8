"""Demands of a pod on the pods around it: required affinity, required anti-affinity, topology spread.

Preferences (preferred affinity, spread with `ScheduleAnyway`) are not read, because the core orders nodes by its own policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shim_client.messages import Requirement
from shim_client.translate.fields import BadObjectError, Fields, items, mapping, names, text, whole
from shim_client.translate.matching import Labels, Selector, read_selector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_COUNTS = (1, 2**31 - 1)
_AFFINITY = "spec.affinity."
_SPREAD = "spec.topologySpreadConstraints[]."


@dataclass(frozen=True, slots=True)
class Who:
    """A selection of pods: those in some namespaces whose labels match a selector."""

    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    """Labels of further namespaces whose pods are selected; None: no further namespaces."""
    selector: Selector | None
    """The labels of selected pods; None matches no pod."""


@dataclass(frozen=True, slots=True)
class Term:
    """A set of pods that must be, or must not be, in the same place; a place is a value of a node label."""

    who: Who
    topology_key: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A limit on how unevenly pods may be distributed over places."""

    who: Who
    topology_key: str
    max_skew: int
    min_domains: int
    honours_affinity: bool
    """Whether a place counts only if the pod's own node selector and affinity allow one of its nodes."""


@dataclass(frozen=True, slots=True)
class Demands:
    """All demands of a pod on the pods around it."""

    together: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()


def demands(spec: Fields, namespace: str, labels: Labels) -> Demands | None:
    """Return the pod's demands; None when it has none. Raises BadObjectError."""
    if "affinity" not in spec and "topologySpreadConstraints" not in spec:
        return None
    affinity = mapping(spec, "affinity", "spec.")
    found = Demands(
        together=_terms(affinity, "podAffinity", namespace, labels),
        apart=_terms(affinity, "podAntiAffinity", namespace, labels),
        spreads=tuple(
            _spread(rule, namespace, labels)
            for rule in items(spec, "topologySpreadConstraints", "spec.")
            if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ),
    )
    return found if found != Demands() else None


def _terms(affinity: Fields, key: str, namespace: str, labels: Labels) -> tuple[Term, ...]:
    where = f"{_AFFINITY}{key}."
    listed = items(mapping(affinity, key, _AFFINITY), _REQUIRED, where)
    return tuple(_term(item, namespace, labels, f"{where}{_REQUIRED}[].") for item in listed)


def _term(item: Fields, namespace: str, labels: Labels, where: str) -> Term:
    named = names(item, "namespaces", where)
    further: Selector | None = None
    if item.get("namespaceSelector") is not None:
        further = read_selector(mapping(item, "namespaceSelector", where), where)
    home = named if named or further is not None else (namespace,)
    return Term(
        Who(tuple(sorted(home)), further, _selector(item, labels, where)), _key(item, where)
    )


def _spread(item: Fields, namespace: str, labels: Labels) -> Spread:
    min_domains = item.get("minDomains")
    return Spread(
        who=Who((namespace,), None, _selector(item, labels, _SPREAD)),
        topology_key=_key(item, _SPREAD),
        max_skew=whole(item, "maxSkew", _COUNTS, _SPREAD),
        min_domains=0 if min_domains is None else whole(item, "minDomains", _COUNTS, _SPREAD),
        honours_affinity=text(item, "nodeAffinityPolicy", _SPREAD) != "Ignore",
    )


def _selector(item: Fields, labels: Labels, where: str) -> Selector | None:
    """Return the label selector, with the requirements that matchLabelKeys adds from the pod's own labels."""
    if item.get("labelSelector") is None:
        return None
    selector = read_selector(mapping(item, "labelSelector", where), f"{where}labelSelector.")
    same = _own(names(item, "matchLabelKeys", where), "In", labels)
    other = _own(names(item, "mismatchLabelKeys", where), "NotIn", labels)
    return (*selector, *(one for one in (*same, *other) if one not in selector))


def _own(keys: Sequence[str], operator: str, labels: Labels) -> list[Requirement]:
    return [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]


def _key(item: Fields, where: str) -> str:
    key = text(item, "topologyKey", where)
    if not key:
        raise BadObjectError(f"{where}topologyKey", "is missing")
    return key
