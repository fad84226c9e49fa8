"""Changed tags among other events: the state stays valid, and the same events give the same state and decisions."""

import json
import random

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision
from server.model.events import (
    ApplicationAdded,
    ApplicationRemoved,
    ApplicationRetagged,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)

NOW = 1_700_000_000_000
STEPS = 150
SPACES = ("shop", "mall")
TYPES = ("memory", "vcore", "gpu", "tpu")


def drawn(chance: random.Random) -> dict[str, str]:
    """Return the tags of a namespace, with quotas in types that no node may have; some cannot be read."""
    tags = {"namespace": chance.choice(SPACES)}
    for tag in ("resourcequota", "resourceguaranteed"):
        if chance.random() < 0.6:
            kinds = chance.sample(TYPES, chance.randint(1, 2))
            tags[f"namespace.{tag}"] = json.dumps({kind: chance.randint(-1, 30) for kind in kinds})
    if chance.random() < 0.3:
        tags["namespace.resourcemaxapps"] = chance.choice(("1", "3", "many"))
    return tags


def events(chance: random.Random) -> list[Event]:
    """Return a random sequence of events on the dynamic queues of two namespaces."""
    size = (("memory", 60), ("vcore", 60))
    made: list[Event] = [ManagerRegistered("rm"), NodeAdded("rm", "n", size)]
    for number in range(STEPS):
        name = f"app{chance.randrange(6)}"
        queue = f"root.{chance.choice(SPACES)}"
        spec = AskSpec((("memory", chance.randint(1, 5)), ("vcore", chance.randint(1, 5))))
        choices: tuple[Event, ...] = (
            ApplicationAdded("rm", name, queue, tags=drawn(chance)),
            AskAdded("rm", f"k{number}", name, spec),
            ApplicationRetagged("rm", name, drawn(chance)),
            ReleaseRequested("rm", name, f"k{chance.randrange(number + 1)}"),
            ApplicationRemoved("rm", name),
        )
        made += chance.choices(choices, (3, 6, 5, 3, 1))
    return made


def told(core: Core, seed: int) -> list[Decision]:
    """Let a core handle the events of a seed, with a tick and a check of its state after each; return its decisions."""
    made: list[Decision] = []
    for step, event in enumerate(events(random.Random(seed))):
        now = NOW + step * 1_000
        made += core.handle(event, now)
        while (found := core.tick(now)).more:
            made += found.decisions
        made += found.decisions
        core.validate()
    return made


@pytest.mark.parametrize("seed", range(20))
def test_the_state_stays_valid_and_nothing_waits_that_fits(seed: int) -> None:
    core = Core()
    told(core, seed)
    for ask in core.state.partitions["default"].asks.values():
        limits = ask.application.limits_of(ask.ask_class)
        fits = all(one.has_headroom(ask.ask_class) for one in limits)
        node = core.state.partitions["default"].index.nodes["n"]
        room = all(node.free[at] >= amount for at, amount in ask.ask_class.demand)
        assert ask.node is not None or not (fits and room), (seed, ask.key)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_events_give_the_same(seed: int) -> None:
    one, other = Core(), Core()
    assert list(map(repr, told(one, seed))) == list(map(repr, told(other, seed)))
    assert one.digest() == other.digest()
