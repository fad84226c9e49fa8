"""`make bench`: it runs the workloads, prints a table with medians and best values, and saves the figures as JSON."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench import cases, page, record
from tests.bench.calibration import calibrate
from tests.bench.figures import Case, Row, Sample, row
from tests.bench.quiet import Quiet, quietest
from tests.bench.report import table

WIDTH = 230
"""The width of the table in columns when the table is written to a file."""
TRIES = 20
"""Maximum number of tries of a case, as a multiple of the wanted runs, while other programs disturb the core."""
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of runs of each case: a case runs until the wanted number of runs was undisturbed, but at most `tries` times.

    After `patience` seconds no further runs are made, if there are as many runs as wanted.
    """

    runs: int
    tries: int
    quiet: Quiet = field(default_factory=Quiet)
    patience: float = PATIENCE_S

    def is_enough(self, samples: Sequence[Sample], seconds: float) -> bool:
        """Return whether the case has been run often enough."""
        if len(samples) < self.runs:
            return False
        quiet = sum(map(self.quiet.is_quiet, samples)) >= self.runs
        return quiet or len(samples) >= self.tries or seconds > self.patience


def measure(case: Case, plan: Plan) -> list[Row]:
    """Run a case several times, each between two calibration loops, and return a row for each of its metrics.

    Only the least disturbed runs count.
    """
    samples: list[Sample] = []
    begun, before = time.monotonic(), calibrate()
    while not plan.is_enough(samples, time.monotonic() - begun):
        found = case.run(())
        after = calibrate()
        samples.append(Sample(found, (before + after) / 2, os.getloadavg()[0]))
        before = after
        plan.quiet.hear(samples[-1])
    kept = quietest(samples, plan.runs)
    return [row(case, metric, kept, samples) for metric in case.metrics]


def measure_all(
    wanted: Sequence[Case], plan: Plan, console: Console
) -> tuple[list[Row], list[str]]:
    """Measure all cases, and return their rows and the names of those that failed; the console shows progress."""
    parts = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    rows: list[Row] = []
    failed: list[str] = []
    with Progress(*parts, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=len(wanted))
        for case in wanted:
            progress.update(task, description=case.name)
            if not console.is_terminal:
                console.print(case.name, soft_wrap=True)
            try:
                rows += measure(case, plan)
            except Exception as error:
                # One failed case must not lose the figures of the others, which took an hour.
                failed.append(case.name)
                console.print(f"{case.name} failed: {error!r}", style="red", soft_wrap=True)
            progress.advance(task)
    return rows, failed


def main(  # noqa: PLR0913 - the options of a command
    runs: Annotated[int, typer.Option(help="Quiet runs of each workload.", min=1)] = 5,
    only: Annotated[str, typer.Option(help="Run the workloads whose name contains this.")] = "",
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path(
        ".bench/last.json"
    ),
    *,
    patience: Annotated[
        float, typer.Option(help="Seconds in which quiet runs of a workload are waited for.")
    ] = PATIENCE_S,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small ones, to see that all works.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--record", help="These are the figures that later ones are compared with."),
    ] = False,
) -> None:
    """Measure the whole core, in process and through gRPC."""
    if quick and keep:
        raise typer.BadParameter("tiny workloads are nothing to compare with")
    console = Console(stderr=True)
    wanted = [one for one in (cases.quick() if quick else cases.everything()) if only in one.name]
    if not wanted:
        raise typer.BadParameter(f"no workload's name contains {only!r}")
    before = record.load()
    plan = Plan(runs, runs if quick else TRIES * runs, Quiet(record.least_pace(before)), patience)
    rows, failed = measure_all(wanted, plan, console)
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows, before))
    figures = record.taken(rows)
    record.save(output, figures)
    console.print(f"figures written to {output}")
    if keep:
        order = [one.name for one in cases.everything()]
        record.save(record.RECORD, record.merged(figures, before, order))
        page.renew()
        console.print(f"recorded in {record.RECORD}, page and curves renewed")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    typer.run(main)
