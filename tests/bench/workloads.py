"""What is measured: clusters and asks in the shapes that the nearest peer's figures were taken with, and mixed ones."""

from dataclasses import dataclass

from server.model.asks import AskSpec
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
)
from server.model.quota import (
    Acl,
    Configuration,
    NodeSort,
    PartitionSpec,
    PreemptionSettings,
    QueueProperties,
    QueueSpec,
    SortPolicy,
)
from server.model.resources import resource

RM = "bench"


@dataclass(frozen=True, slots=True)
class Workload:
    """One cluster and the asks that come to it. ``shapes`` 1 is the peer's own: one pod size for all."""

    nodes: int
    asks: int
    leaves: int
    applications_per_leaf: int = 5
    shapes: int = 20
    node_sort: NodeSort = NodeSort.FAIR
    sort_policy: SortPolicy = SortPolicy.FAIR
    by_weight: bool = False
    """Is it shared in proportion to weights?"""

    @property
    def name(self) -> str:
        """A short name for tables."""
        sort = "" if self.node_sort is NodeSort.FAIR else " binpacking"
        share = " by weight" if self.by_weight else ""
        leaves = f"{self.leaves} leaves{share}"
        return f"{self.nodes:,} / {self.asks:,}, {leaves}, {self.shapes} shapes{sort}"


def configuration(workload: Workload) -> Configuration:
    """Leaf queues below the root, without limits."""
    properties = QueueProperties(sort_policy=workload.sort_policy)
    leaves = tuple(
        QueueSpec(name=f"leaf{at}", weight=1 + at % 3, properties=properties)
        for at in range(workload.leaves)
    )
    root = QueueSpec(name="root", parent=True, submit_acl=Acl(everyone=True), children=leaves)
    settings = PreemptionSettings(
        entitlement="proportional" if workload.by_weight else "guaranteed"
    )
    spec = PartitionSpec("default", root, node_sort=workload.node_sort, preemption=settings)
    return Configuration((spec,))


def queues_yaml(workload: Workload) -> str:
    """The same as text for a registration."""
    lines = [
        "partitions:",
        "  - name: default",
        "    nodesortpolicy:",
        f"      type: {workload.node_sort}",
    ]
    lines += ["    queues:", "      - name: root", '        submitacl: "*"', "        queues:"]
    for at in range(workload.leaves):
        lines += [f"          - name: leaf{at}", "            properties:"]
        lines += [f"              application.sort.policy: {workload.sort_policy}"]
    return "\n".join(lines) + "\n"


def node_capacity(workload: Workload, at: int) -> dict[str, int]:
    """Three node sizes around the room that the asks need; together about a tenth more than that."""
    pods = workload.asks // workload.nodes + 1
    part = (9, 11, 13)[at % 3]
    return {
        "vcore": pods * part * 100,
        "memory": pods * part * 100 << 20,
        "pods": pods * 2,
    }


def shape(workload: Workload, at: int) -> dict[str, int]:
    """The request of the pods of one shape; a thousand milli-cores and MiB on average."""
    if workload.shapes == 1:
        return {"vcore": 1000, "memory": 1000 << 20, "pods": 1}
    step = at % workload.shapes
    spread = 1000 * step // workload.shapes
    return {"vcore": 500 + spread, "memory": (500 + spread) << 20, "pods": 1}


def application(workload: Workload, ask: int) -> tuple[str, str]:
    """(application id, queue) of an ask: asks go round the leaves, then round their applications."""
    leaf = ask % workload.leaves
    number = ask // workload.leaves % workload.applications_per_leaf
    return f"app-{leaf}-{number}", f"root.leaf{leaf}"


def set_up(workload: Workload) -> list[Event]:
    """The events before the clock starts: the manager, the nodes, the applications."""
    events: list[Event] = [ManagerRegistered(RM)]
    events += [
        NodeAdded(RM, f"node-{at:05}", resource(node_capacity(workload, at)))
        for at in range(workload.nodes)
    ]
    names = dict(
        application(workload, ask)
        for ask in range(workload.leaves * workload.applications_per_leaf)
    )
    events += [ApplicationAdded(RM, name, queue) for name, queue in names.items()]
    return events


def asks(workload: Workload) -> list[AskAdded]:
    """The asks, their templates interned as the codec would intern them."""
    specs = [AskSpec(resource(shape(workload, at))) for at in range(workload.shapes)]
    return [
        AskAdded(RM, f"ask-{at:06}", application(workload, at)[0], specs[at % workload.shapes])
        for at in range(workload.asks)
    ]
