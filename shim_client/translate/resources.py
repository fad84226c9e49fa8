"""The resources that a pod takes on a node, and the resources that a node has, in whole units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from shim_client.quantity import AMOUNT_MAX, milli_units, whole_units
from shim_client.translate.fields import BadObjectError, Fields, items, mapping, quantity, text

Resource = Mapping[str, int]

RESOURCE_TYPES_MAX = 64
"""Maximum number of resource types that one object may name."""
CONTAINERS_MAX = 1000
"""Maximum number of containers of one kind that a pod may have."""
_POD_LEVEL = ("vcore", "memory", "hugepages-")
"""Beginnings of the names of resource types that a pod can request at pod level."""


def amounts(fields: Fields, key: str, path: str = "") -> dict[str, int]:
    """Return the quantities under `key` (such as `requests` or `allocatable`) in the core's units; cpu becomes vcore.

    Raises BadObjectError if there are too many types, or if a type or a quantity is invalid.
    """
    listed = mapping(fields, key, path)
    if len(listed) > RESOURCE_TYPES_MAX:
        raise BadObjectError(path + key, f"names more than {RESOURCE_TYPES_MAX} resource types")
    found = {}
    for name in listed:
        if type(name) is not str or not name.isascii():
            raise BadObjectError(path + key, f"{ascii(name)[:80]} is not a resource type")
        if name == "cpu":
            found["vcore"] = quantity(listed, name, milli_units, f"{path}{key}.")
        else:
            found[name] = quantity(listed, name, whole_units, f"{path}{key}.")
    return found


def taken(spec: Fields, status: Fields, *, infeasible: bool) -> Resource:
    """Return the resources that a pod with this spec takes, plus one of type `pods`.

    Only requests are used, and not limits. ``infeasible`` says that the node cannot provide the present requests of the
    pod.
    """
    total = _containers_and_sidecars(spec, status, infeasible=infeasible)
    total.update(_pod_level(spec, status, infeasible=infeasible))
    _add(total, amounts(spec, "overhead", "spec."))
    _add(total, {"pods": 1})
    return interned(total)


def _pod_level(spec: Fields, status: Fields, *, infeasible: bool) -> dict[str, int]:
    """Return the amounts of the pod at pod level, by resource type.

    For these types, the amounts replace the sums over the containers.
    """
    asked = amounts(mapping(spec, "resources", "spec."), "requests", "spec.resources.")
    if not asked:
        return {}
    given = amounts(mapping(status, "resources", "status."), "requests", "status.resources.")
    if infeasible and given:
        asked = given
    else:
        _raise_to(asked, amounts(status, "allocatedResources", "status."))
        _raise_to(asked, given)
    return {kind: asked[kind] for kind in asked if kind.startswith(_POD_LEVEL)}


def interned(resource: Mapping[str, int]) -> Resource:
    """Return the shared read-only object for these amounts; zeros are left out. Raises BadObjectError for a too large amount."""
    for kind, amount in resource.items():
        if amount > AMOUNT_MAX:
            raise BadObjectError(kind, f"more than {AMOUNT_MAX} in all")
    return _shared(tuple(sorted((kind, amount) for kind, amount in resource.items() if amount)))


def sum_of(parts: Iterable[tuple[Resource, int]]) -> dict[str, int]:
    """Return the sum of resources, each multiplied by its number; the sum has no limit."""
    total: Counter[str] = Counter()
    for resource, count in parts:
        total.update({kind: count * amount for kind, amount in resource.items()})
    return total


@lru_cache(maxsize=8192)
def _shared(amounts_sorted: tuple[tuple[str, int], ...]) -> Resource:
    return MappingProxyType(dict(amounts_sorted))


def _containers_and_sidecars(spec: Fields, status: Fields, *, infeasible: bool) -> dict[str, int]:
    """Return, for each type, the sum over running containers, or the need of an init container if that need is larger."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    seen = _statuses(status, "initContainerStatuses")
    for container in _bounded(spec, "initContainers"):
        need = _need(container, seen.get(text(container, "name"), {}), infeasible=infeasible)
        if text(container, "restartPolicy", "spec.initContainers[].") == "Always":
            _add(running, need)
            _raise_to(peak, running)
        else:
            _add(need, running)
            _raise_to(peak, need)
    seen = _statuses(status, "containerStatuses")
    for container in _bounded(spec, "containers"):
        state = seen.get(text(container, "name"), {})
        _add(running, _need(container, state, infeasible=infeasible))
    _raise_to(running, peak)
    return running


def _bounded(spec: Fields, key: str) -> list[Fields]:
    containers = list(items(spec, key, "spec."))
    if len(containers) > CONTAINERS_MAX:
        raise BadObjectError(f"spec.{key}", f"more than {CONTAINERS_MAX} containers")
    return containers


def _need(container: Fields, state: Fields, *, infeasible: bool) -> dict[str, int]:
    """Return, for each type, the maximum of the requested, the allocated and the present amount of the container.

    With ``infeasible``, return only the present amounts, because the node cannot provide the requested ones.
    """
    where = f"{text(container, 'name')!s:.80}."
    asked = amounts(mapping(container, "resources", where), "requests", where)
    if not state:
        return asked
    given = amounts(mapping(state, "resources", where), "requests", where)
    if infeasible and given:
        return given
    _raise_to(asked, amounts(state, "allocatedResources", where))
    _raise_to(asked, given)
    return asked


def _statuses(status: Fields, key: str) -> dict[str, Fields]:
    return {text(state, "name"): state for state in items(status, key, "status.")}


def resize_is_infeasible(status: Fields) -> bool:
    """Return whether a pod's node cannot provide the pod's present requests."""
    if status.get("resize") == "Infeasible":
        return True
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in items(status, "conditions", "status.")
    )


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, amount in more.items():
        total[kind] = total.get(kind, 0) + amount


def _raise_to(total: dict[str, int], other: Mapping[str, int]) -> None:
    for kind, amount in other.items():
        if amount > total.get(kind, 0):
            total[kind] = amount
