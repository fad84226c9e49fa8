"""A shim that registers again changes nothing but what changed: its core equals one that heard the changes as they came (C9, C10)."""

from collections import Counter
from typing import Final

import pytest

from tests.effort import TRIES_ALL, cases
from tests.simulation.resumed import Pair

PAIRS: Final = cases(60)
PAIRS_SOAK: Final = 6_000
CHUNK: Final = 300


def live(seeds: range) -> Counter[str]:
    """Compare a pair for each seed; a failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            pair = Pair(seed)
            pair.both()
            found += pair.seen
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
    return found


def test_a_core_that_compares_equals_one_that_was_told_the_changes() -> None:
    found = live(range(PAIRS))
    if TRIES_ALL:
        assert found["sent again"] >= PAIRS // 4, found
        assert found["decided"] >= PAIRS, found


@pytest.mark.soak
@pytest.mark.parametrize("start", range(100_000, 100_000 + PAIRS_SOAK, CHUNK))
def test_very_many_pairs(start: int) -> None:
    live(range(start, start + CHUNK))
