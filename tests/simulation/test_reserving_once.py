"""At one instant at most one reservation is made for an ask, and none is made and dropped again."""

from collections import Counter
from collections.abc import Iterable

import pytest

from evenhand_cli.story.play import run
from server.core.core import Core
from server.model.decisions import Decision, Noted
from server.model.reasons import Code
from tests.effort import TRIES_ALL, cases
from tests.simulation.reserved_worlds import eager, reserved

WORLDS = cases(250)
BATCHES = 4


@pytest.mark.parametrize("batch", range(BATCHES))
def test_an_instant_makes_no_reservation_twice_and_none_that_it_drops(batch: int) -> None:
    seen: Counter[Code] = Counter()
    with eager():
        for seed in range(batch * WORLDS, (batch + 1) * WORLDS):
            seen += reserves_once(seed)
    if TRIES_ALL:
        assert seen[Code.RESERVED] > WORLDS // 4
        assert seen[Code.RESERVATION_DROPPED] > WORLDS // 20


def reserves_once(seed: int) -> Counter[Code]:
    """Live through a world, and count the reservations that were made and dropped."""
    world, seen = reserved(seed), Counter[Code]()
    core = Core(world.configuration)
    for now, event in world.moments:
        if event is not None:
            core.take([event], now)
            continue
        found = list(_reservations(run(core, now)))
        made: set[str] = set()
        for key, code in found:
            assert key not in made, f"seed {seed}, {now - world.moments[0][0]} ms: {found}"
            if code is Code.RESERVED:
                made.add(key)
            seen[code] += 1
    return seen


def _reservations(decisions: Iterable[Decision]) -> Iterable[tuple[str, Code]]:
    for one in decisions:
        if isinstance(one, Noted) and one.code in {Code.RESERVED, Code.RESERVATION_DROPPED}:
            yield one.subject, one.code
