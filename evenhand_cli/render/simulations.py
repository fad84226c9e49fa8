"""What would happen: to asks that nobody submitted, and to the queues of another configuration."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import decisions_pb2, simulate_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import NOTHING, amount, heading, in_order, maybe, phrase, span
from evenhand_cli.render.columns import Column, facts, table
from evenhand_cli.render.decisions import ELSEWHERE, levels, spared, victims
from evenhand_cli.render.verdicts import verdict
from evenhand_cli.render.words import enum_state, plural

DETAILED_MAX = 10
"""Asks of several that are told in detail, those that are not simply placed; JSON has all."""


def asks(found: Sequence[simulate_pb2.AskSimulation], now: int, width: int) -> RenderableType:
    """One ask whole; of several a line each, then those that are not simply placed."""
    if len(found) == 1:
        return Group(*_ask(found[0], now, width))
    columns = (
        Column("ask", [Text(one.allocation_key, style="key") for one in found]),
        Column("queue", [one.queue or NOTHING for one in found], 3),
        Column("outcome", [enum_state(simulate_pb2.AskOutcome, one.outcome) for one in found]),
        Column("node", [one.node_id or NOTHING for one in found], 1),
        Column("victims", [f"{_count(one):,}" for one in found], 1, right=True),
        Column("of", [_queues(one) for one in found], 5),
        Column("blocked by", [one.verdict.law for one in found], 2),
    )
    parts: list[RenderableType] = [table(columns, width), Text(_summary(found), style="faint")]
    telling = [one for one in found if one.outcome != simulate_pb2.ASK_OUTCOME_PLACED]
    for one in telling[:DETAILED_MAX]:
        parts += [Text(), *_ask(one, now, width)]
    if len(telling) > DETAILED_MAX:
        more = f"\n{len(telling) - DETAILED_MAX:,} more: see --output json"
        parts.append(Text(more, style="faint"))
    return Group(*parts)


def _ask(one: simulate_pb2.AskSimulation, now: int, width: int) -> Iterator[RenderableType]:
    outcome = enum_state(simulate_pb2.AskOutcome, one.outcome)
    yield Text.assemble((one.allocation_key, "key"), "  ", outcome)
    yield from (Padding(Text(line), (0, 0, 0, 2), expand=False) for line in one.lines)
    yield Text()
    yield facts(_facts(one))
    if one.victims:
        yield from victims(one.victims, f"who would go: {_count(one):,}", width)
    if one.verdict.law:
        yield from verdict(one.verdict, now, width)
    yield from levels(one.levels, width)
    yield from spared(one.spared)


def _facts(one: simulate_pb2.AskSimulation) -> Iterator[tuple[str, str]]:
    yield "asks for", phrase(one.resources)
    yield "queue", one.queue or NOTHING
    yield "priority", str(one.priority)
    if one.node_id:
        yield "node", one.node_id
    if one.victims_elsewhere:
        yield "others", f"{plural(one.victims_elsewhere, 'victim')} of other queues"


def _count(one: simulate_pb2.AskSimulation) -> int:
    return len(one.victims) + one.victims_elsewhere


def _queues(one: simulate_pb2.AskSimulation) -> str:
    named = list(dict.fromkeys(victim.queue for victim in one.victims))
    return ", ".join([*named, *([ELSEWHERE] if one.victims_elsewhere else [])])


def _summary(found: Sequence[simulate_pb2.AskSimulation]) -> str:
    """`5 asks: 3 placed, 1 preempts, 1 waits; 4 victims`."""
    counts = [
        (
            word(simulate_pb2.AskOutcome.DESCRIPTOR, outcome),
            sum(one.outcome == outcome for one in found),
        )
        for outcome in simulate_pb2.AskOutcome.values()
    ]
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in counts if count)
    goes = sum(map(_count, found))
    return (
        f"{plural(len(found), 'ask')}: {said}; {plural(goes, 'victim') if goes else 'nobody goes'}"
    )


# Another configuration ------------------------------------------------------------------------------------------


def configuration(
    found: simulate_pb2.SimulateConfigurationResponse, now: int, width: int
) -> RenderableType:
    """Each partition's queues over their max: what has to go, who, what stays missing, and when it begins."""
    parts: list[RenderableType] = []
    for partition in found.partitions:
        if len(found.partitions) > 1:
            parts.append(Text(f"partition {partition.partition}", style="heading"))
        if partition.queues:
            parts += _queues_over(partition.queues, now, width)
        else:
            parts.append(Text("no queue would be over its max: nothing has to go", style="good"))
    return Group(*parts)


def _queues_over(
    found: Sequence[simulate_pb2.QueueSimulation], now: int, width: int
) -> Iterator[RenderableType]:
    lines = [line for one in found for line in _lines(one, now)]
    names = ("queue", "type", "now", "new max", "target", "missing", "victims", "result", "begins")
    gives_way = (0, 0, 2, 2, 0, 0, 0, 3, 0)
    right = {"now", "new max", "target", "missing", "victims"}
    columns = [
        Column(name, [line[place] for line in lines], gives_way[place], right=name in right)
        for place, name in enumerate(names)
    ]
    yield table(columns, width)
    why = [(one.queue, one.why_not) for one in found if one.why_not]
    if why:
        yield Text("\nwhat nothing would enforce", style="heading")
        yield facts(why)
    for one in found:
        if one.victims:
            yield from victims(one.victims, f"who would go from {one.queue}", width)


def _lines(one: simulate_pb2.QueueSimulation, now: int) -> Iterable[Sequence[RenderableType]]:
    """A line for each type of the target; the facts of the queue as a whole on the first."""
    queue: RenderableType = Text(one.queue, style="key")
    goes = len(one.victims) + one.victims_left_out
    rest: Sequence[RenderableType] = (f"{goes:,}", _result(one), _begins(one, now))
    for kind in in_order(one.target) or [""]:
        missing = one.run.missing.get(kind, 0)
        lacks = Text(amount(kind, missing), style="bad") if missing else Text(NOTHING)
        now_used, limit = maybe(kind, one.usage), maybe(kind, one.max)
        yield [queue, heading(kind), now_used, limit, maybe(kind, one.target), lacks, *rest]
        queue, rest = "", ["", "", ""]


def _result(one: simulate_pb2.QueueSimulation) -> Text:
    if not one.HasField("run"):
        return Text()
    result = word(decisions_pb2.QuotaResult.DESCRIPTOR, one.run.result).replace("_", "-")
    good = one.run.result == decisions_pb2.QUOTA_RESULT_COMPLETE
    return Text(result, style="good" if good else "warn")


def _begins(one: simulate_pb2.QueueSimulation, now: int) -> Text:
    if not one.due_ms:
        return Text("never", style="bad")
    return Text(f"{span(one.due_ms - now)} after it is applied")
