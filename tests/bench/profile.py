"""`make profile`: a flame graph of one workload, and the share of time that each module takes.

py-spy samples the core's process from outside, so the running code is unchanged. The workload runs once for the
picture, and again for the shares. When the system forbids sampling child processes, a message says so.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.bench import cases, page, record
from tests.bench.figures import Case
from tests.bench.players import ROOT

RATE = 1_000
"""Number of samples per second."""
ENOUGH = 2_000
"""Number of samples after which shares hardly change; short workloads run several times."""
RUNS_MAX = 10
SHOWN = 15
BEFORE = (
    "<frozen importlib",
    *(
        f";{name} ({ROOT}/tests/bench/"
        for name in ("_standing", "_filled", "build", "standing", "_first_view")
    ),
)
"""The stack frames of the set-up, before the measurement begins."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The shares of the samples by module of this project or by library."""

    looks: int
    shares: Mapping[str, float]


def looking(form: str, output: Path, *, served: bool) -> tuple[str, ...]:
    """Return the profiler's command, which is put before the command of the core's process.

    The process is stopped for each sample, so that its frames are consistent. Behind gRPC the process runs on and a
    few samples are inconsistent, because stops would divide a series of messages into smaller batches, whose cost
    differs.
    """
    spy = Path(sys.executable).with_name("py-spy")
    options = ("--rate", str(RATE), "--format", form, "--output", str(output), "--full-filenames")
    return str(spy), "record", *options, *(["--nonblocking"] if served else []), "--"


def check() -> None:
    """Check that py-spy may sample child processes. Raise SystemExit with py-spy's message when it may not."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *looking("raw", Path(folder) / "stacks", served=False),
            sys.executable,
            "-c",
            "sum(range(10**7))",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"py-spy cannot look at a process here: {done.stderr}")


def profile(case: Case) -> Profile:
    """Run a case under the profiler until there are enough samples, and return the share of each part."""
    stacks, found = "", Profile(0, {})
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "stacks"
        for _ in range(RUNS_MAX):
            case.run(looking("raw", output, served=case.is_served))
            stacks += output.read_text("utf-8")
            found = read(stacks)
            if found.looks >= ENOUGH:
                break
    return found


def read(stacks: str) -> Profile:
    """Return the profile of lines `frame;frame;frame count`; each line counts for its innermost frame in a home.

    A home is a module of `server` or a library. Time in Python's own modules counts for their caller. Time for imports
    does not count; for measurements in one process, time for the set-up does not count either.
    """
    homes: Counter[str] = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        found = next((home for frame in reversed(frames.split(";")) if (home := _home(frame))), "")
        if found and not any(word in frames for word in BEFORE):
            homes[found] += int(count)
    looks = homes.total()
    return Profile(looks, {home: count / looks for home, count in homes.most_common()})


def _home(frame: str) -> str:
    """Return `server/core/core.py` for `handle (/somewhere/server/core/core.py:12)`, or the name of a library."""
    path = frame.rpartition(" (")[2].rpartition(":")[0]
    if path.startswith(f"{ROOT}/"):
        inner = path.removeprefix(f"{ROOT}/")
        return inner if inner.startswith("server/") else ""
    library = path.partition("site-packages/")[2]
    return library.partition("/")[0]


def _table(case: Case, found: Profile) -> Table:
    table = Table(title=f"{case.name}: {found.looks:,} looks")
    table.add_column("where")
    table.add_column("share", justify="right")
    for home, share in [*found.shares.items()][:SHOWN]:
        table.add_row(home, f"{share:.1%}")
    return table


def main(
    workload: Annotated[str, typer.Argument(help="A part of its name in `make bench`.")],
    output: Annotated[Path, typer.Option(help="Where the flame graph goes.")] = Path(
        ".bench/profile.svg"
    ),
    *,
    keep: Annotated[bool, typer.Option("--record", help="Keep the shares for the docs.")] = False,
) -> None:
    """Draw a flame graph of the first workload with such a name, and say where its time goes."""
    found = [one for one in [*cases.everything(), *cases.quick()] if workload in one.name]
    if not found:
        raise typer.BadParameter(f"no workload's name contains {workload!r}")
    check()
    console = Console()
    output.parent.mkdir(parents=True, exist_ok=True)
    console.print(f"{found[0].name} ...")
    found[0].run(looking("flamegraph", output, served=found[0].is_served))
    shares = profile(found[0])
    console.print(_table(found[0], shares), f"flame graph written to {output}")
    if keep:
        held = record.load()
        assert held is not None, "figures are recorded before profiles"
        record.save(
            record.RECORD, record.profiled(held, found[0].name, shares.looks, shares.shares)
        )
        page.renew()


if __name__ == "__main__":
    typer.run(main)
