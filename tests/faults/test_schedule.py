"""A seed determines the whole schedule of faults, and each run has each kind of fault."""

import pytest

from tests.faults.effects import EFFECTS
from tests.faults.run import FAULTS
from tests.faults.schedule import ALONE, KINDS, OPERATOR, schedule


def test_a_seed_gives_the_same_faults() -> None:
    assert schedule(7, 60) == schedule(7, 60)
    assert schedule(7, 60) != schedule(8, 60)


@pytest.mark.parametrize("seconds", [1, 300])
def test_every_kind_is_dealt_equally_often(seconds: int) -> None:
    kinds = [fault.kind for fault in schedule(7, seconds)]
    assert set(kinds) == set(KINDS)
    assert len({kinds.count(kind) for kind in KINDS}) == 1


def test_every_kind_can_be_injected() -> None:
    assert set(FAULTS) == set(EFFECTS) == set(KINDS)


def test_kills_fall_into_the_midst_of_other_faults() -> None:
    amid = {fault.kind for fault in schedule(7, 3_600) if fault.kill_amid}
    assert amid == set(KINDS) - ALONE


def test_configurations_are_applied_in_the_midst_of_other_faults() -> None:
    amid = {fault.kind for fault in schedule(7, 7_200) if fault.apply_amid}
    assert amid == set(KINDS) - ALONE - set(OPERATOR)


def test_faults_of_some_kinds_alone() -> None:
    kinds = ("net-cut", "disk-full")
    assert {fault.kind for fault in schedule(7, 60, kinds)} == set(kinds)
