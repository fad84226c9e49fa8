"""Demands and preferences of a pod about the pods around it: affinity, anti-affinity, topology spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from shim_client.messages import Requirement
from shim_client.translate.constraints import PREFERRED, REQUIRED, WEIGHTS
from shim_client.translate.fields import BadObjectError, Fields, items, mapping, names, text, whole
from shim_client.translate.matching import Labels, Selector, read_selector, selects

_COUNTS = (1, 2**31 - 1)
_SPREAD_WEIGHT = 100
"""The weight of one pod for a topology spread with a maximum skew of 1. Kubernetes allows no preference a larger weight."""
_AFFINITY = "spec.affinity."
_SPREAD = "spec.topologySpreadConstraints[]."
_GROUP_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Who:
    """A selection of pods: the pods in some namespaces whose labels match a selector."""

    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    """Labels of further namespaces whose pods are selected.

    None means no further namespaces.
    """
    selector: Selector | None
    """The labels of selected pods; None matches no pod."""


@dataclass(frozen=True, slots=True)
class Term:
    """A set of pods that must be, or must not be, in one place.

    A place is a value of a node label.
    """

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
    """Whether a place counts only if the pod's own node selector and affinity allow a node of this place."""


@dataclass(frozen=True, slots=True)
class Preference:
    """A preference to run in the topology domain of selected pods (weight above 0), or in another domain (weight below 0).

    The weight counts once for each selected pod in the domain.
    """

    who: Who
    topology_key: str
    weight: int
    staying: bool
    """Whether only pods that are not being deleted count, as for topology spread."""
    group: str = ""
    """The name of the pod's group, if the preference selects the pod itself.

    The group is all selected pods that have this preference, too.
    """


@dataclass(frozen=True, slots=True)
class Demands:
    """All demands and preferences of a pod about the pods around it."""

    together: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()
    preferred: tuple[Preference, ...] = ()


def demands(spec: Fields, namespace: str, labels: Labels) -> Demands | None:
    """Return the pod's demands and preferences, or None when it has neither.

    Raises BadObjectError if a field is invalid.
    """
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
        preferred=(
            *_preferred(affinity, "podAffinity", 1, namespace, labels),
            *_preferred(affinity, "podAntiAffinity", -1, namespace, labels),
            *_even(spec, namespace, labels),
        ),
    )
    return found if found != Demands() else None


def _terms(affinity: Fields, key: str, namespace: str, labels: Labels) -> tuple[Term, ...]:
    where = f"{_AFFINITY}{key}."
    listed = items(mapping(affinity, key, _AFFINITY), REQUIRED, where)
    return tuple(_term(item, namespace, labels, f"{where}{REQUIRED}[].") for item in listed)


def _preferred(
    affinity: Fields, key: str, sign: int, namespace: str, labels: Labels
) -> Iterator[Preference]:
    where = f"{_AFFINITY}{key}.{PREFERRED}[]."
    for item in items(mapping(affinity, key, _AFFINITY), PREFERRED, f"{_AFFINITY}{key}."):
        inner = f"{where}podAffinityTerm."
        term = _term(mapping(item, "podAffinityTerm", where), namespace, labels, inner)
        weight = sign * whole(item, "weight", WEIGHTS, where)
        yield _preference(term.who, term.topology_key, weight, (namespace, labels), staying=False)


def _even(spec: Fields, namespace: str, labels: Labels) -> Iterator[Preference]:
    """Yield the topology spreads that are preferences. If a spread allows more skew, each pod has a smaller weight."""
    for rule in items(spec, "topologySpreadConstraints", "spec."):
        if rule.get("whenUnsatisfiable") == "ScheduleAnyway":
            spread = _spread(rule, namespace, labels)
            weight = -max(1, _SPREAD_WEIGHT // spread.max_skew)
            own = namespace, labels
            yield _preference(spread.who, spread.topology_key, weight, own, staying=True)


def _preference(
    who: Who, topology_key: str, weight: int, own: tuple[str, Labels], *, staying: bool
) -> Preference:
    namespace, labels = own
    selected = who.selector is not None and selects(who.selector, labels)
    group = _group(who) if selected and namespace in who.namespaces else ""
    return Preference(who, topology_key, weight, staying, group)


def _group(who: Who) -> str:
    """Return a name for the pods that `who` selects: equal selections have one name."""
    return sha256(repr(who).encode()).hexdigest()[:_GROUP_CHARACTERS]


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
