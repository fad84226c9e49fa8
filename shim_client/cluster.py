"""The port to a cluster: what the shim reads from it and does on it.

Two backends stand behind it: the embedded cluster (`shim_client.embedded`) and a real Kubernetes
API server.  Objects are plain Kubernetes-shaped mappings, never changed in place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

KubeObject = Mapping[str, Any]
"""One Kubernetes object as its JSON reads; nobody writes to it."""

KINDS = (
    "ConfigMap",
    "Namespace",
    "PriorityClass",
    "PodDisruptionBudget",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Node",
    "Pod",
)
"""The kinds that the shim watches, in the order in which it lists them (specification 1.7).

ConfigMaps are those of the shim's own namespace; a backend without objects of a kind lists none.
"""


class Change(Enum):
    """What a watch says of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing has changed up to this version; the object holds no more than that."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change of one object, with the resource version to continue from."""

    change: Change
    kind: str
    item: KubeObject
    version: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind at one resource version."""

    kind: str
    items: Sequence[KubeObject]
    version: int


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Names one object; the uid is empty where only the name is known."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a pod its node; the volumes of `claims` are to be made for that node before."""

    pod: ObjectRef
    node: str
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a pod, unless one of that name and the same labels and annotations is there; `pod` has no uid yet."""

    pod: ObjectRef
    item: KubeObject
    origin: str = ""
    """Uid of the pod for whose application it is made."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod with its own grace period, if it is still the same pod."""

    pod: ObjectRef


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Have a pod go as `DeletePod` does, if the disruption budgets that count it allow one more."""

    pod: ObjectRef


@dataclass(frozen=True, slots=True)
class PatchPod:
    """Write labels and annotations (None takes one away), a condition (type, status, reason, message) or a phase.

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
    """Put an event on an object; `warning` is the event's type."""

    about: ObjectRef
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Take a pod's place back: say on it for whom and why, and only when that is written have it go.

    Without an `end` that is all: somebody else has it go, who reads what was written (J11).
    """

    pod: ObjectRef
    end: DeletePod | EvictPod | None
    note: PatchPod | None = None
    decision: str = ""


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Ask an owner how many pods it wants to run now (J1); the answer comes back in `wanted`."""

    owner: ObjectRef
    about: str
    """Whatever the asker wants to find again in the answer."""
    wanted: int | None = None


Action = Bind | CreatePod | DeletePod | PatchPod | ReadOwner | RecordEvent | ReleasePod


def is_copy(made: KubeObject, there: KubeObject) -> bool:
    """Return whether a pod that is there is the one that was to be made: it has its annotations and owner."""
    wanted, found = made["metadata"], there.get("metadata") or {}
    notes = found.get("annotations") or {}
    owners = [owner.get("uid") for owner in found.get("ownerReferences") or ()]
    return all(notes.get(key) == value for key, value in wanted["annotations"].items()) and all(
        owner["uid"] in owners for owner in wanted["ownerReferences"]
    )


class ClusterError(Exception):
    """The cluster did not do what it was asked; may pass by itself, so it is worth another try.

    `retry_after` is how many seconds the cluster wants to be left alone before that.
    """

    def __init__(self, message: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConflictError(ClusterError):
    """The object is not in the state that the request needs; another try will not help."""


class ElsewhereError(ConflictError):
    """The pod is bound already, to another node than the one that was asked for."""

    def __init__(self, message: str, node: str) -> None:
        super().__init__(message)
        self.node = node


class BudgetError(ConflictError):
    """An eviction that the pod's disruption budget does not allow now."""


class MissingError(ClusterError):
    """The object is gone; another try will not help."""


class GoneError(ClusterError):
    """The resource version to watch from is too old: list again (HTTP 410)."""


class ClusterReader(Protocol):
    """Reads a cluster by list and watch."""

    async def list_objects(self, kind: str) -> Listing:
        """Return all objects of a kind; errors: ClusterError."""
        ...

    def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
        """Yield every change after `version`, in order; errors: GoneError, ClusterError."""
        ...


class PodWriter(Protocol):
    """Changes pods."""

    async def bind(self, order: Bind) -> None:
        """Bind a pod, unless it is bound to that node already.

        Errors: ElsewhereError (bound to another node), ConflictError, MissingError, ClusterError.
        """
        ...

    async def create_pod(self, order: CreatePod) -> None:
        """Create a pod; errors: ConflictError (refused, or another pod has its name), ClusterError."""
        ...

    async def delete_pod(self, order: DeletePod) -> None:
        """Delete a pod; errors: ConflictError (another uid), MissingError, ClusterError."""
        ...

    async def evict_pod(self, order: EvictPod) -> None:
        """Evict a pod; errors: BudgetError, ConflictError, MissingError, ClusterError."""
        ...

    async def patch_pod(self, order: PatchPod) -> None:
        """Patch a pod; errors: ConflictError (another uid), MissingError, ClusterError."""
        ...


class EventWriter(Protocol):
    """Records events."""

    async def record_event(self, order: RecordEvent) -> None:
        """Record one event; equal ones may be counted together; errors: ClusterError."""
        ...


class OwnerReader(Protocol):
    """Reads the owners of pods, when somebody has to know."""

    async def pods_wanted(self, owner: ObjectRef) -> int:
        """Return how many pods an owner wants to run now; errors: MissingError, ClusterError."""
        ...


class Cluster(ClusterReader, PodWriter, EventWriter, OwnerReader, Protocol):
    """A whole backend."""
