"""Pods as an API server sends them: with many fields, of which the shim needs few.

The pods of one ReplicaSet differ only in names, uids, nodes and instants.
"""

import json
from typing import Any
from uuid import UUID

OF_ONE_OWNER = 20
"""Number of pods of one ReplicaSet."""
OWNERS_OF_ONE_NAMESPACE = 10
CREATED = "2026-11-20T10:00:00Z"
STARTED = "2026-11-20T10:00:03Z"


def node(at: int) -> dict[str, Any]:
    """Return a node like a large cloud machine, with capacity for 110 pods."""
    name = f"node-{at:05}"
    offered = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "110"}
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m7.8xlarge",
        "topology.kubernetes.io/region": "north-1",
        "topology.kubernetes.io/zone": f"north-1{'abc'[at % 3]}",
    }
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": str(UUID(int=at)), "labels": labels},
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod(at: int, on: str = "") -> dict[str, Any]:
    """Return the pod of this number, running on the node `on` or waiting."""
    owner = at // OF_ONE_OWNER
    spec = _spec(owner)
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(at, owner),
        "spec": spec,
        "status": _running() if on else _waiting(),
    }


def pod_bytes(at: int, on: str = "") -> bytes:
    """Return a pod as the bytes of an answer, so that objects that are parsed from it share no values with other pods."""
    return json.dumps(pod(at, on)).encode()


def _metadata(at: int, owner: int) -> dict[str, Any]:
    of = f"service-{owner:04}"
    template_hash = f"{owner * 2654435761 % 2**32:x}"
    of_kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{of}-{template_hash}"}
    return {
        "name": f"{of}-{template_hash}-{at:05x}",
        "generateName": f"{of}-{template_hash}-",
        "namespace": f"team-{owner // OWNERS_OF_ONE_NAMESPACE:03}",
        "uid": str(UUID(int=2**96 + at)),
        "resourceVersion": str(1_000_000 + at),
        "creationTimestamp": CREATED,
        "labels": {
            "app.kubernetes.io/name": of,
            "app.kubernetes.io/instance": f"{of}-production",
            "app.kubernetes.io/version": "4.17.2",
            "app.kubernetes.io/managed-by": "Helm",
            "pod-template-hash": template_hash,
            "yunikorn.apache.org/app-id": of,
        },
        "annotations": {
            "checksum/config": template_hash * 8,
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9464",
        },
        "ownerReferences": [
            {**of_kind, "uid": str(UUID(int=2**95 + owner)), "controller": True}
            | {"blockOwnerDeletion": True}
        ],
        "managedFields": [_written_by("kube-controller-manager"), _written_by("kubelet")],
    }


def _written_by(manager: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f"k:{key}": {".": {}, "f:name": {}, "f:value": {}}
        for key in ("name", "image", "env", "ports", "resources", "volumeMounts")
    }
    return {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": fields}, "f:spec": {"f:containers": fields}},
        "manager": manager,
        "operation": "Update",
        "time": CREATED,
    }


def _spec(owner: int) -> dict[str, Any]:
    tolerations = [
        {
            "key": f"node.kubernetes.io/{why}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for why in ("not-ready", "unreachable")
    ]
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    return {
        "schedulerName": "evenhand",
        "serviceAccountName": "default",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": tolerations,
        "containers": [_container(owner, "main"), _container(owner, "proxy")],
        "volumes": [
            {"name": "config", "configMap": {"name": f"service-{owner:04}", "defaultMode": 420}},
            {"name": "kube-api-access", "projected": {"sources": [token], "defaultMode": 420}},
        ],
    }


def _container(owner: int, name: str) -> dict[str, Any]:
    amounts = {"cpu": f"{100 + owner % 5 * 50}m", "memory": f"{128 + owner % 7 * 32}Mi"}
    return {
        "name": name,
        "image": f"registry.example/{name}/service-{owner:04}:4.17.2",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": f"SETTING_{at}", "value": f"value {at} of {owner}"} for at in range(12)],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": amounts, "limits": {"memory": amounts["memory"]}},
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/service", "readOnly": True},
            {"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True},
        ],
    }


def _waiting() -> dict[str, Any]:
    return {"phase": "Pending", "qosClass": "Burstable"}


def _running() -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": STARTED}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    states = [
        {
            "name": name,
            "image": f"registry.example/{name}:4.17.2",
            "imageID": f"registry.example/{name}@sha256:{'0' * 64}",
            "containerID": f"containerd://{'0' * 64}",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": STARTED}},
        }
        for name in ("main", "proxy")
    ]
    return {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": STARTED,
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "conditions": conditions,
        "containerStatuses": states,
    }
