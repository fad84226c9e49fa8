"""Paths of each kind at the API server, and the fields of its objects that the shim keeps.

Only the fields that `shim_client.translate` reads are kept. Without all other fields, the list of a large cluster
stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shim_client.cluster import KubeObject, ObjectRef
from shim_client.translate.pod_groups import GROUP, VERSIONS

_CONTAINER = ("name", "resources", "ports", "restartPolicy")
_CONTAINER_STATE = ("name", "resources", "allocatedResources")
_POD_STATUS = (
    "phase",
    "startTime",
    "resize",
    "conditions",
    "resources",
    "allocatedResources",
)
_POD_SPEC_LEFT_OUT = frozenset({"containers", "initContainers", "ephemeralContainers", "volumes"})
_VOLUME = ("name", "persistentVolumeClaim", "ephemeral")
_NODE_STATUS = ("allocatable",)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class KindPath:
    """The group, version and plural of a kind."""

    root: str
    plural: str
    namespaced: bool = True

    def everywhere(self) -> str:
        """Return the path of all objects of the kind in the cluster."""
        return f"{self.root}/{self.plural}"

    def within(self, namespace: str) -> str:
        """Return the path of all objects of the kind in one namespace."""
        if not self.namespaced:
            return self.everywhere()
        return f"{self.root}/namespaces/{namespace}/{self.plural}"


CORE = "/api/v1"
PLACES: Mapping[str, KindPath] = {
    "ConfigMap": KindPath(CORE, "configmaps"),
    "Namespace": KindPath(CORE, "namespaces", namespaced=False),
    "ValidatingAdmissionPolicy": KindPath(
        "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": KindPath(
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        namespaced=False,
    ),
    "PriorityClass": KindPath("/apis/scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "PodDisruptionBudget": KindPath("/apis/policy/v1", "poddisruptionbudgets"),
    "StorageClass": KindPath("/apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "PersistentVolume": KindPath(CORE, "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": KindPath(CORE, "persistentvolumeclaims"),
    "PodGroup": KindPath(f"/apis/{GROUP}/{VERSIONS[0]}", "podgroups"),
    "CSINode": KindPath("/apis/storage.k8s.io/v1", "csinodes", namespaced=False),
    "Node": KindPath(CORE, "nodes", namespaced=False),
    "Pod": KindPath(CORE, "pods"),
}
OLDER: Mapping[str, tuple[KindPath, ...]] = {
    "PodGroup": tuple(KindPath(f"/apis/{GROUP}/{version}", "podgroups") for version in VERSIONS[1:])
}
"""Places of optional kinds in older versions of the API, in the order in which they are tried."""
OWNERS: Mapping[str, KindPath] = {
    "Job": KindPath("/apis/batch/v1", "jobs"),
    "ReplicaSet": KindPath("/apis/apps/v1", "replicasets"),
    "StatefulSet": KindPath("/apis/apps/v1", "statefulsets"),
}
"""Kinds of pod owners that the shim reads one by one, to learn the size of a job (J1)."""
EVENTS = KindPath(CORE, "events")


def path_of(ref: ObjectRef) -> str:
    """Return the path of one object."""
    place = PLACES.get(ref.kind) or OWNERS[ref.kind]
    return f"{place.within(ref.namespace)}/{ref.name}"


def trimmed(kind: str, item: Any) -> KubeObject:  # noqa: ANN401
    """Return an object with its kind, without the fields that the shim never reads.

    A value of a wrong type is kept.
    """
    if not isinstance(item, dict):
        return {"kind": kind, "metadata": {}}
    kept = {**item, "kind": kind, "metadata": _metadata(item.get("metadata"))}
    if kind == "Pod":
        kept["spec"] = _pod_spec(item.get("spec"))
        kept["status"] = _pod_status(item.get("status"))
    elif kind == "Node":
        kept["status"] = _only(item.get("status"), _NODE_STATUS)
    return kept


def version_of(item: Mapping[str, Any]) -> int:
    """Return the resource version of an object or list.

    Raises KeyError, TypeError or ValueError when the version cannot be read.
    """
    metadata = item.get("metadata")
    return int(metadata["resourceVersion"]) if isinstance(metadata, dict) else int("")


def _metadata(metadata: Any) -> Any:  # noqa: ANN401
    if not isinstance(metadata, dict):
        return metadata
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    notes = kept.get("annotations")
    if isinstance(notes, dict) and _LAST_APPLIED in notes:
        kept["annotations"] = {key: notes[key] for key in notes if key != _LAST_APPLIED}
    return kept


def _pod_spec(spec: Any) -> Any:  # noqa: ANN401
    if not isinstance(spec, dict):
        return spec
    kept = {key: value for key, value in spec.items() if key not in _POD_SPEC_LEFT_OUT}
    for key in ("containers", "initContainers"):
        if key in spec:
            kept[key] = _each(spec[key], _CONTAINER)
    if "volumes" in spec and (volumes := _volumes(spec["volumes"])) != []:
        kept["volumes"] = volumes
    return kept


def _volumes(volumes: Any) -> Any:  # noqa: ANN401
    """Return the volumes that have a field besides their name."""
    kept = _each(volumes, _VOLUME)
    if not isinstance(kept, list):
        return kept
    return [one for one in kept if not isinstance(one, dict) or one.keys() - {"name"}]


def _pod_status(status: Any) -> Any:  # noqa: ANN401
    kept = _only(status, _POD_STATUS)
    if isinstance(kept, dict):
        for key in ("containerStatuses", "initContainerStatuses"):
            if key in status:
                kept[key] = _each(status[key], _CONTAINER_STATE)
    return kept


def _only(fields: Any, names: tuple[str, ...]) -> Any:  # noqa: ANN401
    if not isinstance(fields, dict):
        return fields
    return {name: fields[name] for name in names if name in fields}


def _each(items: Any, names: tuple[str, ...]) -> Any:  # noqa: ANN401
    return [_only(item, names) for item in items] if isinstance(items, list) else items
