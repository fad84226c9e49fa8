"""The embedded cluster itself: the interface of `shim_client.cluster`, implemented by objects in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from shim_client.cluster import (
    Bind,
    BudgetError,
    ConflictError,
    CreatePod,
    DeletePod,
    ElsewhereError,
    EvictPod,
    KubeObject,
    Listing,
    MissingError,
    ObjectRef,
    PatchPod,
    RecordEvent,
    WatchEvent,
    is_copy,
)
from shim_client.embedded.admission import SYSTEM_CLASSES, Admission, InvalidError, instant
from shim_client.embedded.changing import managed
from shim_client.embedded.checks import check, warnings
from shim_client.embedded.controllers import Controllers
from shim_client.embedded.disruptions import Disruptions
from shim_client.embedded.events import EventBook
from shim_client.embedded.kubelet import Kubelet, with_condition
from shim_client.embedded.loading import Manifests
from shim_client.embedded.saved import Saved, Serials
from shim_client.embedded.store import HISTORY_MAX, Key, Store, key_of
from shim_client.translate.fields import BadObjectError
from shim_client.translate.jobs import pods_wanted

Clock = Callable[[], int]
"""A function that returns the present instant in Unix milliseconds."""

STEPS_MAX = 1_000
"""Maximum number of rounds of controllers and nodes in one call of `step`. The next call does the remaining work."""


class EmbeddedCluster:
    """A cluster in memory; `run` (or `step`) lets its controllers and nodes work.

    A pod that is deleted ends after `stop_ms` milliseconds, or after its grace period when that is shorter.
    """

    def __init__(
        self,
        now_ms: Clock,
        *,
        stop_ms: int = 0,
        history_max: int = HISTORY_MAX,
        schedulers: Sequence[str] = ("evenhand",),
    ) -> None:
        self._now_ms = now_ms
        self.schedulers = schedulers
        """The scheduler names to which the shim responds."""
        self.store = Store(history_max)
        self.events = EventBook()
        self._admission = Admission(self._classes)
        self._kubelet = Kubelet(self.store, stop_ms)
        self._controllers = Controllers(self.store, self)
        self._disruptions = Disruptions(self.store, self)
        self._serial = 0
        self._wakers: set[asyncio.Event] = set()
        self.store.noticed.append(self._wake)
        for name, value in SYSTEM_CLASSES.items():
            self.create({"kind": "PriorityClass", "metadata": {"name": name}, "value": value})

    def fill(self, manifests: Manifests) -> None:
        """Create the objects of a directory.

        If an object is refused, record an event on it and create all other objects.
        """
        for found in manifests.objects:
            try:
                self.create_checked(found.item)
            except (InvalidError, ConflictError) as bad:
                self.complain(found.ref(), "Refused", f"{found.place}: {bad}")
        self.step()

    # The part of the interface that reads objects.

    async def list_objects(self, kind: str) -> Listing:
        """Return all objects of a kind."""
        return self.store.listing(kind)

    async def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
        """Yield every change after a version.

        Raises GoneError when changes after this version are no longer kept.
        """
        changed = asyncio.Event()
        self._wakers.add(changed)
        try:
            while True:
                changed.clear()
                for event in self.store.since(kind, version):
                    yield event
                    version = event.version
                await changed.wait()
        finally:
            self._wakers.discard(changed)

    # The part of the interface that writes.

    async def bind(self, order: Bind) -> None:
        """Bind a pod, unless the pod is bound to that node already.

        Raises MissingError, ElsewhereError, ConflictError.
        """
        pod = self._same_pod(order.pod)
        name = order.pod.name
        if pod["metadata"].get("deletionTimestamp"):
            raise ConflictError(f"pod {name} is being deleted, cannot be assigned to a host")
        if node := pod["spec"].get("nodeName"):
            if node == order.node:
                return
            raise ElsewhereError(f"pod {name} is already assigned to {node}", node)
        if self.store.get("Node", ("", order.node)) is None:
            raise ConflictError(f"there is no node {order.node}")
        condition = {"type": "PodScheduled", "status": "True", **self._transition()}
        status = {**pod["status"], "conditions": with_condition(pod["status"], condition)}
        spec = {**pod["spec"], "nodeName": order.node}
        self.store.put({**pod, "spec": spec, "status": status})

    async def create_pod(self, order: CreatePod) -> None:
        """Create a pod, unless an equal copy exists.

        Raises ConflictError when the pod is refused, or when another pod has its name.
        """
        there = self.store.get("Pod", (order.pod.namespace, order.pod.name))
        if there is not None and is_copy(order.item, there):
            return
        try:
            self.create(dict(order.item))
        except InvalidError as bad:
            raise ConflictError(str(bad)) from bad

    async def delete_pod(self, order: DeletePod) -> None:
        """Delete a pod with its grace period.

        Raises MissingError, ConflictError.
        """
        self._same_pod(order.pod)
        self.delete("Pod", (order.pod.namespace, order.pod.name))

    async def evict_pod(self, order: EvictPod) -> None:
        """Delete a pod with its grace period if the pod's disruption budget allows one more disruption.

        Raises the errors of `PodWriter.evict_pod`.
        """
        pod = self._same_pod(order.pod)
        if why := self._disruptions.refusal(pod):
            raise BudgetError(why)
        self.delete("Pod", (order.pod.namespace, order.pod.name))

    async def patch_pod(self, order: PatchPod) -> None:
        """Patch labels, annotations, condition or phase of a pod.

        Raises MissingError, ConflictError. A label or annotation with the value None is removed.
        """
        pod = self._same_pod(order.pod)
        metadata, status = pod["metadata"], pod["status"]
        for field, change in (("labels", order.labels), ("annotations", order.annotations)):
            if change:
                marks = {**(metadata.get(field) or {}), **change}
                kept = {key: value for key, value in marks.items() if value is not None}
                metadata = {**metadata, field: kept}
        if order.condition is not None:
            fields = zip(("type", "status", "reason", "message"), order.condition, strict=True)
            condition = {**dict(fields), **self._transition()}
            status = {**status, "conditions": with_condition(status, condition)}
        if order.phase:
            why = {"phase": order.phase, "reason": order.reason, "message": order.message}
            status = {**status, **why}
        self.store.put({**pod, "metadata": metadata, "status": status})

    async def pods_wanted(self, owner: ObjectRef) -> int:
        """Return how many pods an owner wants to run now.

        Raises MissingError, ConflictError.
        """
        item = self.store.get(owner.kind, (owner.namespace, owner.name))
        if item is None or (owner.uid and item["metadata"]["uid"] != owner.uid):
            raise MissingError(f"{owner.kind} {owner.name} is not there")
        try:
            return pods_wanted(item)
        except BadObjectError as bad:
            raise ConflictError(f"{owner.kind} {owner.name}: {bad}") from bad

    async def record_event(self, order: RecordEvent) -> None:
        """Record an event now."""
        self.events.record(order, self._now_ms())

    # Requests of users of the API.

    def create(self, item: dict[str, Any], *, from_manifest: bool = False) -> KubeObject:
        """Create an object, and its namespace when that is missing.

        Raises InvalidError, or ConflictError when the name is taken. With `from_manifest` the object's labels and
        annotations are recorded as parts of a manifest, so that a later manifest can remove them.
        """
        self._serial += 1
        kept = self.admitted(item)
        if from_manifest:
            kept["metadata"]["managedFields"] = managed(kept["metadata"])
        kind, key = kept["kind"], key_of(kept)
        if self.store.get(kind, key) is not None:
            raise ConflictError(f"{kind} {key[1]} exists already")
        if key[0] and self.store.get("Namespace", ("", key[0])) is None:
            self.create({"kind": "Namespace", "metadata": {"name": key[0]}})
        return self.store.put(kept)

    def create_checked(self, item: dict[str, Any]) -> KubeObject:
        """Check, create and return an object of a manifest.

        Record events about the parts of the manifest that have no effect. Raises the errors of `create`.
        """
        check(item, self.has_node)
        made = self.create(item, from_manifest=True)
        self.warn(item, made)
        return made

    def warn(self, item: KubeObject, made: KubeObject) -> None:
        """Record events on an object about the parts of its manifest that have no effect."""
        for reason, message in warnings(item, self.schedulers):
            self.complain(self.ref_of(made), reason, message)

    def admitted(self, item: KubeObject) -> dict[str, Any]:
        """Return a manifest as an object with all defaults, without storing it.

        Raises InvalidError if an API server would refuse the object.
        """
        return self._admission.admit(item, self._now_ms(), self._serial)

    def replace(self, item: KubeObject) -> KubeObject:
        """Store and return a changed object without checking it.

        Raises MissingError when there is no such object.
        """
        if self.store.get(item["kind"], key_of(item)) is None:
            raise MissingError(f"{item['kind']} {key_of(item)[1]} is not there")
        return self.store.put(item)

    def delete(self, kind: str, key: Key) -> None:
        """Delete an object, if it exists.

        A pod on a node gets its grace period first; other objects are removed at once.
        """
        item = self.store.get(kind, key)
        if item is None:
            return
        metadata = item["metadata"]
        if kind != "Pod" or not item["spec"].get("nodeName"):
            self.store.remove(kind, key)
        elif not metadata.get("deletionTimestamp"):
            grace = item["spec"].get("terminationGracePeriodSeconds", 0)
            due = instant(self._now_ms() + 1000 * grace)
            going = {"deletionTimestamp": due, "deletionGracePeriodSeconds": grace}
            self.store.put({**item, "metadata": {**metadata, **going}})

    def complain(self, about: ObjectRef, reason: str, message: str) -> None:
        """Record a warning on an object."""
        self.events.record(RecordEvent(about, reason, message, warning=True), self._now_ms())

    def pods(self) -> Iterator[KubeObject]:
        """Yield all pods."""
        return self.store.all("Pod")

    def nodes(self) -> Iterator[KubeObject]:
        """Yield all nodes."""
        return self.store.all("Node")

    # Work that becomes due as time passes.

    def step(self) -> None:
        """Let controllers and nodes do all work that is due now, in at most STEPS_MAX rounds."""
        for _ in range(STEPS_MAX):
            self._controllers.step()
            self._disruptions.step()
            now_ms = self._now_ms()
            self._kubelet.step(now_ms)
            if self.is_idle(now_ms):
                return

    def is_idle(self, now_ms: int) -> bool:
        """Return whether controllers and nodes have nothing to do now."""
        due = self._kubelet.next_due()
        parts = (self._controllers, self._disruptions, self._kubelet)
        at_rest = all(part.is_idle() for part in parts)
        return at_rest and (due is None or due > now_ms)

    def next_due(self) -> int | None:
        """Return the next instant (Unix milliseconds) at which a pod may end.

        Return None when no pod is going to end.
        """
        return self._kubelet.next_due()

    async def run(self) -> None:
        """Let controllers and nodes work until cancelled."""
        changed = asyncio.Event()
        self._wakers.add(changed)
        try:
            while True:
                changed.clear()
                self.step()
                await self._until_due(changed)
        finally:
            self._wakers.discard(changed)

    async def _until_due(self, changed: asyncio.Event) -> None:
        due = self.next_due()
        seconds = None if due is None else max(0, due - self._now_ms()) / 1000
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def _wake(self, _: WatchEvent) -> None:
        for waker in self._wakers:
            waker.set()

    def _same_pod(self, ref: ObjectRef) -> KubeObject:
        pod = self.store.get("Pod", (ref.namespace, ref.name))
        if pod is None:
            raise MissingError(f"pod {ref.name} is not there")
        if ref.uid and pod["metadata"]["uid"] != ref.uid:
            raise ConflictError(f"pod {ref.name} is another one by now")
        return pod

    def _transition(self) -> dict[str, str]:
        return {"lastTransitionTime": instant(self._now_ms())}

    def now_ms(self) -> int:
        """Return the cluster's present instant in Unix milliseconds."""
        return self._now_ms()

    def has_node(self, name: str) -> bool:
        """Return whether there is a node with this name."""
        return self.store.get("Node", ("", name)) is not None

    def ref_of(self, item: KubeObject) -> ObjectRef:
        """Return the reference of a stored object."""
        return ObjectRef(item["kind"], *key_of(item), item["metadata"]["uid"])

    # The state that outlives the process.

    def serials(self) -> Serials:
        """Return the numbers from which the uids of new objects and the names of new pods are made."""
        return self._serial, self._controllers.serial

    def restore(self, saved: Saved) -> None:
        """Put the objects of a saved state into this new cluster. Nodes and controllers continue with these objects.

        An existing object with the name of a saved one is overwritten. Nothing is checked, because the objects were
        admitted before.
        """
        for item in saved.objects.values():
            self.store.put(item)
        self._serial = max(self._serial, saved.serials[0])
        self._controllers.serial = max(self._controllers.serial, saved.serials[1])
        for pod in self.pods():
            self._kubelet.resume(pod)

    def _classes(self) -> dict[str, KubeObject]:
        return {item["metadata"]["name"]: item for item in self.store.all("PriorityClass")}
