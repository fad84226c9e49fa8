"""The change that a manifest makes to an existing object, as far as an API server allows the change.

The functions of this module are pure. A manifest has the fields that its author wants to set. Changes by other writers
stay in the object, for example the shim's annotations on a pod, or a cordon on a node. A scaled number of replicas
stays, too, if the manifest does not mention the number. Labels and annotations that an earlier manifest had, and the
new manifest lacks, are removed. `metadata.managedFields` records which labels and annotations an earlier manifest had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim_client.cluster import KubeObject
from shim_client.embedded.admission import InvalidError

MANAGER = "evenhand-manifest"
KEPT_UNLESS_GIVEN: Mapping[str, tuple[str, ...]] = {
    "Node": ("unschedulable",),
    "Deployment": ("replicas",),
    "ReplicaSet": ("replicas",),
    "StatefulSet": ("replicas",),
}
"""For each kind, the fields of a spec that commands change.

If the manifest does not mention such a field, its present value stays.
"""
_RESOLVED = ("priority", "preemptionPolicy", "priorityClassName")
_OWN = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_FIXED_CLASS = ("value", "preemptionPolicy")


def changed(there: KubeObject, given: Mapping[str, Any], admitted: KubeObject) -> KubeObject | None:
    """Return the existing object `there` with its manifest `given` applied.

    Return None if the manifest changes nothing. `admitted` is the manifest as a new object, with all defaults. Raises
    InvalidError for a field that cannot be changed.
    """
    kind = there["kind"]
    _refuse_fixed(there, given, admitted)
    made = {**{key: value for key, value in there.items() if key in _OWN}, **admitted}
    made["metadata"] = _metadata(there["metadata"], admitted["metadata"])
    made["status"] = there.get("status") or {}
    if kind == "Pod":
        made["spec"] = there["spec"]
    else:
        made["spec"] = _spec(kind, there.get("spec") or {}, admitted.get("spec") or {})
    if kind == "Node":
        made["status"] = {**made["status"], **admitted["status"]}
    for part in ("spec", "status"):
        if not made[part] and part not in there:
            del made[part]
    return None if made == there else made


def managed(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the `managedFields` that record which labels and annotations a manifest gives."""
    names = {field: sorted(metadata.get(field) or {}) for field in ("labels", "annotations")}
    return [{"manager": MANAGER, **names}]


def _refuse_fixed(there: KubeObject, given: Mapping[str, Any], admitted: KubeObject) -> None:
    """Raise InvalidError for a change that needs a new object."""
    kind, name = there["kind"], there["metadata"]["name"]
    fields: list[str] = []
    if kind == "Pod":
        fields = [f"spec.{one}" for one in _changed_of_pod(there["spec"], given, admitted["spec"])]
    elif kind == "Job":
        same = (there.get("spec") or {}).get("template") == admitted["spec"].get("template")
        fields = [] if same else ["spec.template"]
    elif kind == "PriorityClass":
        fields = [one for one in _FIXED_CLASS if there.get(one) != admitted.get(one)]
    if fields:
        raise InvalidError(
            f"{', '.join(fields)}: cannot be changed; delete {kind} {name}, then apply the manifest again"
        )


def _changed_of_pod(
    there: Mapping[str, Any], given: Mapping[str, Any], admitted: Mapping[str, Any]
) -> list[str]:
    wanted = given.get("spec") or {}
    ignored = {one for one in ("nodeName", *_RESOLVED) if one not in wanted}
    names = sorted((there.keys() | admitted.keys()) - ignored)
    return [one for one in names if there.get(one) != admitted.get(one)]


def _metadata(there: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    earlier: Mapping[str, Any] = next(
        (one for one in there.get("managedFields") or () if one.get("manager") == MANAGER), {}
    )
    made = dict(there)
    for field in ("labels", "annotations"):
        gone = set(earlier.get(field) or ())
        kept = {key: value for key, value in (there.get(field) or {}).items() if key not in gone}
        marks = {**kept, **(given.get(field) or {})}
        if marks or field in there:
            made[field] = marks
    return {**made, "managedFields": managed(given)}


def _spec(kind: str, there: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    kept = KEPT_UNLESS_GIVEN.get(kind, ())
    return {
        **{one: there[one] for one in kept if one in there and one not in given},
        **given,
    }
