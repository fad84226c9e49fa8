"""Cluster directories for the tests, with known results."""

import json
from pathlib import Path
from typing import Any

QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: services
            resources:
              guaranteed: {vcore: 16, memory: 32Gi}
              max: {vcore: 48, memory: 128Gi}
          - name: research
            resources:
              guaranteed: {vcore: 24, memory: 96Gi}
              max: {vcore: 72, memory: 256Gi}
          - name: batch
            resources:
              max: {vcore: 24, memory: 64Gi}
"""


def node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {"capacity": capacity, "allocatable": capacity}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def deployment(namespace: str, name: str, replicas: int, cpu: str, queue: str) -> dict[str, Any]:
    labels = {"app": name, "applicationId": name, "queue": queue}
    requests = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    containers = [{"name": "main", "image": "main", "resources": requests}]
    pod = {"schedulerName": "evenhand", "containers": containers}
    template = {"metadata": {"labels": labels}, "spec": pod}
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def write_known(folder: Path) -> Path:
    """Write a cluster of 6 nodes with 16 cores and 62 pods: 44 get a node, 16 wait for their queue, 2 are too large."""
    objects = [
        *(node(f"node-{number}") for number in range(6)),
        deployment("web", "front", 12, "500m", "root.services"),
        deployment("lab", "train", 8, "2", "root.research"),
        deployment("lab", "huge", 2, "32", "root.research"),
        deployment("crunch", "count", 40, "1", "root.batch"),
    ]
    return write(folder, objects)


def write(folder: Path, objects: list[dict[str, Any]], queues: str = QUEUES) -> Path:
    """Write a cluster directory of these objects and return its path."""
    folder.mkdir(exist_ok=True)
    (folder / "objects.json").write_text("\n".join(json.dumps(one) for one in objects))
    (folder / "queues.yaml").write_text(queues)
    return folder
