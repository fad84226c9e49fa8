"""Simulations: the outcome for asks that were not submitted, and for queues with another configuration."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import decisions_pb2, explain_pb2, simulate_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import NOTHING, amount, heading, in_order, maybe, phrase, span
from evenhand_cli.render.columns import ANSWER, Column, facts, table
from evenhand_cli.render.decisions import ELSEWHERE, levels, spared, victims
from evenhand_cli.render.fits import (
    NextSteps,
    by_rule,
    limits,
    members,
    most_limits,
    nodes,
    nodes_most,
)
from evenhand_cli.render.verdicts import brief, verdict
from evenhand_cli.render.words import enum_state, plural

DETAILED_MAX = 2
"""Maximum number of groups and asks without a node that are shown in detail; `--output wide` shows all."""
VICTIMS_NAMED_MAX = 2
"""Maximum number of victims that one cell names; further victims are only counted."""
RULES_MAX = 2
"""Maximum number of rules for choosing victims that are shown below the table of asks."""
NODES_NAMED_MAX = 3
"""Maximum number of nodes that one cell names; further nodes are only counted."""
LISTED_MAX = 12
"""Maximum number of rows of the table of asks; JSON has all of them."""

Answer = simulate_pb2.SimulateAsksResponse


@dataclass(frozen=True, slots=True)
class Block:
    """Asks with one common answer: a gang, equal asks that wait, or a single ask. `asks` is never empty."""

    asks: tuple[simulate_pb2.AskSimulation, ...]
    group: simulate_pb2.SimulatedGroup | None = None

    @property
    def first(self) -> simulate_pb2.AskSimulation:
        """The ask whose answer is shown for all asks of the block."""
        return self.asks[0]

    @property
    def name(self) -> str:
        """The name as users see it: the name of the single ask, or the name of the group with its number of asks."""
        if len(self.asks) == 1:
            return self.first.allocation_key
        if self.group is not None and self.group.fit.gang:
            return f"{self.group.fit.name} ({plural(len(self.asks), 'member')})"
        return f"{self.first.allocation_key} and {len(self.asks) - 1:,} like it"

    @property
    def is_placed(self) -> bool:
        """Return whether all asks of the block get a node at once."""
        return all(one.outcome == simulate_pb2.ASK_OUTCOME_PLACED for one in self.asks)

    @property
    def evicted(self) -> Sequence[decisions_pb2.Victim]:
        """All victims of the asks of the block."""
        return [victim for one in self.asks for victim in one.victims]

    def is_told(self, *, several: bool) -> bool:
        """Return whether the row in the table has all facts about the asks.

        If there are `several` answers, the result is also True for asks for which pods would be evicted.
        """
        evicts = all(one.victims and not one.victims_elsewhere for one in self.asks)
        return self.is_placed or (several and evicts)


def asks(found: Answer, width: int, *, full: bool = False) -> RenderableType:
    """Return a single ask in full, or a table of several asks, and the assumptions.

    Below the table there are details for asks that are placed only with evictions, or not at all.
    """
    blocks, now = _blocks(found), found.taken_at_ms
    parts: list[RenderableType] = []
    if len(blocks) > 1:
        rows = blocks if full else blocks[:LISTED_MAX]
        parts.append(table(_columns(rows), width))
        if len(blocks) > len(rows):
            parts.append(Text(f"{len(blocks) - len(rows):,} more: --output wide", style="faint"))
    if len(found.asks) > 1 and (full or len(blocks) > 1 or blocks[0].is_placed):
        parts.append(Text(_summary(found.asks), style="faint"))
    parts += _detailed(blocks, now, width, full=full)
    assumed = list(_assumed(found.asks, full=full or len(found.asks) == 1))
    if assumed:
        parts += [Text(), facts(assumed)]
    return Group(*parts)


def _detailed(
    blocks: Sequence[Block], now: int, width: int, *, full: bool
) -> Iterator[RenderableType]:
    """Yield the answer in full if there is only one.

    If there are several answers, yield those that the table does not show completely.
    """
    several = len(blocks) > 1 and not full
    if several:
        yield from _rules(blocks)
    telling = [one for one in blocks if len(blocks) == 1 or not one.is_told(several=several)]
    for place, one in enumerate(telling if full else telling[:DETAILED_MAX]):
        if place or len(blocks) > 1:
            yield Text()
        yield from _block(one, now, width, full=full, several=several)
    if not full and len(telling) > DETAILED_MAX:
        yield Text(f"\n{len(telling) - DETAILED_MAX:,} more: --output wide", style="faint")


def _blocks(found: Answer) -> list[Block]:
    """Return the asks grouped by common answer, in the order of the first ask of each group."""
    members: dict[object, list[simulate_pb2.AskSimulation]] = {}
    for number, one in enumerate(found.asks):
        refused = one.outcome == simulate_pb2.ASK_OUTCOME_REFUSED
        same = (*one.lines, one.advice, one.queue, one.priority, *sorted(one.resources.items()))
        members.setdefault(one.group or (same if refused else -1 - number), []).append(one)
    return [
        Block(tuple(some), found.groups[some[0].group - 1] if some[0].group else None)
        for some in members.values()
    ]


def _columns(blocks: Sequence[Block]) -> list[Column]:
    return [
        Column("ask", [Text(one.name, style="key") for one in blocks], least=24, names=True),
        Column("queue", [one.first.queue or NOTHING for one in blocks], 3, names=True),
        Column("outcome", [_outcome(one) for one in blocks]),
        Column("node", [_nodes(one) for one in blocks], ANSWER),
        Column("victims", [f"{_victims(one):,}" for one in blocks], 4, right=True),
        Column("evicts", [_evicts(one) for one in blocks], ANSWER, least=16),
        Column("of", [_queues(one) for one in blocks], 5),
        Column("blocked by", [one.first.verdict.law for one in blocks], 2),
    ]


def _evicts(one: Block) -> str:
    """Return the names of the victims or, when there are many, their number."""
    return _named(one.evicted, VICTIMS_NAMED_MAX)


def _named(goes: Sequence[decisions_pb2.Victim], most: int) -> str:
    left = len(goes) - most
    names = ", ".join(one.name or one.allocation_key for one in goes[:most])
    return names + (f" and {left:,} more" if left > 0 else "")


def _rules(blocks: Sequence[Block]) -> Iterator[RenderableType]:
    """Yield the rules by which the victims of all asks would be evicted, the most frequent first."""
    rules = _because(victim for one in blocks for victim in one.evicted)
    if rules:
        yield facts([(plural(count, "victim"), because) for because, count in rules])


def _because(goes: Iterable[decisions_pb2.Victim]) -> list[tuple[str, int]]:
    """Return the rules that chose the most victims, with the number of victims of each."""
    return Counter(one.because for one in goes if one.because).most_common(RULES_MAX)


def _block(
    one: Block, now: int, width: int, *, full: bool, several: bool
) -> Iterator[RenderableType]:
    """Yield the answer, the advice, the facts, and the nearest nodes."""
    first = one.first
    yield Text.assemble((one.name, "key"), "  ", _outcome(one))
    lines = _answer_lines(one, full=full)
    yield from (Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines)
    if one.group is not None and one.group.next_steps and not one.is_placed:
        yield NextSteps(one.group.next_steps)
    if first.advice:
        yield NextSteps([first.advice])
    yield Text()
    yield facts(_facts(one, now, full=full, several=several))
    goes = one.evicted if full else first.victims if len(one.asks) == 1 else ()
    if goes:
        title = f"would be evicted: {_victims(one):,}"
        yield from victims(goes, title, width)
    elif one.group is not None and not one.is_placed and not one.evicted and not several:
        yield from nodes(one.group.fit, width, nodes_most(one.group.fit, full=full))
    if full and first.verdict.law:
        yield from verdict(first.verdict, now, width)
    if full or first.victims:
        yield from levels(first.levels, width)
    if full:
        yield from spared(first.spared)


def _answer_lines(one: Block, *, full: bool) -> Sequence[str]:
    """Return the sentences of the answer.

    For waiting asks return only the first sentence, because the facts have the content of the other sentences.
    """
    if len(one.asks) > 1 and one.is_placed:
        return [f"All {len(one.asks):,} would be placed at once."]
    waits = one.first.outcome == simulate_pb2.ASK_OUTCOME_WAITS
    return one.first.lines[:1] if waits and not full else one.first.lines


def _facts(one: Block, now: int, *, full: bool, several: bool) -> Iterator[tuple[str, str]]:
    """Yield the facts about the asks of a block, the most important first.

    With `several` answers on the screen, yield fewer facts.
    """
    first, group = one.first, one.group
    gang = group is not None and group.fit.gang
    if gang and full and group is not None:
        yield "gang", members(group.fit)
    many = len(one.asks) > 1
    yield (
        "each asks for" if many else "asks for",
        f"{phrase(first.resources)}; priority {first.priority}",
    )
    if full or not (gang or several):
        yield "queue", first.queue or NOTHING
    if first.node_id:
        yield "node", _nodes(one)
    if many and not full:
        yield from _evictions(one)
    if group is not None:
        yield from _lacking(group.fit, many=many, full=full, several=several)
    if first.victims_elsewhere:
        yield "others", f"{plural(first.victims_elsewhere, 'victim')} of other queues"
    if not full:
        yield from _of_preemption(first, now, brief_only=gang or several)


def _evictions(one: Block) -> Iterator[tuple[str, str]]:
    """Yield the victims for a group of asks, and the rules that chose them."""
    if one.evicted:
        yield "evicts", _named(one.evicted, LISTED_MAX)
        yield from (("because", because) for because, _ in _because(one.evicted))


def _lacking(
    fit: explain_pb2.GroupFit, *, many: bool, full: bool, several: bool
) -> Iterator[tuple[str, str]]:
    """Yield the facts about the capacity and the headroom that a group of asks lacks.

    There is a row for each limit without headroom, unless there are ``several`` answers. With ``many``, one row has the
    total amount that the nodes lack; a gang has no such row.
    """
    if not several:
        yield from limits(most_limits(fit, full=full))
    if many and fit.missing and not fit.gang:
        yield "missing", f"{phrase(fit.missing)} in total"


def _of_preemption(
    first: simulate_pb2.AskSimulation, now: int, *, brief_only: bool
) -> Iterator[tuple[str, str]]:
    """Yield the reason why preemption frees no capacity.

    For a single ask, also yield the number of candidates that each rule protects.
    """
    if first.verdict.law:
        yield "preemption", brief(first.verdict, now)
    counts = Counter[str]()
    for group in first.spared:
        counts[group.law] += group.count
    if counts and not brief_only:
        yield "protected", f"{by_rule(counts)} (all: --output wide)"


def _assumed(
    found: Sequence[simulate_pb2.AskSimulation], *, full: bool
) -> Iterator[tuple[str, str]]:
    """Yield each assumption once.

    Add the number of asks that the assumption concerns, unless the assumption concerns all asks. The source of an
    assumed value is shown always for the priority, and only with `full` for other values.
    """
    counts = Counter((one.name, one.value, one.because) for ask in found for one in ask.assumed)
    first, others = [], []
    for (name, value, because), number in counts.items():
        some = "" if number == len(found) else f" of {number:,} of {plural(len(found), 'ask')}"
        if name == "priority":
            first.append(f"priority {value}{some}: {because}")
        else:
            others.append(f"{name} {value}{some}" + (f" ({because})" if because and full else ""))
    if first or others:
        yield "assumed", "; ".join([*first, *others])


def _outcome(one: Block) -> Text:
    return enum_state(simulate_pb2.AskOutcome, one.first.outcome)


def _nodes(one: Block) -> str:
    """Return the names of the nodes on which the asks are placed or, when there are many, their number."""
    named = list(dict.fromkeys(ask.node_id for ask in one.asks if ask.node_id))
    if len(named) > NODES_NAMED_MAX:
        return plural(len(named), "node")
    return ", ".join(named) or NOTHING


def _victims(one: Block) -> int:
    return sum(map(_count, one.asks))


def _count(one: simulate_pb2.AskSimulation) -> int:
    return len(one.victims) + one.victims_elsewhere


def _queues(one: Block) -> str:
    named = list(dict.fromkeys(victim.queue for ask in one.asks for victim in ask.victims))
    elsewhere = any(ask.victims_elsewhere for ask in one.asks)
    return ", ".join([*named, *([ELSEWHERE] if elsewhere else [])])


def _summary(found: Sequence[simulate_pb2.AskSimulation]) -> str:
    """Return the outcomes: `5 asks: 3 placed, 1 preempts, 1 waits; 4 allocations would be evicted`."""
    counts = [
        (
            word(simulate_pb2.AskOutcome.DESCRIPTOR, outcome),
            sum(one.outcome == outcome for one in found),
        )
        for outcome in simulate_pb2.AskOutcome.values()
    ]
    said = ", ".join(f"{count:,} {_verb(outcome, count)}" for outcome, count in counts if count)
    goes = sum(map(_count, found))
    evicted = (
        f"{plural(goes, 'allocation')} would be evicted" if goes else "nothing would be evicted"
    )
    return f"{plural(len(found), 'ask')}: {said}; {evicted}"


def _verb(outcome: str, count: int) -> str:
    """Return the outcome as a verb for this number of asks: `1 waits`, `5 wait`."""
    return outcome if count == 1 or outcome in {"placed", "refused"} else outcome.removesuffix("s")


# Another configuration ------------------------------------------------------------------------------------------


def queues_over(
    found: Sequence[simulate_pb2.QueueSimulation], now: int, width: int, until_ms: int | None
) -> Iterator[RenderableType]:
    """Yield the queues over their new max.

    Each queue has its excess, the amount that cannot be freed, and the instant of the enforcement. A simulation that
    stopped at `until_ms` did not judge later quota runs.
    """
    yield Text("\nqueues over their new max", style="heading")
    lines = [line for one in found for line in _lines(one, now, until_ms)]
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
        yield Text("\nwhat is not enforced", style="heading")
        yield facts(why)


def _lines(
    one: simulate_pb2.QueueSimulation, now: int, until_ms: int | None
) -> Iterable[Sequence[RenderableType]]:
    """Yield the cells of a line for each resource type.

    Facts about the whole queue are on the first line.
    """
    queue: RenderableType = Text(one.queue, style="key")
    goes = len(one.victims) + one.victims_left_out
    rest: Sequence[RenderableType] = (f"{goes:,}", _result(one), _begins(one, now))
    if until_ms is not None and one.due_ms - now > until_ms and not one.HasField("run"):
        rest = (NOTHING, "not judged", _begins(one, now))
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
    return Text(f"after {span(one.due_ms - now)}")
