"""The cost of preemption: claims from the ask to its placement, lowered quotas from the configuration to the messages."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from server.core.preemption.deficits import Shortage
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Placed, Released
from server.model.events import AskAdded, ConfigurationApplied, Event, ReleaseRequested
from server.model.resources import resource
from server.rpc.dispatch import Dispatch
from server.rpc.sessions import Kind, Sessions
from tests.bench.calibration import cpu_seconds_here
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
from tests.bench.quiet import Stopwatch
from tests.bench.shell import Shell, shell

SINGLE = 12
"""Number of claims that arrive one at a time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: milliseconds of CPU and of real time for `count` claims or victims; `cold_ms` is for the first snapshot."""

    cpu_ms: float
    wall_ms: float
    count: int
    cold_ms: float = 0.0


@contextmanager
def frozen() -> Iterator[None]:
    """Suspend garbage collection, as the core's shell does while it is busy."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


class Watch(Stopwatch):
    """The stopwatch of claims or victims, in milliseconds."""

    def stop(self, count: int, cold_ms: float = 0.0) -> Figure:
        """Return the figure of the claims or victims since the start."""
        wall, cpu = self.taken()
        return Figure(1_000 * cpu, 1_000 * wall, count, cold_ms)


def standing(cluster: Cluster) -> Shell:
    """Return the shell of a core whose cluster is full and that has no idle work left."""
    one = shell(build(cluster))
    one.rest()
    return one


def confirmed(decisions: Sequence[Decision]) -> list[Event]:
    """Return the releases that these decisions order, in the form in which their shim confirms them."""
    return [
        ReleaseRequested(RM, one.application_id, one.key, termination=one.termination)
        for one in decisions
        if type(one) is Released and one.decision_id
    ]


# Claims -------------------------------------------------------------------------------------------------------------


def claims(cluster: Cluster) -> list[Figure]:
    """Measure all asks at once, with every release confirmed at once: from the first ask to the last placement."""
    one = standing(cluster)
    wanted = asking()
    events: list[Event] = [
        AskAdded(RM, f"claim-{at}", "claimant", wanted, created_ms=NOW)
        for at in range(cluster.claims)
    ]
    one.now, placed = NOW + 1_000, 0
    watch = Watch()
    while placed < cluster.claims:
        decisions, more = one.turn(events)
        assert decisions or more, f"nothing more happens after {placed} placements"
        placed += _placements(decisions)
        events = confirmed(decisions)
        one.now += 1
    return [watch.stop(placed)]


def one_claim(cluster: Cluster) -> list[Figure]:
    """Measure claims one at a time, from the ask to the eviction order. The first claim also fills the core's columns."""
    one = standing(cluster)
    wanted = asking()
    figures: list[Figure] = []
    for at in range(SINGLE + 1):
        one.now = NOW + 1_000 * (at + 1)
        ask = AskAdded(RM, f"claim-{at}", "claimant", wanted, created_ms=one.now - 500)
        watch = Watch()
        decisions, _ = one.turn([ask])
        figures.append(watch.stop(1))
        gone = confirmed(decisions)
        assert gone
        one.now += 1
        assert _placements(one.turn(gone)[0]) == 1
        one.rest()
    cold = figures[0].cpu_ms
    return [Figure(each.cpu_ms, each.wall_ms, 1, cold) for each in figures[1:]]


def one_round(cluster: Cluster) -> list[Figure]:
    """Measure claims that wait together: one round plans for all, until every victim is ordered to be evicted.

    Placement has already tried these asks, while they waited for their delay. A snapshot was also taken before, as
    each claim does; `cold_ms` is the time that it took.
    """
    one = standing(cluster)
    cold = _first_view(one)
    sizes = [resource(quantities(100 - at)) for at in range(cluster.kinds)]
    one.now = NOW + 1_000
    asks = [
        AskAdded(
            RM,
            f"claim-{at}",
            "claimant",
            AskSpec(sizes[at % len(sizes)], priority=100),
            created_ms=one.now,
        )
        for at in range(cluster.claims)
    ]
    assert not one.turn(asks)[1]
    one.now += 1
    watch, planned, more = Watch(), 0, True
    while more:
        decisions, more = one.turn()
        planned += sum(type(each) is Decided for each in decisions)
    figure = watch.stop(planned, cold)
    assert planned == cluster.claims, f"{planned} decisions"
    return [figure]


def _placements(decisions: Sequence[Decision]) -> int:
    return sum(type(one) is Placed for one in decisions)


# Shares by weight -----------------------------------------------------------------------------------------------------


def shares(cluster: Cluster) -> list[Figure]:
    """Measure the computation of the deserved shares of all queues from the state alone (W1).

    No value is cached at the start, so the first figure includes the filling of caches.
    """
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
    """Measure lowering a max to a tenth: from the configuration to the encoded messages of all victims.

    A snapshot was taken before, as each claim does; `cold_ms` is the time that it took.
    """
    one = standing(cluster)
    one.turn([ConfigurationApplied(configuration(cluster, cluster.running), "full")])
    lowered = configuration(cluster, cluster.running // LOWERED)
    sessions = Sessions()
    sessions.registered(RM, "")
    cold = _first_view(one)
    one.send = Dispatch(sessions).send
    outbox = sessions.outbox(RM, Kind.ALLOCATION)
    assert outbox is not None
    watch = Watch()
    one.now = NOW + 1_000
    one.turn([ConfigurationApplied(lowered, "lowered")])
    one.now += 10
    victims, more = 0, True
    while more:
        decisions, more = one.turn()
        victims += list(map(type, decisions)).count(Released)
    handed = 0
    while message := outbox.take():
        handed += len(message)
    figure = watch.stop(victims, cold)
    assert handed, "nothing reached the wire"
    assert figure.count == cluster.running - cluster.running // LOWERED
    return [figure]


def _first_view(one: Shell) -> float:
    """Add an ask without victims, so that the core fills its columns, and return the milliseconds of CPU that this took."""
    begun = cpu_seconds_here()
    huge = AskSpec(resource({"memory": 1 << 40}), priority=-1)
    one.now = NOW + 1
    one.turn([AskAdded(RM, "first", "claimant", huge)])
    one.now = NOW + 900
    one.turn()
    one.turn([ReleaseRequested(RM, "claimant", "first", asks_only=True)])
    taken = 1_000 * (cpu_seconds_here() - begun)
    one.rest()
    return taken
