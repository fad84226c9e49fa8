"""The admission of an object: names, defaults and priorities are set as an API server sets them.

PriorityClass names, globalDefault and preemptionPolicy are resolved as the Priority admission plugin does. A pod with
an unknown class, or with a priority that contradicts its class, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from shim_client.cluster import ClusterError, KubeObject

NAMESPACED = frozenset(
    {
        "Pod",
        "PodDisruptionBudget",
        "PodGroup",
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "Job",
        "DaemonSet",
        "PersistentVolumeClaim",
        "ConfigMap",
    }
)
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
GRACE_SECONDS_DEFAULT = 30
OBJECT_BYTES_MAX = 1_572_864
"""Maximum number of bytes of an object as JSON, which is the limit of an API server's etcd."""
GRACE_SECONDS_MAX = 10**9
NAME_LENGTH_MAX = 253
DEFAULT_NAMESPACE = "default"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_POLICY_DEFAULT = "PreemptLowerPriority"


class InvalidError(ClusterError):
    """An object that an API server would refuse.

    The message names the field.
    """


@dataclass(frozen=True, slots=True)
class Admission:
    """The admission of objects.

    A pod is admitted with the PriorityClasses that exist when the pod is created.
    """

    classes: Callable[[], Mapping[str, KubeObject]]
    """The PriorityClasses by name."""

    def admit(self, item: Mapping[str, Any], now_ms: int, serial: int) -> dict[str, Any]:
        """Return the object in the form to store, with all defaults.

        Raises InvalidError if an API server would refuse the object. An object without a creation time gets `now_ms`
        (Unix milliseconds). An object without a uid gets a new uid, which contains `serial` to be unique.
        """
        kind = _text(item.get("kind"), "kind")
        _check_size(item)
        kept = {**item, "metadata": _metadata(item, kind, now_ms, serial)}
        spec, status = _object(item, "spec"), _object(item, "status")
        match kind:
            case "Pod":
                kept["spec"] = self._pod_spec(spec)
                _check_objects(status, "conditions", "status.")
                _text(status.get("phase", "Pending"), "status.phase")
                kept["status"] = {"phase": "Pending", **status}
            case "Node":
                kept["status"] = _node_status(status)
            case "PriorityClass":
                _check_class(kept)
        return kept

    def _pod_spec(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        containers = spec.get("containers")
        if not isinstance(containers, list) or not containers:
            raise InvalidError("spec.containers: a pod needs at least one")
        if not isinstance(spec.get("nodeName", ""), str):
            raise InvalidError("spec.nodeName: is not text")
        grace = spec.get("terminationGracePeriodSeconds", 0)
        if type(grace) is not int or not 0 <= grace <= GRACE_SECONDS_MAX:
            raise InvalidError("spec.terminationGracePeriodSeconds: is not a number of seconds")
        kept = {
            "schedulerName": "default-scheduler",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": GRACE_SECONDS_DEFAULT,
            **spec,
            "containers": _with_requests(containers),
        }
        if isinstance(spec.get("initContainers"), list):
            kept["initContainers"] = _with_requests(spec["initContainers"])
        if isinstance(spec.get("volumes"), list):
            # The embedded cluster has no controller that makes the claims of these volumes (see `checks.warnings`).
            kept["volumes"] = [one for one in spec["volumes"] if not is_ephemeral(one)]
        return {**kept, **self._priority(spec)}

    def _priority(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return priority, class name and preemption policy as the Priority admission plugin sets them.

        Raises InvalidError if the class does not exist, or if the spec has other values than the class.
        """
        classes = self.classes()
        name = spec.get("priorityClassName") or _default_class(classes)
        chosen = classes.get(name) if name else None
        if name and chosen is None:
            raise InvalidError(f"no PriorityClass with name {str(name)[:253]} was found")
        value = chosen.get("value", 0) if chosen else 0
        policy = (chosen.get("preemptionPolicy") if chosen else None) or _POLICY_DEFAULT
        for field, wanted in (("priority", value), ("preemptionPolicy", policy)):
            given = spec.get(field)
            if given is not None and given != wanted:
                raise InvalidError(
                    f"spec.{field}: {given!r:.80} must not be given, "
                    f"{wanted!r} comes from the PriorityClass {name or '(none)'}"
                )
        resolved = {"priority": value, "preemptionPolicy": policy}
        return {**resolved, "priorityClassName": name} if name else resolved


def instant(now_ms: int) -> str:
    """Return an instant (Unix milliseconds) as text in the form of the API server, in whole seconds."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _metadata(item: Mapping[str, Any], kind: str, now_ms: int, serial: int) -> dict[str, Any]:
    given = _object(item, "metadata")
    name = _name(given.get("name"), "metadata.name")
    for field in ("labels", "annotations"):
        _check_texts(given, field)
    _check_objects(given, "ownerReferences", "metadata.")
    for owner in given.get("ownerReferences") or ():
        for field in ("kind", "name", "uid"):
            _text(owner.get(field), f"metadata.ownerReferences[].{field}")
    namespace = _name(given.get("namespace") or DEFAULT_NAMESPACE, "metadata.namespace")
    uid = str(uuid5(NAMESPACE_URL, f"evenhand:{kind}/{namespace}/{name}/{serial}"))
    kept = {
        **given,
        "uid": _text(given.get("uid") or uid, "metadata.uid"),
        "creationTimestamp": given.get("creationTimestamp") or instant(now_ms),
    }
    if kind in NAMESPACED:
        kept["namespace"] = namespace
    else:
        kept.pop("namespace", None)
    return kept


def _check_size(item: Mapping[str, Any]) -> None:
    """Raise InvalidError for an object that JSON cannot express, or that is too large for an API server."""
    try:
        size = len(json.dumps(item, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as bad:
        raise InvalidError(f"the object is no JSON: {bad}") from bad
    if size > OBJECT_BYTES_MAX:
        raise InvalidError(f"the object is larger than {OBJECT_BYTES_MAX} bytes of JSON")


def _check_texts(metadata: Mapping[str, Any], field: str) -> None:
    listed = metadata.get(field)
    if listed is None:
        return
    if not isinstance(listed, dict):
        raise InvalidError(f"metadata.{field}: is not a map of texts")
    for key, value in listed.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidError(f"metadata.{field}[{key!s:.80}]: is not text; put it in quotes")


def _check_objects(item: Mapping[str, Any], field: str, path: str) -> None:
    listed = item.get(field) or []
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise InvalidError(f"{path}{field}: is not a list of objects")


def is_ephemeral(volume: object) -> bool:
    """Return whether a volume of a pod is a generic ephemeral volume, for which a controller makes a claim."""
    return isinstance(volume, dict) and bool(volume.get("ephemeral"))


def _with_requests(containers: list[object]) -> list[object]:
    """Return the containers; where only a limit is given, the request is set to the limit, as the API server does."""
    return [_filled(container) for container in containers]


def _filled(container: object) -> object:
    if not isinstance(container, dict):
        return container
    resources = _object(container, "resources")
    limits = _object(resources, "limits")
    if not limits:
        return container
    requests = {**limits, **_object(resources, "requests")}
    return {**container, "resources": {**resources, "requests": requests}}


def _node_status(status: Mapping[str, Any]) -> dict[str, Any]:
    if "allocatable" not in status and "capacity" in status:
        return {**status, "allocatable": status["capacity"]}
    return dict(status)


def _check_class(item: Mapping[str, Any]) -> None:
    value = item.get("value")
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise InvalidError("value: a PriorityClass needs a whole number of 32 bits")
    if item.get("preemptionPolicy") not in (None, "Never", _POLICY_DEFAULT):
        raise InvalidError("preemptionPolicy: is neither Never nor PreemptLowerPriority")


def _default_class(classes: Mapping[str, KubeObject]) -> str:
    """Return the name of the globalDefault class.

    If several classes are globalDefault, return the name of the class with the lowest value. If no class is
    globalDefault, return "".
    """
    defaults = [
        (item.get("value", 0), name) for name, item in classes.items() if item.get("globalDefault")
    ]
    return min(defaults)[1] if defaults else ""


def _object(item: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = item.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidError(f"{field}: is not an object")
    return value


def _name(value: object, field: str) -> str:
    name = _text(value, field)
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise InvalidError(f"{field}: {name[:80]!a} is not of a-z, 0-9, '-' and '.'")
    return name


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidError(f"{field}: is not text")
    return value
