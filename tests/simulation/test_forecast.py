"""`simulate config` compared with what then happens: a change is simulated and applied in two equal runs (see `lockstep`)."""

from collections import Counter
from typing import Final

import pytest

from server.core.queries.forecast import forecast
from tests.effort import TRIES_ALL, cases
from tests.simulation.lockstep import compare
from tests.simulation.lockstep_lives import CHANGES, Life

LIVES: Final = cases(24)
LIVES_SOAK: Final = 4_000
CHUNK: Final = 100
LEAST: Final = {
    "victims": 10,
    "lives with victims": 5,
    "delayed decisions": 8,
    "placements": 20,
    "reserved": 20,
    "quota": 1,
    "watched for longer": 1,
    "partial budgets": 8,
}
"""How often things have to happen in the lives of the plain run."""
LEAST_SOAK: Final = {
    **{what: 2 * least for what, least in LEAST.items()},
    **{f"change: {kind}": 1 for kind in CHANGES},
    "begun in mid-tick": 3,
    "gang members placed": 5,
    "decisions for several": 1,
}
"""How often they have to happen in the lives of each chunk of a soak."""


def live(seeds: range, least: dict[str, int]) -> None:
    """Lives one after the other; a failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            found += compare(seed)
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
    if TRIES_ALL:
        rare = {what: found[what] for what, count in least.items() if found[what] < count}
        assert not rare, f"{rare} happened too rarely: {dict(found)}"


def test_what_is_simulated_is_what_happens() -> None:
    live(range(LIVES), LEAST)


def test_decisions_that_only_observe_and_repeat_themselves_end_no_forecast_late() -> None:
    """In this life what is only observed differs with each reservation that comes or ends, and comes back without end."""
    life = Life(5_451)
    life.middle()
    configuration, _ = life.changed()
    found = forecast(life.core, configuration, life.now)
    assert found.complete
    assert found.ticks < 60


@pytest.mark.soak
@pytest.mark.parametrize("first", range(500_000, 500_000 + LIVES_SOAK, CHUNK))
def test_what_is_simulated_is_what_happens_for_long(first: int) -> None:
    live(range(first, first + CHUNK), LEAST_SOAK)
