"""A real cluster's pods with several GPUs as gangs: none is placed in part, and no eviction is in vain (J8, J10)."""

import pytest

from tests.realdata.gangs import Gangs

SEVERAL_GPUS = 75
"""Pods of this cluster that want two GPUs or more."""


@pytest.fixture(scope="module")
def gangs() -> Gangs:
    """Provide the finished run on the whole trace, with the invariants checked at the end."""
    found = Gangs()
    found.fill()
    found.claim()
    return found


def test_no_gang_is_ever_placed_in_part(gangs: Gangs) -> None:
    assert len(gangs.sizes) > 10
    assert sum(gangs.sizes.values()) == SEVERAL_GPUS
    assert gangs.whole
    assert gangs.partly == []


def test_no_rule_is_broken(gangs: Gangs) -> None:
    assert gangs.report.broken == []
    assert gangs.report.victims


def test_every_decision_is_fulfilled(gangs: Gangs) -> None:
    """Each decision with victims ends with a whole gang placed."""
    assert set(gangs.report.ends) == {"fulfilled"}
