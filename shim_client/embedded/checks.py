"""The check of a manifest: the fields that an API server would refuse, and the parts that an embedded cluster ignores.

A manifest that is refused creates no object. With a warning, the object is created, and an event names the part that
has no effect. `check` and `warnings` are pure functions; `EmbeddedCluster` records the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from shim_client.cluster import KubeObject
from shim_client.config import unclear_settings
from shim_client.embedded.admission import InvalidError, is_ephemeral
from shim_client.embedded.disruptions import desired
from shim_client.embedded.stateful import steps
from shim_client.embedded.workloads import BadWorkloadError, pod_spec, wanted
from shim_client.translate.config_map import CONFIG_MAPS, merged
from shim_client.translate.constraints import node_constraints
from shim_client.translate.fields import BadObjectError, Fields, items, mapping, text, texts
from shim_client.translate.matching import read_selector
from shim_client.translate.node import read_node
from shim_client.translate.pod_groups import group_of, read_pod_group
from shim_client.translate.resources import amounts, taken

COUNTS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("replicas",),
    "ReplicaSet": ("replicas",),
    "StatefulSet": ("replicas",),
    "Job": ("parallelism", "completions", "backoffLimit"),
    "DaemonSet": (),
}
"""The fields in the spec of each kind of workload that must be whole numbers."""
NO_SCHEDULER = "NoScheduler"
SETTING_NOT_CLEAR = "SettingNotClear"
VOLUMES_IGNORED = "VolumeClaimsIgnored"
QUANTITY_HINT = "; write a number with m, k, M, G, T or Ki, Mi, Gi, Ti, such as 500m or 32Gi"
_NO_QUANTITY = "is not a quantity"

SETTINGS_LATER = "its settings count when the shim starts the next time"

Warned = tuple[str, str]
"""The reason and the message of an event about a part of a manifest that has no effect."""


def check(item: Mapping[str, Any], has_node: Callable[[str], bool]) -> None:
    """Raise InvalidError for a manifest with a field that cannot be used.

    `has_node` says whether a node with a given name exists.
    """
    try:
        _check(item, has_node)
    except (BadObjectError, BadWorkloadError) as bad:
        hint = QUANTITY_HINT if str(bad).endswith(_NO_QUANTITY) else ""
        raise InvalidError(f"{bad}{hint}") from bad


def warnings(item: Mapping[str, Any], schedulers: Iterable[str]) -> Iterator[Warned]:
    """Yield a warning for each part of the object that has no effect in an embedded cluster.

    `schedulers` are the scheduler names to which the shim responds.
    """
    spec = item.get("spec") if item.get("kind") == "Pod" else _template_spec(item)
    names = tuple(schedulers)
    if isinstance(spec, dict) and not spec.get("nodeName"):
        name = spec.get("schedulerName") or "default-scheduler"
        if name not in names:
            yield (
                NO_SCHEDULER,
                f"spec.schedulerName: no scheduler {str(name)[:80]!r} runs here, so that the pod waits for ever; "
                f"write schedulerName: {names[0]}",
            )
    if isinstance(spec, dict) and any(map(is_ephemeral, spec.get("volumes") or ())):
        yield (
            VOLUMES_IGNORED,
            "spec.volumes[].ephemeral: an embedded cluster has no volumes; pods are created without them",
        )
    if item.get("kind") == "StatefulSet" and (item.get("spec") or {}).get("volumeClaimTemplates"):
        yield (
            VOLUMES_IGNORED,
            "spec.volumeClaimTemplates: an embedded cluster has no volumes; the pods are created without them",
        )
    if has_settings(item):
        flat, _ = merged([item])
        for unclear in unclear_settings(flat):
            yield SETTING_NOT_CLEAR, unclear


def has_settings(item: KubeObject) -> bool:
    """Return whether an object is a ConfigMap with settings of the shim. The shim reads these settings once, when it starts."""
    return item.get("kind") == "ConfigMap" and item["metadata"]["name"] in CONFIG_MAPS


def _template_spec(item: KubeObject) -> Mapping[str, Any] | None:
    if str(item.get("kind")) not in COUNTS:
        return None
    try:
        return pod_spec(item)
    except BadWorkloadError:
        return None


def _check(item: Mapping[str, Any], has_node: Callable[[str], bool]) -> None:
    kind, spec = str(item.get("kind")), mapping(item, "spec")
    if kind == "Node":
        _check_node(item)
    elif kind == "Pod":
        _check_pod(spec, "")
        name = text(spec, "nodeName", "spec.")
        if name and not has_node(name):
            raise BadObjectError("spec.nodeName", f"there is no node {name[:253]!r}")
    elif kind in COUNTS:
        _check_workload(item, kind, spec)
    elif kind == "PodDisruptionBudget":
        _check_budget(spec)
    elif kind == "PodGroup":
        read_pod_group(item)


def _check_workload(item: Mapping[str, Any], kind: str, spec: Fields) -> None:
    for field in COUNTS[kind]:
        wanted(item, field)
    _check_pod(pod_spec(item), "spec.template.")
    metadata = mapping(mapping(spec, "template"), "metadata", "spec.template.")
    for field in ("labels", "annotations"):
        texts(metadata, field, "spec.template.metadata.")
    if kind == "StatefulSet":
        steps(item, {})


def _check_node(item: Fields) -> None:
    status = mapping(item, "status")
    for field in ("allocatable", "capacity"):
        amounts(status, field, "status.")
    read_node(item)


def _check_pod(spec: Fields, path: str) -> None:
    try:
        taken(spec, {}, infeasible=False)
        for container in (*items(spec, "initContainers"), *items(spec, "containers")):
            where = f"{text(container, 'name')}."
            amounts(mapping(container, "resources", where), "limits", where)
        node_constraints(spec)
        group_of(spec)
    except BadObjectError as bad:
        raise BadObjectError(path + bad.path, str(bad).removeprefix(f"{bad.path}: ")) from bad


def _check_budget(spec: Fields) -> None:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        raise BadObjectError("spec", "minAvailable and maxUnavailable cannot both be given")
    desired(spec, 1)
    if spec.get("selector") is not None:
        read_selector(mapping(spec, "selector", "spec."), "spec.selector.")
