"""`make bench`: run the workloads, print a table with medians and bests, keep the figures as JSON."""

import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from server.model.quota import NodeSort
from tests.bench import inprocess, jobs, messages, preempting, preemption, wire
from tests.bench.calibration import calibrate
from tests.bench.preemption import Cluster, Figure
from tests.bench.script import Script
from tests.bench.workloads import Workload

IN_PROCESS = (
    Workload(1_000, 10_000, 10, shapes=1),
    Workload(1_000, 10_000, 10),
    Workload(1_000, 10_000, 100),
    Workload(5_000, 50_000, 10),
    Workload(5_000, 50_000, 100),
    Workload(10_000, 100_000, 10),
    Workload(10_000, 100_000, 100),
    Workload(1_000, 10_000, 10, node_sort=NodeSort.BINPACKING),
    Workload(1_000, 10_000, 1_000),
    *(Workload(1_000, 10_000, leaves, by_weight=True) for leaves in (10, 100, 1_000)),
)
ON_THE_WIRE = (
    (Workload(1_000, 10_000, 10), 1),
    (Workload(1_000, 10_000, 10), 100),
    (Workload(1_000, 10_000, 100), 100),
    (Workload(1_000, 10_000, 10), 1_000),
    (Workload(5_000, 50_000, 100), 100),
)
PING = Workload(1_000, 1_000, 10)
PREEMPTING: tuple[tuple[str, Cluster, Callable[[Cluster], list[Figure]], float], ...] = (
    ("1,000 claims", Cluster(1_000), preemption.claims, 3_000),
    ("1,000 claims", Cluster(1_000, shapes=20), preemption.claims, 3_000),
    ("1,000 claims", Cluster(5_000), preemption.claims, 10_000),
    ("1,000 claims", Cluster(5_000, shapes=20), preemption.claims, 10_000),
    ("one claim", Cluster(5_000), preemption.one_claim, 25),
    ("one claim", Cluster(5_000, shapes=20), preemption.one_claim, 25),
    ("a gang of 64", Cluster(5_000), jobs.planned, 50),
    ("a gang of 64", Cluster(5_000, shapes=20), jobs.planned, 50),
    ("a gang of 64, refused", Cluster(5_000, shapes=20), jobs.refused, 50),
    ("one round", Cluster(5_000, claims=200), preemption.one_round, 250),
    ("one round", Cluster(5_000, shapes=20, claims=200), preemption.one_round, 250),
    ("one round", Cluster(5_000, shapes=20, claims=200, kinds=5), preemption.one_round, 250),
    ("quota", Cluster(1_000, 1), preemption.quota, 100),
    ("quota", Cluster(1_000, 100), preemption.quota, 100),
    ("quota", Cluster(5_000, 1), preemption.quota, 500),
    ("quota", Cluster(5_000, 100), preemption.quota, 500),
    ("deserved shares", Cluster(1_000, 1_000), preemption.shares, 5),
)
"""What is done on which cluster, and within how many milliseconds it shall be done."""
PREEMPTING_ON_THE_WIRE: tuple[tuple[str, Cluster, Callable[[Cluster], Script]], ...] = (
    ("1,000 claims", Cluster(1_000), preempting.claims),
    ("1,000 claims", Cluster(5_000), preempting.claims),
    ("quota", Cluster(1_000, 100), preempting.quota),
    ("quota", Cluster(5_000, 100), preempting.quota),
)
RESYNC = Workload(5_000, 50_000, 10)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report. Rates are placements a second; ``calibration`` CPU seconds of the fixed loop."""

    workload: str
    runs: int
    rate_median: float
    rate_best: float
    cpu_us: float
    calibration: float
    load: float
    extra: str = ""

    @property
    def per_calibration(self) -> float:
        """Placements while the fixed loop runs once: comparable across machines and noise."""
        return self.rate_median * self.calibration


@dataclass(frozen=True, slots=True)
class PreemptionRow:
    """One line of the report on preemption: milliseconds of CPU; ``goal_ms`` 0: there is none."""

    workload: str
    runs: int
    cpu_ms_median: float
    cpu_ms_best: float
    goal_ms: float
    calibration: float
    load: float
    extra: str = ""

    @property
    def in_calibrations(self) -> float:
        """How often the fixed loop runs in that time: comparable across machines and noise."""
        return self.cpu_ms_median / 1_000 / self.calibration


def _row(name: str, rates: list[float], cpu_us: list[float], extra: str = "") -> Row:
    return Row(
        name,
        len(rates),
        statistics.median(rates),
        max(rates),
        statistics.median(cpu_us),
        calibrate(),
        os.getloadavg()[0],
        extra,
    )


def _in_process(workload: Workload, runs: int) -> Row:
    figures = [inprocess.run(workload) for _ in range(runs)]
    rates = [one.placed / one.wall for one in figures]
    cpu = [1e6 * one.cpu / one.placed for one in figures]
    longest = max(one.longest_tick for one in figures)
    return _row(workload.name, rates, cpu, f"longest tick {1000 * longest:.0f} ms")


def _on_the_wire(workload: Workload, batch: int, runs: int) -> Row:
    script = messages.flood(workload, batch)
    figures = [wire.run(script) for _ in range(runs)]
    rates = [workload.asks / one.played.seconds for one in figures]
    cpu = [1e6 * one.played.server_cpu / workload.asks for one in figures]
    last = figures[-1]
    extra = f"server {last.server_mib} MiB, client ({last.language}) CPU {last.client_share:.0%}"
    return _row(f"gRPC, {batch} a message: {workload.name}", rates, cpu, extra)


def _preempting(
    name: str, figures: list[Figure], goal_ms: float, calibration: float
) -> PreemptionRow:
    cpu = [one.cpu_ms for one in figures]
    wall = statistics.median(one.wall_ms for one in figures)
    cold = max(one.cold_ms for one in figures)
    extra = f"{figures[0].count:,} of them, wall {wall:,.0f} ms"
    extra += f", a process's first View {cold:,.0f} ms" if cold else ""
    return PreemptionRow(
        name,
        len(figures),
        statistics.median(cpu),
        min(cpu),
        goal_ms,
        calibration,
        os.getloadavg()[0],
        extra,
    )


def _preempting_in_process(only: str, runs: int) -> Iterator[PreemptionRow]:
    for what, cluster, measure, goal_ms in PREEMPTING:
        name = f"{what}: {cluster.name}"
        if only in name:
            figures: list[Figure] = []
            calibration = []
            for _ in range(runs):
                figures += measure(cluster)
                calibration.append(calibrate())
            yield _preempting(name, figures, goal_ms, statistics.median(calibration))


def _preempting_on_the_wire(only: str, runs: int) -> Iterator[PreemptionRow]:
    for what, cluster, script in PREEMPTING_ON_THE_WIRE:
        name = f"gRPC, {what}: {cluster.name}"
        if only in name:
            played = [wire.run(script(cluster)) for _ in range(runs)]
            count = script(cluster).steps[-1].until
            figures = [_on_either_side(one, count) for one in played]
            yield _preempting(name, figures, 0, calibrate())


def _on_either_side(figure: wire.WireFigure, count: int) -> Figure:
    """Milliseconds of the server's CPU, and of wall as the client sees them."""
    return Figure(1_000 * figure.played.server_cpu, 1_000 * figure.played.seconds, count)


def _preemption_table(rows: list[PreemptionRow]) -> Table:
    table = Table(title="preemption: milliseconds of CPU")
    for name in ("workload", "runs", "median", "best", "goal", "in calibrations", "load", ""):
        table.add_column(name, justify="left" if name in ("workload", "") else "right")
    for row in rows:
        goal = f"{row.goal_ms:,.0f}" if row.goal_ms else ""
        figures = (f"{row.cpu_ms_median:,.1f}", f"{row.cpu_ms_best:,.1f}", goal)
        ratio = f"{row.in_calibrations:,.2f}"
        table.add_row(row.workload, str(row.runs), *figures, ratio, f"{row.load:.1f}", row.extra)
    return table


def _table(rows: list[Row]) -> Table:
    table = Table(title="placements per second")
    for name in (
        "workload",
        "runs",
        "median /s",
        "best /s",
        "CPU us each",
        "per calibration",
        "load",
        "",
    ):
        table.add_column(name, justify="left" if name in ("workload", "") else "right")
    for row in rows:
        figures = (f"{row.rate_median:,.0f}", f"{row.rate_best:,.0f}", f"{row.cpu_us:.1f}")
        ratio = f"{row.per_calibration:,.0f}"
        table.add_row(row.workload, str(row.runs), *figures, ratio, f"{row.load:.1f}", row.extra)
    return table


def _ping_line() -> str:
    waits = sorted(wire.run(messages.ping(PING)).played.waits_ms)
    middle, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return f"one ask at a time through gRPC: median {middle:.2f} ms, 99th percentile {late:.2f} ms"


def _resync_line() -> str:
    found = wire.run(messages.resync(RESYNC))
    return (
        f"resync through gRPC, {RESYNC.name}: {found.played.seconds:.2f} s, {found.server_mib} MiB"
    )


def main(
    runs: Annotated[int, typer.Option(help="Repeats of each workload.")] = 3,
    only: Annotated[str, typer.Option(help="Run the workloads whose name contains this.")] = "",
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path(
        ".bench/last.json"
    ),
) -> None:
    """Measure the whole core, in process and through gRPC."""
    console = Console(stderr=True)
    rows: list[Row] = []
    inner = [one for one in IN_PROCESS if only in one.name]
    outer = [
        (one, batch) for one, batch in ON_THE_WIRE if only in f"gRPC, {batch} a message: {one.name}"
    ]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(inner) + len(outer) + 2)
        for workload in inner:
            progress.update(task, description=workload.name, advance=1)
            rows.append(_in_process(workload, runs))
        for workload, batch in outer:
            progress.update(task, description=f"gRPC {workload.name}", advance=1)
            rows.append(_on_the_wire(workload, batch, runs))
        lines = [] if only else [_ping_line(), _resync_line()]
        progress.update(task, description="preemption", advance=1)
        preempting = [*_preempting_in_process(only, runs), *_preempting_on_the_wire(only, runs)]
    tables = [_table(rows)] if rows else []
    tables += [_preemption_table(preempting)] if preempting else []
    Console(width=None if sys.stdout.isatty() else 160).print(*tables, *lines)
    output.parent.mkdir(parents=True, exist_ok=True)
    figures = [*map(asdict, rows), *map(asdict, preempting)]
    output.write_text(json.dumps(figures, indent=1) + "\n")
    console.print(f"figures written to {output}")


if __name__ == "__main__":
    typer.run(main)
