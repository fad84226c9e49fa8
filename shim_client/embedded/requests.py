"""The requests of users: apply, delete, cordon, scale and drain, carried out on the embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shim_client.cluster import BudgetError, ConflictError, EvictPod, KubeObject, MissingError
from shim_client.embedded.admission import (
    DEFAULT_NAMESPACE,
    NAMESPACED,
    SYSTEM_CLASSES,
    InvalidError,
)
from shim_client.embedded.changing import changed
from shim_client.embedded.checks import check
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.loading import KINDS_IN_ORDER, is_kept
from shim_client.embedded.saved import Id
from shim_client.embedded.store import key_of
from shim_client.embedded.workloads import REPLICAS_MAX

CREATED, CONFIGURED, UNCHANGED = "created", "configured", "unchanged"
SCALED: Mapping[str, str] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""For each kind, the field of the spec that `scale` changes."""
OF_NODES = "DaemonSet"
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Left:
    """A pod that a drain leaves on its node, with the reason."""

    namespace: str
    name: str
    because: str
    may_stay: bool
    """Whether the node counts as drained although this pod stays."""
    needs_force: bool = False
    """Whether a drain with `force` evicts the pod."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain: the pods that were evicted, by namespace and name, and the pods that were left."""

    evicted: tuple[tuple[str, str], ...]
    left: tuple[Left, ...]


def apply(cluster: EmbeddedCluster, item: Mapping[str, Any]) -> str:
    """Create or change an object, and return CREATED, CONFIGURED or UNCHANGED.

    Raises InvalidError for a kind that has no effect here, for a malformed object, and for a change of a field that cannot be
    changed. Raises ConflictError if the object is being deleted.
    """
    if not is_kept(item):
        raise InvalidError(f"kind: an embedded cluster has no use for {item.get('kind')!r:.80}")
    given = dict(item)
    admitted = cluster.admitted(given)
    there = cluster.store.get(admitted["kind"], key_of(admitted))
    if there is None:
        cluster.create_checked(given)
        return CREATED
    if there["metadata"].get("deletionTimestamp"):
        raise ConflictError("it is being deleted; apply the manifest again when it has ended")
    check(given, cluster.has_node)
    made = changed(there, given, admitted)
    if made is None:
        return UNCHANGED
    cluster.replace(made)
    cluster.warn(given, made)
    return CONFIGURED


def delete(cluster: EmbeddedCluster, of: Id) -> None:
    """Delete an object.

    If the object is a Namespace, also delete all objects in it. Raises MissingError, and ConflictError for a
    PriorityClass of the system. The controllers delete the pods of a workload in their next step.
    """
    kind, namespace, name = of
    _there(cluster, of)
    if kind == "PriorityClass" and name in SYSTEM_CLASSES:
        raise ConflictError(f"PriorityClass {name} belongs to the system")
    if kind == "Namespace":
        for inner in KINDS_IN_ORDER:
            for item in cluster.store.all(inner):
                if inner in NAMESPACED and key_of(item)[0] == name:
                    cluster.delete(inner, key_of(item))
    cluster.delete(kind, (namespace, name))


def cordon(cluster: EmbeddedCluster, name: str, *, unschedulable: bool) -> bool:
    """Cordon a node (`unschedulable`) or uncordon it; return whether the node was changed.

    Raises MissingError if there is no such node.
    """
    node = _there(cluster, ("Node", "", name))
    spec = node.get("spec") or {}
    if bool(spec.get("unschedulable")) == unschedulable:
        return False
    cluster.replace({**node, "spec": {**spec, "unschedulable": unschedulable}})
    return True


def scale(cluster: EmbeddedCluster, of: Id, count: int) -> int:
    """Set the number of pods that a workload wants, and return the former number.

    Raises MissingError, ConflictError. A kind without a number of pods, an impossible number, and a workload that is
    owned by another workload are conflicts.
    """
    kind = of[0]
    if kind not in SCALED:
        raise ConflictError(f"a {kind} has no number of pods; {', '.join(SCALED)} have one")
    if not 0 <= count <= REPLICAS_MAX:
        raise ConflictError(f"the number of pods is not one of 0 to {REPLICAS_MAX:,}")
    item, field = _there(cluster, of), SCALED[kind]
    _refuse_owned(item)
    before = int(item["spec"].get(field, 1))
    if before != count:
        cluster.replace({**item, "spec": {**item["spec"], field: count}})
    return before


async def drain(cluster: EmbeddedCluster, name: str, *, force: bool = False) -> Drained:
    """Cordon a node and evict its pods one after the other, as their budgets allow.

    Raises MissingError if there is no such node. The result says which pods were evicted and which stayed. A pod of a
    DaemonSet stays. A pod without a controller is lost when it is evicted. For this reason a drain evicts a pod
    without a controller only with `force`.
    """
    cordon(cluster, name, unschedulable=True)
    evicted: list[tuple[str, str]] = []
    left: list[Left] = []
    for pod in sorted(cluster.pods(), key=key_of):
        if pod["spec"].get("nodeName") != name or pod["status"].get("phase") in _ENDED:
            continue
        if pod["metadata"].get("deletionTimestamp"):
            continue
        stays = stays_because(pod, _controller(cluster, pod), force=force)
        if stays is None:
            stays = await _evicted(cluster, pod)
        if stays is None:
            evicted.append(key_of(pod))
        else:
            left.append(stays)
    return Drained(tuple(evicted), tuple(left))


def stays_because(pod: KubeObject, controller: KubeObject | None, *, force: bool) -> Left | None:
    """Return why a drain does not evict a pod.

    Return None when the drain evicts the pod as soon as the pod's budget allows.
    """
    if controller is not None and controller["kind"] == OF_NODES:
        because = f"belongs to DaemonSet {controller['metadata']['name']}"
        return Left(*key_of(pod), because, may_stay=True)
    if controller is None and not force:
        because = "has no workload that would create it again; --force evicts it"
        return Left(*key_of(pod), because, may_stay=False, needs_force=True)
    return None


async def _evicted(cluster: EmbeddedCluster, pod: KubeObject) -> Left | None:
    """Evict a pod, and return None. If the pod cannot be evicted, return the pod with the reason."""
    try:
        await cluster.evict_pod(EvictPod(cluster.ref_of(pod)))
    except BudgetError as refused:
        return Left(*key_of(pod), str(refused), may_stay=False)
    return None


def _controller(cluster: EmbeddedCluster, pod: KubeObject) -> KubeObject | None:
    for owner in pod["metadata"].get("ownerReferences") or ():
        found = cluster.store.get(owner["kind"], (key_of(pod)[0], owner["name"]))
        if found is not None and found["metadata"]["uid"] == owner["uid"]:
            return found
    return None


def _refuse_owned(item: KubeObject) -> None:
    for owner in item["metadata"].get("ownerReferences") or ():
        raise ConflictError(
            f"it belongs to {owner['kind']} {owner['name']}, which would undo the change; scale that"
        )


def _there(cluster: EmbeddedCluster, of: Id) -> KubeObject:
    kind, namespace, name = of
    found = cluster.store.get(kind, (namespace, name))
    if found is None:
        where = f" in namespace {namespace}" if namespace else ""
        raise MissingError(f"there is no {kind} {name}{where}")
    return found


def id_for(kind: str, namespace: str, name: str) -> Id:
    """Return the id of an object that a user names.

    If the user gives no namespace, the namespace is `default`, or empty for kinds without namespaces.
    """
    return kind, (namespace or DEFAULT_NAMESPACE) if kind in NAMESPACED else "", name
