"""Volume claims, volumes and storage classes: whether a pod can start, and on which nodes."""

from __future__ import annotations

from dataclasses import dataclass

from shim_client.messages import Requirement, SelectorTerm
from shim_client.translate.constraints import selector_terms
from shim_client.translate.fields import Fields, items, mapping, names, text

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for which its volume is to be provisioned."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of a storage class that only has existing volumes."""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A volume claim; an empty phase means that no controller sets phases, and then the claim only has to exist."""

    phase: str
    volume: str
    storage_class: str
    deleting: bool
    owner: str = ""
    """Uid of the controller that owns the claim: the pod, for a generic ephemeral volume."""


@dataclass(frozen=True, slots=True)
class StorageClassFacts:
    """A storage class: whether volumes are provisioned only after the pod has a node, and on which nodes that is possible."""

    waits_for_pod: bool
    terms: tuple[SelectorTerm, ...]
    provisions: bool = True
    """Whether new volumes can be made; else only existing volumes can be bound."""


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
    )


def read_volume(item: Fields) -> tuple[SelectorTerm, ...]:
    """Return the node terms of a PersistentVolume: a node that meets one can mount it; without terms every node can."""
    affinity = mapping(mapping(item, "spec"), "nodeAffinity", "spec.")
    where = "spec.nodeAffinity.required."
    return selector_terms(mapping(affinity, "required", "spec.nodeAffinity."), where)


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
    )
