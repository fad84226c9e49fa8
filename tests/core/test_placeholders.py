"""Placeholders under random events: the sum of usage is kept, no limit is exceeded, and no pod waits without end."""

import random
from collections import Counter

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Placed, Released, Termination
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.scheduling import placeholders
from tests.core.gang_world import START, World
from tests.effort import TRIES_ALL, cases
from tests.preemption.replicas import Replicas

WORLDS = cases(60)
STEPS = 60


def run(seed: int) -> World:
    print(f"seed {seed}")  # noqa: T201
    world = World(random.Random(seed))
    world.begin()
    for _ in range(STEPS):
        world.step()
    world.settle()
    return world


def test_usage_is_what_runs_whatever_happens(seed: int) -> None:
    replaced: Counter[str] = Counter()
    for number in range(WORLDS):
        replaced += run(seed + number).replaced
    if TRIES_ALL:
        assert replaced.total() > WORLDS / 4, "hardly anybody took a place: the worlds show nothing"


def test_the_same_events_give_the_same_decisions() -> None:
    one, other = run(7), run(7)
    assert one.core.digest() == other.core.digest()


def gang(members: int) -> Core:
    """Return a core with an application whose placeholders and real asks are all there."""
    core = Core()
    core.handle(ManagerRegistered("rm"), START)
    core.handle(NodeAdded("rm", "n1", (("memory", 10 * members),)), START)
    core.handle(ApplicationAdded("rm", "x", "root.x"), START)
    small = AskSpec((("memory", 10),), placeholder=True, task_group="g")
    real = AskSpec((("memory", 10),), task_group="g")
    for number in range(members):
        core.handle(AskAdded("rm", f"p{number}", "x", small), START)
    core.tick(START)
    for number in range(members):
        core.handle(AskAdded("rm", f"x{number}", "x", real), START)
    return core


def test_one_tick_gives_away_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "REPLACED_MAX", 3)
    core = gang(8)
    counts = []
    for _ in range(3):
        tick = core.tick(START)
        counts.append(sum(isinstance(one, Released) for one in tick.decisions))
    assert counts == [3, 3, 2]
    core.validate()


def test_a_placement_follows_its_confirmation_in_the_same_breath() -> None:
    core = gang(1)
    core.tick(START)
    gone = ReleaseRequested("rm", "x", "p0", termination=Termination.PLACEHOLDER_REPLACED)
    (placed,) = core.handle(gone, START)
    assert isinstance(placed, Placed)
    assert (placed.key, placed.node_id, placed.queue) == ("x0", "n1", "root.x")


def test_a_placeholder_that_stays_is_no_loss_of_its_queue() -> None:
    """The thrashing monitor explains claims by what queues lose to the outside: no pod was evicted here (invariant 18)."""
    life = Replicas([{"name": "a"}])
    life.say("node n1 memory=100", "app x root.a holding:memory=10")
    life.say("ask p1 x memory=10 placeholder group=g", "ask x1 x memory=10 group=g")
    life.tick()
    partition = life.core.state.partitions["default"]
    assert partition.asks["p1"].is_replaced
    life.say("veto p1")
    life.core.validate()
    assert not partition.asks["p1"].releasing
    assert not any(partition.root.lost)
