"""The pods of a StatefulSet to create and to delete next, as a pure function.

Pods are NAME-0, NAME-1 and so on. With the policy OrderedReady, the default, a pod is created when all pods with lower
ordinals are ready, and the pod with the highest ordinal is deleted first. With the policy Parallel, all pods are
created and deleted at once. Pods of an old template are replaced one by one, the highest ordinal first. A pod is
replaced only when all other pods are ready.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from shim_client.cluster import KubeObject
from shim_client.embedded.workloads import (
    BadWorkloadError,
    labels_of,
    letters,
    pod_of,
    pod_spec,
    wanted,
)

PARALLEL = "Parallel"
POLICIES = ("OrderedReady", PARALLEL)
STRATEGIES = ("RollingUpdate", "OnDelete")
REVISION = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class Steps:
    """The pods to create and to delete now, by ordinal."""

    create: tuple[int, ...] = ()
    delete: tuple[int, ...] = ()


def steps(owner: KubeObject, pods: Mapping[int, KubeObject]) -> Steps:
    """Return the next pods to create and to delete, given the existing pods by ordinal.

    Raises BadWorkloadError if a field of the spec is invalid.
    """
    spec = owner.get("spec") or {}
    ordinals = _ordinals(spec, wanted(owner, "replicas"))
    parallel = _one_of(spec, "podManagementPolicy", POLICIES) == PARALLEL
    surplus = [at for at in sorted(pods, reverse=True) if at not in ordinals]
    create = _missing(ordinals, pods, parallel=parallel)
    delete = [at for at in surplus if not _is_going(pods[at])]
    if not parallel:
        delete = [] if any(_is_going(pods[at]) for at in surplus) else delete[:1]
    if not surplus and all(at in pods for at in ordinals):
        delete = _outdated(owner, ordinals, pods)
    return Steps(tuple(create), tuple(delete))


def by_ordinal(owner: KubeObject, pods: Iterable[KubeObject]) -> dict[int, KubeObject]:
    """Return the pods of a StatefulSet by ordinal; a pod whose name has no ordinal is left out."""
    found = {}
    for pod in pods:
        _, _, number = pod["metadata"]["name"].rpartition("-")
        if number.isascii() and number.isdigit() and name_of(owner, int(number)) == _name(pod):
            found[int(number)] = pod
    return found


def name_of(owner: KubeObject, ordinal: int) -> str:
    """Return the name of the pod with this ordinal."""
    return f"{owner['metadata']['name']}-{ordinal}"


def stateful_pod(owner: KubeObject, ordinal: int) -> dict[str, Any]:
    """Return a new pod of a StatefulSet with this ordinal.

    Raises BadWorkloadError if the template is invalid.
    """
    pod = pod_of(owner, ordinal)
    name = name_of(owner, ordinal)
    marks = {
        **labels_of(pod),
        REVISION: _revision(owner),
        POD_NAME: name,
        POD_INDEX: str(ordinal),
    }
    pod["metadata"] = {**pod["metadata"], "name": name, "labels": marks}
    return pod


def _ordinals(spec: Mapping[str, Any], replicas: int) -> range:
    ordinals = spec.get("ordinals") or {}
    start = ordinals.get("start", 0) if isinstance(ordinals, Mapping) else None
    if type(start) is not int or start < 0:
        raise BadWorkloadError("spec.ordinals.start: is not a whole number of 0 or more")
    return range(start, start + replicas)


def _missing(ordinals: range, pods: Mapping[int, KubeObject], *, parallel: bool) -> list[int]:
    if parallel:
        return [at for at in ordinals if at not in pods]
    for at in ordinals:
        if at not in pods:
            return [at]
        if not _is_ready(pods[at]):
            break
    return []


def _outdated(owner: KubeObject, ordinals: range, pods: Mapping[int, KubeObject]) -> list[int]:
    """Return a list with the ordinal of the pod that is replaced next because its template is outdated.

    Return [] if no pod is outdated, if that pod is already being deleted, if another pod is not ready, or if the update
    strategy is OnDelete. Raises BadWorkloadError if `updateStrategy` is invalid.
    """
    strategy = (owner.get("spec") or {}).get("updateStrategy") or {}
    if not isinstance(strategy, Mapping):
        raise BadWorkloadError("spec.updateStrategy: is not an object")
    if _one_of(strategy, "type", STRATEGIES, "spec.updateStrategy.") == "OnDelete":
        return []
    revision = _revision(owner)
    old = [at for at in reversed(ordinals) if _revision_of(pods[at]) != revision]
    others = [at for at in ordinals if at != (old[0] if old else None)]
    if not old or _is_going(pods[old[0]]) or not all(_is_ready(pods[at]) for at in others):
        return []
    return old[:1]


def _one_of(
    fields: Mapping[str, Any], field: str, words: tuple[str, ...], path: str = "spec."
) -> str:
    """Return the text of a field, or the first allowed text when the field is absent.

    Raises BadWorkloadError if the text is none of the allowed texts.
    """
    value = fields.get(field) or words[0]
    if value not in words:
        raise BadWorkloadError(f"{path}{field}: {value!r:.40} is none of {', '.join(words)}")
    return str(value)


def _revision(owner: KubeObject) -> str:
    pod_spec(owner)
    text = json.dumps(owner["spec"]["template"], sort_keys=True, default=str)
    return letters(crc32(text.encode()), 9)


def _revision_of(pod: KubeObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION, ""))


def _is_ready(pod: KubeObject) -> bool:
    conditions = pod["status"].get("conditions") or ()
    ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
    return ready and pod["status"].get("phase") == "Running" and not _is_going(pod)


def _is_going(pod: KubeObject) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _name(pod: KubeObject) -> str:
    return str(pod["metadata"]["name"])
