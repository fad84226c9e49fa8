"""Each seeded defect is caught by the oracle or by `validate` within a bounded number of worlds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.defects import DEFECTS
from tests.mutants.infected import CAUGHT, GONE

ROOT = Path(__file__).parents[2]
WORLDS = 400
DEFECTS_LEAST = 12


@pytest.mark.parametrize("number", range(len(DEFECTS)), ids=[defect.name for defect in DEFECTS])
def test_defect_is_caught(number: int) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    command = [sys.executable, "-m", "tests.mutants.infected", str(number), str(WORLDS)]
    environment = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False
    )
    assert run.returncode != GONE, f"the text of {DEFECTS[number]} is not there exactly once"
    assert run.returncode == CAUGHT, f"not noticed in {WORLDS} worlds: {run.stderr.decode()}"
    assert run.stdout.startswith(b"seed ")


def test_there_are_enough_defects() -> None:
    assert (
        len({(defect.module, defect.text) for defect in DEFECTS}) == len(DEFECTS) >= DEFECTS_LEAST
    )
