"""Paced rounds in random runs: no budget is exceeded, no round begins early, and every ask is served in the end (P1, P5)."""

from collections import Counter

import pytest

from server.model.quota import PreemptionSettings
from tests.effort import TRIES_ALL, cases
from tests.simulation.paced import PacedLife, PacedOutsiders, only_a_part

LIVES: range = range(cases(200))
DISTURBED: range = range(cases(120))
SOAK: int = 10_000
CHUNK: int = 1_000


def seen(life: PacedLife, victims: int) -> Counter[str]:
    """Whether anybody went, whether a budget put anything off, and whether there was more than one round."""
    put_off = any("is put off" in line for line in life.told)
    part = any("pace.naturaltermination allows" in line for line in life.told)
    rounds = len(life.pacer.rounds) > 1
    return Counter(victims=victims > 0, put_off=put_off, part=part, rounds=rounds)


def quietly(seed: int, settings: PreemptionSettings | None = None) -> Counter[str]:
    """Run a scenario that nothing disturbs, and return what happened."""
    life = PacedLife(seed, settings)
    try:
        account = life.run()
        assert list(life.forgotten()) == [], "who was put off must have its turn"
    except AssertionError as fault:
        fault.add_note(f"seed {seed}, {life.settings}")
        raise
    return seen(life, account.victims)


def test_no_budget_is_passed_and_nobody_is_forgotten() -> None:
    found = sum((quietly(seed) for seed in LIVES), Counter[str]())
    if TRIES_ALL:
        assert found["victims"] >= len(LIVES) // 2, found
        assert found["put_off"] >= len(LIVES) // 8, found
        assert found["rounds"] >= len(LIVES) // 8, found


def test_no_round_takes_more_than_its_part_of_the_over_use() -> None:
    """P9: of lives that want much, with no other budget."""
    found = sum((quietly(seed, only_a_part(seed)) for seed in LIVES[1:120:2]), Counter[str]())
    if TRIES_ALL:
        assert found["part"] >= 10, found
        assert found["rounds"] >= 10, found


def disturbed(seed: int) -> Counter[str]:
    """Run a scenario that users, nodes and restarts disturb, and return what happened."""
    happening = PacedOutsiders(seed)
    try:
        account = happening.run()
    except AssertionError as fault:
        fault.add_note(f"seed {seed}, {happening.paced.settings}, {happening.happened}")
        raise
    return seen(happening.paced, account.victims)


def test_no_budget_is_passed_whatever_happens_on_the_way() -> None:
    found = sum((disturbed(seed) for seed in DISTURBED), Counter[str]())
    if TRIES_ALL:
        assert found["victims"] >= len(DISTURBED) // 2, found
        assert found["put_off"] >= len(DISTURBED) // 8, found


def test_the_same_life_is_decided_the_same_way() -> None:
    decided = 0
    for seed in LIVES[:20]:
        one, other = PacedLife(seed), PacedLife(seed)
        one.run()
        other.run()
        assert one.told == other.told, f"seed {seed}"
        decided += any("Decided" in line for line in one.told)
    if TRIES_ALL:
        assert decided >= 5


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1_000, 1_000 + SOAK, CHUNK))
def test_very_many_paced_lives(start: int) -> None:
    for seed in range(start, start + CHUNK):
        quietly(seed)
        disturbed(seed)
