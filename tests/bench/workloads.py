"""The measured workloads: clusters and asks in the shapes of the nearest peer's figures, and mixed workloads.

A `Workload` determines everything by arithmetic on positions, without randomness: the n-th node and the n-th ask are
equal in process, on the wire and in every repetition. All asks are placed.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from server.config import load
from server.model.asks import (
    UNCONSTRAINED,
    AskSpec,
    Constraints,
    Operator,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    SyncCompleted,
)
from server.model.quota import Configuration, NodeSort, SortPolicy
from server.model.resources import resource

RM = "bench"
GPU = "nvidia.com/gpu"
PARTS = {1: (11,), 3: (9, 11, 13)}
"""Sizes of nodes, in tenths of an even share of the asks; together they have a tenth more than the asks need."""
SPARE = 3
"""Tenths of capacity that are added when constraints exclude pods from some nodes."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and the asks that arrive; `sizes` is the number of node sizes, and `levels` the number of queue levels below root."""

    nodes: int
    asks: int
    leaves: int
    applications_per_leaf: int = 5
    shapes: int = 20
    sizes: int = 3
    levels: int = 1
    gpus: bool = False
    """Whether every tenth node has GPUs, and every tenth ask requests one."""
    constrained: bool = False
    """Whether every third of the other asks has constraints on its nodes."""
    node_sort: NodeSort = NodeSort.FAIR
    sort_policy: SortPolicy = SortPolicy.FAIR
    by_weight: bool = False
    """Whether entitlements are in proportion to weights."""

    @property
    def name(self) -> str:
        """Return a short name for tables."""
        parts = [f"{self.nodes:,} / {self.asks:,}, {self.leaves:,} leaves"]
        parts += ["by weight"] if self.by_weight else []
        parts += ["hard"] if self.is_hard else [_shapes(self.shapes)]
        parts += [] if self.node_sort == NodeSort.FAIR else ["binpacking"]
        return ", ".join(parts)

    @property
    def is_hard(self) -> bool:
        """Return whether `hard` makes this workload."""
        return self.levels > 1 and self.gpus and self.constrained

    @property
    def applications(self) -> int:
        """Return the number of applications."""
        return self.leaves * self.applications_per_leaf


def _shapes(count: int) -> str:
    return "one shape" if count == 1 else f"{count:,} shapes"


def peers(nodes: int, asks: int, leaves: int) -> Workload:
    """Return the nearest peer's own workload: one pod shape and node size, flat leaves of five applications each."""
    return Workload(nodes, asks, leaves, shapes=1, sizes=1)


def hard(nodes: int, asks: int, leaves: int) -> Workload:
    """Return a workload like real clusters: three queue levels, GPU nodes, constraints on a third of the pods."""
    return Workload(nodes, asks, leaves, levels=3, gpus=True, constrained=True)


# Queues -------------------------------------------------------------------------------------------------------------


def queue(workload: Workload, leaf: int) -> str:
    """Return the path of a leaf."""
    return ".".join(("root", *_above(workload, leaf), f"leaf{leaf}"))


def _above(workload: Workload, leaf: int) -> tuple[str, ...]:
    """Return department and team of a leaf; a department has about as many teams, and a team about as many leaves, as there are departments."""
    if workload.levels == 1:
        return ()
    departments = max(1, round(workload.leaves ** (1 / 3)))
    teams = max(1, round((workload.leaves / departments) ** 0.5))
    department = leaf % departments
    return f"department{department}", f"team{department}-{leaf // departments % teams}"


def queues_yaml(workload: Workload) -> str:
    """Return the configuration, without limits, as a registration carries it."""
    share = "proportional" if workload.by_weight else "guaranteed"
    lines = [
        "partitions:",
        "- name: default",
        f"  preemption: {{entitlement: {share}}}",
        f"  nodesortpolicy: {{type: {workload.node_sort}}}",
        "  queues:",
        "  - name: root",
        '    submitacl: "*"',
        "    queues:",
    ]
    leaves: dict[tuple[str, ...], list[int]] = {}
    for leaf in range(workload.leaves):
        leaves.setdefault(_above(workload, leaf), []).append(leaf)
    before: tuple[str, ...] = ()
    for above in sorted(leaves):
        for depth, name in enumerate(above):
            if above[: depth + 1] != before[: depth + 1]:
                lines += [f"{_indent(depth)}- name: {name}", f"{_indent(depth)}  queues:"]
        before = above
        lines += [_indent(len(above)) + _leaf(workload, leaf) for leaf in leaves[above]]
    return "\n".join(lines) + "\n"


def _indent(depth: int) -> str:
    return "    " + "  " * depth


def _leaf(workload: Workload, leaf: int) -> str:
    weight = f"weight: {1 + leaf % 3}, " if workload.by_weight else ""
    policy = f"application.sort.policy: {workload.sort_policy}"
    return f"- {{name: leaf{leaf}, {weight}properties: {{{policy}}}}}"


def configuration(workload: Workload) -> Configuration:
    """Return the configuration, loaded and checked."""
    found, problems = load(queues_yaml(workload), "bench")
    assert found is not None, problems
    return found


def application(workload: Workload, ask: int) -> tuple[str, str]:
    """Return (application id, queue) of an ask: leaf after leaf, and within each, application after application."""
    leaf = ask % workload.leaves
    number = ask // workload.leaves % workload.applications_per_leaf
    return f"app-{leaf}-{number}", queue(workload, leaf)


def applications(workload: Workload) -> dict[str, str]:
    """Return all applications with their queues."""
    return dict(application(workload, at) for at in range(workload.applications))


# Nodes --------------------------------------------------------------------------------------------------------------


def _has_gpus(workload: Workload, node: int) -> bool:
    return workload.gpus and node % 10 == 9


def node(workload: Workload, at: int) -> NodeAdded:
    """Return one node: its size, its labels, and the taint of nodes with GPUs."""
    spots = workload.asks // workload.nodes + 1
    sizes = PARTS[workload.sizes]
    part = sizes[at % len(sizes)] + (SPARE if workload.constrained else 0)
    capacity = {"vcore": spots * part * 100, "memory": spots * part * 100 << 20, "pods": spots * 2}
    taints: tuple[Taint, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    if _has_gpus(workload, at):
        capacity[GPU] = spots * 2
        taints = (Taint(GPU, "present", "NoSchedule"),)
    if workload.constrained:
        labels = (
            ("disk", ("ssd", "nvme", "hdd")[at // 3 % 3]),
            ("generation", str(1 + at // 2 % 4)),
            ("zone", "abcd"[at % 4]),
        )
    return NodeAdded(RM, f"node-{at:05}", resource(capacity), labels=labels, taints=taints)


# Asks ---------------------------------------------------------------------------------------------------------------

_WISHES = (
    Constraints(node_selector=(("zone", "a"),)),
    Constraints(node_selector=(("disk", "ssd"), ("zone", "b"))),
    Constraints(required_terms=(Term((Requirement("zone", Operator.IN, ("c", "d")),)),)),
    Constraints(required_terms=(Term((Requirement("disk", Operator.NOT_IN, ("hdd",)),)),)),
    Constraints(
        required_terms=(
            Term((Requirement("generation", Operator.GT, ("2",)),)),
            Term((Requirement("disk", Operator.EXISTS), Requirement("zone", Operator.IN, ("a",)))),
        )
    ),
    Constraints(tolerations=(Toleration("spot", "Exists"),)),
)
_ON_GPU_NODES = Constraints(tolerations=(Toleration(GPU, "Exists"),))


def _wants_gpu(workload: Workload, ask: int) -> bool:
    """Return whether an ask requests a GPU: every tenth does, shifted so that every shape and every leaf has some GPU asks."""
    return workload.gpus and (ask + ask // 10) % 10 == 9


def _wish(workload: Workload, ask: int) -> Constraints:
    if _wants_gpu(workload, ask):
        return _ON_GPU_NODES
    if workload.constrained and ask % 3 == 0:
        return _WISHES[ask // 3 % len(_WISHES)]
    return UNCONSTRAINED


def spec(workload: Workload, ask: int) -> AskSpec:
    """Return the specification of an ask; equal asks share the object, as after decoding from the wire."""
    shape = ask % workload.shapes
    return _spec(workload, shape, _wish(workload, ask), gpu=_wants_gpu(workload, ask))


@functools.cache
def _spec(workload: Workload, shape: int, wish: Constraints, *, gpu: bool) -> AskSpec:
    """Return a specification of 1,000 millicores and 1,000 MiB on average."""
    size = 1000 if workload.shapes == 1 else 500 + 1000 * shape // workload.shapes
    wanted = {"vcore": size, "memory": size << 20, "pods": 1} | ({GPU: 1} if gpu else {})
    return AskSpec(resource(wanted), constraints=wish)


def ask_key(ask: int) -> str:
    """Return the key of the ask with this number."""
    return f"ask-{ask:06}"


def asks(workload: Workload, first: int = 0, count: int | None = None) -> list[AskAdded]:
    """Return `count` asks from number `first` on, by default all asks; numbers beyond the workload's own are possible."""
    until = first + (workload.asks if count is None else count)
    return [
        AskAdded(RM, ask_key(at), application(workload, at)[0], spec(workload, at))
        for at in range(first, until)
    ]


def set_up(workload: Workload) -> Iterator[Event]:
    """Yield the events of a shim before the measurement: manager, nodes, applications, and the end of the sync."""
    yield ManagerRegistered(RM, explicit_sync=True)
    for at in range(workload.nodes):
        yield node(workload, at)
    for name, path in applications(workload).items():
        yield ApplicationAdded(RM, name, path)
    yield SyncCompleted(RM, workload.nodes, workload.applications)
