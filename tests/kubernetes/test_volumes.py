"""Local volumes on a real API server: pods go to the nodes with free volumes, and their claims are bound first (K1, K2)."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from lightkube import ApiError

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.seen import condition, placed, reasons
from tests.kubernetes.stack import Stack

HOST = "kubernetes.io/hostname"
LOOK_S = 0.1


@contextmanager
def volume_controller(kube: Kube, of: str) -> Iterator[None]:
    """Do the part of Kubernetes' volume controller while the block runs, because this cluster has none.

    New volumes of the storage class become available, and a claim that a scheduler wrote into a volume is bound to it.
    """
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(LOOK_S):
            try:
                for volume in volumes_of(kube, of):
                    _advance(kube, volume)
            except (ApiError, httpx2.HTTPError):
                continue  # An object changed meanwhile, or the API server does not answer.

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def volumes_of(kube: Kube, of: str) -> list[Object]:
    """Return the volumes of a storage class."""
    every = kube.all("PersistentVolume", "")
    return [one for one in every if one["spec"].get("storageClassName") == of]


def remove_volumes(kube: Kube, of: str) -> None:
    """Delete a storage class and its volumes."""
    for volume in volumes_of(kube, of):
        kube.delete("PersistentVolume", volume["metadata"]["name"])
    kube.delete("StorageClass", of)


def _advance(kube: Kube, volume: Object) -> None:
    name, claimed = volume["metadata"]["name"], volume["spec"].get("claimRef")
    phase = volume.get("status", {}).get("phase")
    if claimed and phase != "Bound":
        there = ("pvc", claimed["name"], f"-n={claimed['namespace']}")
        _patch(kube, *there, {"spec": {"volumeName": name}})
        _patch(kube, *there, {"status": {"phase": "Bound"}}, "--subresource=status")
        _patch(kube, "pv", name, {"status": {"phase": "Bound"}}, "--subresource=status")
    elif not claimed and phase != "Available":
        _patch(kube, "pv", name, {"status": {"phase": "Available"}}, "--subresource=status")


def _patch(kube: Kube, *words: Any) -> None:
    *there, change = (word for word in words if word != "--subresource=status")
    more = [word for word in words if word == "--subresource=status"]
    said = kube.kubectl("patch", *there, *more, "--type=merge", f"--patch={json.dumps(change)}")
    assert said.returncode == 0, said.stderr


def storage_class(name: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def local_volume(of: str, node: str, size: str = "10Gi") -> Object:
    """Return a volume that one node can mount."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "local": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    name = f"{node}-{size.lower()}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


def claim(name: str, of: str, owner: Object | None = None) -> Object:
    """Return a claim of the class; with an owner, that of the pod's generic ephemeral volume."""
    metadata: Object = {"name": name, "namespace": of}
    if owner is not None:
        head = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"]}
        metadata["ownerReferences"] = [
            {**head, "uid": owner["metadata"]["uid"], "controller": True}
        ]
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "resources": {"requests": {"storage": "5Gi"}},
    }
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**head, "metadata": metadata, "spec": spec}


def member(number: int, of: str) -> Object:
    """Return a pod as a StatefulSet with a claim template creates it."""
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-db-{number}"}}]
    return objects.pod(f"db-{number}", of, volumes=mounts)


@pytest.fixture
def local(kube: Kube, namespace: str) -> Iterator[str]:
    """Provide a class of local volumes named like the namespace, and seven nodes; volumes are removed afterwards."""
    kube.create(*objects.nodes(7, namespace), storage_class(namespace))
    with volume_controller(kube, namespace):
        yield namespace
    remove_volumes(kube, namespace)


def test_pods_of_a_stateful_set_run_where_their_local_volumes_are(
    kube: Kube, local: str, stack: Stack
) -> None:
    homes = {f"{local}-{number}" for number in (1, 3, 5)}
    kube.create(*(local_volume(local, node) for node in sorted(homes)))
    stack.start()
    for number in range(3):
        kube.create(claim(f"data-db-{number}", local), member(number, local))
    until(lambda: len(placed(kube, local)) == 3)
    assert set(placed(kube, local).values()) == homes
    for number in range(3):
        volume = _bound_to(kube, local, f"data-db-{number}")
        assert volume == f"{placed(kube, local)[f'db-{number}']}-10gi"


def test_a_pod_waits_until_a_volume_suits_its_claim(kube: Kube, local: str, stack: Stack) -> None:
    kube.create(local_volume(local, f"{local}-2", "1Gi"))
    stack.start()
    kube.create(claim("data-db-0", local), member(0, local), objects.pod("plain", local))
    until(lambda: "plain" in placed(kube, local))
    until(partial(_says, kube, local, "db-0", "no free volume of class"))
    until(lambda: "FailedScheduling" in reasons(kube, local, "db-0"))
    kube.create(local_volume(local, f"{local}-4"))
    until(lambda: placed(kube, local).get("db-0") == f"{local}-4")


def test_an_ephemeral_volume_is_a_claim_of_its_pod(kube: Kube, local: str, stack: Stack) -> None:
    kube.create(local_volume(local, f"{local}-6"))
    template = {"spec": claim("any", local)["spec"]}
    volumes = [{"name": "s", "ephemeral": {"volumeClaimTemplate": template}}]
    (pod,) = kube.create(objects.pod("eph", local, volumes=volumes))
    stack.start()
    until(partial(_says, kube, local, "eph", "'eph-s'"))
    kube.create(claim("eph-s", local, pod))
    until(lambda: placed(kube, local).get("eph") == f"{local}-6")
    assert _bound_to(kube, local, "eph-s") == f"{local}-6-10gi"


def _says(kube: Kube, namespace: str, name: str, words: str) -> bool:
    return words in condition(kube, namespace, name).get("message", "")


def _bound_to(kube: Kube, namespace: str, name: str) -> str:
    found = kube.find("PersistentVolumeClaim", name, namespace) or {}
    return str(found.get("spec", {}).get("volumeName", ""))


DRIVER = "disks.example"


def attach_limit(node: str, count: int) -> Object:
    """Return the CSINode of a node, as its kubelet writes it."""
    driver = {"name": DRIVER, "nodeID": node, "allocatable": {"count": count}}
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    return {**head, "metadata": {"name": node}, "spec": {"drivers": [driver]}}


def csi_volume(name: str, of: str) -> Object:
    """Return a volume of a CSI driver for the claim of the same name."""
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": of, "name": name},
    }
    metadata = {"name": f"{of}-{name}"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


@pytest.fixture
def limited(kube: Kube, local: str) -> Iterator[str]:
    """Provide seven nodes, of which the first two can attach one volume each and the others none."""
    nodes = [f"{local}-{number}" for number in range(7)]
    kube.create(*(attach_limit(node, int(node in nodes[:2])) for node in nodes))
    yield local
    for node in nodes:
        kube.delete("CSINode", node)


def test_a_pod_waits_until_a_node_can_attach_its_volume(
    kube: Kube, limited: str, stack: Stack
) -> None:
    stack.start()
    for number in range(3):
        name = f"data-db-{number}"
        kube.create(csi_volume(name, limited), claim(name, limited), member(number, limited))
    until(lambda: len(placed(kube, limited)) == 2)
    until(partial(_is_unschedulable, kube, limited))
    there = placed(kube, limited)
    assert set(there.values()) == {f"{limited}-0", f"{limited}-1"}
    gone = min(there)
    kube.delete("Pod", gone, limited)
    until(lambda: len(placed(kube, limited).keys() | {gone}) == 3)
    assert set(placed(kube, limited).values()) == set(there.values())


def _is_unschedulable(kube: Kube, namespace: str) -> bool:
    waiting = {f"db-{number}" for number in range(3)} - placed(kube, namespace).keys()
    reason = {condition(kube, namespace, name).get("reason") for name in waiting}
    return len(waiting) == 1 and reason <= {"Unschedulable", "SchedulingSkipped"}
