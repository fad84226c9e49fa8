"""Kubernetes objects for tests; a test writes only the fields that matter to it."""

from typing import Any

Item = dict[str, Any]


def pod(name: str, *, ns: str = "work", node: str = "", cpu: str = "1", **more: Any) -> Item:
    """Return a pod of our scheduler; `more`: labels, annotations, spec, status, metadata (merged in)."""
    item: Item = {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": ns,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"applicationId": "app", "queue": "root.a", **more.get("labels", {})},
            "annotations": more.get("annotations", {}),
            **more.get("metadata", {}),
        },
        "spec": {
            "schedulerName": "evenhand",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            **more.get("spec", {}),
        },
        "status": {"phase": "Running" if node else "Pending", **more.get("status", {})},
    }
    if node:
        item["spec"]["nodeName"] = node
    return item


def foreign(name: str, node: str = "", **more: Any) -> Item:
    """Return a pod of another scheduler."""
    spec = {"schedulerName": "default-scheduler", **more.pop("spec", {})}
    return pod(name, node=node, spec=spec, **more)


def node(name: str, *, cpu: str = "8", labels: Any = None, **spec: Any) -> Item:
    """Return a node with 16 GiB and 110 pods of capacity."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


def named(kind: str, name: str, **more: Any) -> Item:
    """Return a PriorityClass or namespace with annotations and fields."""
    metadata = {"name": name, "annotations": more.pop("annotations", {})}
    return {"kind": kind, "metadata": metadata, **more}


def claim(name: str, ns: str = "work", **metadata: Any) -> Item:
    """Return a PersistentVolumeClaim."""
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": ns, **metadata},
    }
