"""The tree of queues, one line for each resource type that says something about the queue."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import NOTHING, PODS, amount, heading, in_order, maybe, percent
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.tables import lined_up
from evenhand_cli.render.words import reasons, state

MIDDLE, WIDE = 100, 120
"""Widths from which on the table has more columns."""
GUIDES = {"bar": "│  ", "fork": "├─ ", "end": "└─ ", "none": "   "}
ASCII_GUIDES = {"bar": "|  ", "fork": "+- ", "end": "`- ", "none": "   "}


@dataclass(frozen=True, slots=True)
class Row:
    """A queue with its place in the picture and the limits that hold for it from above."""

    queue: inspect_pb2.Queue
    lead: str
    """Guides before its name."""
    below: str
    """Guides before its children."""
    beside: str
    """Guides before its further lines."""
    limits: Mapping[str, int]
    """Smallest max on the way to the root; at the root what the partition has."""

    def dominant(self) -> str:
        """The type of which the greatest part of the limit is used."""
        limited = [kind for kind in in_order(self.limits) if self.limits[kind] > 0]
        telling = [kind for kind in limited if kind != PODS or kind in self.queue.max]
        return max(telling or limited, key=self._used_ppm, default="")

    def kinds(self) -> list[str]:
        """Types worth a line: those with a guarantee or max of this queue, else the dominant one."""
        own = in_order((*self.queue.guaranteed, *self.queue.max))
        return own or [kind for kind in (self.dominant(),) if kind]

    def bar(self, kind: str, width: int) -> Bar:
        """How much of its limit the queue uses of a type."""
        queue = self.queue
        limit = self.limits.get(kind, 0)
        return Bar(queue.usage.get(kind, 0), limit, queue.guaranteed.get(kind, 0), width)

    def used(self, kind: str) -> int:
        """How much of a type its allocations use."""
        return self.queue.usage.get(kind, 0)

    def _used_ppm(self, kind: str) -> tuple[int, int]:
        share = self.used(kind) * 1_000_000 // self.limits[kind]
        return share, int(kind in self.queue.guaranteed)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers, shown where there is room for it."""

    name: str
    width_min: int
    value: Callable[[Row, str], str]


def fitting(columns: Iterable[Column], width: int) -> list[Column]:
    """The columns that have room."""
    return [column for column in columns if column.width_min <= width]


OF_TYPE = (
    Column("%", 0, lambda row, kind: percent(row.used(kind), row.limits.get(kind, 0))),
    Column("used", 0, lambda row, kind: amount(kind, row.used(kind)) if kind else NOTHING),
    Column("guaranteed", MIDDLE, lambda row, kind: maybe(kind, row.queue.guaranteed)),
    Column("max", 0, lambda row, kind: maybe(kind, row.queue.max)),
    Column("head-room", 0, lambda row, kind: maybe(kind, row.queue.head_room)),
    Column("pending", MIDDLE, lambda row, kind: maybe(kind, row.queue.pending)),
)
OF_QUEUE = (
    Column("apps", WIDE, lambda row, _: f"{row.queue.applications:,}"),
    Column("running", WIDE, lambda row, _: f"{row.queue.allocations:,}"),
    Column("waiting", 0, lambda row, _: f"{row.queue.asks_waiting:,}"),
)


def rows(
    root: inspect_pb2.Queue, capacity: Mapping[str, int], *, ascii_only: bool = False
) -> Iterator[Row]:
    """The queues from the root down, each with the tree's lines before it."""
    guides = ASCII_GUIDES if ascii_only else GUIDES
    yield from _walk(root, "", "", capacity, guides)


def _walk(
    queue: inspect_pb2.Queue,
    lead: str,
    below: str,
    limits: Mapping[str, int],
    guides: Mapping[str, str],
) -> Iterator[Row]:
    tighter = _tighter(limits, queue.max)
    beside = below + (guides["bar"] if queue.children else "")
    yield Row(queue, lead, below, beside, tighter)
    for number, child in enumerate(queue.children, start=1):
        last = number == len(queue.children)
        child_lead = below + guides["end" if last else "fork"]
        child_below = below + guides["none" if last else "bar"]
        yield from _walk(child, child_lead, child_below, tighter, guides)


def _tighter(limits: Mapping[str, int], own: Mapping[str, int]) -> dict[str, int]:
    both = dict(limits)
    for kind, value in own.items():
        both[kind] = min(value, both.get(kind, value))
    return both


def tree(root: inspect_pb2.Queue, capacity: Mapping[str, int], console: Console) -> RenderableType:
    """The whole tree for `evenhand queues`, with a legend."""
    width = console.width
    columns = fitting((*OF_TYPE, *OF_QUEUE), width)
    table = lined_up(("queue", "type", ""), [column.name for column in columns], ("state",))
    for row in rows(root, capacity, ascii_only=console.options.ascii_only):
        _add(table, row, width)
    return Group(table, Text(), legend(console))


def legend(console: Console) -> Text:
    """What the bars mean."""
    signs = ("#", "|") if console.options.ascii_only else ("█", "┃")
    return Text.assemble(
        ("bar:  ", "faint"),
        (f"{signs[0]} used  ", "bar.within"),
        (f"{signs[0]} over the guarantee  ", "bar.over"),
        (f"{signs[0]} full  ", "bar.full"),
        (signs[1], "bar.mark"),
        (" guarantee  (whole bar: the tightest max, else the partition)", "faint"),
    )


def _add(table: Table, row: Row, width: int) -> None:
    """One line for each type; the facts of the queue as a whole on the first."""
    queue = row.queue
    name = Text.assemble((row.lead, "faint"), (queue.name or queue.path, "key"))
    first: list[RenderableType] = [name]
    ending: list[RenderableType] = [
        *(column.value(row, "") for column in fitting(OF_QUEUE, width)),
        _state(queue),
    ]
    for kind in row.kinds() or [""]:
        bar = row.bar(kind, 16 if width >= WIDE else 10)
        numbers = (column.value(row, kind) for column in fitting(OF_TYPE, width))
        table.add_row(*first, heading(kind), bar, *numbers, *ending)
        first, ending = [Text(row.beside, style="faint")], [""] * len(ending)


def _state(queue: inspect_pb2.Queue) -> Text:
    text = Text.assemble(state(word(inspect_pb2.QueueState.DESCRIPTOR, queue.state)))
    if queue.dynamic:
        text.append(" dynamic", style="faint")
    if queue.applications_waiting:
        text.append(f" {queue.applications_waiting:,} apps wait", style="warn")
    why = reasons(queue.waiting_reasons)
    return text.append(f" {why}" if why else "", style="warn")
