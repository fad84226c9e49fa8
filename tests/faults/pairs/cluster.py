"""The cluster of a run with two cores and two shims: its nodes and queues, and the pods of its users."""

import random
from dataclasses import dataclass
from typing import Final

from tests.faults.cluster import FIRST
from tests.faults.kubernetes.truth import PROBE
from tests.faults.pairs.api_server import RUNS_FOR, ApiServer
from tests.kubernetes import objects
from tests.kubernetes.gangs import JOB, SIZE
from tests.kubernetes.kube import Object

NAMESPACE: Final = "faults"
HOME: Final = "evenhand"
"""The namespace of the shims' ConfigMap and Lease."""
LENT: Final = "evenhand.test/lent"
"""The resource of the queue whose quota is lowered. No other queue asks for it, so that only quota runs evict its pods."""
LENT_MAX: Final = 6
LENT_LOWERED: Final = 3
DELAY_S: Final = 6
"""Seconds between a lowered quota and its enforcement."""
QUEUES: Final = """\
partitions:
  - name: default
    preemption: {{quotapreemptionenabled: true, backoff: 1s, expiry: 60s}}
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {{name: high, resources: {{guaranteed: {{vcore: 40}}}}, properties: {{preemption.delay: 1s}}}}
          - {{name: low}}
          - {{name: probe}}
          - name: lent
            resources: {{max: {{{resource}: {most}}}}}
            properties: {{quota.preemption.delay: {delay}s}}
"""
TURN_S: Final = 0.1
PROBE_TURNS: Final = 4
GANG_TURNS: Final = 40
GANG: Final = 3
"""Number of pods of a gang, of two cores each."""
WAITING_MAX: Final = 20
"""Maximum number of waiting pods; when it is reached, no further pod is created, except probes."""
NODE_PODS: Final = "1000"


def queues(most: int) -> str:
    """Return the configuration that gives the queue `lent` this quota."""
    return QUEUES.format(resource=LENT, most=most, delay=DELAY_S)


def config_map(most: int) -> Object:
    """Return the shims' settings, with the configuration of the queues."""
    return objects.config_map(HOME, {"queues.yaml": queues(most)})


def node(name: str) -> Object:
    """Return a node of the cluster of all runs with faults; probes and lent pods fit on only one of them."""
    size = FIRST.nodes[name]
    amounts = {"cpu": f"{size.get('vcore', 0)}m", "pods": NODE_PODS}
    if "probe" in size:
        amounts |= {PROBE: str(size["probe"]), LENT: "1000"}
    return objects.node(name, NAMESPACE, **amounts)


def fill(server: ApiServer) -> None:
    """Create everything except pods."""
    for name in (HOME, NAMESPACE):
        server.create("namespaces", objects.namespace(name))
    for name in FIRST.nodes:
        server.create("nodes", node(name))
    server.create("configmaps", config_map(LENT_MAX))


@dataclass
class Users:
    """Users who create pods, several times per second, with a seed."""

    server: ApiServer
    dice: random.Random
    made: int = 0
    turns: int = 0
    is_settling: bool = False
    is_over: bool = False

    def turn(self) -> None:
        """Do the actions of one turn."""
        self.turns += 1
        if self.is_over:
            return
        if self.is_settling:
            self._end_low()
            return
        if self.turns % PROBE_TURNS == 0:
            self.make("probe", {PROBE: "1"}, 200)
        waiting = sum(not pod["spec"].get("nodeName") for pod in self.server.pods())
        if waiting >= WAITING_MAX:
            return
        if self.dice.random() < 0.35:
            cpu = self.dice.choice((1, 2, 4))
            self.make("low", {"cpu": str(cpu)}, self.dice.randint(4_000, 15_000))
        if self.dice.random() < 0.12:
            cpu = self.dice.choice((1, 3, 6))
            self.make("high", {"cpu": str(cpu)}, self.dice.randint(1_000, 4_000))
        if self.turns % GANG_TURNS == 0:
            self._make_gang()

    def _make_gang(self) -> None:
        """Create a gang, of which no pod is placed before all can be."""
        labels = {JOB: f"gang-{self.made}", SIZE: str(GANG), "applicationId": f"gang-{self.made}"}
        for _ in range(GANG):
            self.make("high", {"cpu": "2"}, self.dice.randint(1_000, 3_000), labels)

    def _end_low(self) -> None:
        """Delete the running pods of `low`, which last the longest."""
        for one in self.server.pods():
            if one["metadata"]["labels"]["queue"] == "root.low" and one["spec"].get("nodeName"):
                self.server.delete(one)

    def lend(self) -> None:
        """Create pods in the queue `lent` until it holds its quota."""
        held = [one for one in self.server.pods() if _is_lent(one)]
        for _ in range(LENT_MAX - len(held)):
            self.make("lent", {LENT: "1"}, 0)

    def take_back(self) -> None:
        """Delete the pods of the queue `lent`, which end in no other way."""
        for one in self.server.pods():
            if _is_lent(one):
                self.server.delete(one)

    def make(
        self,
        queue: str,
        amounts: dict[str, str],
        runs_ms: int,
        labels: dict[str, str] | None = None,
    ) -> str:
        """Create a pod that runs for `runs_ms`, or until it is deleted when that is 0; return its uid."""
        self.made += 1
        resources = {"requests": amounts, "limits": amounts}
        item = objects.pod(
            f"{queue}-{self.made}",
            NAMESPACE,
            labels={"applicationId": queue, "queue": f"root.{queue}", **(labels or {})},
            annotations={RUNS_FOR: f"{runs_ms}ms"} if runs_ms else {},
            containers=[{"name": "main", "image": "none", "resources": resources}],
        )
        made = self.server.create("pods", item).body
        uid: str = made["metadata"]["uid"]
        return uid


def running_lent(server: ApiServer) -> int:
    """Return how many pods of the queue `lent` have a node and do not end."""
    return sum(_is_lent(one) and bool(one["spec"].get("nodeName")) for one in server.pods())


def _is_lent(pod: Object) -> bool:
    """Return whether a pod is in the queue `lent` and does not end."""
    metadata = pod["metadata"]
    return metadata["labels"]["queue"] == "root.lent" and not metadata.get("deletionTimestamp")
