"""The load of a run on Kubernetes, determined by a seed: pods, drained and lost nodes, changed quotas."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.faults.cluster import FIRST
from tests.faults.journal import Journal
from tests.faults.kubernetes.queues import CORES, LOWERED
from tests.faults.kubernetes.truth import IMPOSSIBLE, PROBE, Truth
from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object

NAMESPACE: Final = "faults"
TURN_S: Final = 0.25
PROBE_TURNS: Final = 4
WAITING_MAX: Final = 30
"""Maximum number of waiting pods; when it is reached, no further pod is created."""
HURT_S: Final = (4.0, 7.0)
"""The shortest and longest time, in seconds, for which a node takes no pods."""
REGRET: Final = 0.1
"""The probability, per turn, that a user deletes a running or waiting pod."""
CALM_S: Final = (0.5, 2.0)
CHANGES: Final = ("node-lost", "node-drained", "queues-changed")


def node(name: str) -> Object:
    """Return a node of the cluster of all runs with faults; probes fit on only one of them."""
    size = FIRST.nodes[name]
    amounts = {"cpu": f"{size.get('vcore', 0)}m", "pods": "1000"}
    if "probe" in size:
        amounts[PROBE] = str(size["probe"])
    return objects.node(name, NAMESPACE, **amounts)


def pod(
    name: str, queue: str, amounts: dict[str, str], runs_ms: int, impossible: str = ""
) -> Object:
    """Return a pod of a queue; it runs for `runs_ms`, or until it is deleted when that is 0."""
    resources = {"requests": amounts, "limits": amounts}
    return objects.pod(
        name,
        NAMESPACE,
        labels={"applicationId": queue, "queue": f"root.{queue}", IMPOSSIBLE: impossible},
        annotations={"evenhand.test/runs-for": f"{runs_ms}ms"} if runs_ms else {},
        containers=[{"name": "main", "image": "none", "resources": resources}],
    )


@dataclass
class Users:
    """Users who create and delete pods: a thread that runs until `stop` is set."""

    kube: Kube
    truth: Truth
    mode: Path
    dice: random.Random
    made: int = 0
    is_settling: bool = False

    def turn(self, number: int) -> None:
        """Do the actions of one turn; there are several turns per second."""
        for ended in self.truth.ended():
            self.kube.delete("Pod", ended.name, NAMESPACE, grace_s=0)
        mode = self.mode.read_text().strip()
        if mode == "settle":
            self._settle()
            return
        waiting = [one for one in self.truth.alive() if not one.node and not one.impossible]
        if number % PROBE_TURNS == 0:
            self._make("probe", {PROBE: "1"}, 200)
        if len(waiting) < WAITING_MAX:
            self._make_some(claims=0.6 if mode == "claims" else 0.25)
        others = [one for one in self.truth.alive() if one.queue != "probe"]
        if others and self.dice.random() < REGRET:
            self.kube.delete("Pod", self.dice.choice(others).name, NAMESPACE)

    def _make_some(self, claims: float) -> None:
        if self.dice.random() < 0.7:
            cpu = self.dice.choice((1, 2, 4))
            self._make("low", {"cpu": str(cpu)}, self.dice.randint(4_000, 15_000))
        if self.dice.random() < claims:
            cpu = self.dice.choice((1, 3, 6))
            self._make("high", {"cpu": str(cpu)}, self.dice.randint(1_000, 4_000))

    def _settle(self) -> None:
        """Create, once, the pods that exist to the end: pods that run, and pods that cannot run."""
        if not self.is_settling:
            self.is_settling = True
            for _ in range(4):
                self._make("low", {"cpu": "1"}, 0)
            self._make("high", {"cpu": "17"}, 0, "node")
            self._make("tiny", {"cpu": "2"}, 0, "quota")

    def _make(self, queue: str, amounts: dict[str, str], runs_ms: int, never: str = "") -> None:
        self.made += 1
        self.kube.create(pod(f"{queue}-{self.made}", queue, amounts, runs_ms, never))


@dataclass
class Operators:
    """Operators who lose and drain nodes and change quotas, in shuffled rounds of all three: a thread."""

    kube: Kube
    truth: Truth
    journal: Journal
    apply: Callable[[int], int]
    """A function that applies the configuration with a quota and returns the exit code."""
    dice: random.Random
    stop: threading.Event
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Change the cluster until `stop` is set; then restore everything."""
        for change in self._deck():
            self.stop.wait(self.dice.uniform(*CALM_S))
            if self.stop.is_set():
                break
            self.journal.write("change", what=change)
            match change:
                case "node-lost":
                    self._lose(self._some_node())
                case "node-drained":
                    self._drain(self._some_node())
                case _:
                    self.configure(self.dice.choice((*LOWERED, CORES)))
        while self.configure(CORES):
            pass
        self.is_over.set()

    def _deck(self) -> Iterator[str]:
        while True:
            yield from self.dice.sample(CHANGES, len(CHANGES))

    def _some_node(self) -> str:
        return self.dice.choice([name for name in FIRST.nodes if name != "probes"])

    def _hurt(self) -> None:
        self.stop.wait(self.dice.uniform(*HURT_S))

    def _drain(self, name: str) -> None:
        self.kube.patch("Node", name, {"spec": {"unschedulable": True}})
        for one in self.truth.on(name):
            self.kube.delete("Pod", one.name, NAMESPACE)
        self._hurt()
        self.kube.patch("Node", name, {"spec": {"unschedulable": False}})

    def _lose(self, name: str) -> None:
        """Lose a node; half of the lost nodes come back before their pods are collected as garbage."""
        self.kube.delete("Node", name)
        self._hurt()
        if self.dice.random() < 0.5:
            for one in self.truth.on(name):
                self.kube.delete("Pod", one.name, NAMESPACE, grace_s=0)
        self.kube.create(node(name))

    def configure(self, cores: int) -> int:
        """Change the quota of `low`, and record when the change began and how it ended."""
        self.journal.write("quota", cores=cores * 1000)
        code = self.apply(cores)
        self.journal.write("quota-answered", cores=cores * 1000, code=code)
        return code
