"""The clusters of the preemption benchmarks: full, with ten allocations on each node.

The guarantee of the asking queue covers its asks. The nearest peer's figures were measured with one leaf of ten
applications, and with 100 leaves of one application. With several shapes, allocations differ in size, priority and
opt-out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from server.config import load
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
)
from server.model.quota import Configuration
from server.model.resources import resource

RM = "bench"
NOW = 1_700_000_000_000
PER_NODE = 10
MEMORY, VCORE = 100, 1_000
"""The size of an ask, and of an allocation on average."""
LOWERED = 10
"""A lowered max leaves capacity for one in this number of allocations."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A full cluster with a number of leaves of low priority, and `applications` in each.

    With `shapes` 1 all allocations are equal; with `kinds` 1 all asks are equal.
    """

    nodes: int
    leaves: int = 10
    shapes: int = 1
    claims: int = 1_000
    kinds: int = 1
    applications: int = 10

    @property
    def running(self) -> int:
        """Return the number of allocations at the start."""
        return self.nodes * PER_NODE

    @property
    def name(self) -> str:
        """Return a short name for tables."""
        shapes = "" if self.shapes == 1 else f", {self.shapes} shapes"
        leaves = f"{self.leaves} leaves" if self.leaves > 1 else "one leaf"
        single = " of one application" if self.applications == 1 else ""
        kinds = "" if self.kinds == 1 else f", {self.kinds} kinds of asks"
        return f"{self.running:,} running on {self.nodes:,}, {leaves}{single}{shapes}{kinds}"


def queues_yaml(cluster: Cluster, most: int | None = None) -> str:
    """Return the configuration as YAML; `most` limits the memory of all low leaves together."""
    claims = max(cluster.claims, 1)
    least = max(1, cluster.running // 10 // cluster.leaves)
    limit = f"max: {{memory: {most * MEMORY}}}" if most is not None else ""
    lines = [
        "partitions:",
        "- name: default",
        "  preemption: {quotapreemptionenabled: true}",
        "  placementrules: [{name: provided, create: false}]",
        "  queues:",
        "  - name: root",
        '    submitacl: "*"',
        "    queues:",
        "    - name: high",
        f"      resources: {{guaranteed: {{memory: {claims * MEMORY}, vcore: {claims}}}}}",
        "      properties: {preemption.delay: 1ms}",
        "    - name: low",
        f"      resources: {{{limit}}}",
        "      properties: {quota.preemption.delay: 1ms}",
        "      queues:",
    ]
    share = f"{{guaranteed: {{memory: {least * MEMORY}}}}}" if most is None else "{}"
    lines += [f"      - {{name: leaf{at}, resources: {share}}}" for at in range(cluster.leaves)]
    return "\n".join(lines) + "\n"


def configuration(cluster: Cluster, most: int | None = None) -> Configuration:
    """Return the configuration, loaded and checked."""
    found, problems = load(queues_yaml(cluster, most), "bench")
    assert found is not None, problems
    return found


def size(cluster: Cluster, at: int) -> int:
    """Return the size of an allocation in percent of the average; the sizes on one node add up to its capacity."""
    spread = 60 * (at // 2 % (cluster.shapes // 2)) // (cluster.shapes // 2)
    return 100 + spread if at % 2 else 100 - spread


def shape(cluster: Cluster, at: int) -> tuple[int, int, bool]:
    """Return (percent, priority, opted out) of an allocation: with several shapes all differ."""
    if cluster.shapes == 1:
        return 100, 0, False
    return size(cluster, at), at % 3, at % 7 == 0


def quantities(percent: int) -> dict[str, int]:
    """Return a percentage of the quantities of an average ask."""
    return {"memory": MEMORY * percent // 100, "vcore": VCORE * percent // 100}


def spec(found: tuple[int, int, bool]) -> AskSpec:
    """Return the specification that all allocations of one shape share."""
    percent, priority, opted = found
    return AskSpec(resource(quantities(percent)), priority, allow_preempt_self=not opted)


def application(cluster: Cluster, at: int) -> tuple[str, str]:
    """Return (application id, queue) of an allocation: leaf after leaf, and within each, application after application."""
    leaf = at % cluster.leaves
    return f"app-{leaf}-{at // cluster.leaves % cluster.applications}", f"root.low.leaf{leaf}"


def asking() -> AskSpec:
    """Return the specification of a preemptor's ask."""
    return AskSpec(resource(quantities(100)), priority=100)


def _events(cluster: Cluster) -> Iterator[Event]:
    yield ManagerRegistered(RM)
    capacity = resource({"memory": PER_NODE * MEMORY, "vcore": PER_NODE * VCORE})
    for at in range(cluster.nodes):
        yield NodeAdded(RM, f"node-{at:05}", capacity)
    names = dict(application(cluster, at) for at in range(cluster.leaves * cluster.applications))
    for name, queue in {**names, "claimant": "root.high"}.items():
        yield ApplicationAdded(RM, name, queue)
    specs: dict[tuple[int, int, bool], AskSpec] = {}
    for at in range(cluster.running):
        found = shape(cluster, at)
        made = specs.get(found) or specs.setdefault(found, spec(found))
        name, _ = application(cluster, at)
        node = f"node-{at // PER_NODE:05}"
        yield AllocationAdded(RM, f"run-{at:06}", name, node, made, created_ms=NOW - 1_000 - at)


def build(cluster: Cluster) -> Core:
    """Return a core that knows the cluster and has ticked once."""
    core = Core(configuration(cluster))
    for event in _events(cluster):
        core.handle(event, NOW)
    core.tick(NOW)
    return core
