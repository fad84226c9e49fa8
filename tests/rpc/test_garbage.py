"""Cyclic garbage: the core leaves none, and what others leave is collected when the core has time."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeRemoved,
    ReleaseRequested,
)
from server.model.quota import Configuration, PartitionSpec, QueueSpec
from server.model.resources import resource
from server.rpc import garbage
from server.rpc.garbage import Garbage


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.held = self


@pytest.fixture
def collector() -> Iterator[Garbage]:
    """Drives the collector as long as the test lasts."""
    driven = Garbage()
    yield driven
    driven.close()


def knot() -> "weakref.ref[Knot]":
    """Garbage that only a collection ends."""
    return weakref.ref(Knot())


def test_automatic_collection_stops_and_comes_back() -> None:
    collector = Garbage()
    assert not gc.isenabled()
    collector.close()
    assert gc.isenabled()
    assert not gc.get_freeze_count()


def test_it_is_collected_when_the_core_is_idle_and_enough_has_come(collector: Garbage) -> None:
    left = knot()
    collector.sliced(garbage.IDLE_AT // 2, 0.0, 1)
    collector.idle()
    assert left() is not None
    collector.sliced(1, 0.0, 1)
    collector.idle()
    assert left() is None


def test_it_is_collected_under_a_load_that_never_ends(collector: Garbage) -> None:
    left = knot()
    collector.sliced(garbage.UNDER_LOAD // 2, 0.0, 1)
    assert left() is not None
    collector.sliced(1, 0.0, 1)
    assert left() is None


def test_objects_that_no_event_made_count_too(collector: Garbage) -> None:
    left = knot()
    held = [[one] for one in range(garbage.IDLE_AT + 1)]
    collector.idle()
    assert left() is None
    assert held


def test_what_was_alive_when_it_was_frozen_is_collected_later(collector: Garbage) -> None:
    held = [Knot()]
    left = weakref.ref(held[0])
    for _ in range(garbage.THOROUGH):
        collector.sliced(garbage.UNDER_LOAD, 0.0, 1)
    held.clear()
    collector.sliced(garbage.IDLE_AT, 0.0, 1)
    collector.idle()
    assert left() is None


def test_what_stays_is_looked_at_once(collector: Garbage) -> None:
    held = [[one] for one in range(garbage.IDLE_AT + 1)]
    before = gc.get_freeze_count()
    collector.idle()
    assert gc.get_freeze_count() >= before + len(held)


def queues(*leaves: str) -> Configuration:
    root = QueueSpec(
        name="root", parent=True, children=tuple(QueueSpec(name=one) for one in leaves)
    )
    return Configuration((PartitionSpec("default", root),))


def life() -> Iterator[Event]:
    """Everything comes, is placed, and goes again, each in its way."""
    yield ManagerRegistered("rm")
    for node in "abc":
        yield NodeAdded("rm", node, resource({"vcore": 4_000}))
    for name in ("done", "gone", "left"):
        yield ApplicationAdded("rm", name, f"root.{name}")
        for number in range(6):
            spec = AskSpec(resource({"vcore": 500 + number}))
            yield AskAdded("rm", f"{name}-{number}", name, spec)
    for number in range(6):
        yield ReleaseRequested("rm", "done", f"done-{number}")
    yield ApplicationRemoved("rm", "gone")
    yield NodeRemoved("rm", "b")
    yield ConfigurationApplied(queues("done", "new"), "test", "rm")
    yield ManagerRegistered("rm")


def test_the_core_leaves_no_cycles_behind() -> None:
    core = Core(queues("done", "gone", "left"))
    gc.collect()
    gc.disable()
    try:
        now = 1
        for event in life():
            core.handle(event, now)
            while core.tick(now).more:
                pass
            now += 3_600_000
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert not core.state.partitions["default"].asks
