"""The core as a process under every kind of fault, judged from outside; EVENHAND_SEED gives a seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import ROOT, environment
from tests.faults.__main__ import namespace
from tests.faults.schedule import DISK
from tests.real.needs import absent

SOAK_MINUTES = float(os.environ.get("EVENHAND_FAULTS_MINUTES", "60"))
RUN_MINUTES = 3
"""Of one seed in a soak: then the next one begins, with a new log."""
SEED = int(os.environ.get("EVENHAND_SEED", "1"))


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    said = subprocess.run([*namespace(), "true"], capture_output=True, text=True, check=False)
    if said.returncode:
        absent(f"a mount namespace cannot be made: {said.stderr.strip()}")


def run(seed: int, minutes: float, folder: Path, *only: str) -> None:
    """Run one seed; what was wrong is the message."""
    command = [sys.executable, "-m", "tests.faults", "--seed", str(seed)]
    command += ["--minutes", f"{minutes:g}", "--folder", str(folder)]
    command += ["--only", *only] if only else []
    said = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_kind_of_fault_once(tmp_path: Path) -> None:
    run(SEED, 0.1, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 1 + int(SOAK_MINUTES / RUN_MINUTES)))
def test_faults_for_an_hour(tmp_path: Path, seed: int) -> None:
    run(seed, RUN_MINUTES, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_disks_that_fail_under_cores_that_are_killed(tmp_path: Path, seed: int) -> None:
    run(seed, RUN_MINUTES, tmp_path, *DISK, "core-killed")
