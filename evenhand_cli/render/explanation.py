"""Why a key waits or where it runs, from the most important fact to the details."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.v1 import explain_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import heading, in_order, maybe, phrase, span
from evenhand_cli.render.tables import lined_up
from evenhand_cli.render.words import instant, plural, state


def explanation(answer: explain_pb2.ExplainResponse) -> RenderableType:
    """The whole answer."""
    kind = word(explain_pb2.SubjectKind.DESCRIPTOR, answer.kind).replace("_", " ")
    title = Text.assemble((answer.key, "key"), (f"  {kind}", "heading"))
    if answer.partition:
        title.append(f"  partition {answer.partition}", style="faint")
    parts: list[RenderableType] = [title, *(Text(f"  {line}") for line in answer.lines)]
    if answer.HasField("waiting"):
        parts += _waiting(answer.waiting, answer.taken_at_ms)
    if answer.HasField("placed"):
        parts += _placed(answer.placed, answer.taken_at_ms)
    if answer.HasField("application"):
        parts += _application(answer.application, answer.taken_at_ms)
    if answer.HasField("node"):
        parts += _node(answer.node)
    return Group(*parts)


def _waiting(ask: explain_pb2.WaitingAsk, now: int) -> list[RenderableType]:
    facts = [
        ("application", ask.application_id),
        ("queue", ask.queue),
        ("waits", _since(ask.since_ms, now)),
        (
            "because",
            ask.code + (f" ({_since(ask.code_since_ms, now)})" if ask.code_since_ms else ""),
        ),
    ]
    if ask.job_key:
        facts.append(("job", f"{ask.job_key}, {ask.job_members_waiting} of {ask.job_members} wait"))
    if ask.asks_before:
        facts.append(("before it", f"{plural(ask.asks_before, 'ask')} in the same queue"))
    if ask.nearest_node:
        lacks = phrase(ask.nearest_missing)
        facts.append(("nearest node", f"{ask.nearest_node}, which lacks {lacks}"))
    if ask.HasField("reservation"):
        facts.append(("reservation", _reservation(ask.reservation)))
    parts: list[RenderableType] = [Text(), _facts(facts)]
    if ask.levels:
        kinds = in_order(ask.resources)
        parts += [Text("\nhead-room, level by level", style="heading"), _levels(ask.levels, kinds)]
    if ask.limits:
        kinds = in_order(ask.resources)
        parts += [Text("\nuser and group limits", style="heading"), _limits(ask.limits, kinds)]
    if ask.node_tally or ask.nodes_examined:
        parts += [Text(f"\n{_nodes_title(ask)}", style="heading"), _tally(ask.node_tally)]
    return parts


def _nodes_title(ask: explain_pb2.WaitingAsk) -> str:
    return f"nodes: {ask.nodes_fitting:,} of {ask.nodes_examined:,} would take it now"


def _reservation(held: explain_pb2.AskReservation) -> str:
    missing = f", still missing {phrase(held.short)}" if held.short else ""
    decision = f", {held.decision_id}" if held.decision_id else ""
    return f"node {held.node_id} since {instant(held.since_ms)}{decision}{missing}"


def _levels(levels: Sequence[explain_pb2.QueueLevel], kinds: Sequence[str]) -> Table:
    table = _head_room_table(("queue",), kinds)
    for level in levels:
        cells = _head_room_cells(level, kinds)
        table.add_row(level.queue, *cells, _verdict(level.blocks, level.short_types))
    return table


def _limits(limits: Sequence[explain_pb2.LimitLevel], kinds: Sequence[str]) -> Table:
    table = _head_room_table(("queue", "limit"), kinds)
    for limit in limits:
        cells = _head_room_cells(limit, kinds)
        verdict = _verdict(limit.blocks, limit.short_types)
        table.add_row(limit.queue, limit.subject, *cells, verdict)
    return table


def _head_room_table(left: Sequence[str], kinds: Sequence[str]) -> Table:
    return lined_up(left, [f"{heading(kind)} used/max (free)" for kind in kinds], ("",))


def _head_room_cells(
    level: explain_pb2.QueueLevel | explain_pb2.LimitLevel, kinds: Iterable[str]
) -> list[str]:
    cells = []
    for kind in kinds:
        used, most = maybe(kind, {kind: level.usage.get(kind, 0)}), maybe(kind, level.max)
        cells.append(f"{used}/{most} ({maybe(kind, level.head_room)})")
    return cells


def _verdict(blocks: bool, short: Iterable[str]) -> Text:
    names = ", ".join(heading(kind) for kind in short)
    if blocks or names:
        return Text(f"too small: {names}" if names else "in the way", style="bad")
    return Text("fits", style="good")


def _tally(tally: Sequence[explain_pb2.NodeTally]) -> Table:
    table = lined_up((), ("nodes",), ("reason", "such as"))
    for one in tally:
        reason = f"{one.code}: {one.message}" if one.message else one.code
        table.add_row(f"{one.nodes:,}", reason, ", ".join(one.examples[:3]))
    return table


def _placed(placed: explain_pb2.PlacedAllocation, now: int) -> list[RenderableType]:
    facts = [
        ("node", placed.node_id),
        ("application", placed.application_id),
        ("queue", placed.queue),
        ("runs", _since(placed.since_ms, now)),
    ]
    if placed.decision_id:
        facts.append(("releasing", f"by {placed.decision_id} for {placed.released_for or '?'}"))
    facts += [("ranked by", f"{one.level}: {one.name} {one.value}") for one in placed.rank]
    return [Text(), _facts(facts)]


def _application(found: explain_pb2.ExplainedApplication, now: int) -> list[RenderableType]:
    facts: list[tuple[str, str | Text]] = [
        ("queue", found.queue),
        ("state", state(found.state)),
        ("running", f"{found.allocations:,}"),
        ("waiting", f"{found.asks_waiting:,}"),
    ]
    if not found.groups:
        return [Text(), _facts(facts)]
    table = lined_up((), ("asks",), ("waits for", "since", "such as"))
    for group in found.groups:
        since = _since(group.since_ms, now)
        table.add_row(f"{group.asks:,}", group.code, since, group.example_key)
    return [Text(), _facts(facts), Text("\nwaiting asks by reason", style="heading"), table]


def _node(found: explain_pb2.ExplainedNode) -> list[RenderableType]:
    facts: list[tuple[str, str | Text]] = [
        ("state", state("ready" if found.schedulable else "draining")),
        ("capacity", phrase(found.capacity)),
        ("free", phrase(found.available)),
        ("running", f"{found.allocations:,}"),
    ]
    if found.pledged_to:
        facts.append(("pledged to", ", ".join(found.pledged_to)))
    return [Text(), _facts(facts)]


def _facts(facts: Iterable[tuple[str, str | Text]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="faint", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(f"  {name}", value)
    return table


def _since(at_ms: int, now: int) -> str:
    if not at_ms:
        return "-"
    return f"{span(now - at_ms)}, since {instant(at_ms)}" if now else f"since {instant(at_ms)}"
