"""Volume claims, volumes, storage classes and attach limits: whether a pod can start, and on which nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shim_client.messages import Requirement, SelectorTerm
from shim_client.translate.constraints import selector_terms
from shim_client.translate.fields import BadObjectError, Fields, items, mapping, names, text, texts
from shim_client.translate.matching import Selector, read_selector
from shim_client.translate.resources import amounts

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for which its volume is to be provisioned."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume whose claim was written by a controller or scheduler, and not by a person."""
FILESYSTEM = "Filesystem"
"""The volume mode of claims and volumes that do not name one."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of a storage class that only has existing volumes."""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A volume claim.

    An empty phase means that no controller sets phases; then the claim only has to exist.
    """

    phase: str
    volume: str
    storage_class: str
    deleting: bool
    owner: str = ""
    """Uid of the controller that owns the claim: the pod, for a generic ephemeral volume."""
    size: int = 0
    """Requested bytes."""
    access_modes: frozenset[str] = frozenset()
    mode: str = FILESYSTEM
    selector: Selector = ()
    """The labels that a volume must have."""


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """A volume: the nodes that can mount it, and the properties that a claim may demand."""

    terms: tuple[SelectorTerm, ...] = ()
    """A node that meets one of these terms can mount the volume. Without terms every node can mount the volume."""
    storage_class: str = ""
    size: int = 0
    """Capacity in bytes."""
    access_modes: frozenset[str] = frozenset()
    mode: str = FILESYSTEM
    labels: Mapping[str, str] = field(default_factory=dict)
    is_free: bool = False
    """Whether a claim can still be bound to the volume, into which no claim is written yet."""
    claim: str = ""
    """Namespace and name of the claim that is written into the volume, as one text; empty without one."""
    driver: str = ""
    """The CSI driver of the volume; empty for other volumes."""
    handle: str = ""
    """The text by which the CSI driver identifies the volume."""


@dataclass(frozen=True, slots=True)
class StorageClassFacts:
    """A storage class: whether volumes are provisioned only after the pod has a node, and on which nodes they can be provisioned."""

    waits_for_pod: bool
    terms: tuple[SelectorTerm, ...]
    provisions: bool = True
    """Whether new volumes can be made. If not, only existing volumes can be bound."""
    driver: str = ""
    """The provisioner, which is the CSI driver of new volumes."""


def read_claim(item: Fields) -> ClaimFacts:
    """Return a PersistentVolumeClaim's facts."""
    spec, metadata = mapping(item, "spec"), mapping(item, "metadata")
    owners = items(metadata, "ownerReferences", "metadata.")
    where = "metadata.ownerReferences[]."
    return ClaimFacts(
        phase=text(mapping(item, "status"), "phase", "status."),
        volume=text(spec, "volumeName", "spec."),
        storage_class=text(spec, "storageClassName", "spec."),
        deleting=bool(metadata.get("deletionTimestamp")),
        owner=next((text(one, "uid", where) for one in owners if one.get("controller")), ""),
        size=_bytes(mapping(spec, "resources", "spec."), "requests", "spec.resources."),
        access_modes=frozenset(names(spec, "accessModes", "spec.")),
        mode=text(spec, "volumeMode", "spec.") or FILESYSTEM,
        selector=read_selector(mapping(spec, "selector", "spec."), "spec.selector."),
    )


def read_volume(item: Fields) -> VolumeFacts:
    """Return a PersistentVolume's facts."""
    spec, metadata = mapping(item, "spec"), mapping(item, "metadata")
    affinity = mapping(spec, "nodeAffinity", "spec.")
    where = "spec.nodeAffinity.required."
    phase = text(mapping(item, "status"), "phase", "status.")
    owner, csi = mapping(spec, "claimRef", "spec."), mapping(spec, "csi", "spec.")
    claimed = owner or metadata.get("deletionTimestamp")
    where_claim = "spec.claimRef."
    return VolumeFacts(
        terms=selector_terms(mapping(affinity, "required", "spec.nodeAffinity."), where),
        storage_class=text(spec, "storageClassName", "spec."),
        size=_bytes(spec, "capacity", "spec."),
        access_modes=frozenset(names(spec, "accessModes", "spec.")),
        mode=text(spec, "volumeMode", "spec.") or FILESYSTEM,
        labels=texts(metadata, "labels", "metadata."),
        is_free=not claimed and phase in {"", "Available"},
        claim="/".join(text(owner, key, where_claim) for key in ("namespace", "name"))
        if owner
        else "",
        driver=text(csi, "driver", "spec.csi."),
        handle=text(csi, "volumeHandle", "spec.csi."),
    )


def _bytes(fields: Fields, key: str, path: str) -> int:
    """Return the bytes of storage in a mapping of quantities; 0 if the mapping names no storage.

    Raises BadObjectError if the quantity is invalid.
    """
    return amounts(fields, key, path).get("storage", 0)


def read_storage_class(item: Fields) -> StorageClassFacts:
    """Return a StorageClass's facts."""
    return StorageClassFacts(
        waits_for_pod=text(item, "volumeBindingMode") == "WaitForFirstConsumer",
        terms=tuple(
            SelectorTerm(
                tuple(
                    Requirement(text(one, "key"), "In", names(one, "values"))
                    for one in items(term, "matchLabelExpressions", "allowedTopologies[].")
                )
            )
            for term in items(item, "allowedTopologies")
        ),
        provisions=text(item, "provisioner") != NO_PROVISIONER,
        driver=text(item, "provisioner"),
    )


def read_attach_limits(item: Fields) -> dict[str, int]:
    """Return the most volumes that a node can have attached, by CSI driver; drivers without a limit are left out."""
    found = {}
    for driver in items(mapping(item, "spec"), "drivers", "spec."):
        allocatable = mapping(driver, "allocatable", "spec.drivers[].")
        count = allocatable.get("count")
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise BadObjectError("spec.drivers[].allocatable.count", "is not a number from 0 on")
        found[text(driver, "name", "spec.drivers[].")] = count
    return found
