"""The fast path for plain asks is used for no ask that the slow path would refuse, update or report."""

from collections.abc import Callable

import pytest

from server.core.core import Core
from server.core.events import asks, asks_fast, overflow
from server.model.asks import AskSpec
from server.model.decisions import ApplicationState, AskRejected, Decision
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import resource

NOW = 1_800_000_000_000
SPEC = AskSpec(resource({"vcore": 10}))
TREE = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(QueueSpec("a"),))


def _core() -> Core:
    core = Core(Configuration((PartitionSpec("default", TREE),)))
    setup: list[Event] = [
        ManagerRegistered("rm"),
        ManagerRegistered("other"),
        NodeAdded("rm", "n1", resource({"vcore": 100})),
        ApplicationAdded("rm", "app", "root.a"),
        ForeignAdded("rm", "foreign", "n1", resource({"vcore": 1})),
        AskAdded("rm", "first", "app", SPEC),
    ]
    for event in setup:
        core.handle(event, NOW)
    return core


def _fail(core: Core) -> None:
    core.state.partitions["default"].applications["app"].state = ApplicationState.FAILING


def _complete(core: Core) -> None:
    core.state.partitions["default"].applications["app"].state = ApplicationState.COMPLETING


def _fill(core: Core) -> None:
    core.state.partitions["default"].classes.crowd("vcore", crowded=True)


def _nothing(core: Core) -> None:
    del core


CASES: dict[str, tuple[AskAdded, Callable[[Core], None]]] = {
    "new": (AskAdded("rm", "new", "app", SPEC), _nothing),
    "known": (AskAdded("rm", "first", "app", SPEC), _nothing),
    "nameless": (AskAdded("rm", "", "app", SPEC), _nothing),
    "foreign": (AskAdded("rm", "foreign", "app", SPEC), _nothing),
    "no such application": (AskAdded("rm", "new", "none", SPEC), _nothing),
    "no such partition": (AskAdded("rm", "new", "app", SPEC, "gpu"), _nothing),
    "another manager's": (AskAdded("other", "new", "app", SPEC), _nothing),
    "failing": (AskAdded("rm", "new", "app", SPEC), _fail),
    "completing": (AskAdded("rm", "new", "app", SPEC), _complete),
    "crowded": (AskAdded("rm", "new", "app", SPEC), _fill),
    "of the future": (AskAdded("rm", "new", "app", SPEC, created_ms=NOW + 5), _nothing),
    "of the past": (AskAdded("rm", "new", "app", SPEC, created_ms=NOW - 5), _nothing),
    "of a time-out": (
        AskAdded("rm", "new", "app", AskSpec(resource({"vcore": 10}), timeout_ms=9)),
        _nothing,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways_answer_alike(case: str) -> None:
    event, before = CASES[case]
    found: list[tuple[list[Decision], str]] = []
    for way in (asks_fast.add, asks.add_ask):
        core = _core()
        before(core)
        found.append((way(core.state, event, NOW), core.digest()))
        core.validate()
    assert found[0] == found[1]


@pytest.mark.parametrize("way", [asks_fast.add, asks.add_ask])
def test_a_full_partition_takes_no_more(
    way: Callable[..., list[Decision]], monkeypatch: pytest.MonkeyPatch
) -> None:
    core = _core()
    monkeypatch.setattr(overflow, "ASKS_MAX", 1)
    (refused,) = way(core.state, CASES["new"][0], NOW)
    assert isinstance(refused, AskRejected)
    assert "the most it takes" in refused.reason
