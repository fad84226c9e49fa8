"""The interface to a cluster: the reads and changes of the shim.

Two backends implement this interface: the embedded cluster (`shim_client.embedded`) and a real Kubernetes API server.
Objects are plain mappings with the shape of Kubernetes JSON, never changed in place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

KubeObject = Mapping[str, Any]
"""A Kubernetes object with the shape of its JSON; read-only."""

KINDS = (
    "ConfigMap",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "PriorityClass",
    "PodDisruptionBudget",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodGroup",
    "CSINode",
    "Node",
    "Pod",
)
"""The kinds that the shim watches, in the order in which it lists them.

Of all ConfigMaps, only those of the shim's own namespace are watched. A backend that has no objects of a kind returns
an empty list.
"""
OPTIONAL = frozenset(
    {"PodGroup", "CSINode", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
)
"""Kinds that some clusters do not serve, or do not allow the shim to read."""


class Change(Enum):
    """The kind of change that a watch reports."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """A report that a watch has delivered all changes up to a resource version.

    The object of this report contains only that version.
    """


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of one object, with the resource version to continue from."""

    change: Change
    kind: str
    item: KubeObject
    version: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind as they are at one resource version."""

    kind: str
    items: Sequence[KubeObject]
    version: int
    served: bool = True
    """Whether the cluster serves the kind.

    A kind that the cluster does not serve cannot be watched, but may be served later.
    """


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A reference to one object. The uid is empty if only the name is known."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Bind:
    """An order to bind a pod to a node, once the pod's volume claims are bound.

    Each item of `claims` is the name of a volume claim of the pod and the name of the volume for that claim. The volume
    name "" requests a new volume on that node.
    """

    pod: ObjectRef
    node: str
    claims: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePod:
    """An order to create a pod, unless a copy of the pod exists under the same name (see `is_copy`).

    `pod` has no uid yet.
    """

    pod: ObjectRef
    item: KubeObject
    origin: str = ""
    """Uid of the pod that created the application to which the new pod belongs."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """An order to delete a pod with the pod's own grace period.

    If the pod with that name has another uid, the pod is not deleted.
    """

    pod: ObjectRef


@dataclass(frozen=True, slots=True)
class EvictPod:
    """An order to delete a pod as `DeletePod` does, if the pod's disruption budgets allow one more disruption."""

    pod: ObjectRef


@dataclass(frozen=True, slots=True)
class PatchPod:
    """An order to write labels and annotations (the value None removes a key), a condition (type, status, reason, message) or a phase.

    Labels and annotations are written together or not at all.
    """

    pod: ObjectRef
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    condition: tuple[str, str, str, str] | None = None
    phase: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """An order to record an event on an object; `warning` is the event's type."""

    about: ObjectRef
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """An order to evict a pod.

    The preemptor and the reason are written on the pod first; only then is the pod deleted or evicted. If `end` is
    None, the shim only writes the preemptor and the reason. Another operator (a controller, or a person) then reads
    them and deletes the pod (J11).
    """

    pod: ObjectRef
    end: DeletePod | EvictPod | None
    note: PatchPod | None = None
    decision: str = ""


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """An order to read from the owner of a pod how many pods this owner wants to run now (J1).

    The executor sets `wanted` to the number of pods.
    """

    owner: ObjectRef
    about: str
    """The key by which the caller finds the request to which an answer belongs."""
    wanted: int | None = None


Action = Bind | CreatePod | DeletePod | PatchPod | ReadOwner | RecordEvent | ReleasePod


def is_copy(made: KubeObject, there: KubeObject) -> bool:
    """Return whether an existing pod has the annotations and the owner of the pod to be created."""
    wanted, found = made["metadata"], there.get("metadata") or {}
    notes = found.get("annotations") or {}
    owners = [owner.get("uid") for owner in found.get("ownerReferences") or ()]
    return all(notes.get(key) == value for key, value in wanted["annotations"].items()) and all(
        owner["uid"] in owners for owner in wanted["ownerReferences"]
    )


class ClusterError(Exception):
    """A request that the cluster did not carry out.

    Another attempt may succeed, unless the subclass says otherwise. `retry_after` is the number of seconds after which
    the cluster accepts another attempt.
    """

    def __init__(self, message: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class FencedError(ClusterError):
    """A request that was not sent, because this shim possibly is not the leader any more (design 7.2)."""


class ConflictError(ClusterError):
    """A request that the object's state does not permit. Another attempt will fail, too."""


class ElsewhereError(ConflictError):
    """A binding that was refused, because the pod is already bound to another node."""

    def __init__(self, message: str, node: str) -> None:
        super().__init__(message)
        self.node = node


class BudgetError(ConflictError):
    """An eviction that was refused, because the pod's disruption budget does not allow the eviction now."""


class MissingError(ClusterError):
    """A request for an object that is gone. Another attempt will fail, too."""


class ForbiddenError(ClusterError):
    """A request that the caller's role does not allow.

    Another attempt can succeed only after the role was changed.
    """


class GoneError(ClusterError):
    """A resource version that is too old to watch from (HTTP 410): the kind has to be listed again."""


class ClusterReader(Protocol):
    """The part of a cluster that lists and watches objects."""

    async def list_objects(self, kind: str) -> Listing:
        """Return all objects of a kind. Raises ClusterError if the request fails."""
        ...

    def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
        """Yield every change after `version`, in order. Raises GoneError or ClusterError."""
        ...


class PodWriter(Protocol):
    """The part of a cluster that changes pods."""

    async def bind(self, order: Bind) -> None:
        """Bind a pod, unless the pod is bound to that node already.

        Raises ElsewhereError (bound to another node), ConflictError, MissingError or ClusterError.
        """
        ...

    async def create_pod(self, order: CreatePod) -> None:
        """Create a pod. Raises ConflictError (refused, or another pod has its name) or ClusterError."""
        ...

    async def delete_pod(self, order: DeletePod) -> None:
        """Delete a pod. Raises ConflictError (the pod has another uid), MissingError or ClusterError."""
        ...

    async def evict_pod(self, order: EvictPod) -> None:
        """Evict a pod. Raises BudgetError, ConflictError, MissingError or ClusterError."""
        ...

    async def patch_pod(self, order: PatchPod) -> None:
        """Patch a pod. Raises ConflictError (the pod has another uid), MissingError or ClusterError."""
        ...


class EventWriter(Protocol):
    """The part of a cluster that records events."""

    async def record_event(self, order: RecordEvent) -> None:
        """Record one event; equal events may be counted together. Raises ClusterError if the request fails."""
        ...


class OwnerReader(Protocol):
    """The part of a cluster that reads owners of pods."""

    async def pods_wanted(self, owner: ObjectRef) -> int:
        """Return the number of pods that an owner wants to run now. Raises MissingError or ClusterError."""
        ...


class Cluster(ClusterReader, PodWriter, EventWriter, OwnerReader, Protocol):
    """A cluster: the whole interface that a backend implements."""
