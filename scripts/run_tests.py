"""The tests in four runs.

Tests that can share the machine come first, with two runs of real programs beside them. Tests that measure come last.
Run as `make test`, with `ARGS` for pytest: `make test ARGS="tests/core -k told"`. The first run has one worker for each
processor. Two runs of tests marked `real` are made beside it: one for tests with an API server, one for the others (see
tests/conftest.py). Each makes its tests one after another. Their output comes when they have ended. After these, the
tests marked `alone` run, with nothing beside them.
All runs are made even when one fails. At the end the summary says how long each run took. It also says
which tests were left out, and how to include them.
"""

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

ALWAYS_OUT: Final = "not bench and not soak"
DEFAULT_EFFORT: Final = 10
"""The effort in percent when EVENHAND_EFFORT is not set; tests/effort.py has the same value."""
EFFORT: Final = os.environ.get("EVENHAND_EFFORT") or str(DEFAULT_EFFORT)
PASSED: Final = 0
NOTHING_SELECTED: Final = 5
"""The exit status of pytest when no test was selected."""


@dataclass(frozen=True)
class Run:
    """One run of pytest: its name, the marks that select its tests, and its options."""

    name: str
    marks: str
    options: tuple[str, ...]


WORKERS: Final = os.cpu_count() or 1
SHARED: Final = Run(
    "side by side",
    f"{ALWAYS_OUT} and not alone and not real",
    ("-n", str(WORKERS), "--dist", "worksteal"),
)
BESIDE: Final = (
    Run("API server", f"{ALWAYS_OUT} and real and api_server", ()),
    Run("other real programs", f"{ALWAYS_OUT} and real and not api_server", ()),
)
ALONE: Final = Run("alone", f"{ALWAYS_OUT} and alone and not real", ())


@dataclass
class Outcome:
    """The outcome of a run: the exit status of pytest, seconds and tests.

    The outcome also says how many tests were left out for each reason.
    """

    status: int
    seconds: int
    tests: int = 0
    failed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def read(report: Path, status: int, seconds: int) -> Outcome:
    """Return the outcome from a JUnit report.

    When the run wrote no report, the outcome has only the exit status and the seconds.
    """
    found = Outcome(status, seconds)
    if not report.exists():
        return found
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 -- pytest wrote it just now.
        found.tests += 1
        found.failed += case.find("failure") is not None or case.find("error") is not None
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("type") == "pytest.skip":
            found.left_out[skipped.get("message", "")] += 1
    return found


def run(one: Run, arguments: Sequence[str], report: Path, output: IO[str] | None = None) -> Outcome:
    """Run pytest once and return its outcome.

    The output of pytest goes to `output` or, if that is None, to the output of this process.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-m", one.marks, *one.options]
    command += [f"--junitxml={report}", *arguments]
    measured = {"COVERAGE_FILE": f".coverage.{one.name.replace(' ', '-')}"}
    begun = time.monotonic()  # noqa: TID251 -- a measurement.
    env = os.environ | measured
    done = subprocess.run(command, check=False, stdout=output, stderr=output, env=env)  # noqa: S603 -- the caller's arguments.
    return read(report, done.returncode, round(time.monotonic() - begun))  # noqa: TID251


def summary(outcomes: dict[str, Outcome], effort: str) -> list[str]:
    """Return the lines that end a run: tests and minutes of each part.

    The last lines say which tests were left out, and how to include them.
    """
    lines = [
        f"{name}: {one.tests} tests, {one.failed} failed, {one.seconds // 60} min {one.seconds % 60} s"
        for name, one in outcomes.items()
    ]
    left_out: Counter[str] = sum((one.left_out for one in outcomes.values()), Counter())
    if left_out:
        lines.append(
            f"left out: {left_out.total()} tests that need what is not here; `make real` provides most of it"
        )
        lines += [f"  {many:4}  {why}" for why, many in left_out.most_common()]
    lines.append(
        f"effort of random tests: {effort} %; EVENHAND_EFFORT=100 make test tries all cases"
    )
    lines.append("left out always: benchmarks (`make bench`) and long random runs (`make soak`)")
    return lines


def verdict(outcomes: Sequence[Outcome]) -> int:
    """Return the exit status for all runs.

    A run without tests is a failure only when all runs had none.
    """
    failed = [one.status for one in outcomes if one.status not in {PASSED, NOTHING_SELECTED}]
    if failed:
        return failed[0]
    return PASSED if any(one.status == PASSED for one in outcomes) else NOTHING_SELECTED


def main(arguments: Sequence[str]) -> int:
    """Make all runs and print the summary; return the exit status."""
    outcomes: dict[str, Outcome] = {}
    with TemporaryDirectory() as made, ThreadPoolExecutor(len(BESIDE)) as beside:
        folder = Path(made)
        waiting = {one.name: beside.submit(_aside, one, arguments, folder) for one in BESIDE}
        names = " and ".join(waiting)
        _say(f"Tests {SHARED.name}; beside them, with output at their end, those of {names}")
        outcomes[SHARED.name] = run(SHARED, arguments, folder / "shared.xml")
        for name, one in waiting.items():
            outcomes[name] = one.result()
            _say(f"Tests of {name}:\n{_log(folder, name).read_text(errors='replace')}")
        _say(f"Tests {ALONE.name}:")
        outcomes[ALONE.name] = run(ALONE, arguments, folder / "alone.xml")
    _say("\n".join(["", *summary(outcomes, EFFORT)]))
    return verdict(list(outcomes.values()))


def _aside(one: Run, arguments: Sequence[str], folder: Path) -> Outcome:
    """Make a run whose output goes to a file."""
    with _log(folder, one.name).open("w") as output:
        return run(one, arguments, folder / f"{one.name}.xml", output)


def _log(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
