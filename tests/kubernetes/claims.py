"""Invariants of a cluster after any kill: no pod is bound twice, and no node is over its capacity.

Once nothing changes any more, the core must also know exactly the pods that run.
"""

import json
import threading
from collections import Counter
from types import TracebackType

import httpx2
from lightkube import ApiError

from shim_client.quantity import milli_units
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object
from tests.kubernetes.stack import Stack

ENDED = {"Succeeded", "Failed"}
LOOK_S = 0.2


class Witness:
    """A thread that repeatedly checks a namespace's pods during the test; `faults` lists the violations.

    Each check reads one list, which is the state of the cluster at one instant.
    """

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.faults: list[str] = []
        self.looks = 0
        self._kube, self._namespace = kube, namespace
        self._capacity = {
            node["metadata"]["name"]: milli_units(node["status"]["allocatable"]["cpu"])
            for node in kube.all("Node", "", {objects.OF: namespace})
        }
        self._nodes: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        print(f"looked {self.looks} times, wrong: {self.faults}")  # noqa: T201

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                pods = self._kube.all("Pod", self._namespace)
            except (ApiError, httpx2.HTTPError):
                continue  # The API server does not answer.
            self.looks += 1
            self._check_capacity(pods)
            for pod in pods:
                self._check_node(pod)

    def _check_capacity(self, pods: list[Object]) -> None:
        used: Counter[str] = Counter()
        for pod in running(pods):
            used[node_of(pod)] += millicores(pod)
        for node, amount in used.items():
            if amount > self._capacity.get(node, 0):
                self.faults.append(f"{node}: {amount} of {self._capacity.get(node, 0)} millicores")

    def _check_node(self, pod: Object) -> None:
        if not node_of(pod):
            return
        known = self._nodes.setdefault(pod["metadata"]["uid"], node_of(pod))
        if known != node_of(pod):
            name = pod["metadata"]["name"]
            self.faults.append(f"{name}: bound to {known}, then to {node_of(pod)}")


def node_of(pod: Object) -> str:
    """Return the node to which a pod is bound; empty when there is none."""
    return str(pod["spec"].get("nodeName", ""))


def running(pods: list[Object]) -> list[Object]:
    """Return the pods that use capacity of a node."""
    return [pod for pod in pods if node_of(pod) and pod["status"]["phase"] not in ENDED]


def waiting(pods: list[Object]) -> list[Object]:
    """Return the pods that have no node and have not ended."""
    return [pod for pod in pods if not node_of(pod) and pod["status"]["phase"] not in ENDED]


def millicores(pod: Object) -> int:
    """Return the CPU that a pod of these tests requests, in millicores."""
    return sum(
        milli_units(container["resources"]["requests"]["cpu"])
        for container in pod["spec"]["containers"]
    )


def known_to_core(stack: Stack, application: str) -> dict[str, str]:
    """Return the node of each pod of an application that the core has placed, by uid."""
    said = stack.evenhand("allocations", "--app", application, "--output=json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)["allocations"]
    return {one["allocation_key"]: one["node_id"] for one in found}


def true_of_cluster(kube: Kube, namespace: str) -> dict[str, str]:
    """Return the node of each running pod in a namespace, by uid."""
    pods = running(kube.all("Pod", namespace))
    return {pod["metadata"]["uid"]: node_of(pod) for pod in pods}


def is_healthy(stack: Stack) -> bool:
    """Return whether the core's state is consistent."""
    return stack.evenhand("doctor").returncode == 0
