"""Restarts at any moment: no eviction is in vain, every decision ends, quotas wait again (invariants 17, 19, Q7)."""

from collections import Counter
from typing import Final

import pytest

from tests.effort import TRIES_ALL, cases
from tests.simulation.restarts import Life

LIVES: Final = cases(18)
STEPS: Final = 25
LIVES_SOAK: Final = 4_000
CHUNK: Final = 200


def live(seeds: range, steps: int = STEPS) -> Counter[str]:
    """Lives one after the other; a failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            found += Life(seed).run(steps)
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
    return found


def test_a_restart_in_mid_decision_costs_nobody_else_its_place() -> None:
    found = live(range(LIVES))
    if TRIES_ALL:
        assert found["restarts in mid-decision"] >= LIVES // 2, found
        assert found["compared"] >= LIVES, found
        assert found["kept decisions"] >= LIVES // 2, found
        assert found["claims soon"] >= 5 * LIVES, found
        assert found["armed"] >= LIVES // 4, found
        for name in ("guaranteed", "required-node", "quota", "aborted", "expired"):
            assert found[name] >= LIVES // 5, found


@pytest.mark.soak
@pytest.mark.parametrize("start", range(100_000, 100_000 + LIVES_SOAK, CHUNK))
def test_very_many_restarts(start: int) -> None:
    live(range(start, start + CHUNK), 40)
