"""A recorded run in two files: a small cluster in a real core, with invented decisions where a test needs them."""

from collections.abc import Sequence
from pathlib import Path

from server.core.core import Core
from server.model.decisions import Decision
from server.model.events import Event, NodeDrained
from server.record.recording import Recording
from server.record.start import Start, begin
from tests.record.values import decided
from tests.simulation.worlds import World
from tests.ticks import ticked

DECIDING = "decide-"
"""Beginning of the names of nodes whose draining makes a decision, whether or not the node exists."""


class Deciding(Core):
    """A core that also makes decisions on command."""

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Handle an event as the core does; a drain of a special node returns an invented decision."""
        replies = super().handle(event, now)
        if isinstance(event, NodeDrained) and event.node_id.startswith(DECIDING):
            return [*replies, decided(int(event.node_id.removeprefix(DECIDING)))]
        return replies


def record(world: World, folder: Path, core: Core | None = None) -> None:
    """Record a run of the cluster as a server would: with ticks of a limited budget, until nothing is left to do."""
    core = core or Core(world.configuration)
    start = Start(world.moments[0][0], "1.2.3", world.configuration)
    recording = Recording(core, lambda: core.state.revision)
    begin(recording, start, folder / "log", folder / "trace")
    for now, event in world.moments:
        if event is not None:
            recording.take([event], now)
            continue
        while ticked(recording, now, 50).more:
            pass
    recording.close()


def with_decisions(world: World, numbers: Sequence[int]) -> World:
    """Add decisions in the middle of the world, and return it."""
    middle = len(world.moments) // 2
    now = world.moments[middle][0]
    added = [(now, NodeDrained("rm", f"{DECIDING}{number}")) for number in numbers]
    world.moments[middle:middle] = added
    return world
