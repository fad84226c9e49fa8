"""The faults of a cluster's objects, collected from its events: refused objects, and objects with parts that have no effect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shim_client.embedded.checks import NO_SCHEDULER, SETTING_NOT_CLEAR, VOLUMES_IGNORED
from shim_client.embedded.events import KeptEvent

REFUSED = frozenset(
    {
        "Refused",
        "FailedCreate",
        "FileNotReadable",
        "NodeNotReadable",
        "NodeRejected",
        "PodNotReadable",
        "PriorityClassNotReadable",
        "PodDisruptionBudgetNotReadable",
        "NamespaceNotReadable",
        "StorageClassNotReadable",
        "PersistentVolumeNotReadable",
        "PersistentVolumeClaimNotReadable",
        "PodGroupNotReadable",
    }
)
"""Reasons of events about an object, or a part of an object, that does not exist because it was refused."""
WITHOUT_EFFECT = frozenset(
    {
        NO_SCHEDULER,
        SETTING_NOT_CLEAR,
        VOLUMES_IGNORED,
        "AnnotationNotClear",
        "CalculateExpectedPodCountFailed",
        "NodeUnknown",
        "PodGroupNotClear",
        "PodNotClear",
        "PriorityClassUnknown",
    }
)
"""Reasons of events about an object that exists although a part of it has no effect."""


@dataclass(frozen=True, slots=True)
class ObjectFault:
    """A fault that one or more objects of a kind have, with the first of these objects as an example."""

    reason: str
    refused: bool
    kind: str
    example: str
    """Namespace and name of the example; only the name for kinds without a namespace."""
    objects: int
    message: str


def object_faults(events: Iterable[KeptEvent]) -> list[ObjectFault]:
    """Return the faults that events report.

    Refusals come first; apart from this, faults are in the order of the events.
    """
    found: dict[tuple[str, str, str], list[KeptEvent]] = {}
    for one in events:
        if one.reason in REFUSED or one.reason in WITHOUT_EFFECT:
            found.setdefault((one.reason, one.about.kind, one.message), []).append(one)
    faults = [_fault(alike) for alike in found.values()]
    return sorted(faults, key=lambda fault: not fault.refused)


def _fault(alike: list[KeptEvent]) -> ObjectFault:
    first = alike[0]
    about = first.about
    name = f"{about.namespace}/{about.name}" if about.namespace else about.name
    count = len({(one.about.namespace, one.about.name) for one in alike})
    return ObjectFault(
        first.reason, first.reason in REFUSED, about.kind, name, count, first.message
    )
