"""Paced rounds in random lives: no budget is passed, no round comes early, everybody is served in the end (P1, P5)."""

import pytest

from tests.simulation.paced import PacedLife, PacedOutsiders

LIVES: range = range(200)
DISTURBED: range = range(120)
SOAK: int = 10_000
CHUNK: int = 1_000


def quietly(seed: int) -> tuple[int, bool]:
    """Victims of a life, and whether a budget put anything off."""
    life = PacedLife(seed)
    try:
        account = life.run()
        assert list(life.forgotten()) == [], "who was put off must have its turn"
    except AssertionError as fault:
        fault.add_note(f"seed {seed}, {life.settings}")
        raise
    return account.victims, any("is put off" in line for line in life.told)


def test_no_budget_is_passed_and_nobody_is_forgotten() -> None:
    found = [quietly(seed) for seed in LIVES]
    assert sum(victims > 0 for victims, _ in found) >= len(LIVES) // 5
    assert sum(put_off for _, put_off in found) >= len(LIVES) // 50


def disturbed(seed: int) -> None:
    happening = PacedOutsiders(seed)
    try:
        happening.run()
    except AssertionError as fault:
        fault.add_note(f"seed {seed}, {happening.paced.settings}, {happening.happened}")
        raise


def test_no_budget_is_passed_whatever_happens_on_the_way() -> None:
    for seed in DISTURBED:
        disturbed(seed)


def test_the_same_life_is_decided_the_same_way() -> None:
    for seed in LIVES[:20]:
        one, other = PacedLife(seed), PacedLife(seed)
        one.run()
        other.run()
        assert one.told == other.told, f"seed {seed}"


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1_000, 1_000 + SOAK, CHUNK))
def test_very_many_paced_lives(start: int) -> None:
    for seed in range(start, start + CHUNK):
        quietly(seed)
        disturbed(seed)
