"""The fast core takes the same steps as the oracle in thousands of small random clusters."""

import os
from collections.abc import Callable

import pytest

from tests.effort import cases
from tests.simulation.classes import classified
from tests.simulation.duel import duel
from tests.simulation.floods import flooded
from tests.simulation.reserved_worlds import eager, reserved, reserved_with_classes
from tests.simulation.shrinking import shrink
from tests.simulation.worlds import World, make_world

BATCH = cases(100)
BATCHES = 16
BATCHES_BY_WEIGHT = 2
BATCHES_WITH_CLASSES = 2
BATCHES_IN_FLOODS = 4
BATCHES_RESERVED = 4
FLOODS = cases(40)
DIFFERED = (10_546, 20_646, 20_761, 23_037, 31_429, 31_934)
"""Applications of which no pod ever ran, the order of reservations and of timers, reserved host ports."""
SOAK_WORLDS = int(os.environ.get("EVENHAND_SOAK_WORLDS", "100000"))
SOAK_BATCHES = 100


def assert_same_steps(
    seeds: range, *, by_weight: bool = False, made: Callable[[int], World] | None = None
) -> None:
    """Print the seed and the shortest trace of the first world in which the two part."""
    for seed in seeds:
        found = duel(made(seed) if made else make_world(seed, by_weight=by_weight))
        if found is not None:
            pytest.fail(f"core and oracle part\n{shrink(found)}")


@pytest.mark.parametrize("batch", range(BATCHES))
def test_core_takes_the_oracles_steps(batch: int) -> None:
    assert_same_steps(range(batch * BATCH, (batch + 1) * BATCH))


@pytest.mark.parametrize("batch", range(BATCHES_BY_WEIGHT))
def test_core_takes_the_oracles_steps_where_queues_share_by_weight(batch: int) -> None:
    assert_same_steps(range(batch * BATCH, (batch + 1) * BATCH), by_weight=True)


@pytest.mark.parametrize("batch", range(BATCHES_WITH_CLASSES))
def test_core_takes_the_oracles_steps_where_asks_have_classes(batch: int) -> None:
    assert_same_steps(range(batch * BATCH, (batch + 1) * BATCH), made=classified)


@pytest.mark.parametrize("batch", range(BATCHES_IN_FLOODS))
def test_core_takes_the_oracles_steps_where_asks_come_in_floods(batch: int) -> None:
    assert_same_steps(range(batch * FLOODS, (batch + 1) * FLOODS), made=flooded)


@pytest.mark.parametrize("batch", range(BATCHES_RESERVED))
def test_core_takes_the_oracles_steps_where_many_nodes_are_reserved(batch: int) -> None:
    with eager():
        assert_same_steps(range(batch * BATCH, (batch + 1) * BATCH), made=reserved)


@pytest.mark.parametrize("seed", DIFFERED)
def test_core_takes_the_oracles_steps_in_worlds_with_reservations_that_once_differed(
    seed: int,
) -> None:
    with eager():
        assert_same_steps(range(seed, seed + 1), made=reserved)


@pytest.mark.parametrize("batch", range(BATCHES_RESERVED))
def test_core_takes_the_oracles_steps_where_nodes_are_reserved_for_classes(batch: int) -> None:
    with eager():
        seeds = range(batch * BATCH, (batch + 1) * BATCH)
        assert_same_steps(seeds, made=reserved_with_classes)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SOAK_BATCHES))
def test_core_takes_the_oracles_steps_with_reservations_for_long(batch: int) -> None:
    with eager():
        assert_same_steps(_soaked(5_000_000, batch, part=4), made=reserved)


def _soaked(first: int, batch: int, part: int = 1) -> range:
    """Return the seeds of one batch, for a test that takes this part of the worlds of a soak."""
    size = SOAK_WORLDS // SOAK_BATCHES // part
    return range(first + batch * size, first + (batch + 1) * size)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SOAK_BATCHES))
def test_core_takes_the_oracles_steps_in_floods_for_long(batch: int) -> None:
    assert_same_steps(_soaked(4_000_000, batch, part=10), made=flooded)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SOAK_BATCHES))
def test_core_takes_the_oracles_steps_with_classes_for_long(batch: int) -> None:
    assert_same_steps(_soaked(3_000_000, batch, part=4), made=classified)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SOAK_BATCHES))
def test_core_takes_the_oracles_steps_by_weight_for_long(batch: int) -> None:
    assert_same_steps(_soaked(2_000_000, batch, part=4), by_weight=True)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SOAK_BATCHES))
def test_core_takes_the_oracles_steps_for_long(batch: int) -> None:
    assert_same_steps(_soaked(1_000_000, batch))
