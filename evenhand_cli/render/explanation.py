"""The explanation of an ask or allocation: why it waits, or where it runs, the most important facts first."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import explain_pb2
from evenhand_cli.output import word
from evenhand_cli.render import queue_settings
from evenhand_cli.render.amounts import amount, heading, in_order, pair, phrase, span
from evenhand_cli.render.columns import ANSWER, Column, facts, fits, titled
from evenhand_cli.render.decision_brief import decision_brief
from evenhand_cli.render.decisions import decision
from evenhand_cli.render.fits import (
    NextSteps,
    Pointer,
    limits,
    members,
    most_limits,
    nodes,
    nodes_most,
)
from evenhand_cli.render.verdicts import brief, protected, verdict
from evenhand_cli.render.words import instant, plural, state
from server.model import policies

SHORT = "short-"
"""The prefix of reason codes that name a resource type which nodes lack."""
REASONS_SHOWN_MAX = 4
"""Maximum number of reasons in a table of nodes that are excluded.

`--output wide` has all reasons.
"""
EXAMPLES_MAX = 3
"""Maximum number of nodes that are named for each reason."""
EXAMPLES_LEAST = 24
"""Smallest width to which the names of examples are folded."""

Levels = Sequence[explain_pb2.QueueLevel] | Sequence[explain_pb2.LimitLevel]


def explanation(
    answer: explain_pb2.ExplainResponse,
    asked: str,
    width: int,
    *,
    full: bool = False,
    also: Pointer | None = None,
) -> RenderableType:
    """Return the explanation as text.

    `asked` is the name that the user gave. The name may differ from the key. With `full` no line is left out. `also`
    is a last line about another object with this name.
    """
    kind = word(explain_pb2.SubjectKind.DESCRIPTOR, answer.kind).replace("_", " ")
    if asked == answer.waiting.job_key:
        kind = "gang"
    is_key = asked in {answer.key, answer.evicted.allocation_key}
    name = answer.name if is_key and answer.name else asked
    title = Text.assemble((name, "key"), (f"  {kind}", "heading"))
    if name != asked:
        title.append(f" {asked}", style="faint")
    if answer.key not in {asked, name} and (full or answer.HasField("decision")):
        title.append(f" {answer.key}", style="faint")
    if answer.partition:
        title.append(f"  partition {answer.partition}", style="faint")
    if answer.HasField("decision"):
        return _decision(answer, title, width, full=full)
    waiting = answer.HasField("waiting")
    lines = answer.lines if full or not waiting else answer.lines[:1]
    parts: list[RenderableType] = [
        title,
        *(Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines),
    ]
    parts += _details(answer, width, full=full)
    return Group(*parts, *([also] if also else []))


def _decision(
    answer: explain_pb2.ExplainResponse, title: Text, width: int, *, full: bool
) -> RenderableType:
    """Return a decision as text. If the decision evicted the pod in question, return the text about this pod."""
    told = answer.lines[0] if answer.HasField("evicted") else ""
    if not full:
        key = answer.evicted.allocation_key
        return decision_brief(answer.decision, title, answer.taken_at_ms, width, told, key)
    parts = [Padding(Text(told), (0, 0, 1, 2), expand=False)] if told else []
    return Group(title, *parts, *decision(answer.decision, answer.taken_at_ms, width))


def _details(
    answer: explain_pb2.ExplainResponse, width: int, *, full: bool
) -> list[RenderableType]:
    """Return the facts about the ask or allocation that are not in the sentences of the explanation."""
    if answer.HasField("waiting"):
        return _waiting(answer.waiting, answer.taken_at_ms, width, full=full)
    if answer.HasField("placed"):
        return _placed(answer.placed, answer.taken_at_ms)
    if answer.HasField("application"):
        return _application(answer.application, answer.taken_at_ms, width)
    if answer.HasField("node"):
        return _node(answer.node)
    return queue_settings.explained(answer.queue, width) if answer.HasField("queue") else []


def _waiting(
    ask: explain_pb2.WaitingAsk, now: int, width: int, *, full: bool
) -> list[RenderableType]:
    parts: list[RenderableType] = [NextSteps(ask.next_steps)] if ask.next_steps else []
    parts += [Text(), facts(_of_waiting(ask, now, full=full))]
    gang, kinds = ask.HasField("gang"), in_order(ask.resources)
    if gang:
        parts += nodes(ask.gang, width, nodes_most(ask.gang, full=full))
    levels = ask.levels if full else _telling(ask, kinds)
    if levels:
        whom = "headroom for all its members" if gang else "headroom, level by level"
        parts += titled(f"{whom}: used/max (free)", _levels(levels, kinds, width), width)
    if ask.limits and (full or any(one.blocks for one in ask.limits)):
        parts += titled("user and group limits: used/max (free)", _limits(ask.limits, kinds), width)
    if not gang and (ask.node_tally or ask.nodes_examined):
        parts += titled(_nodes_title(ask), _tally(ask.node_tally, full=full), width)
    if full and ask.HasField("preemption"):
        parts += verdict(ask.preemption, now, width)
    if full and ask.HasField("shadow"):
        parts += verdict(ask.shadow, now, width, "under the shadow settings")
    return parts


def _telling(ask: explain_pb2.WaitingAsk, kinds: Sequence[str]) -> Sequence[explain_pb2.QueueLevel]:
    """Return the queues on the ask's path that limit a requested type, if one of these queues blocks the ask.

    Return nothing if no queue blocks the ask, or for a gang whose limits are already in other lines.
    """
    if ask.HasField("gang") and ask.gang.limits:
        return []
    if not any(one.short_types or one.blocks for one in ask.levels):
        return []
    return [
        one
        for one in ask.levels
        if one.short_types or one.blocks or any(kind in one.max for kind in kinds)
    ]


def _of_waiting(ask: explain_pb2.WaitingAsk, now: int, *, full: bool) -> Iterator[tuple[str, str]]:
    gang = ask.HasField("gang")
    if gang:
        yield "gang", members(ask.gang)
    yield (
        "each asks for" if gang else "asks for",
        f"{phrase(ask.resources)}; priority {ask.priority}",
    )
    yield "queue", f"{ask.queue}, application {ask.application_id}"
    if gang and not full:
        yield "waits", f"{_since(ask.since_ms, now)}: {ask.code}"
    else:
        yield "waits", _since(ask.since_ms, now)
        yield "because", ask.code
    if ask.asks_before and not gang:
        yield "before it", f"{plural(ask.asks_before, 'ask')} of the same application"
    if gang:
        yield from limits(most_limits(ask.gang, full=full))
    if ask.nearest_node and not gang:
        missing = ask.nearest_missing
        lacks = f"which lacks {phrase(missing)}" if missing else "which has the capacity for it"
        yield "nearest node", f"{ask.nearest_node}, {lacks}"
    if ask.HasField("reservation"):
        yield "reservation", _reservation(ask.reservation)
    if not full:
        yield from _preemption(ask, now)


def _preemption(ask: explain_pb2.WaitingAsk, now: int) -> Iterator[tuple[str, str]]:
    """Yield facts on preemption: a sentence for each policy, and how many candidates each rule protects.

    For a gang there is no line on protected candidates. A gang has a line on the shadow only if the result under the
    shadow settings differs from the live result.
    """
    if ask.HasField("preemption"):
        yield "preemption", brief(ask.preemption, now)
        safe = protected(ask.preemption)
        if safe and not ask.HasField("gang"):
            yield "protected", f"{safe} (all: --output wide)"
    if ask.HasField("shadow"):
        live, other = brief(ask.preemption, now), brief(ask.shadow, now)
        same = ask.HasField("preemption") and other == live
        if not (same and ask.HasField("gang")):
            yield "shadow", "the same" if same else other


def _nodes_title(ask: explain_pb2.WaitingAsk) -> str:
    return f"nodes: {ask.nodes_fitting:,} of {ask.nodes_examined:,} would take it now"


def _reservation(held: explain_pb2.AskReservation) -> str:
    missing = f", still missing {phrase(held.short)}" if held.short else ""
    decided = decision_of(held)
    decision = f", by {decided}" if decided else ""
    until = f", until {instant(held.until_ms)} at the latest" if held.until_ms else ""
    return f"node {held.node_id} since {instant(held.since_ms)}{until}{decision}{missing}"


def decision_of(held: explain_pb2.AskReservation) -> str:
    """Return the id of the decision that keeps the capacity; "" for a reservation, which no decision made."""
    return "" if policies.facts(held.decision_id).reserves else held.decision_id


def _levels(
    levels: Sequence[explain_pb2.QueueLevel], kinds: Sequence[str], width: int
) -> list[Column]:
    """Return the columns of the queue levels.

    Free amounts that would make the table too wide are only in the JSON.
    """
    queue = Column("queue", [one.queue for one in levels], names=True)
    columns = [queue, *_headroom(levels, kinds)]
    if fits(columns, width):
        return columns
    return [queue, *_headroom(levels, kinds, free=False)]


def _limits(limits: Sequence[explain_pb2.LimitLevel], kinds: Sequence[str]) -> list[Column]:
    queue = Column("queue", [one.queue for one in limits], names=True)
    return [queue, Column("limit", [one.subject for one in limits]), *_headroom(limits, kinds)]


def _headroom(levels: Levels, kinds: Sequence[str], *, free: bool = True) -> Iterator[Column]:
    """Yield a column for each resource type that at least one level limits, then a column of verdicts.

    A level is a queue on the ask's path, or a limit for a user or group. Its verdict says whether the level blocks the
    ask.
    """
    limited = [kind for kind in kinds if any(kind in one.max for one in levels)]
    for place, kind in enumerate(limited, start=ANSWER + 1):
        cells = [_used_of_max(one, kind, free=free) for one in levels]
        short = any(kind in one.short_types for one in levels)
        yield Column(heading(kind), cells, ANSWER if short else place, right=True)
    yield Column("", [_verdict(one.blocks, one.short_types) for one in levels])


def _used_of_max(
    level: explain_pb2.QueueLevel | explain_pb2.LimitLevel, kind: str, *, free: bool
) -> str:
    """Return the usage of a level, its max, and the free amount: `6/8 (2)`, or `6/-` if the level has no max."""
    used = level.usage.get(kind, 0)
    text = pair(kind, used, level.max[kind]) if kind in level.max else f"{amount(kind, used)}/-"
    return (
        f"{text} ({amount(kind, level.head_room[kind])})"
        if free and kind in level.head_room
        else text
    )


def _verdict(blocks: bool, short: Iterable[str]) -> Text:
    names = ", ".join(heading(kind) for kind in short)
    if blocks or names:
        return Text(f"too small: {names}" if names else "in the way", style="bad")
    return Text("fits", style="good")


def _tally(every: Sequence[explain_pb2.NodeTally], *, full: bool) -> list[Column]:
    tally = every if full else every[:REASONS_SHOWN_MAX]
    names = [_in_words(one.code) for one in tally]
    examples = [", ".join(one.examples[:EXAMPLES_MAX]) for one in tally]
    return [
        Column("nodes", [f"{one.nodes:,}" for one in tally], right=True),
        Column("reason", names),
        Column("such as", examples, ANSWER, least=EXAMPLES_LEAST),
    ]


def _in_words(code: str) -> str:
    """Return a reason code.

    If the code names a resource type that nodes lack, the usual word for the type replaces its name.
    """
    return f"short of {heading(code.removeprefix(SHORT))}" if code.startswith(SHORT) else code


def _placed(placed: explain_pb2.PlacedAllocation, now: int) -> list[RenderableType]:
    if placed.foreign:
        return [Text(), facts([("node", placed.node_id)])]
    told: list[tuple[str, str | Text]] = [
        ("node", placed.node_id),
        ("application", placed.application_id),
        ("queue", placed.queue),
        (
            "runs",
            ("at least " if placed.since_at_the_latest else "") + _since(placed.since_ms, now),
        ),
    ]
    if placed.decision_id:
        told += _releasing(placed, now)
    return [Text(), facts(told)]


def _releasing(placed: explain_pb2.PlacedAllocation, now: int) -> Iterator[tuple[str, str | Text]]:
    """Yield why the pod is being evicted, and by which decision."""
    order = placed.release
    policy = f" ({order.policy})" if order.policy else ""
    for_whom = f" for {placed.released_for}" if placed.released_for else ""
    yield "releasing", Text(f"by {placed.decision_id}{policy}{for_whom}", style="warn")
    if order.because:
        yield "because", order.because
    if order.at_ms:
        yield "decided", _since(order.at_ms, now)
    yield "more", f"evenhand explain {placed.decision_id}"


def _application(
    found: explain_pb2.ExplainedApplication, now: int, width: int
) -> list[RenderableType]:
    told: list[tuple[str, str | Text]] = [
        ("queue", found.queue),
        ("state", state(found.state)),
        ("running", f"{found.allocations:,}"),
        ("waiting", f"{found.asks_waiting:,}"),
    ]
    if not found.groups:
        return [Text(), facts(told)]
    columns = [
        Column("asks", [f"{one.asks:,}" for one in found.groups], right=True),
        Column("waits for", [one.code for one in found.groups]),
        Column("since", [_since(one.since_ms, now) for one in found.groups], 2),
        Column(
            "such as", [one.example_name or one.example_key for one in found.groups], 1, names=True
        ),
    ]
    return [Text(), facts(told), *titled("waiting asks by reason", columns, width)]


def _node(found: explain_pb2.ExplainedNode) -> list[RenderableType]:
    told: list[tuple[str, str | Text]] = [
        ("state", state("ready" if found.schedulable else "draining")),
        ("capacity", phrase(found.capacity)),
        ("free", phrase({kind: max(amount, 0) for kind, amount in found.available.items()})),
        ("running", f"{found.allocations:,}"),
    ]
    return [Text(), facts(told)]


def _since(at_ms: int, now: int) -> str:
    if not at_ms:
        return "-"
    return f"{span(now - at_ms)}, since {instant(at_ms)}" if now else f"since {instant(at_ms)}"
