"""Preemption ends: in random trees whose victims come back at once, evictions stop and no rule is violated."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from tests.effort import cases
from tests.preemption.claim_clusters import Dice, LayeredDice, WeightedDice
from tests.simulation.outsiders import Outsiders
from tests.simulation.termination import Account, Life

CLUSTERS: Final = cases(250)
DISTURBED: Final = cases(150)
BY_WEIGHT: Final = cases(40)
LAYERED: Final = cases(120)
CLUSTERS_SOAK: Final = 20_000
LAYERED_SOAK: Final = 100_000
CLAIMS_MOST: Final = 8
"""Claims between two events from outside where levels guarantee different types."""
CHUNK: Final = 1_000


def quietly(seeds: range, by: type[Dice] = Dice) -> Counter[str]:
    """Clusters that nothing happens to from outside."""
    return _live(seeds, lambda seed: Life(seed, by).run())


def disturbed(seeds: range, by: type[Dice] = Dice) -> Counter[str]:
    """Clusters that users, nodes and restarts happen to."""
    return _live(seeds, lambda seed: Outsiders(seed, Life(seed, by)).run())


def _live(seeds: range, live: Callable[[int], Account]) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            account = live(seed)
        except AssertionError as fault:
            fault.add_note(f"seed {seed}")
            raise
        found += Counter(claims=account.claims, victims=account.victims)
        found["clusters"] += account.victims > 0
        found["most"] = max(found["most"], account.claims)
        found["at once"] = max(found["at once"], account.most_at_once)
    return found


def test_claims_come_to_an_end() -> None:
    assert quietly(range(CLUSTERS))["clusters"] >= CLUSTERS // 5


def test_claims_come_to_an_end_whatever_happens_on_the_way() -> None:
    assert disturbed(range(DISTURBED))["clusters"] >= DISTURBED // 5


def test_claims_where_levels_guarantee_different_types_come_to_an_end() -> None:
    found = quietly(range(LAYERED), LayeredDice)
    assert found["clusters"] >= LAYERED // 5
    assert found["at once"] <= CLAIMS_MOST, found
    assert disturbed(range(LAYERED // 4), LayeredDice)["clusters"] >= LAYERED // 20


def test_claims_by_weight_come_to_an_end() -> None:
    assert quietly(range(BY_WEIGHT), WeightedDice)["clusters"] >= BY_WEIGHT // 5


def test_claims_by_weight_come_to_an_end_whatever_happens_on_the_way() -> None:
    assert disturbed(range(BY_WEIGHT), WeightedDice)["clusters"] >= BY_WEIGHT // 5


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(LAYERED_SOAK // CHUNK))
def test_claims_of_very_many_layered_clusters_come_to_an_end(chunk: int) -> None:
    found = quietly(range(chunk * CHUNK, (chunk + 1) * CHUNK), LayeredDice)
    assert found["at once"] <= CLAIMS_MOST, found
    disturbed(range(chunk * CHUNK, chunk * CHUNK + CHUNK // 10), LayeredDice)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_claims_by_weight_of_very_many_clusters_come_to_an_end(chunk: int) -> None:
    quietly(range(chunk * CHUNK, (chunk + 1) * CHUNK), WeightedDice)
    disturbed(range(chunk * CHUNK, (chunk + 1) * CHUNK), WeightedDice)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_claims_of_very_many_clusters_come_to_an_end(chunk: int) -> None:
    quietly(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    disturbed(range(chunk * CHUNK, (chunk + 1) * CHUNK))
