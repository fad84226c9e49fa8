"""The digest changes when visible state changes, and only then."""

from collections.abc import Callable

import pytest

from server.core.queries import inspect
from server.model.decisions import Termination
from server.model.events import (
    ApplicationRemoved,
    ApplicationRetagged,
    ConfigurationApplied,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    ReleaseRequested,
)
from server.model.quota import Acl
from server.model.resources import resource
from server.state.digest import digest, plain
from tests.inspect.world import MANAGER, World, configuration, crowd, leaf, pledge

Step = Callable[[World], object]


def put_retired(world: World) -> None:
    world.partition.retired = True


def start(world: World) -> None:
    """Report that a pod runs now."""
    node = world.partition.asks["run-2"].node.node_id
    world.allocation("run-2", node, vcore=2, priority=2, started_ms=world.now)


CHANGES: dict[str, Step] = {
    "a node": lambda w: w.node("n9"),
    "a drained node": lambda w: w.say(NodeDrained(MANAGER, "n1")),
    "an enabled node": lambda w: w.say(NodeEnabled(MANAGER, "n4")),
    "capacity": lambda w: w.say(NodeUpdated(MANAGER, "n4", resource({"vcore": 99}))),
    "labels": lambda w: w.say(NodeUpdated(MANAGER, "n4", labels=(("zone", "z9"),))),
    "a node less": lambda w: w.say(NodeRemoved(MANAGER, "n4")),
    "an application": lambda w: w.application("new"),
    "an application less": lambda w: w.say(ApplicationRemoved(MANAGER, "fair")),
    "tags of an application": lambda w: w.say(ApplicationRetagged(MANAGER, "fair", {"a": "b"})),
    "an ask": lambda w: w.ask("new-1"),
    "a higher priority": lambda w: w.ask("full-1", vcore=2, priority=1),
    "another size": lambda w: w.ask("run-1", vcore=3),
    "an allocation": lambda w: w.allocation("new-1", "n1"),
    "a started allocation": start,
    "a foreign pod": lambda w: w.foreign("alien-9", "n1"),
    "another foreign size": lambda w: w.foreign("alien-1", "n1", 2),
    "a foreign pod on another node": lambda w: w.foreign("alien-1", "n2"),
    "a foreign pod less": lambda w: w.say(ReleaseRequested(MANAGER, "", "alien-1")),
    "an ask less": lambda w: w.release("full-1"),
    "an allocation less": lambda w: w.release("run-2"),
    "an allocation back": lambda w: w.release("run-2", "app", Termination.SCHEDULING_FAILED_ON_RM),
    "a pledge": lambda w: pledge(w, "held-2", "n1"),
    "a queue": lambda w: w.application("new", "root.new"),
    "a configuration": lambda w: w.say(ConfigurationApplied(configuration(leaf("a")), "test")),
    "a retired partition": put_retired,
}


def seen(world: World) -> str:
    return digest(world.partition)


@pytest.mark.parametrize("step", CHANGES.values(), ids=CHANGES)
def test_every_kind_of_change_changes_the_digest(step: Step) -> None:
    world = crowd()
    before = seen(world)
    step(world)
    assert seen(world) != before


def test_a_placement_changes_the_digest() -> None:
    world = World(leaf("a"))
    world.node("n1")
    world.application("app")
    world.ask("one")
    before = seen(world)
    assert world.tick() == {"one": "n1"}
    assert seen(world) != before


IDLE: dict[str, Step] = {
    "reports": lambda w: (
        inspect.partitions(w.core),
        inspect.queue_tree(w.core, "default"),
        inspect.applications(w.core, "default"),
        inspect.nodes(w.core, "default"),
        inspect.allocations(w.core, "default", asks=True),
        inspect.managers(w.core),
    ),
    "explanations": lambda w: [
        inspect.explain(w.core, key, w.now)
        for key in (*w.partition.asks, *w.partition.applications, "n1", "alien-1", "nothing")
    ],
    "the doctor": lambda w: inspect.doctor(w.core, w.now),
    "validate": lambda w: w.core.validate(),
    "itself": seen,
    "an unknown release": lambda w: w.release("nobody"),
    "a refused ask": lambda w: w.ask("x", "nobody"),
    "a refused application": lambda w: w.application("app"),
    "an ask that came and went": lambda w: (w.ask("x", extra={"odd": 1}), w.release("x")),
    "an idle tick": lambda w: w.tick(),
}


@pytest.mark.parametrize("step", IDLE.values(), ids=IDLE)
def test_whatever_leaves_the_state_alone_leaves_the_digest(step: Step) -> None:
    world = crowd()
    world.tick()
    before, whole = seen(world), world.core.digest()
    step(world)
    assert (seen(world), world.core.digest()) == (before, whole)
    world.core.validate()


def test_looking_changes_nothing_that_is_decided() -> None:
    """Equal events with and without inspection: equal placements."""

    def told(*, looked_at: bool) -> list[dict[str, str]]:
        world = crowd()
        placed = []
        for key in ("run-1", "run-2", "alien-1", "port-1"):
            if looked_at:
                for step in IDLE.values():
                    step(world)
            world.release(key, "" if key == "alien-1" else "app" if "run" in key else "other")
            placed.append(world.tick())
        return placed

    assert told(looked_at=True) == told(looked_at=False)


def test_the_order_of_waiting_asks_is_part_of_it() -> None:
    def filled(*keys: str) -> str:
        world = World(leaf("a"))
        world.application("app")
        for key in keys:
            world.ask(key)
        return seen(world)

    assert filled("one", "two") != filled("two", "one")
    assert filled("one", "two") == filled("one", "two")


def test_a_set_has_no_order() -> None:
    names = [f"user-{number}" for number in range(20)]
    one, other = Acl(users=frozenset(names)), Acl(users=frozenset(reversed(names)))
    assert plain(one) == plain(other)
    assert plain({"b": 1, "a": (2,)}) == plain({"a": [2], "b": 1})
