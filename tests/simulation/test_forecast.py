"""`simulate config` against what then happens: the same change is simulated, applied, and lived in lock-step (see `lockstep`)."""

from collections import Counter
from typing import Final

import pytest

from tests.simulation.lockstep import compare

LIVES: Final = 24
LIVES_SOAK: Final = 4_000
CHUNK: Final = 100
LEAST: Final = {"victims": 5, "lives with victims": 3, "watched for longer": 3}
"""How often things have to happen in the lives of the plain run."""


def live(seeds: range) -> Counter[str]:
    """Lives one after the other; a failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            found += compare(seed)
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
    return found


def test_what_is_simulated_is_what_happens() -> None:
    found = live(range(LIVES))
    rare = {what: found[what] for what, least in LEAST.items() if found[what] < least}
    assert not rare, f"{rare} happened too rarely: {dict(found)}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(500_000, 500_000 + LIVES_SOAK, CHUNK))
def test_what_is_simulated_is_what_happens_for_long(first: int) -> None:
    live(range(first, first + CHUNK))
