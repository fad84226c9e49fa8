"""Queries change nothing: a trace contains no queries, and its replay makes the same decisions."""

import pytest

from evenhand_cli.story.play import run
from server.core.core import Core
from server.core.queries import doctor, inspect, known_decisions
from server.model.decisions import Decision, Tick
from server.model.parts import Parts
from tests.record.preempting import Driver, configuration
from tests.simulation.worlds import World, make_world

SEEDS = range(300_100, 300_106)


def live(world: World, *, watched: bool) -> list[list[Decision]]:
    """Return the decisions at each moment of a world; if watched, every view is read after each moment."""
    core = Core(world.configuration)
    told = []
    for now, event in world.moments:
        told.append(run(core, now) if event is None else core.handle(event, now))
        if watched:
            look(core, now)
    return told


def look(core: Core, now: int) -> None:
    """Read everything that services ask of a core."""
    core.next_due()
    core.digest()
    doctor.doctor(core, now)
    inspect.managers(core)
    known_decisions.decisions(core)
    for partition in inspect.partitions(core):
        inspect.queue_tree(core, partition.name)
        inspect.applications(core, partition.name)
        keys = [one.node_id for one in inspect.nodes(core, partition.name)]
        keys += [one.key for one in inspect.allocations(core, partition.name, asks=True)]
        for key in [*keys, "nobody"]:
            inspect.explain(core, key, now, partition.name)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_core_that_is_watched_decides_the_same(seed: int) -> None:
    world = make_world(seed)
    alone, watched = live(world, watched=False), live(world, watched=True)
    assert [repr(one) for one in watched] == [repr(one) for one in alone]


class Watched(Core):
    """A core that is read after every tick."""

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Tick as the core does."""
        tick = yield from super().tick_in_parts(now, budget)
        look(self, now)
        return tick


class Heard(Driver):
    """A driver that writes down what it hears."""

    def __init__(self, seed: int, core: Core) -> None:
        super().__init__(seed, core)
        self.heard: list[str] = []

    def _hear(self, decisions: list[Decision]) -> None:
        self.heard += map(repr, decisions)
        super()._hear(decisions)


def test_a_core_that_is_watched_takes_the_same_victims() -> None:
    first = configuration(40)
    drivers = [Heard(4, Core(first)), Heard(4, Watched(first))]
    for driver in drivers:
        driver.live(30)
    assert any(one.startswith("Decided(") for one in drivers[0].heard)
    assert drivers[1].heard == drivers[0].heard
