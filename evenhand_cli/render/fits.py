"""The reasons why a group of asks does not fit: the nearest nodes, the limits with too little headroom, and the next steps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.v1 import explain_pb2
from evenhand_cli.escaping import escaped
from evenhand_cli.long_names import command_in, has_long_word
from evenhand_cli.render.amounts import NOTHING, phrase
from evenhand_cli.render.columns import Column, titled
from evenhand_cli.render.words import plural
from server.model.phrases import agreeing

NODES_SHOWN_MAX = 3
"""Maximum number of nodes in a table; JSON can have more."""
LIMITS_SHOWN_MAX = 1
"""Maximum number of limits in the facts about a group."""
_DO = "  do:"


class Pointer:
    """A line that points to a command: `what it is about: evenhand ...`.

    If the command does not fit, it is shown in full on a separate line.
    """

    def __init__(self, about: str, command: str, style: str = "faint", joint: str = ":") -> None:
        self.about, self.command = escaped(about), escaped(command)
        self.style, self.joint = style, joint

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw one line, or two lines if the command does not fit on the first line."""
        del console
        if not has_long_word(self.command, options.max_width):
            yield Text(f"{self.about}{self.joint} {self.command}", style=self.style)
            return
        yield Text(f"{self.about}:", style=self.style)
        yield whole(self.command)


def whole(command: str) -> Text:
    """Return a command as a line that is neither broken nor shortened."""
    return Text(command, no_wrap=True, overflow="ignore")


class NextSteps:
    """The next steps, one below the other, in the same form as in faults of the command line.

    A command that does not fit its line is shown in full on a separate line.
    """

    def __init__(self, steps: Iterable[str]) -> None:
        self.steps = list(map(escaped, steps))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw the steps."""
        del console
        for step in self.steps:
            command, purpose = command_in(step)
            alone = has_long_word(command, options.max_width - cell_len(_DO) - 1)
            grid = Table.grid(padding=(0, 1))
            grid.add_column(style="heading", no_wrap=True)
            grid.add_column(overflow="fold")
            grid.add_row(_DO, (purpose or "the next line") if alone else step)
            yield grid
            if alone:
                yield whole(command)


def members(fit: explain_pb2.GroupFit) -> str:
    """Return the numbers of members: `train: 8 needed, 6 wait, 2 run`."""
    counts = [f"{fit.size:,} needed"] if fit.size else []
    counts.append(f"{fit.members:,} {agreeing('wait', fit.members)}")
    if fit.running:
        counts.append(f"{fit.running:,} {agreeing('run', fit.running)}")
    return f"{fit.name.removeprefix('gang ')}: {', '.join(counts)}"


def nodes_most(fit: explain_pb2.GroupFit, *, full: bool) -> int:
    """Return how many of the nearest nodes to show. Fewer nodes are shown when limits are shown, too."""
    if full:
        return len(fit.nodes)
    return max(NODES_SHOWN_MAX - len(fit.limits), 1)


def nodes(
    fit: explain_pb2.GroupFit, width: int, most: int = NODES_SHOWN_MAX
) -> list[RenderableType]:
    """Return a table of the nearest nodes.

    Each row has the number of members that the node can take, and the amounts that the node lacks for further
    members.
    """
    shown = fit.nodes[:most]
    if not shown:
        return []
    columns = [
        Column("node", [one.node_id for one in shown], names=True),
        Column("takes now", [f"{one.members:,}" for one in shown], right=True),
        Column("free", [phrase(one.free) for one in shown], 2),
        Column("lacks", [_lacks(one) for one in shown]),
    ]
    left = len(fit.nodes) - len(shown) + fit.nodes_left_out
    title = "nodes that come nearest" + (f"; {plural(left, 'further node')}" if left else "")
    return titled(title, columns, width)


def _lacks(one: explain_pb2.NodeFit) -> Text:
    if not one.missing:
        return Text(NOTHING)
    return Text(f"{phrase(one.missing)} for {one.rest:,} more", style="bad")


def limits(found: Sequence[explain_pb2.LimitFit]) -> Iterator[tuple[str, str]]:
    """Yield a fact for each limit whose headroom is too small for all members of the group together."""
    for one in found:
        where = "" if one.kind in {"queue", "firm"} else f" in {one.queue}"
        what = {"queue": "max", "firm": "guarantee"}.get(one.kind, one.kind)
        yield (
            "limit",
            f"{what} {one.name}{where}: headroom for {one.members:,}, lacks {phrase(one.missing)}",
        )


def most_limits(fit: explain_pb2.GroupFit, *, full: bool) -> Sequence[explain_pb2.LimitFit]:
    """Return the limits to show: with `full` all limits in their order, otherwise the LIMITS_SHOWN_MAX tightest limits.

    Without `full`, no limit is shown for a gang that waits only because of one limit. The sentence about this gang
    already names the limit.
    """
    if full:
        return fit.limits
    if fit.gang and len(fit.limits) == 1:
        return []
    return sorted(fit.limits, key=lambda one: one.members)[:LIMITS_SHOWN_MAX]


def by_rule(counts: Mapping[str, int]) -> str:
    """Return how many candidates each rule protects: `38 candidates: 16 higher-priority, 10 required-node`."""
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{number:,} {rule}" for rule, number in ranked)
    return f"{plural(sum(counts.values()), 'candidate')}: {named}"
