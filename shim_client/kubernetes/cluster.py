"""The interface of `shim_client.cluster`, implemented by a real Kubernetes API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from shim_client.cluster import (
    OPTIONAL,
    Bind,
    ClusterError,
    ConflictError,
    CreatePod,
    DeletePod,
    ElsewhereError,
    EvictPod,
    ForbiddenError,
    GoneError,
    KubeObject,
    Listing,
    MissingError,
    ObjectRef,
    PatchPod,
    RecordEvent,
    WatchEvent,
    is_copy,
)
from shim_client.kubernetes.api import MERGE, STRATEGIC, Api
from shim_client.kubernetes.events import Clock, EventBook, stamp
from shim_client.kubernetes.kinds import OLDER, PLACES, path_of, trimmed, version_of
from shim_client.kubernetes.watching import watched
from shim_client.translate.fields import BadObjectError
from shim_client.translate.jobs import pods_wanted
from shim_client.translate.volumes import BOUND_BY_CONTROLLER, SELECTED_NODE

PAGE = 500
"""Number of objects in one page of a list."""


class KubernetesCluster:
    """A Kubernetes API server. Objects of all namespaces are read, but ConfigMaps only of the shim's own namespace."""

    def __init__(self, api: Api, namespace: str, now_ms: Clock) -> None:
        self.namespace = namespace
        self._api = api
        self._now_ms = now_ms
        self._events = EventBook(api, now_ms)
        self._places = dict(PLACES)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def list_objects(self, kind: str) -> Listing:
        """Return all objects of a kind, requested page by page; errors: ClusterError.

        The API server ends a list that takes too long (410). The error is then a ClusterError, and the list has to be
        started again. An optional kind has an empty list if the cluster does not serve it, or if the shim may not
        read it.
        """
        if kind not in OPTIONAL:
            return await self._list(kind)
        for place in (PLACES[kind], *OLDER.get(kind, ())):
            self._places[kind] = place
            try:
                return await self._list(kind)
            except (MissingError, ForbiddenError):
                continue
        return Listing(kind, [], 0, served=False)

    async def _list(self, kind: str) -> Listing:
        items: list[KubeObject] = []
        params = {"limit": str(PAGE)}
        while True:
            try:
                page = await self._api.get(self._path(kind), params)
            except GoneError as error:
                raise ClusterError(str(error)) from error
            items += (trimmed(kind, item) for item in _items(page))
            if not (more := _continue(page)):
                return Listing(kind, items, _version(page))
            params["continue"] = more

    def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
        """Yield every change after a version; errors: GoneError, ClusterError."""
        return watched(self._api, kind, self._path(kind), version)

    async def bind(self, order: Bind) -> None:
        """Bind a pod, unless the pod is bound to that node already.

        Raises ElsewhereError, ConflictError, MissingError or ClusterError. If a volume claim of the pod is not bound,
        request a volume for that claim and raise a plain ClusterError. A later attempt may then succeed.
        """
        ref = order.pod
        unbound = [
            name
            for name, volume in order.claims
            if not await self._has_volume(ref.namespace, name, volume, order.node)
        ]
        if unbound:
            raise ClusterError(
                f"persistentvolumeclaim {', '.join(map(repr, unbound))} has no volume yet"
            )
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": order.node},
        }
        try:
            await self._api.post(f"{path_of(ref)}/binding", binding)
        except ConflictError as error:
            node = (await self._same(ref, error)).get("spec", {}).get("nodeName", "")
            if not node:
                raise
            if node != order.node:
                raise ElsewhereError(str(error), node) from error
            # An earlier attempt succeeded, although its answer was lost.

    async def _has_volume(self, namespace: str, name: str, volume: str, node: str) -> bool:
        """Return whether a volume claim is bound.

        If the claim is not bound, request ``volume`` for the claim. Without a ``volume``, request a new volume for the
        node. Raises ConflictError when the claim got another volume, or when the volume got another claim. Also raises
        MissingError or ClusterError.
        """
        path = path_of(ObjectRef("PersistentVolumeClaim", namespace, name))
        claim = await self._api.get(path)
        if claim.get("status", {}).get("phase") == "Bound":
            bound = claim.get("spec", {}).get("volumeName", "")
            if volume and bound != volume:
                raise ConflictError(
                    f"persistentvolumeclaim {name!r} was bound to {bound!r} meanwhile"
                )
            return True
        if volume:
            await self._give_volume(volume, claim["metadata"])
            return False
        notes = claim.get("metadata", {}).get("annotations") or {}
        if notes.get(SELECTED_NODE) != node:
            await self._api.patch(path, {"metadata": {"annotations": {SELECTED_NODE: node}}})
        return False

    async def _give_volume(self, name: str, claim: Mapping[str, Any]) -> None:
        """Write the reference of a claim into a free volume, in the form that the volume controller expects.

        Raises ConflictError when the volume is taken. A volume that has this claim already is not changed. Also raises
        MissingError or ClusterError.
        """
        path = path_of(ObjectRef("PersistentVolume", "", name))
        volume = await self._api.get(path)
        taken = volume.get("spec", {}).get("claimRef")
        if taken:
            if taken.get("uid") != claim["uid"]:
                where = f"{taken.get('namespace')}/{taken.get('name')}"
                raise ConflictError(
                    f"persistentvolume {name!r} was bound to claim {where} meanwhile"
                )
            return
        claim_ref = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            **{key: claim[key] for key in ("namespace", "name", "uid", "resourceVersion")},
        }
        # The resource version prevents that this request overwrites a claim that another client has written
        # meanwhile.
        metadata = {
            "resourceVersion": volume["metadata"]["resourceVersion"],
            "annotations": {BOUND_BY_CONTROLLER: "yes"},
        }
        await self._api.patch(path, {"metadata": metadata, "spec": {"claimRef": claim_ref}})

    async def create_pod(self, order: CreatePod) -> None:
        """Create a pod, unless an equal copy exists.

        Raises ConflictError (refused, or another pod has its name) or ClusterError.
        """
        path = path_of(order.pod)
        try:
            await self._api.post(path.rpartition("/")[0], order.item)
        except ConflictError:
            try:
                there = await self._api.get(path)
            except MissingError:
                there = {}
            if not is_copy(order.item, there):
                raise
            # An earlier attempt succeeded: an attempt of this shim, or of the shim that ran before it.

    async def delete_pod(self, order: DeletePod) -> None:
        """Delete a pod with its own grace period.

        Raises ConflictError, MissingError or ClusterError.
        """
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **_if_same(order.pod)}
        try:
            await self._api.delete(path_of(order.pod), options)
        except ConflictError as error:
            await self._same(order.pod, error)
            raise

    async def evict_pod(self, order: EvictPod) -> None:
        """Evict a pod.

        Raises BudgetError, ConflictError, MissingError or ClusterError.
        """
        ref = order.pod
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "deleteOptions": _if_same(ref),
        }
        try:
            await self._api.post(f"{path_of(ref)}/eviction", eviction)
        except ConflictError as error:
            await self._same(ref, error)
            raise

    async def patch_pod(self, order: PatchPod) -> None:
        """Patch metadata and status, each only if the pod still has the uid of the order.

        Raises the errors of `PodWriter.patch_pod`.
        """
        try:
            await self._patch(order)
        except ConflictError as error:
            await self._same(order.pod, error)
            raise

    async def _patch(self, order: PatchPod) -> None:
        path = path_of(order.pod)
        metadata = {"uid": order.pod.uid} if order.pod.uid else {}
        marks = {"labels": dict(order.labels), "annotations": dict(order.annotations)}
        if written := {field: change for field, change in marks.items() if change}:
            await self._api.patch(path, {"metadata": {**metadata, **written}}, MERGE)
        status = self._status(order)
        if status:
            change = {"metadata": metadata, "status": status}
            await self._api.patch(f"{path}/status", change, STRATEGIC)

    async def _same(self, ref: ObjectRef, error: ConflictError | None = None) -> dict[str, Any]:
        """Return the object of a reference.

        Raises MissingError when the object is gone. Also raises MissingError, with `error` as its cause, if the object
        with this name has another uid.
        """
        found: dict[str, Any] = await self._api.get(path_of(ref))
        if ref.uid and found.get("metadata", {}).get("uid") != ref.uid:
            raise MissingError(f"{ref.kind} {ref.name} is another one by now") from error
        return found

    async def pods_wanted(self, owner: ObjectRef) -> int:
        """Return how many pods an owner wants to run now.

        Raises MissingError, ConflictError (not readable) or ClusterError.
        """
        found = await self._same(owner)
        try:
            return pods_wanted({**found, "kind": owner.kind})
        except BadObjectError as bad:
            raise ConflictError(f"{owner.kind} {owner.name}: {bad}") from bad

    async def record_event(self, order: RecordEvent) -> None:
        """Record an event.

        Raises ClusterError if the request fails.
        """
        await self._events.record(order)

    def _status(self, order: PatchPod) -> dict[str, Any]:
        status: dict[str, Any] = {}
        if order.condition is not None:
            fields = zip(("type", "status", "reason", "message"), order.condition, strict=True)
            now = stamp(self._now_ms())
            status["conditions"] = [{**dict(fields), "lastTransitionTime": now}]
        if order.phase:
            status |= {"phase": order.phase, "reason": order.reason, "message": order.message}
        return status

    def _path(self, kind: str) -> str:
        place = self._places[kind]
        return place.within(self.namespace) if kind == "ConfigMap" else place.everywhere()


def _if_same(ref: ObjectRef) -> dict[str, Any]:
    """Return the precondition of a deletion: the API server deletes the pod only if it has the uid of the reference.

    Return {} if the reference has no uid.
    """
    return {"preconditions": {"uid": ref.uid}} if ref.uid else {}


def _items(page: dict[str, Any]) -> list[Any]:
    items = page.get("items")
    return items if isinstance(items, list) else []


def _continue(page: dict[str, Any]) -> str:
    metadata = page.get("metadata")
    more = metadata.get("continue") if isinstance(metadata, dict) else None
    return more if isinstance(more, str) else ""


def _version(page: dict[str, Any]) -> int:
    try:
        return version_of(page)
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError("a list without a resource version") from error
