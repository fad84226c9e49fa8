"""A placeholder as a Kubernetes pod: a small pod that holds the capacity for a real one.

The name and content of a placeholder depend only on the application, the pod that created the application, the task
group and a number. A second attempt to create a placeholder, by this or a later run of the shim, therefore uses the
same name and content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from shim_client.cluster import KubeObject, ObjectRef
from shim_client.config import Settings
from shim_client.messages import DEFAULT_PARTITION
from shim_client.translate import labels
from shim_client.translate.applications import Membership
from shim_client.translate.fields import is_label
from shim_client.translate.task_groups import Gang, TaskGroup

_CUT = 20
"""Maximum number of characters of the application's name, and of the task group's name, in a placeholder's name."""
_HASH_LETTERS = 10
_STRANGE = re.compile(r"[^a-z0-9]+")
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resource types that may be requested without a limit."""


@dataclass(frozen=True, slots=True)
class Origin:
    """An application that needs placeholders, and the pod that created the application."""

    membership: Membership
    partition: str
    pod: ObjectRef
    priority_class: str = ""
    pull_secrets: tuple[str, ...] = ()


def placeholders(
    origin: Origin, gang: Gang, settings: Settings
) -> Iterator[tuple[str, KubeObject]]:
    """Yield the names and pods of all placeholders; the pods of one task group share everything except their names."""
    for group in gang.groups:
        item = _placeholder(origin, gang, group, settings)
        stem = _stem(origin, group)
        for number in range(group.members):
            name = f"{stem}-{number}"
            yield name, {**item, "metadata": {"name": name, **item["metadata"]}}


def _stem(origin: Origin, group: TaskGroup) -> str:
    """Return the beginning of the names of a task group's placeholders."""
    told = "\0".join((origin.membership.application, origin.pod.uid, group.name))
    digest = sha256(told.encode()).hexdigest()[:_HASH_LETTERS]
    return f"tg-{_plain(origin.membership.application)}-{_plain(group.name)}-{digest}"


def _plain(name: str) -> str:
    """Return a part of a name with only those characters that are valid in a pod's name."""
    return _STRANGE.sub("-", name.lower())[:_CUT].strip("-") or "x"


def _placeholder(origin: Origin, gang: Gang, group: TaskGroup, settings: Settings) -> KubeObject:
    """Return a pod of the task group, without a name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": origin.pod.namespace,
            "labels": {**_free(group.labels), **_labels(origin)},
            "annotations": {**_free(group.annotations), **_annotations(origin, gang, group)},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": origin.pod.name,
                    "uid": origin.pod.uid,
                    "controller": False,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {**group.spec, **_spec(origin, group, settings)},
    }


def _free(written: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations of a task group that its author may write.

    An admission policy cannot check these texts, because the shim itself creates the pod. For this reason keys that
    name a user or mark a victim are left out.
    """
    reserved = {labels.USER_INFO, *labels.OWN_ANNOTATIONS}
    return {key: value for key, value in written.items() if key not in reserved}


def _labels(origin: Origin) -> dict[str, str]:
    found = {labels.APP_ID: origin.membership.application, labels.QUEUE: origin.membership.queue}
    if origin.partition != DEFAULT_PARTITION:
        found[labels.PARTITION] = origin.partition
    return {key: value for key, value in found.items() if is_label(value)}


def _annotations(origin: Origin, gang: Gang, group: TaskGroup) -> dict[str, str]:
    """Return the annotations that the shim reads back.

    Queue and application are annotations, because their names are not always valid as labels.
    """
    member = origin.membership
    found = {
        labels.PLACEHOLDER: "true",
        labels.TASK_GROUP: group.name,
        labels.GANG_SIZE: str(gang.members),
        labels.APP_ID: member.application,
        labels.QUEUE: member.queue,
    }
    if member.groups or member.user != "nobody":
        info = {"user": member.user, "groups": list(member.groups)}
        found[labels.USER_INFO] = json.dumps(info, separators=(",", ":"))
    return {key: value for key, value in found.items() if value}


def _spec(origin: Origin, group: TaskGroup, settings: Settings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": settings.scheduler_names[0],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "pause",
                "image": settings.placeholder_image,
                "imagePullPolicy": "IfNotPresent",
                "resources": _resources(group.requests),
            }
        ],
    }
    if origin.priority_class:
        spec["priorityClassName"] = origin.priority_class
    if origin.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in origin.pull_secrets]
    if security := _security(settings):
        spec["securityContext"] = security
    return spec


def _resources(requests: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return requests and limits; extended resources need limits that are equal to their requests."""
    limits = {kind: amount for kind, amount in requests.items() if kind not in _PLAIN}
    return (
        {"requests": dict(requests), "limits": limits} if limits else {"requests": dict(requests)}
    )


def _security(settings: Settings) -> dict[str, int]:
    given = {
        "runAsUser": settings.placeholder_run_as_user,
        "runAsGroup": settings.placeholder_run_as_group,
        "fsGroup": settings.placeholder_fs_group,
    }
    return {key: number for key, number in given.items() if number is not None}
