"""The pods and ReplicaSets that Deployments, ReplicaSets, Jobs and DaemonSets want, as pure functions.

Names and templates are made as the Kubernetes controllers make them, so that labels, owners and required nodes are the
same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from shim_client.cluster import KubeObject
from shim_client.embedded.matching import DAEMON_TAINTS

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
REPLICAS_MAX = 100_000
"""Maximum number of pods that one workload may want."""


class BadWorkloadError(ValueError):
    """A workload whose numbers or template are invalid."""


def wanted(item: KubeObject, field: str, default: int = 1) -> int:
    """Return a count from a workload's spec, `default` when the field is missing.

    Raises BadWorkloadError if the field is not a whole number from 0 to REPLICAS_MAX.
    """
    value = (item.get("spec") or {}).get(field)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= REPLICAS_MAX:
        raise BadWorkloadError(f"spec.{field}: is not a whole number of 0 to {REPLICAS_MAX}")
    return value


def replica_set(deployment: KubeObject) -> dict[str, Any]:
    """Return the ReplicaSet for the present template of a Deployment.

    Raises BadWorkloadError if the template or the number of replicas is invalid.
    """
    template = _template(deployment)
    digest = letters(crc32(json.dumps(template, sort_keys=True, default=str).encode()), 9)
    marks = {**_map(template, "metadata", "labels"), "pod-template-hash": digest}
    metadata = {**template["metadata"], "labels": marks}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{digest}",
            "namespace": deployment["metadata"]["namespace"],
            "labels": marks,
            "ownerReferences": [_owner(deployment)],
        },
        "spec": {
            "replicas": wanted(deployment, "replicas"),
            "template": {**template, "metadata": metadata},
        },
    }


def pod_of(owner: KubeObject, serial: int) -> dict[str, Any]:
    """Return a new pod from the template of a workload, its owner.

    Raises BadWorkloadError if the template is invalid. `serial` makes the generated name unique.
    """
    template = _template(owner)
    uid, name = owner["metadata"]["uid"], owner["metadata"]["name"]
    metadata = template["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **{key: metadata[key] for key in ("labels", "annotations") if key in metadata},
            "name": f"{name[:240]}-{letters(crc32(f'{uid}/{serial}'.encode()), 6)}",
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [_owner(owner)],
        },
        "spec": template["spec"],
    }


def job_of(cron_job: KubeObject) -> dict[str, Any]:
    """Return the Job of one run of a CronJob.

    Raises BadWorkloadError if the CronJob has no template of a Job.
    """
    spec = cron_job.get("spec")
    template = spec.get("jobTemplate") if isinstance(spec, Mapping) else None
    wanted_of = template.get("spec") if isinstance(template, Mapping) else None
    if not isinstance(template, Mapping) or not isinstance(wanted_of, Mapping):
        raise BadWorkloadError("spec.jobTemplate.spec: is missing")
    metadata = {**_map(template, "metadata"), **cron_job["metadata"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": wanted_of}


def job_pod(job: KubeObject, serial: int) -> dict[str, Any]:
    """Return a new pod of a Job.

    The containers of the pod are restarted only if the template says so. Raises BadWorkloadError if the template is
    invalid.
    """
    pod = pod_of(job, serial)
    marks = {**labels_of(pod), "job-name": job["metadata"]["name"]}
    pod["metadata"]["labels"] = marks
    pod["spec"] = {"restartPolicy": "Never", **pod["spec"]}
    return pod


def daemon_pod(daemon: KubeObject, serial: int, node: str) -> dict[str, Any]:
    """Return a DaemonSet's pod for one node.

    The pod's affinity names the node, as the DaemonSet controller of Kubernetes does it.

    Raises BadWorkloadError if the template is invalid.
    """
    pod = pod_of(daemon, serial)
    spec = pod["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {
        **(spec.get("affinity") or {}),
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
    }
    stands = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in DAEMON_TAINTS]
    tolerations = [*(spec.get("tolerations") or ()), *stands]
    pod["spec"] = {**spec, "affinity": affinity, "tolerations": tolerations}
    return pod


def pod_spec(owner: KubeObject) -> Mapping[str, Any]:
    """Return the pod spec of a workload's template.

    Raises BadWorkloadError if the template is invalid.
    """
    spec: Mapping[str, Any] = _template(owner)["spec"]
    return spec


def labels_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the labels of a pod that was made from a template, or {} if the pod has no labels.

    Raises BadWorkloadError if the labels are not a map.
    """
    return _map(pod, "metadata", "labels")


def _template(owner: KubeObject) -> dict[str, Any]:
    template = (owner.get("spec") or {}).get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise BadWorkloadError("spec.template: has no pod spec")
    metadata = template.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadWorkloadError("spec.template.metadata: is not an object")
    return {**template, "metadata": metadata}


def _owner(item: KubeObject) -> dict[str, Any]:
    return {
        "apiVersion": item.get("apiVersion", "apps/v1"),
        "kind": item["kind"],
        "name": item["metadata"]["name"],
        "uid": item["metadata"]["uid"],
        "controller": True,
    }


def _map(item: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """Return the map at a path, empty when absent.

    Raises BadWorkloadError if the value at the path, or at a parent of the path, is not a map.
    """
    value: Any = item
    for field in path:
        value = value.get(field) or {}
        if not isinstance(value, dict):
            raise BadWorkloadError(f"spec.template.{'.'.join(path)}: is not a map")
    return dict(value)


def letters(number: int, length: int) -> str:
    """Return the last `length` digits of a number, written with the letters that Kubernetes uses in generated names."""
    found = []
    for _ in range(length):
        number, digit = divmod(number, len(_LETTERS))
        found.append(_LETTERS[digit])
    return "".join(found)
