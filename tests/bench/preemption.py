"""What preemption costs: claims from the ask to its placement, and lowered quotas from the configuration to the wire.

The clusters are those that the nearest peer's figures were taken with: full, ten allocations a node, and the asking
queue is guaranteed what its asks want. With several shapes allocations differ in size, priority and consent.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from server.config import load
from server.core.core import Core
from server.core.shortage import Shortage
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Placed, Released
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import Configuration
from server.model.resources import resource
from server.rpc.dispatch import Dispatch
from server.rpc.sessions import Kind, Sessions

RM = "bench"
NOW = 1_700_000_000_000
PER_NODE = 10
APPLICATIONS = 10
"""In each low leaf."""
MEMORY, VCORE = 100, 1_000
"""What an ask wants, and an allocation has on average."""
LOWERED = 10
"""A lowered maximum leaves one in so many."""
SINGLE = 12
"""Claims that come one at a time."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A full one, with so many low leaves. ``shapes`` 1: all allocations are alike; ``kinds`` 1: all asks are."""

    nodes: int
    leaves: int = 10
    shapes: int = 1
    claims: int = 1_000
    kinds: int = 1

    @property
    def running(self) -> int:
        """Allocations at the start."""
        return self.nodes * PER_NODE

    @property
    def name(self) -> str:
        """A short name for tables."""
        shapes = "" if self.shapes == 1 else f", {self.shapes} shapes"
        leaves = f"{self.leaves} leaves" if self.leaves > 1 else "one leaf"
        kinds = "" if self.kinds == 1 else f", {self.kinds} kinds of asks"
        return f"{self.running:,} running on {self.nodes:,}, {leaves}{shapes}{kinds}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: milliseconds of CPU and of wall for ``count`` claims or victims; ``cold_ms``: a process's first View."""

    cpu_ms: float
    wall_ms: float
    count: int
    cold_ms: float = 0.0


# The cluster --------------------------------------------------------------------------------------------------------


def queues_yaml(cluster: Cluster, most: int | None = None) -> str:
    """The configuration, with a maximum of memory over all low leaves when there is one."""
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


def _configuration(cluster: Cluster, most: int | None = None) -> Configuration:
    found, problems = load(queues_yaml(cluster, most), "bench")
    assert found is not None, problems
    return found


def size(cluster: Cluster, at: int) -> int:
    """What the allocation has of an average one, in percent; those of a node sum up to what the node has."""
    spread = 60 * (at // 2 % (cluster.shapes // 2)) // (cluster.shapes // 2)
    return 100 + spread if at % 2 else 100 - spread


def shape(cluster: Cluster, at: int) -> tuple[int, int, bool]:
    """(percent, priority, opted out) of an allocation: with several shapes all differ."""
    if cluster.shapes == 1:
        return 100, 0, False
    return size(cluster, at), at % 3, at % 7 == 0


def quantities(percent: int) -> dict[str, int]:
    """So much of what an ask wants."""
    return {"memory": MEMORY * percent // 100, "vcore": VCORE * percent // 100}


def spec(found: tuple[int, int, bool]) -> AskSpec:
    """What allocations of one shape are made from."""
    percent, priority, opted = found
    return AskSpec(resource(quantities(percent)), priority, allow_preempt_self=not opted)


def application(cluster: Cluster, at: int) -> tuple[str, str]:
    """(application id, queue) of an allocation: they go round the leaves, then round their applications."""
    leaf = at % cluster.leaves
    return f"app-{leaf}-{at // cluster.leaves % APPLICATIONS}", f"root.low.leaf{leaf}"


def asking() -> AskSpec:
    """What an ask wants."""
    return AskSpec(resource(quantities(100)), priority=100)


def _events(cluster: Cluster) -> Iterator[Event]:
    yield ManagerRegistered(RM)
    capacity = resource({"memory": PER_NODE * MEMORY, "vcore": PER_NODE * VCORE})
    for at in range(cluster.nodes):
        yield NodeAdded(RM, f"node-{at:05}", capacity)
    names = dict(application(cluster, at) for at in range(cluster.leaves * APPLICATIONS))
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
    """A core that knows the cluster and has ticked once."""
    core = Core(_configuration(cluster))
    for event in _events(cluster):
        core.handle(event, NOW)
    core.tick(NOW)
    return core


@contextmanager
def frozen() -> Iterator[None]:
    """Without collections of garbage, as the shell holds it while it is busy."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


class Watch:
    """Milliseconds of CPU and wall since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self, count: int, cold_ms: float = 0.0) -> Figure:
        """The figure of what was done in the meantime."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return Figure(1_000 * cpu, 1_000 * wall, count, cold_ms)


# Claims -------------------------------------------------------------------------------------------------------------


def claims(cluster: Cluster) -> list[Figure]:
    """All asks at once, every release confirmed at once: from the first ask to the last placement."""
    core = build(cluster)
    wanted = asking()
    now, placed = NOW + 1_000, 0
    with frozen():
        watch = Watch()
        for at in range(cluster.claims):
            core.handle(AskAdded(RM, f"claim-{at}", "claimant", wanted, created_ms=NOW), now)
        while placed < cluster.claims:
            now += 1
            decisions = core.tick(now).decisions
            placed += _placements(decisions)
            assert decisions, f"nothing more happens after {placed} placements"
            _confirm(core, decisions, now)
        return [watch.stop(placed)]


def one_claim(cluster: Cluster) -> list[Figure]:
    """Claims one at a time: from the ask until its victims are ordered to go. The first fills the columns."""
    core = build(cluster)
    wanted = asking()
    figures: list[Figure] = []
    with frozen():
        for at in range(SINGLE + 1):
            now = NOW + 1_000 * (at + 1)
            watch = Watch()
            core.handle(AskAdded(RM, f"claim-{at}", "claimant", wanted, created_ms=now - 500), now)
            decisions = core.tick(now).decisions
            figures.append(watch.stop(1))
            assert any(type(one) is Released for one in decisions)
            _confirm(core, decisions, now)
            assert _placements(core.tick(now + 1).decisions) == 1
    cold = figures[0].cpu_ms
    return [Figure(one.cpu_ms, one.wall_ms, 1, cold) for one in figures[1:]]


def one_round(cluster: Cluster) -> list[Figure]:
    """Claims that starve together: one round plans for all, until every victim is ordered to go.

    Placement has tried them before, while they waited for their delay. A View was taken before, as by any claim;
    ``cold_ms`` is what that took.
    """
    core = build(cluster)
    sizes = [resource(quantities(100 - at)) for at in range(cluster.kinds)]
    now = NOW + 1_000
    with frozen():
        cold = _first_view(core)
        for at in range(cluster.claims):
            wanted = AskSpec(sizes[at % len(sizes)], priority=100)
            core.handle(AskAdded(RM, f"claim-{at}", "claimant", wanted, created_ms=now), now)
        assert not core.tick(now).more
        watch, planned, more = Watch(), 0, True
        while more:
            tick = core.tick(now + 1)
            planned += sum(type(one) is Decided for one in tick.decisions)
            more = tick.more
        figure = watch.stop(planned, cold)
    assert planned == cluster.claims, f"{planned} decisions"
    return [figure]


def _placements(decisions: Sequence[Decision]) -> int:
    return sum(type(one) is Placed for one in decisions)


def _confirm(core: Core, decisions: Sequence[Decision], now: int) -> None:
    for one in decisions:
        if type(one) is Released and one.decision_id:
            core.handle(
                ReleaseRequested(RM, one.application_id, one.key, termination=one.termination), now
            )


# Shares by weight -----------------------------------------------------------------------------------------------------


def shares(cluster: Cluster) -> list[Figure]:
    """What all queues deserve, from the books as they are: nothing is known of it beforehand (W1). The first is cold."""
    core = build(cluster)
    for at in range(cluster.claims):
        core.handle(AskAdded(RM, f"claim-{at}", "claimant", asking(), created_ms=NOW), NOW)
    (partition,) = core.state.partitions.values()
    figures: list[Figure] = []
    with frozen():
        for _ in range(SINGLE + 1):
            watch = Watch()
            found = Shortage(partition).shares
            figures.append(watch.stop(len(partition.queues)))
            assert found.of("root.high").contended[partition.types.index["memory"]]
    cold = figures[0].cpu_ms
    return [Figure(one.cpu_ms, one.wall_ms, one.count, cold) for one in figures[1:]]


# Quotas -------------------------------------------------------------------------------------------------------------


def quota(cluster: Cluster) -> list[Figure]:
    """The maximum is lowered to a tenth: from the configuration to the encoded messages of all victims.

    A View was taken before, as by any claim; ``cold_ms`` is what that took.
    """
    core = build(cluster)
    core.handle(ConfigurationApplied(_configuration(cluster, cluster.running), "full"), NOW)
    lowered = _configuration(cluster, cluster.running // LOWERED)
    sessions = Sessions()
    sessions.registered(RM, "")
    dispatch = Dispatch(sessions)
    with frozen():
        cold = _first_view(core)
        watch = Watch()
        core.handle(ConfigurationApplied(lowered, "lowered"), NOW + 1_000)
        decisions = core.tick(NOW + 1_010).decisions
        dispatch.send(decisions)
        outbox = sessions.outbox(RM, Kind.ALLOCATION)
        assert outbox is not None
        handed = 0
        while message := outbox.take():
            handed += len(message)
        figure = watch.stop(sum(type(one) is Released for one in decisions), cold)
    assert handed, "nothing reached the wire"
    assert figure.count == cluster.running - cluster.running // LOWERED
    return [figure]


def _first_view(core: Core) -> float:
    """An ask that finds no victim makes the core fill its columns; milliseconds of CPU."""
    watch = Watch()
    core.handle(
        AskAdded(RM, "first", "claimant", AskSpec(resource({"memory": 1 << 40}), priority=-1)),
        NOW + 1,
    )
    core.tick(NOW + 900)
    core.handle(ReleaseRequested(RM, "claimant", "first", asks_only=True), NOW + 901)
    core.tick(NOW + 902)
    return watch.stop(0).cpu_ms
