"""Each seeded defect is caught by the tests that it names; without the defect these tests pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import drawn
from tests.mutants.defects import DEFECTS, Policy
from tests.mutants.infected import CAUGHT, GONE
from tests.mutants.judges import example

ROOT = Path(__file__).parents[2]
EACH_LEAST = 5
TRIED = drawn(range(len(DEFECTS)))
"""The numbers of the defects that are seeded: all of them, or every fifth at an effort of 20 %."""
POLICIES = (
    Policy.QUOTA,
    Policy.GUARANTEED,
    Policy.ROUNDS,
    Policy.JOB,
    Policy.PROPORTION,
    Policy.REQUIRED_NODE,
    Policy.IN_QUEUE,
    Policy.TRIM,
)
"""Those of the five designs, and what stands beside them."""


def _run(number: int) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    command = [sys.executable, "-m", "tests.mutants.infected", str(number)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, timeout=600, check=False, text=True
    )


@pytest.mark.parametrize("number", TRIED, ids=[DEFECTS[number].name for number in TRIED])
def test_defect_is_caught(number: int) -> None:
    defect, run = DEFECTS[number], _run(number)
    assert run.returncode != GONE, f"the text of {defect} is not there exactly once"
    assert run.returncode == CAUGHT, f"not noticed by {defect.judge.value}: {run.stderr}"
    example(defect, run.stdout).run()


def test_what_each_defect_replaces_is_there_once() -> None:
    gone = [one.name for one in DEFECTS if _source(one.module).count(one.text) != 1]
    assert not gone, "the core's text was changed: say the defect in its new words"


def _source(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def test_no_two_defects_change_the_same_text() -> None:
    assert len({(defect.module, defect.text) for defect in DEFECTS}) == len(DEFECTS)


@pytest.mark.parametrize("policy", POLICIES, ids=[policy.name for policy in POLICIES])
def test_each_policy_has_enough_defects(policy: Policy) -> None:
    assert sum(defect.policy is policy for defect in DEFECTS) >= EACH_LEAST
