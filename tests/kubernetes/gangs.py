"""Gangs on an API server: pods of one ReplicaSet with a job's labels, created by its controller or by the test."""

from typing import Any

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object

JOB = "pod-group.scheduling.sigs.k8s.io"
SIZE = "pod-group.scheduling.sigs.k8s.io/min-available"
SOFT = "scheduling.koordinator.sh/soft-eviction"


def gang(count: int, of: str, queue: str, **given: Any) -> list[Object]:
    """Return the pods of a gang, `gang-0` and so on, with one core each; a label says how many there are."""
    labels = {
        "applicationId": f"{of}-gang",
        "queue": f"root.{queue}",
        JOB: "gang",
        SIZE: str(count),
        **given.pop("labels", {}),
    }
    return objects.pods(count, of, "gang", labels=labels, requests={"cpu": "1"}, **given)


def create_replica_set(kube: Kube, count: int, of: str, queue: str) -> None:
    """Create a ReplicaSet whose pods are a gang; only the ReplicaSet says how many members there are, because no label does.

    The tests' own cluster has no controller that creates the pods, so the tests create them.
    """
    pods = gang(count, of, queue)
    for pod in pods:
        del pod["metadata"]["labels"][SIZE]
    [owner] = kube.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "gang", "namespace": of},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {JOB: "gang"}},
                "template": {
                    "metadata": {"labels": pods[0]["metadata"]["labels"]},
                    "spec": pods[0]["spec"],
                },
            },
        }
    )
    if kube.own is None:
        return
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "gang",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [reference]
    kube.create(*pods)
