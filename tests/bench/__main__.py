"""`make bench`: runs the workloads, prints a table with medians and bests, keeps the figures as JSON."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench import cases, page, record
from tests.bench.calibration import calibrate
from tests.bench.figures import Case, Row, Sample, row
from tests.bench.growth import growth
from tests.bench.report import table

WIDTH = 230
"""Where the table goes into a file."""


def measure(case: Case, runs: int, done: Callable[[], None]) -> list[Row]:
    """A case so many times, the calibration loop before and after each run; a line for each of its metrics."""
    samples = []
    before = calibrate()
    for _ in range(runs):
        found = case.run(())
        after = calibrate()
        samples.append(Sample(found, (before + after) / 2, os.getloadavg()[0]))
        before = after
        done()
    return [row(case, metric, samples) for metric in case.metrics]


def measure_all(wanted: Sequence[Case], runs: int, console: Console) -> tuple[list[Row], list[str]]:
    """All cases, then how cost grows, and the names of those that failed; says on the console how far it is."""
    parts = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    rows: list[Row] = []
    failed: list[str] = []
    with Progress(*parts, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=len(wanted) * runs)
        for case in wanted:
            progress.update(task, description=case.name)
            if not console.is_terminal:
                console.print(case.name, soft_wrap=True)
            try:
                rows += measure(case, runs, lambda: progress.advance(task))
            except Exception as error:
                # The figures of the others, an hour's work, are not to be lost.
                failed.append(case.name)
                console.print(f"{case.name} failed: {error!r}", style="red", soft_wrap=True)
    return [*rows, *growth(rows)], failed


def main(
    runs: Annotated[int, typer.Option(help="Repeats of each workload.", min=1)] = 5,
    only: Annotated[str, typer.Option(help="Run the workloads whose name contains this.")] = "",
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path(
        ".bench/last.json"
    ),
    *,
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
    rows, failed = measure_all(wanted, runs, console)
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows, record.load()))
    figures = record.taken(rows)
    record.save(output, figures)
    console.print(f"figures written to {output}")
    if keep:
        order = [one.name for one in cases.everything()]
        record.save(record.RECORD, record.merged(figures, record.load(), order))
        page.renew()
        console.print(f"recorded in {record.RECORD}, page and curves renewed")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    typer.run(main)
