"""The report of unmet guarantees: the obstacle for each group of asks, and the change that would help."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import reports_pb2 as pb
from evenhand_cli.long_names import has_long_word
from evenhand_cli.render.amounts import amount, heading, phrase
from evenhand_cli.render.columns import Column, facts, table
from evenhand_cli.render.fits import whole as whole_command
from evenhand_cli.render.screen import first_that_fits
from evenhand_cli.render.words import plural

UNMET_ROWS_MAX = 8
"""Maximum number of lines, each about a queue and a type of which the queue has less than its guarantee.

`--all` lists all.
"""
CASES_MAX = 3
"""Maximum number of groups of asks that are shown for unmet guarantees; `--all` shows all."""
VALUES_AT = len("  bound by") + 2
"""The column at which the values of facts begin, to the right of the names of facts."""


def unmet(
    found: pb.GetUnmetGuaranteesResponse, width: int, *, whole: bool = False
) -> RenderableType:
    """Return a line for each queue and type, followed by the obstacle and the remedy for each group of asks.

    With `whole` all rows and groups are shown. Without `whole` only the first rows and groups are shown. If the answer
    still does not fit the screen, the reasons why a remedy helps no further asks are left out, too.
    """
    forms = (_unmet(found, width, whole=whole, then=then) for then in (True, whole))
    return first_that_fits(forms, width)


def _unmet(
    found: pb.GetUnmetGuaranteesResponse, width: int, *, whole: bool, then: bool
) -> RenderableType:
    if not found.queues:
        what = "entitled to by weight" if found.by_weight else "guaranteed"
        return Text(f"every queue with waiting asks has what it is {what}", style="good")
    rows = [(queue, one) for queue in found.queues for one in queue.types]
    parts: list[RenderableType] = [
        _lacking(rows if whole else rows[:UNMET_ROWS_MAX], width, by_weight=found.by_weight)
    ]
    if not whole and len(rows) > UNMET_ROWS_MAX:
        parts.append(
            Text(f"{plural(len(rows) - UNMET_ROWS_MAX, 'more row')}: --all", style="faint")
        )
    if found.over_promised:
        more = (
            f"\nall guarantees together are {phrase(found.over_promised)} more than the nodes have"
        )
        parts.append(Text(more, style="warn"))
    cases = _cases(found)
    for queues, one in cases if whole else cases[:CASES_MAX]:
        alone = _is_incurable(one) and has_long_word(_command(one), width - VALUES_AT)
        parts += [_title(one), facts(_facts(queues, one, then=then, alone=alone))]
        parts += [whole_command(_command(one))] if alone else []
    parts += _uncounted(found, 0 if whole else max(len(cases) - CASES_MAX, 0))
    return Group(*parts)


def _lacking(
    rows: Sequence[tuple[pb.UnmetQueue, pb.UnmetType]], width: int, *, by_weight: bool
) -> RenderableType:
    """Return a table of the amounts that each queue lacks."""
    entitled = "entitled" if by_weight else "guaranteed"
    columns = (
        Column("queue", [Text(queue.queue, style="key") for queue, _ in rows], names=True),
        Column("type", [heading(one.resource_type) for _, one in rows]),
        Column(entitled, [amount(one.resource_type, one.entitled) for _, one in rows], right=True),
        Column("held", [amount(one.resource_type, one.held) for _, one in rows], 2, right=True),
        Column(
            "missing",
            [Text(amount(one.resource_type, one.missing), style="bad") for _, one in rows],
            right=True,
        ),
        Column("bound by", [_bindings(queue) for queue, _ in rows], 1),
    )
    return table(columns, width)


def _bindings(queue: pb.UnmetQueue) -> str:
    return ", ".join(dict.fromkeys(one.binding for one in queue.asks))


_Case = tuple[Sequence[str], pb.UnmetAsks]
"""A pair of a list of queues and a group of asks.

The queues lack a part of their guarantee, and are in the order of the report. The asks wait below all these queues,
and share a reason and a remedy.
"""


def _cases(found: pb.GetUnmetGuaranteesResponse) -> list[_Case]:
    """Return each group of asks once, although the asks belong to a leaf and to all of its parents."""
    cases: dict[tuple[str, ...], tuple[list[str], pb.UnmetAsks]] = {}
    for queue in found.queues:
        for one in queue.asks:
            key = (one.leaf, one.job or one.allocation_key, one.binding, one.because, one.cure.text)
            cases.setdefault(key, ([], one))[0].append(queue.queue)
    return list(cases.values())


def _uncounted(found: pb.GetUnmetGuaranteesResponse, left: int) -> Iterator[RenderableType]:
    """Yield lines that count the groups which this output leaves out, and the asks and queues missing in the report."""
    if left:
        yield Text(f"\n{plural(left, 'more kind')} of asks: --all", style="faint")
    for queue in found.queues:
        if queue.asks_left_out:
            said = f"\n{queue.queue}: {plural(queue.asks_left_out, 'ask')} of other kinds"
            yield Text(said, style="faint")
    if found.queues_left_out:
        yield Text(f"\n{plural(found.queues_left_out, 'more queue')}", style="faint")


def _title(one: pb.UnmetAsks) -> Text:
    asks = f"{plural(one.count, 'ask')} for {phrase(one.resources)}"
    if one.job:
        asks = f"gang {one.job}: {plural(one.count, 'member')} for {phrase(one.resources)} together"
    return Text.assemble(("\n" + one.leaf, "key"), f"  {asks}, priority {one.priority}")


def _command(one: pb.UnmetAsks) -> str:
    return f"evenhand explain {one.name or one.allocation_key}"


def _is_incurable(one: pb.UnmetAsks) -> bool:
    """Return whether the core searched for a remedy and found none."""
    searched = one.searched and not one.HasField("cure")
    return searched and one.binding not in {"being-served", "not-ready"}


def _facts(
    queues: Sequence[str], one: pb.UnmetAsks, *, then: bool, alone: bool
) -> list[tuple[str, str | Text]]:
    """Return the facts about a group of asks: an example, the obstacle, and the remedy.

    The line of the example also names those of the ``queues`` that are above the asks' leaf.

    ``then`` says whether to show why the remedy helps no further asks. ``alone`` says that a command is shown on the
    line below the facts.
    """
    name, rest = one.name or one.allocation_key, one.because or one.rule
    above = [queue for queue in queues if queue != one.leaf]
    counts = f" (counts for {', '.join(above)})" if above else ""
    lines: list[tuple[str, str | Text]] = [
        ("first", name + counts),
        ("bound by", Text.assemble((one.binding, "warn"), f": {rest}" if rest else "")),
    ]
    if one.HasField("cure"):
        lines.append(("cure", Text(one.cure.text, style="good")))
        if one.cure.serves:
            said = (
                "this ask"
                if one.count == 1
                else f"{one.cure.serves:,} of these {plural(one.count, 'ask')}"
            )
            if one.cure.then:
                said += f"; not the next one: {one.cure.then if then else '--all'}"
            lines.append(("serves", said))
    elif not one.searched:
        lines.append(("cure", "not looked for: ask for this queue alone"))
    elif _is_incurable(one):
        said = f"no single change cures it: {'the next line' if alone else _command(one)}"
        lines.append(("cure", Text(said, style="bad")))
    return lines
