"""Two cores that follow each other and two shims of which one is elected: killed in random order, and cut off from each other.

Some runs join the cores by a log of NATS, whose server is killed and cut off, too.

EVENHAND_SEED sets the seed, and EVENHAND_KILLS the number of kills of a soak test.
"""

import os
from pathlib import Path

import pytest

from tests.effort import cases
from tests.faults.pairs.schedule import (
    DIRECTIONS,
    ENGINE,
    LINKS,
    NATS_LINKS,
    ROLES,
    Cut,
    Kill,
    schedule,
)
from tests.faults.seeds import SEED, report_of
from tests.replication.engine import program

MODULE = "tests.faults.pairs"
KILLS, NATS_KILLS = cases(40, 8), cases(10, 2)
CUTS, NATS_CUTS = cases(6, 1), cases(4, 1)
SOAK_KILLS = int(os.environ.get("EVENHAND_KILLS", "1000"))
RUN_KILLS = 50
"""Kills of one seed in a soak test; then the next seed begins, with new processes and new folders."""
EVERY_CUT = len(LINKS) * len(DIRECTIONS)
EVERY_NATS_CUT = len(NATS_LINKS) * len(DIRECTIONS)

needs_namespaces = pytest.mark.usefixtures("namespaces")


def run(seed: int, folder: Path, kills: int, cuts: int, *, nats: bool = False) -> None:
    """Run one seed; an error's message says what was wrong."""
    if nats:
        program()
    options = ("--kills", str(kills), "--cuts", str(cuts), *(["--nats"] if nats else []))
    print(report_of(MODULE, seed, folder, *options))  # noqa: T201


@needs_namespaces
def test_kills_and_cut_networks(tmp_path: Path) -> None:
    run(SEED, tmp_path, KILLS, CUTS)


@needs_namespaces
def test_kills_and_cut_networks_with_nats(tmp_path: Path) -> None:
    run(SEED, tmp_path, NATS_KILLS, NATS_CUTS, nats=True)


@needs_namespaces
@pytest.mark.soak
@pytest.mark.parametrize("number", range(-(-SOAK_KILLS // RUN_KILLS)))
def test_kills_for_long(tmp_path: Path, number: int) -> None:
    kills = min(RUN_KILLS, SOAK_KILLS - number * RUN_KILLS)
    run(SEED + 1 + number, tmp_path, kills, 0, nats=bool(number // 2 % 2))


@needs_namespaces
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_every_network_is_cut(tmp_path: Path, seed: int) -> None:
    nats = seed >= SEED + 2
    run(seed, tmp_path, 0, EVERY_NATS_CUT if nats else EVERY_CUT, nats=nats)


def test_a_seed_gives_the_same_kills_and_cuts() -> None:
    assert schedule(7, 50, 21) == schedule(7, 50, 21)
    assert schedule(7, 50, 21) != schedule(8, 50, 21)


def test_every_role_is_killed_and_every_network_is_cut() -> None:
    dealt = schedule(7, 50, EVERY_CUT)
    kills = [one for one in dealt if isinstance(one, Kill)]
    cuts = [one for one in dealt if isinstance(one, Cut)]
    roles = [one.role for one in kills]
    assert {roles.count(role) for role in ROLES} == {12, 13}
    assert len({(one.link, one.direction) for one in cuts}) == len(cuts) == EVERY_CUT
    with_nats = schedule(7, 50, EVERY_NATS_CUT, nats=True)
    roles = [one.role for one in with_nats if isinstance(one, Kill)]
    assert {roles.count(role) for role in (*ROLES, ENGINE)} == {10}
    cut = {(one.link, one.direction) for one in with_nats if isinstance(one, Cut)}
    assert {link for link, _ in cut} == {*NATS_LINKS}
    assert len(cut) == EVERY_NATS_CUT
