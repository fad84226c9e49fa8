"""Each seeded defect is caught by the part of the suite that it names, which the healthy core passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.defects import DEFECTS
from tests.mutants.infected import CAUGHT, GONE
from tests.mutants.judges import example

ROOT = Path(__file__).parents[2]
DEFECTS_LEAST = 40


@pytest.mark.parametrize("number", range(len(DEFECTS)), ids=[defect.name for defect in DEFECTS])
def test_defect_is_caught(number: int) -> None:
    defect = DEFECTS[number]
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    command = [sys.executable, "-m", "tests.mutants.infected", str(number)]
    environment = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False, text=True
    )
    assert run.returncode != GONE, f"the text of {defect} is not there exactly once"
    assert run.returncode == CAUGHT, f"not noticed by {defect.judge.value}: {run.stderr}"
    example(defect, run.stdout).run()


def test_there_are_enough_defects() -> None:
    assert (
        len({(defect.module, defect.text) for defect in DEFECTS}) == len(DEFECTS) >= DEFECTS_LEAST
    )
