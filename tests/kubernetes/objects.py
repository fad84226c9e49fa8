"""Kubernetes objects for the tests: small, and with names that no other test uses.

A test's nodes carry the label `evenhand.test/of` with the name of its namespace, and its pods select it. So tests
do not affect each other, and no test pod is placed on other nodes of a shared cluster.
"""

from collections.abc import Mapping
from typing import Any

OF = "evenhand.test/of"
SCHEDULER = "evenhand"
Object = dict[str, Any]


def node(name: str, of: str, **amounts: str) -> Object:
    """Return a node that is ready; `amounts` add to or replace 8 processors, 32 GiB and 110 pods."""
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110"} | amounts
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {OF: of, "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": offered, "allocatable": offered},
    }


def nodes(count: int, of: str, **amounts: str) -> list[Object]:
    """Return nodes as `node` makes them, with the names `NAMESPACE-0`, `NAMESPACE-1` and so on."""
    return [node(f"{of}-{number}", of, **amounts) for number in range(count)]


def pod(name: str, of: str, **given: Any) -> Object:
    """Return a pod of 100 millicores and 64 MiB that names our scheduler.

    `given`: `labels` and `annotations` (mappings), `requests` (a mapping); everything else is part of the spec.
    """
    metadata = {
        "name": name,
        "namespace": of,
        "labels": {"applicationId": of} | dict(given.pop("labels", {})),
        "annotations": dict(given.pop("annotations", {})),
    }
    requests: Mapping[str, str] = given.pop("requests", {"cpu": "100m", "memory": "64Mi"})
    spec = {
        "schedulerName": SCHEDULER,
        "nodeSelector": {OF: of},
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "main", "image": "none", "resources": {"requests": dict(requests)}}
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | given}


def pods(count: int, of: str, prefix: str = "pod", **given: Any) -> list[Object]:
    """Return pods as `pod` makes them, with the names `PREFIX-0`, `PREFIX-1` and so on."""
    return [pod(f"{prefix}-{number}", of, **given) for number in range(count)]


def spread_over_nodes(app: str) -> Object:
    """Return fields of a spec: the pods with this `app` label are on each node, but for one pod more or less."""
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"topologySpreadConstraints": [rule]}


def priority_class(name: str, value: int, **given: Any) -> Object:
    """Return a PriorityClass; `given`: `annotations`, everything else is part of the object itself."""
    metadata = {"name": name, "annotations": dict(given.pop("annotations", {}))}
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return head | {"metadata": metadata, "value": value} | given


def config_map(of: str, data: Mapping[str, str], name: str = "yunikorn-configs") -> Object:
    """Return a ConfigMap with the shim's settings in a namespace."""
    metadata = {"name": name, "namespace": of}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def namespace(name: str, annotations: Mapping[str, str] | None = None) -> Object:
    """Return a namespace with annotations."""
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def service_account(name: str, of: str) -> Object:
    """Return a service account whose token is not mounted automatically."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": of},
        "automountServiceAccountToken": False,
    }
