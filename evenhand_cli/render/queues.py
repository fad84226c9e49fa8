"""The tree of queues, with one line for each important resource type of a queue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, Group, RenderableType
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import (
    NOTHING,
    PODS,
    amount,
    heading,
    in_order,
    maybe,
    percent,
    phrase,
    span,
)
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.columns import ALWAYS, ANSWER, CONTINUED, Column, facts, is_shown, table
from evenhand_cli.render.listing import DESCENDING, Field, named_field
from evenhand_cli.render.tables import TEXT_LEAST, size
from evenhand_cli.render.words import reasons, state

UNIFORM = 11
"""Priority of a column that is left out before all columns with the priorities of `COLUMNS`."""
WIDE = 120
"""The smallest width of the screen with longer bars."""
BARS = ""
"""The heading of the usage bars."""
GUIDES = {"bar": "│  ", "fork": "├─ ", "end": "└─ ", "none": "   "}
ASCII_GUIDES = {"bar": "|  ", "fork": "+- ", "end": "`- ", "none": "   "}


@dataclass(frozen=True, slots=True)
class Row:
    """A queue with its place in the tree and the limits that the queues above it set."""

    queue: inspect_pb2.Queue
    lead: str
    """The guides of the tree (the lines that show the nesting) before the queue's name."""
    below: str
    """The guides of the tree before the queue's children."""
    beside: str
    """The guides of the tree before the queue's further lines."""
    limits: Mapping[str, int]
    """The smallest max on the path to the root, by type; at the root the partition's capacity."""

    def dominant(self) -> str:
        """Return the dominant resource type: the type with the greatest ratio of usage to limit.

        Return "" when no type has a limit. The type `pods` is considered only if the queue itself has a max for it, or
        if all other types are without a limit.
        """
        limited = [kind for kind in in_order(self.limits) if self.limits[kind] > 0]
        telling = [kind for kind in limited if kind != PODS or kind in self.queue.max]
        return max(telling or limited, key=self._used_ppm, default="")

    def kinds(self) -> list[str]:
        """Return the types that get a line: types with a guarantee, a max or an uneven share.

        If the queue has no type of these kinds, return the dominant type.
        """
        own = in_order((*self.queue.guaranteed, *self.queue.max, *self._uneven()))
        return own or [kind for kind in (self.dominant(),) if kind]

    def _uneven(self) -> list[str]:
        """Return the contended types in which the queue's usage is above or below its deserved share.

        A type is contended if the siblings want more of it than there is.
        """
        share = self.queue.proportional_share
        return [kind for kind in share.standing if share.entitled[kind] == share.deserved[kind]]

    def bar(self, kind: str, width: int) -> Bar:
        """Return a bar for one type: the queue's usage, compared with the queue's limit."""
        queue = self.queue
        limit = self.limits.get(kind, 0)
        return Bar(queue.usage.get(kind, 0), limit, queue.guaranteed.get(kind, 0), width)

    def used(self, kind: str) -> int:
        """Return the amount of a type that the allocations of the queue use."""
        return self.queue.usage.get(kind, 0)

    def _used_ppm(self, kind: str) -> tuple[int, int]:
        share = self.used(kind) * 1_000_000 // self.limits[kind]
        return share, int(kind in self.queue.guaranteed)


def rows(
    root: inspect_pb2.Queue, capacity: Mapping[str, int], *, ascii_only: bool = False
) -> Iterator[Row]:
    """Yield the queues from the root down, each with the guides of the tree before its lines."""
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


def tree(
    root: inspect_pb2.Queue,
    capacity: Mapping[str, int],
    console: Console,
    now: int,
    *,
    headers: bool = True,
) -> RenderableType:
    """Return the whole tree at the instant `now`, with a legend."""
    found = list(rows(root, capacity, ascii_only=console.options.ascii_only))
    width = 16 if console.width >= WIDE else 10
    lines = [line for row in found for line in _lines(row, width)]
    columns = [
        replace(column, cells=[line[place] for line in lines])
        for place, column in enumerate(COLUMNS)
    ]
    columns = [_demoted(column) for column in columns if _tells(column)]
    drawn = table(columns, console.width, headers=headers)
    if not headers:
        return drawn
    over = [(row.queue.path, over_max(row.queue, now)) for row in found if _is_over(row.queue)]
    title = Text("\nover their max", style="heading")
    told: list[RenderableType] = [title, facts(over)] if over else []
    bars = [Text(), legend(console)] if is_shown(BARS, columns, console.width) else []
    return Group(drawn, *told, *bars)


def _demoted(column: Column) -> Column:
    """Return the column.

    If it is the state column and all queues are active, return a column that is left out before all other columns.
    """
    uniform = column.name == "state" and column.constant() == "active"
    return replace(column, gives_way=UNIFORM) if uniform else column


def _tells(column: Column) -> bool:
    """Return whether any row has a value in the column, such as a guarantee, a max or headroom."""
    return column.gives_way == ALWAYS or any(
        str(cell) not in {"", NOTHING} for cell in column.cells
    )


def ordered(root: inspect_pb2.Queue, wanted: str) -> inspect_pb2.Queue:
    """Return the tree with the children of each queue sorted by a field.

    With `-` before the name of the field, the order is descending.
    """
    if not wanted:
        return root
    chosen = named_field(SORTED_BY, wanted)
    found = inspect_pb2.Queue()
    found.CopyFrom(root)
    below = [found]
    while below:
        queue = below.pop()
        in_order = sorted(queue.children, key=chosen.rank, reverse=wanted.startswith(DESCENDING))
        copies = [inspect_pb2.Queue.FromString(one.SerializeToString()) for one in in_order]
        del queue.children[:]
        queue.children.extend(copies)
        below += queue.children
    return found


def only_waiting(root: inspect_pb2.Queue) -> inspect_pb2.Queue:
    """Return the tree with only the root and the queues in which asks wait."""
    found = inspect_pb2.Queue()
    found.CopyFrom(root)
    below = [found]
    while below:
        queue = below.pop()
        kept = [one for one in queue.children if one.asks_waiting]
        copies = [inspect_pb2.Queue.FromString(one.SerializeToString()) for one in kept]
        del queue.children[:]
        queue.children.extend(copies)
        below += queue.children
    return found


SORTED_BY: Sequence[Field[inspect_pb2.Queue]] = (
    Field("queue", lambda one: one.name),
    Field("used", lambda one: phrase(one.usage), order=lambda one: size(one.usage)),
    Field("guaranteed", lambda one: phrase(one.guaranteed), order=lambda one: size(one.guaranteed)),
    Field("max", lambda one: phrase(one.max), order=lambda one: size(one.max)),
    Field("pending", lambda one: phrase(one.pending), order=lambda one: size(one.pending)),
    Field("apps", lambda one: str(one.applications)),
    Field("running", lambda one: str(one.allocations)),
    Field("waiting", lambda one: str(one.asks_waiting)),
    Field("state", lambda one: word(inspect_pb2.QueueState.DESCRIPTOR, one.state)),
)
"""Fields by which queues are sorted below their parent."""


def legend(console: Console) -> Text:
    """Return the legend of the bars."""
    signs = ("#", "|") if console.options.ascii_only else ("█", "┃")
    return Text.assemble(
        ("bar:  ", "faint"),
        (f"{signs[0]} used  ", "bar.within"),
        (f"{signs[0]} over the guarantee  ", "bar.over"),
        (f"{signs[0]} full  ", "bar.full"),
        (signs[1], "bar.mark"),
        (" guarantee  (whole bar: tightest max, else partition)", "faint"),
    )


COLUMNS = (
    Column("queue", (), names=True),
    Column("type", (), ANSWER),
    Column(BARS, (), 3),
    Column("%", (), 4, right=True),
    Column("used", (), ANSWER, right=True),
    Column("guaranteed", (), ANSWER, right=True),
    Column("max", (), 2, right=True),
    Column("deserves", (), 2, right=True),
    Column("others have", (), 8, right=True),
    Column("headroom", (), 6, right=True),
    Column("promised", (), 8, right=True),
    Column("leaving", (), 7, right=True),
    Column("pending", (), 9, right=True),
    Column("apps", (), 10, right=True),
    Column("running", (), 8, right=True),
    Column("waiting", (), 3, right=True),
    Column("state", (), 5),
    Column("kind", (), 7),
    Column("waits for", (), ANSWER, least=TEXT_LEAST),
)


def _lines(row: Row, bar_width: int) -> Iterator[list[RenderableType]]:
    """Yield the cells of `COLUMNS`, one line for each type.

    Facts about the whole queue are on the first line.
    """
    queue = row.queue
    lead: Text = Text.assemble((row.lead, "faint"), (queue.name or queue.path, "key"))
    told = _facts(row)
    for kind in row.kinds() or [""]:
        yield [lead, heading(kind), row.bar(kind, bar_width), *_amounts(row, kind), *told]
        lead, told = Text(row.beside, style="faint"), [CONTINUED] * len(told)


def _amounts(row: Row, kind: str) -> list[RenderableType]:
    """Return the amounts of one type: used, guaranteed, max, headroom, and requested by waiting asks."""
    queue = row.queue
    return [
        Text(percent(row.used(kind), row.limits.get(kind, 0)), style=_alarm(queue, kind)),
        amount(kind, row.used(kind)) if kind else NOTHING,
        maybe(kind, queue.guaranteed),
        maybe(kind, queue.max),
        _share(kind, queue),
        _moving(kind, queue.proportional_share.preempting),
        maybe(kind, queue.head_room),
        _moving(kind, queue.promised),
        _moving(kind, queue.releasing),
        maybe(kind, queue.pending),
    ]


def _share(kind: str, queue: inspect_pb2.Queue) -> RenderableType:
    """Return the share that the queue deserves by weight.

    The share is coloured as a warning if the usage of the queue is below the share and its asks wait.
    """
    share = queue.proportional_share
    under = share.standing.get(kind) == "under"
    return Text(maybe(kind, share.deserved), style="warn" if under else "")


def _alarm(queue: inspect_pb2.Queue, kind: str) -> str:
    """Return the style of a usage.

    Above the max, the style is `bad`, or `warn` if terminating pods will bring the usage below the max. Otherwise the
    style is empty.
    """
    if kind in queue.over_max:
        return "bad"
    return "warn" if kind in queue.max and queue.usage[kind] > queue.max[kind] else ""


def _moving(kind: str, amounts: Mapping[str, int]) -> str:
    """Return the amount that is being freed or promised; empty when the amount is 0."""
    return amount(kind, amounts[kind]) if amounts.get(kind) else ""


def _is_over(queue: inspect_pb2.Queue) -> bool:
    return bool(queue.over_max or queue.quota_due_ms or queue.not_enforced)


def over_max(queue: inspect_pb2.Queue, now: int) -> Text:
    """Return the amount by which a queue is over its max, and the time at which pods are evicted because of this.

    If no pods are evicted, the reason replaces the time.
    """
    beyond = [f"{phrase(queue.over_max)} too much"] if queue.over_max else []
    if queue.quota_due_ms:
        due = f"enforced in {span(queue.quota_due_ms - now)}"
        return Text(", ".join([*beyond, due]), style="warn")
    if queue.not_enforced:
        return Text(", ".join([*beyond, f"never enforced: {queue.not_enforced}"]), style="bad")
    return Text(", ".join([*beyond, "pods are leaving"]) if beyond else "", style="warn")


def _facts(row: Row) -> list[RenderableType]:
    """Return counts and state of the queue, and the reasons for which its asks wait."""
    queue = row.queue
    found = state(word(inspect_pb2.QueueState.DESCRIPTOR, queue.state))
    kind = Text("dynamic" if queue.dynamic else "", style="faint")
    counts = (queue.applications, queue.allocations, queue.asks_waiting)
    why = Text(reasons(queue.waiting_reasons), style="warn")
    return [*(f"{count:,}" for count in counts), found, kind, why]
