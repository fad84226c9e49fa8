"""What preemption costs: claims from the ask to its placement, and lowered quotas from the configuration to the wire."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from server.core.core import Core
from server.core.shortage import Shortage
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Placed, Released
from server.model.events import AskAdded, ConfigurationApplied, ReleaseRequested
from server.model.resources import resource
from server.rpc.dispatch import Dispatch
from server.rpc.sessions import Kind, Sessions
from tests.bench.clusters import (
    LOWERED,
    NOW,
    RM,
    Cluster,
    asking,
    build,
    configuration,
    quantities,
)

SINGLE = 12
"""Claims that come one at a time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: milliseconds of CPU and of wall for ``count`` claims or victims; ``cold_ms``: a process's first View."""

    cpu_ms: float
    wall_ms: float
    count: int
    cold_ms: float = 0.0


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
    core.handle(ConfigurationApplied(configuration(cluster, cluster.running), "full"), NOW)
    lowered = configuration(cluster, cluster.running // LOWERED)
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
