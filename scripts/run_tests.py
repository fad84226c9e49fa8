"""The tests in up to four runs.

Tests that can share the machine come first, with two runs of real programs beside them. Tests that measure come last.
Run as `make test`, with `ARGS` for pytest: `make test ARGS="tests/core -k told"`. The first run has a worker or two more
than there are processors. Two runs of tests marked `real` are made beside it: one for tests with an API server, one for
the others (see tests/folders.py). Each makes its tests one after another. Their output comes when they have ended. After
these, the tests marked `alone` run, with nothing beside them.

`make test` without `ARGS` leaves out the two runs of real programs, unless REQUIRE_REAL is set, as in `.ci/run`.
`make test-real` (the option `--real`) makes these two only.
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

from tests.folders import ALONE as WITH_ALONE
from tests.folders import API_SERVER, REAL, only

ALWAYS_OUT: Final = "not bench and not soak"
DEFAULT_EFFORT: Final = 10
"""The effort in percent when EVENHAND_EFFORT is not set; tests/effort.py has the same value."""
EFFORT: Final = os.environ.get("EVENHAND_EFFORT") or str(DEFAULT_EFFORT)
PASSED: Final = 0
NOTHING_SELECTED: Final = 5
"""The exit status of pytest when no test was selected."""
REAL_ONLY: Final = "--real"
REQUIRED: Final = os.environ.get("REQUIRE_REAL") == "1"
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""The variable that forbids compiled modules. Hundreds of processes start in a run; each would compile all its modules."""

DURATION: Final = {
    False: "About ten minutes on two processors. Real programs, benchmarks and long random runs are left out.",
    True: "About 35 minutes on two processors at an effort of 100 %, with real programs.",
}
"""What a run says at its start, by whether real programs are required."""


@dataclass(frozen=True)
class Run:
    """One run of pytest: its name, the marks that select its tests, and its options."""

    name: str
    marks: str
    options: tuple[str, ...]


PROCESSORS: Final = os.cpu_count() or 1


def side_by_side(workers: int) -> Run:
    """Return the run of the tests that can share the machine, with as many of them at the same time as there are workers."""
    options = ("-n", str(workers), "--dist", "worksteal")
    return Run("side by side", f"{ALWAYS_OUT} and not alone and not real", options)


SHARED: Final = side_by_side(PROCESSORS + 1)
"""The run that has others beside it. Most tests wait at times for processes, so the processors have time for one more."""
SHARED_ONLY: Final = side_by_side(PROCESSORS + 2)
"""The run that has no others beside it."""
BESIDE: Final = (
    Run("API server", f"{ALWAYS_OUT} and real and api_server", only(API_SERVER)),
    Run(
        "other real programs", f"{ALWAYS_OUT} and real and not api_server", only(REAL - API_SERVER)
    ),
)
ALONE: Final = Run("alone", f"{ALWAYS_OUT} and alone and not real", only(WITH_ALONE))


def stages(arguments: Sequence[str], *, required: bool) -> tuple[tuple[Run, ...], ...]:
    """Return the runs of each stage, one stage after another; the runs of a stage are made at the same time.

    `make test` without arguments takes minutes, so it leaves out the real programs, unless they are `required`. Arguments
    select among all tests.
    """
    if REAL_ONLY in arguments:
        return (BESIDE,)
    shared = (SHARED, *BESIDE) if arguments or required else (SHARED_ONLY,)
    return (shared, (ALONE,))


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
    env = {name: value for name, value in os.environ.items() if name != NO_BYTECODE} | measured
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
    if not {one.name for one in BESIDE} & set(outcomes):
        lines.append(
            "left out: tests with an API server, containers, a browser, injected faults and clients; `make test-real`"
            " runs them, and `make real` provides the programs"
        )
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
    chosen = stages(arguments, required=REQUIRED)
    given = [one for one in arguments if one != REAL_ONLY]
    if not arguments:
        _say(DURATION[REQUIRED])
    outcomes: dict[str, Outcome] = {}
    with TemporaryDirectory() as made:
        for stage in chosen:
            outcomes |= _stage(stage, given, Path(made))
    _say("\n".join(["", *summary(outcomes, EFFORT)]))
    return verdict(list(outcomes.values()))


def _stage(stage: Sequence[Run], arguments: Sequence[str], folder: Path) -> dict[str, Outcome]:
    """Make the runs of a stage at the same time; the output of all but the first one follows at the end."""
    first, *others = stage
    with ThreadPoolExecutor(len(stage)) as beside:
        waiting = {one.name: beside.submit(_aside, one, arguments, folder) for one in others}
        names = " and ".join(waiting)
        also = f"; beside them, with output at their end, those of {names}" if others else ""
        _say(f"Tests {first.name}{also}:")
        outcomes = {first.name: run(first, arguments, folder / f"{first.name}.xml")}
        for name, one in waiting.items():
            outcomes[name] = one.result()
            _say(f"Tests of {name}:\n{_log(folder, name).read_text(errors='replace')}")
    return outcomes


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
