"""The table of a run."""

from collections.abc import Sequence

from rich.console import JustifyMethod
from rich.table import Table

from tests.bench.figures import Row
from tests.bench.record import Record, change

COLUMNS = (
    "workload",
    "",
    "median",
    "best",
    "runs",
    "of all",
    "target",
    "reached",
    "CPU s",
    "us each",
    "MiB",
    "load",
    "cost / record",
    "note",
)
LEFT = {"workload", "", "note"}


def number(value: float) -> str:
    """Return a number with at least three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def verdict(row: Row) -> str:
    """Return `yes` or `NO`, or an empty text when there is no target."""
    return "" if row.reached is None else "yes" if row.reached else "NO"


def target(row: Row) -> str:
    """Return the target of a row in words."""
    if not row.target:
        return ""
    return f"{'from' if row.more else 'to'} {number(row.target)}"


def table(rows: Sequence[Row], before: Record | None) -> Table:
    """Return the table of the report, a line for each row.

    `cost / record` is the cost now as a multiple of the recorded cost, corrected for the noise of the machine.
    """
    found = Table(title="medians and bests of the quietest runs; `of all`: the median of all runs")
    for name in COLUMNS:
        justify: JustifyMethod = "left" if name in LEFT else "right"
        found.add_column(name, justify=justify, no_wrap=name not in {"workload", "note"})
    last = ""
    for one in rows:
        found.add_row("" if one.case == last else one.case, *_cells(one, change(one, before)))
        last = one.case
    return found


def figures(row: Row) -> tuple[str, ...]:
    """Return the cells that the table and the page have in common: without the first and the last three of `COLUMNS`."""
    return (
        f"{row.metric}, {row.unit}" if row.unit != "/s" else f"{row.metric}/s",
        number(row.median),
        number(row.best),
        f"{row.runs} of {row.tries}" if row.tries else str(row.runs),
        number(row.of_all) if row.tries else "",
        target(row),
        verdict(row),
        f"{row.cpu_s:.2f}" if row.cpu_s else "",
        f"{row.cpu_us_each:.1f}" if row.cpu_us_each else "",
        str(row.mib or ""),
    )


def _cells(row: Row, changed: float | None) -> tuple[str, ...]:
    return (
        *figures(row),
        f"{row.load:.1f}" if row.runs and row.load else "",
        "" if changed is None else f"{changed:.2f}",
        row.note,
    )
