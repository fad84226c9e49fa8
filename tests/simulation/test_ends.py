"""Many ends of pods reported together leave the same state and the same texts as the ends reported one by one."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import pytest

from evenhand_cli.story.play import run
from server.core.core import Core
from server.core.events import releases_fast
from server.model.decisions import Decision
from server.model.events import Event
from server.state import journal_fast
from server.state.applications import Ask
from server.state.journal_fast import take_off
from server.state.nodes import Node
from server.state.partition import Partition
from tests.effort import TRIES_ALL, cases
from tests.simulation.ebbs import ebbing
from tests.simulation.worlds import World

WORLDS = cases(40)
SHORT = 200
"""The least number of ends that take the fast path in a quarter of these worlds."""
LONG = 10
"""The least number of such ends in the largest batch."""


def _together(world: World) -> Iterator[tuple[int, list[Event]]]:
    """Yield the events between two ticks at one instant; none for a tick."""
    for (now, ticks), moments in groupby(world.moments, lambda one: (one[0], one[1] is None)):
        yield now, [] if ticks else [event for _, event in moments if event is not None]


def _lived(world: World) -> list[tuple[list[Decision], str]]:
    core = Core(world.configuration)
    said: list[tuple[list[Decision], str]] = []
    for now, events in _together(world):
        decisions = core.take(events, now) if events else run(core, now)
        said.append((decisions, core.digest()))
    core.validate()
    return said


def check(seed: int) -> None:
    """One world both ways."""
    world = ebbing(seed)
    usual = _lived(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases_fast, "take", lambda _state, _events, first, _decisions: first)
        assert _lived(world) == usual, f"seed {seed}"


def test_ends_that_come_together_are_as_one_after_the_other() -> None:
    for seed in range(WORLDS):
        check(seed)


def test_many_ends_of_these_worlds_go_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def heard(partition: Partition, asks: Sequence[Ask], nodes: Sequence[Node]) -> None:
        taken.append(len(asks))
        take_off(partition, asks, nodes)

    monkeypatch.setattr(journal_fast, "take_off", heard)
    for seed in range(WORLDS // 4):
        _lived(ebbing(seed))
    if TRIES_ALL:
        assert sum(taken) >= SHORT
        assert max(taken) >= LONG
