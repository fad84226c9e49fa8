"""The reasons that are sent to the shim for asks that wait: each is sent once, and is correct."""

from dataclasses import replace

import pytest

from server.core.core import Core
from server.core.wait_reasons import notices, obstacles
from server.model.asks import AskSpec, Constraints
from server.model.decisions import AskState, AskStateChanged, Placed
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
)
from server.model.resources import resource
from server.state.applications import Ask
from server.state.nodes import Node
from server.state.partition import Partition
from tests.preemption.clusters import Cluster, leaf

NOW = 1_700_000_000_000


def world(*nodes: NodeAdded) -> Core:
    core = Core()
    events: list[Event] = [ManagerRegistered("rm"), *nodes]
    for event in [*events, ApplicationAdded("rm", "app", "root.default")]:
        core.handle(event, NOW)
    return core


def ask(key: str, vcore: int, constraints: Constraints | None = None) -> AskAdded:
    spec = AskSpec(resource=resource({"vcore": vcore}), constraints=constraints or Constraints())
    return AskAdded("rm", key, "app", spec)


def heard(core: Core, now: int = NOW) -> list[tuple[str, AskState, str]]:
    return [
        (one.key, one.state, one.reason)
        for one in core.tick(now).decisions
        if isinstance(one, AskStateChanged)
    ]


NODE = NodeAdded("rm", "n1", resource({"vcore": 8}), schedulable=True)


@pytest.mark.parametrize(
    ("nodes", "wanted", "part"),
    [
        ([], ask("a", 1), "no node that takes placements"),
        ([NODE], ask("a", 9), "larger than every node"),
        (
            [NODE],
            ask("a", 1, Constraints(node_selector=(("zone", "x"),))),
            "its constraints allow none",
        ),
    ],
)
def test_why_no_node_takes_it(nodes: list[NodeAdded], wanted: AskAdded, part: str) -> None:
    core = world(*nodes)
    core.handle(wanted, NOW)
    ((key, state, reason),) = heard(core)
    assert (key, state) == ("a", AskState.FAILED)
    assert part in reason
    assert heard(core) == []


@pytest.mark.parametrize("sizes", [1, obstacles.FEW_SIZES, obstacles.FEW_SIZES + 1])
def test_the_largest_of_any_number_of_node_sizes_decides(sizes: int) -> None:
    nodes = [NodeAdded("rm", f"n{at}", resource({"vcore": 8 + at})) for at in range(sizes)]
    core = world(*nodes)
    for node in nodes:
        core.handle(ask(f"on-{node.node_id}", dict(node.capacity)["vcore"]), NOW)
    largest = 8 + sizes - 1
    core.handle(ask("full", largest), NOW)
    core.handle(ask("too-large", largest + 1), NOW)
    told = {key: reason for key, _, reason in heard(core)}
    assert "larger than every node" in told["too-large"]
    assert "larger than every node" not in told["full"]
    assert told.keys() == {"full", "too-large"}


def test_a_tick_that_places_tells_few_and_the_next_ones_tell_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notices, "TELL_BESIDE_MAX", 3)
    core = world(NODE)
    core.handle(ask("placed", 8), NOW)
    waits = [f"waits-{at}" for at in range(9)]
    for at, key in enumerate(waits):
        core.handle(ask(key, 9 + at), NOW)
    first = core.tick(NOW)
    assert isinstance(first.decisions[0], Placed)
    told = [one.key for one in first.decisions if isinstance(one, AskStateChanged)]
    assert told == waits[:3]
    assert first.more
    assert [key for key, *_ in heard(core)] == waits[3:]
    assert heard(core) == []


def test_an_ask_that_is_reserved_at_once_is_told_too() -> None:
    core = world(NODE)
    core.handle(ask("runs", 6), NOW)
    core.tick(NOW)
    core.handle(ask("old", 6)._replace(created_ms=NOW - 60_000), NOW)
    ((key, _, reason),) = heard(core)
    assert key == "old"
    assert "no node that could hold it has enough free capacity" in reason


def test_another_reason_is_told_again_to_all() -> None:
    core = world(NODE)
    for key in ("runs", "a", "b"):
        core.handle(ask(key, 6), NOW)
    assert [key for key, *_ in heard(core)] == ["a", "b"]
    core.handle(NodeDrained("rm", "n1"), NOW)
    core.handle(ask("c", 6), NOW)
    assert {key for key, *_ in heard(core)} == {"a", "b", "c"}


def test_a_node_that_could_hold_an_ask_ends_the_look_at_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asks for which victims end are many at once, and each is looked at in each tick."""
    allows, looked = obstacles.is_allowed, list[str]()

    def counted(partition: Partition, ask: Ask, node: Node) -> bool:
        looked.append(node.node_id)
        return allows(partition, ask, node)

    cluster = Cluster(replace(leaf("a"), guaranteed=(("memory", 2),)), leaf("b"))
    cluster.application("claimant")
    cluster.application("other", "root.b")
    names = [f"n{number}" for number in range(20)]
    cluster.nodes(*names, memory=2)
    for name in names:
        cluster.existing(f"on-{name}", name, "other", memory=2)
    cluster.ask("p", application="claimant", memory=2)
    cluster.tick()
    monkeypatch.setattr(obstacles, "is_allowed", counted)
    cluster.tick(60_000)
    assert cluster.partition.decisions.pledges
    assert 0 < len(looked) < 5
