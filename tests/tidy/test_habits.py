"""The commands of development: what `make test` reports, how many cases random tests try, which subjects commits may have."""

import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import yaml

from scripts import ci_effort, commit_subject, run_tests
from scripts.run_tests import NOTHING_SELECTED, Outcome
from tests import effort, folders

ROOT = Path(__file__).parents[2]
FAILED = 1


def test_a_report_says_what_failed_and_what_was_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(
        "import pytest\n"
        "def test_one(): pass\n"
        "def test_two(): assert False\n"
        "def test_three(): pytest.skip('kubectl is not here')\n"
        "@pytest.mark.xfail\n"
        "def test_four(): assert False\n"
    )
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", f"--junitxml={report}", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    found = run_tests.read(report, done.returncode, 61)
    assert found == Outcome(FAILED, 61, 4, 1, Counter({"kubectl is not here": 1}))
    lines = run_tests.summary({"alone": found}, "20")
    assert lines[0] == "alone: 4 tests, 1 failed, 1 min 1 s"
    assert any("make real" in line for line in lines)
    assert any("kubectl is not here" in line for line in lines)


def test_a_run_that_wrote_no_report_has_its_status(tmp_path: Path) -> None:
    assert run_tests.read(tmp_path / "none.xml", FAILED, 1) == Outcome(FAILED, 1)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((0, 0, 0), 0),
        ((0, NOTHING_SELECTED, NOTHING_SELECTED), 0),
        ((NOTHING_SELECTED, NOTHING_SELECTED, NOTHING_SELECTED), NOTHING_SELECTED),
        ((0, 1, 0), 1),
        ((NOTHING_SELECTED, 2, 0), 2),
    ],
)
def test_one_failed_run_fails_all(statuses: tuple[int, ...], expected: int) -> None:
    assert run_tests.verdict([Outcome(one, 0) for one in statuses]) == expected


def test_each_test_is_in_exactly_one_run() -> None:
    marks = [one.marks for one in (run_tests.SHARED, *run_tests.BESIDE, run_tests.ALONE)]
    for values in product((False, True), repeat=3):
        known = {"bench": False, "soak": False}
        known |= dict(zip(("real", "api_server", "alone"), values, strict=True))
        chosen = [one for one in marks if eval(one, {}, known)]  # noqa: S307 -- words of this project.
        assert len(chosen) == 1, known


def test_every_module_is_collected_in_the_run_of_its_tests() -> None:
    """A run reads the folders of its tests only: a module of another folder must not belong to the run."""
    alone = {
        path.parent.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^(pytestmark = |    )pytest\.mark\.alone\b", path.read_text(), re.MULTILINE)
    }
    assert alone == folders.ALONE
    assert folders.API_SERVER < folders.REAL
    for one, wanted in zip(
        (*run_tests.BESIDE, run_tests.ALONE),
        (folders.API_SERVER, folders.REAL - folders.API_SERVER, folders.ALONE),
        strict=True,
    ):
        left_out = {option.removeprefix("--ignore=tests/") for option in one.options}
        there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
        assert there - left_out == wanted
    named = folders.UNAIDED | folders.LONGEST
    assert all((ROOT / "tests" / name).is_file() for name in named)


@pytest.mark.parametrize(
    ("arguments", "required", "expected"),
    [
        ([], False, [["side by side"], ["alone"]]),
        ([], True, [["side by side", "API server", "other real programs"], ["alone"]]),
        (["-k", "told"], False, [["side by side", "API server", "other real programs"], ["alone"]]),
        (["--real"], False, [["API server", "other real programs"]]),
        (["--real", "-x"], True, [["API server", "other real programs"]]),
    ],
)
def test_real_programs_take_part_where_they_are_wanted(
    arguments: list[str], *, required: bool, expected: list[list[str]]
) -> None:
    chosen = run_tests.stages(arguments, required=required)
    assert [[one.name for one in stage] for stage in chosen] == expected


def test_the_summary_names_the_real_programs_that_took_no_part() -> None:
    ended = {one.name: Outcome(0, 1) for one in (run_tests.SHARED, *run_tests.BESIDE)}
    assert not any("make test-real" in line for line in run_tests.summary(ended, "10"))
    del ended["API server"], ended["other real programs"]
    assert any("make test-real" in line for line in run_tests.summary(ended, "10"))


def test_the_script_and_the_tests_know_the_same_default() -> None:
    assert run_tests.DEFAULT_EFFORT == effort.DEFAULT


@pytest.mark.parametrize(
    ("full", "least", "percent", "expected"),
    [(400, 1, 100, 400), (400, 1, 20, 80), (400, 1, 250, 1_000), (3, 1, 20, 1), (3, 2, 20, 2), (2, 5, 20, 2)],
)  # fmt: skip
def test_cases_follow_the_effort(full: int, least: int, percent: int, expected: int) -> None:
    assert effort.cases(full, least, percent) == expected


@pytest.mark.parametrize(
    ("many", "least", "percent", "expected"),
    [
        (4, 1, 100, [0, 1, 2, 3]),
        (4, 1, 500, [0, 1, 2, 3]),
        (4, 1, 50, [0, 2]),
        (4, 1, 1, [0]),
        (5, 2, 10, [0, 2]),
        (2, 3, 10, [0, 1]),
    ],
)
def test_a_small_effort_draws_evenly_from_a_table(
    many: int, least: int, percent: int, expected: list[int]
) -> None:
    assert effort.drawn(range(many), least, percent) == expected


@pytest.mark.parametrize(
    ("seconds", "percent"), [(0.04, 100), (0.0749, 100), (0.075, 40), (0.2, 40)]
)
def test_ci_tries_all_cases_unless_the_machine_is_slow(seconds: float, percent: int) -> None:
    assert ci_effort.effort(seconds) == percent


@pytest.mark.parametrize("said", ["0", "-1", "many", "1.5"])
def test_a_bad_effort_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="EVENHAND_EFFORT is a percentage"):
        effort.percentage(said)


@pytest.mark.parametrize(
    "subject",
    [
        "quota: keep the timer when only a weight changes",
        "core, state: name each part",
        'Revert "rpc: send the headers first"',
    ],
)
def test_a_good_subject(subject: str) -> None:
    assert commit_subject.problem(subject) is None


@pytest.mark.parametrize(
    "subject", ["", "Fixed it", "quota: keep the timer.", "quota: " + "x" * 70]
)
def test_a_bad_subject_is_refused(subject: str, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text(subject + "\n\nWhy.\n")
    assert commit_subject.main(str(message)) == 1


def test_the_hooks_run_programs_that_are_there() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert all(one["repo"] == "local" for one in hooks), "nothing is downloaded"
    entries = [hook["entry"].split()[0] for one in hooks for hook in one["hooks"]]
    assert all((ROOT / one).exists() for one in entries)
