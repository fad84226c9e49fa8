"""The demonstration's live screen: counts, progress, and the tree of queues with bars."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand_cli.demo.facts import Picture, Progress
from evenhand_cli.render.amounts import PODS, heading, in_order, pair, percent
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.queues import Row, legend, rows
from evenhand_cli.render.tables import lined_up
from evenhand_cli.render.words import plural, reasons

TYPES_MAX = 3
"""Maximum number of resource types that have a separate column."""
LINES_AROUND = 9
"""Number of lines of the screen that do not show queues."""
BAR_WIDTH = 20
BAR_WIDTH_MIDDLE = 14
BAR_WIDTH_NARROW = 10
MIDDLE, WIDE = 100, 130
"""The smallest width of the screen with columns for resource types, and the smallest width with longer bars."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Facts that do not change during a demonstration."""

    cluster: str
    address: str
    console: str = ""


def screen(
    stage: Stage, progress: Progress, now_s: float, console: Console, queues_max: int | None = None
) -> RenderableType:
    """Return the whole screen.

    Before the first answer of the core, the screen has only a line that says what the demonstration waits for.
    """
    title = Text.assemble(
        ("evenhand", "heading"),
        ("  cluster ", "faint"),
        stage.cluster,
        ("  core ", "faint"),
        stage.address,
        *((("  console ", "faint"), stage.console) if stage.console else ()),
        (f"  {progress.elapsed_s(now_s):.1f} s", "faint"),
    )
    picture = progress.latest
    if picture is None:
        return Group(title, Text("the shim reads the cluster and reports it to the core ..."))
    most = queues_max if queues_max is not None else max(3, console.height - LINES_AROUND)
    tree = queue_table(picture, most, console)
    return Group(title, _counts(picture, progress), Text(), tree, Text(), legend(console))


def queue_table(picture: Picture, queues_max: int, console: Console) -> RenderableType:
    """Return a table of the first queues of the tree, with the number of queues that are not shown."""
    capacity = picture.summary.capacity
    kinds = [kind for kind in in_order(capacity) if kind != PODS]
    kinds = kinds[:TYPES_MAX] if console.width >= MIDDLE else []
    width = bar_width(console.width)
    numbers = ["%", *(heading(kind) for kind in kinds), "running", "waiting"]
    table = lined_up(("queue", "used"), numbers)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    found = list(rows(picture.tree.root, capacity, ascii_only=console.options.ascii_only))
    for row in found[:queues_max]:
        table.add_row(*_cells(row, kinds, width))
    hidden = len(found) - queues_max
    if hidden <= 0:
        return table
    more = Text(f"... {plural(hidden, 'more queue')}: evenhand queues", style="faint")
    return Group(table, more)


def bar_width(width: int) -> int:
    """Return the number of character cells of a bar on a screen with this number of columns."""
    if width >= WIDE:
        return BAR_WIDTH
    return BAR_WIDTH_MIDDLE if width >= MIDDLE else BAR_WIDTH_NARROW


def one_line(progress: Progress, now_s: float) -> str:
    """Return the progress in one line, for an output that is not a terminal."""
    picture = progress.latest
    if picture is None:
        return f"{progress.elapsed_s(now_s):.1f} s: the shim reads the cluster"
    counts = picture.summary.counts
    return (
        f"{progress.elapsed_s(now_s):.1f} s: {plural(counts.nodes, 'node')},"
        f" {picture.done():,} of {plural(picture.pods.total, 'pod')} placed,"
        f" {picture.waiting():,} waiting,{_leaving(picture)} {progress.rate():,.0f}/s"
    )


def _leaving(picture: Picture) -> str:
    return f" {picture.pods.leaving:,} leaving," if picture.pods.leaving else ""


def _counts(picture: Picture, progress: Progress) -> Table:
    counts = picture.summary.counts
    total, done = picture.pods.total, picture.done()
    line = Table.grid(padding=(0, 2))
    ready = f"{counts.nodes - counts.draining_nodes:,}/{counts.nodes:,}"
    facts: Sequence[tuple[str, str]] = (
        ("nodes", ready),
        ("placed", f"{done:,}/{total:,}"),
        ("waiting", f"{picture.waiting():,}"),
        *([("leaving", f"{picture.pods.leaving:,}")] if picture.pods.leaving else []),
        *_speed(progress),
    )
    cells = [Text.assemble((f"{name} ", "faint"), (value, "key")) for name, value in facts]
    line.add_row(*cells, Bar(done, total, width=BAR_WIDTH_MIDDLE), percent(done, total))
    return line


def _speed(progress: Progress) -> list[tuple[str, str]]:
    """Return the present rate of placements. When no pod is being placed, return the mean rate if it is known."""
    now, mean = progress.rate(), progress.mean_rate()
    if now:
        return [("rate", f"{now:,.0f}/s")]
    return [("mean rate", f"{mean:,.0f}/s")] if mean else []


def _cells(row: Row, kinds: Sequence[str], width: int) -> list[RenderableType]:
    queue = row.queue
    kind = row.dominant()
    name = Text.assemble((row.lead, "faint"), (queue.name or queue.path, "key"))
    limit = row.limits.get(kind, 0)
    used = [
        pair(kind, queue.usage.get(kind, 0), row.limits[kind]) if kind in row.limits else "-"
        for kind in kinds
    ]
    return [
        name,
        row.bar(kind, width),
        percent(queue.usage.get(kind, 0), limit) + (f" {heading(kind)}" if kind else ""),
        *used,
        f"{queue.allocations:,}",
        f"{queue.asks_waiting:,}",
        Text(reasons(queue.waiting_reasons, 1), style="warn"),
    ]
