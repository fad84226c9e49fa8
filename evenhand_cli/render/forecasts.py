"""The consequences of a configuration: a headline, decisions with their instants, queues, and assumptions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import decisions_pb2
from evenhand.v1 import simulate_pb2 as pb
from evenhand_cli.render.amounts import NOTHING, PODS, amount, heading, in_order, span
from evenhand_cli.render.columns import Column, facts, fits, titled
from evenhand_cli.render.decisions import victims
from evenhand_cli.render.fits import Pointer
from evenhand_cli.render.simulations import queues_over
from evenhand_cli.render.words import instant, plural
from server.model import policies
from server.model.phrases import agreeing

ROWS_MAX = 4
"""Maximum number of decisions with a row each. If there are more decisions, equal decisions share a row."""
EVICTS_LEAST = 24
"""Smallest width to which the names of victims are folded."""
NAMED_MAX = 2
"""Maximum number of victims of a decision that its row names.

If there are more victims, the row has the number of victims by queue.
"""
LISTED_MAX = 8
"""Maximum number of victims that are named below the table, if the rows of the table have only numbers of victims.

With `--all` every victim is named.
"""
RULES_MAX = 2
"""Maximum number of rules for choosing victims that are shown in full; `--all` shows all."""
QUEUES_NAMED_MAX = 2
"""Maximum number of queues that a sentence names; further queues are only counted."""


class Detail(NamedTuple):
    """Maximum numbers of rows that are shown without `--all`.

    An answer has rows for changing queues (one for each resource type), for decisions, and for differences.
    """

    queues: int = 8
    decisions: int = 12
    changes: int = 12


DETAILS = (
    Detail(),
    *(Detail(queues, 8, 8) for queues in (6, 5, 4)),
    Detail(3, 6, 6),
    Detail(2, 4, 4),
    Detail(1, 3, 2),
    Detail(0, 2, 1),
)
"""Levels of detail from the most to the least.

The first level with which an answer fits the screen is used.
"""


def configuration(
    found: pb.SimulateConfigurationResponse,
    width: int,
    detail: Detail | None,
) -> RenderableType:
    """Return the consequences of a simulated configuration.

    If `detail` is None, nothing is left out: each decision, victim and queue has a row.
    """
    parts: list[RenderableType] = [Text(headline(found), style=_style(found))]
    for one in found.partitions:
        if len(found.partitions) > 1:
            parts.append(Text(f"\npartition {one.partition}", style="heading"))
        until_ms = None if found.complete else found.until_ms
        parts += _partition(one, found.taken_at_ms, until_ms, width, detail)
    parts += _notes(found, whole=detail is None)
    return Group(*parts)


# The answer -----------------------------------------------------------------------------------------------------------


def headline(found: pb.SimulateConfigurationResponse) -> str:
    """Return the answer in one or two sentences."""
    evicting = _evicting(found)
    said = _evicted(evicting) if evicting else _nothing(found)
    drains = _drains(found)
    if drains:
        said = f"{said.removesuffix('.')}{'.' if evicting else ';'} {drains}"
    unchanged = sum(len(one.unchanged) for one in evicting)
    if unchanged:
        total = sum(map(_count, evicting))
        which = "all of them" if unchanged == total else f"{unchanged:,} of them"
        said += f" Without the change {which} would be evicted, too."
    if found.cut:
        said += f" What comes later was not judged: {found.cut}."
    unjudged = _unjudged(found)
    if unjudged:
        said += f" Partition {', '.join(unjudged)} was not judged: its manager has not sent everything yet."
    return said.strip()


def _drains(found: pb.SimulateConfigurationResponse) -> str:
    """Return a sentence about the queues that drain, and about the consequences for their pods and asks.

    A queue that drains takes no new applications, and is removed when it is empty.

    Return "" when no queue drains.
    """
    queues = [
        one
        for part in found.partitions
        for one in part.forecasts
        if one.applied.draining and not one.before.draining
    ]
    if not queues:
        return ""
    paths = {one.queue for one in queues}
    tops = [one for one in queues if one.queue.rpartition(".")[0] not in paths]
    runs = sum(one.applied.allocations for one in tops)
    waits = sum(one.applied.waiting for one in tops)
    pods = plural(runs, "pod", "keep")
    asks = plural(waits, "waiting ask", "stay")
    few = [one.queue for one in tops[:QUEUES_NAMED_MAX]]
    more = len(tops) - len(few)
    which = " and ".join(few) if not more else f"{', '.join(few)} and {more:,} more"
    return (
        f"{which} {agreeing('drain', len(tops))}: {pods} running there,"
        f" {asks} and may still be placed, new applications are refused."
    )


def _evicting(found: pb.SimulateConfigurationResponse) -> list[pb.ForeseenDecision]:
    decided = [one for part in found.partitions if not part.observed for one in part.decisions]
    return [one for one in decided if _count(one)]


def _unjudged(found: pb.SimulateConfigurationResponse) -> list[str]:
    return [part.partition for part in found.partitions if part.unsynced]


def _evicted(decided: Sequence[pb.ForeseenDecision]) -> str:
    """Return a phrase about the evictions: `2 pods of root.batch within 4 s, in favour of 2 asks of root.prod`."""
    total = sum(map(_count, decided))
    last = max(decided, key=lambda one: one.after_ms)
    when = f"within {span(last.after_ms)} of applying it"
    if last.at_ms:
        when = f"by {instant(last.at_ms)}"
    elif not last.after_ms:
        when = "as soon as it is applied"
    wins = {
        gets.allocation_key: gets.queue for one in decided for gets in one.decision.beneficiaries
    }
    parts = []
    if wins:
        parts.append(f"in favour of {plural(len(wins), 'ask')}{_of(wins.values())}")
    shrinks = [one.decision for one in decided if one.decision.HasField("quota_run")]
    runs = sorted(
        {one.quota_run.queue for one in shrinks if policies.facts(one.policy).shrinks_queue}
    )
    if runs:
        parts.append(
            f"to bring {', '.join(runs)} within its max"
            if len(runs) == 1
            else f"to bring {plural(len(runs), 'queue')} within their max"
        )
    if any(policies.facts(one.policy).shrinks_partition for one in shrinks):
        parts.append("to bring queues down to their shares")
    from_queues = [each.queue for one in decided for each in one.decision.victims]
    return (
        f"{plural(total, 'pod')}{_of(from_queues)} would be evicted {when}, {' and '.join(parts)}."
    )


def _of(queues: Iterable[str]) -> str:
    names = sorted(set(queues))
    if not names:
        return ""
    few = len(names) <= QUEUES_NAMED_MAX
    return f" of {' and '.join(names)}" if few else f" of {plural(len(names), 'queue')}"


def _nothing(found: pb.SimulateConfigurationResponse) -> str:
    seen = sum(map(_count, (one for part in found.partitions for one in part.decisions)))
    if seen:
        return f"Nothing would be evicted: the partition only observes. {plural(seen, 'pod')} would be named."
    unjudged = len(_unjudged(found))
    if unjudged and unjudged == len(found.partitions):
        return ""
    where = " elsewhere" if unjudged else ""
    if found.complete:
        return f"Nothing would be evicted{where}."
    if not found.until_ms:
        return f"Nothing would be evicted{where} in what was simulated."
    return f"Nothing would be evicted{where} within {span(found.until_ms)}."


def _count(one: pb.ForeseenDecision) -> int:
    return len(one.decision.victims) + one.decision.victims_left_out


def _style(found: pb.SimulateConfigurationResponse) -> str:
    quiet = found.complete and not any(part.decisions or part.unsynced for part in found.partitions)
    return "good" if quiet else "warn"


def next_steps(found: pb.SimulateConfigurationResponse, file: str) -> Iterator[Pointer]:
    """Yield the commands to run next: explain a victim, look for a missing resource manager, apply the file."""
    goes = next((each for one in _evicting(found) for each in one.decision.victims), None)
    if goes is not None:
        name = goes.name or goes.allocation_key
        yield Pointer("to look at a victim", f"evenhand explain {name}")
    if _unjudged(found):
        yield Pointer("to see whether its manager is there", "evenhand health")
    yield Pointer("to apply it", f"evenhand config apply {file}")


# One partition --------------------------------------------------------------------------------------------------------


def _partition(
    one: pb.PartitionSimulation,
    now: int,
    until_ms: int | None,
    width: int,
    detail: Detail | None,
) -> Iterator[RenderableType]:
    """Yield the consequences of a simulated configuration in one partition. If `detail` is None, no row is left out."""
    whole = detail is None
    if one.removed:
        yield Text(
            "It is not in the file: what runs stays until it ends, and nothing more is placed.",
            style="warn",
        )
    if one.decisions:
        columns, left = _timeline(one, width, None if detail is None else detail.decisions)
        title = "what would be decided" + (f"; {plural(left, 'more row')}: --all" if left else "")
        yield from titled(title, columns, width)
        yield from _victims_named(one, width) if whole else _victims_listed(one)
    yield from _placed(one)
    if one.ends:
        yield Text(f"{plural(len(one.ends), 'ask')} would end or time out: {one.ends[0].reason}")
    over = [queue for queue in one.queues if whole or not _is_told(queue, one.decisions)]
    if over:
        yield from queues_over(over, now, width, until_ms)
    rows = list(_queue_rows(one.forecasts))
    shown = rows if detail is None else _most_telling(rows, detail.queues)
    if rows and not shown:
        yield Text(f"{plural(len(rows), 'row')} of queues that change: --all")
    if shown:
        left = len(rows) - len(shown)
        title = "queues that change" + (f"; {plural(left, 'more row')}: --all" if left else "")
        yield from titled(title, _queue_columns(shown), width)


def _is_told(queue: pb.QueueSimulation, decided: Iterable[pb.ForeseenDecision]) -> bool:
    """Return whether a decision brings the queue within its max.

    If so, the numbers of the queue are not shown, because the decision has the same numbers.
    """
    runs = {
        one.decision.quota_run.queue
        for one in decided
        if policies.facts(one.decision.policy).shrinks_queue
    }
    return queue.queue in runs and not queue.run.missing and not queue.why_not


def _timeline(
    one: pb.PartitionSimulation, width: int, most: int | None
) -> tuple[Sequence[Column], int]:
    """Return the decisions in the order of their instants, and the number of rows that are left out.

    Queues and nodes have columns when these columns fit, or when `most` is None.
    """
    whole = most is None
    every = decision_rows(one.decisions, whole=whole)
    rows = every[:most]
    names = DECISION_NAMES
    columns = [
        Column(
            name,
            [row[at] for row in rows],
            gives_way,
            least=EVICTS_LEAST if name == "evicts" else 0,
            names=name in {"in favour of", "queue", "of", "node"},
        )
        for at, (name, gives_way) in enumerate(names.items())
    ]
    if not whole and not fits(columns, width):
        columns = [one for one in columns if not one.gives_way]
    return columns, len(every) - len(rows)


DECISION_NAMES = {
    "when": 0,
    "policy": 0,
    "in favour of": 0,
    "queue": 3,
    "evicts": 0,
    "of": 4,
    "node": 5,
}
"""The columns of the decisions, each with a number.

If the columns do not fit, the column with the highest number is left out first; a column with 0 is never left out.
"""


def decision_rows(found: Sequence[pb.ForeseenDecision], *, whole: bool) -> list[tuple[str, ...]]:
    """Return the cells of decisions for the columns of DECISION_NAMES.

    Unless `whole`, equal decisions share a row when there are more than ROWS_MAX.
    """
    each = whole or len(found) <= ROWS_MAX
    return [_row(one) for one in found] if each else _folded(found)


def _row(one: pb.ForeseenDecision) -> tuple[str, ...]:
    found = one.decision
    gets = [each.name or each.allocation_key for each in found.beneficiaries]
    winners = ", ".join(dict.fromkeys(each.queue for each in found.beneficiaries))
    nodes = list(dict.fromkeys(each.node_id for each in (found.beneficiaries or found.victims)))
    node = nodes[0] if len(nodes) == 1 else plural(len(nodes), "node") if nodes else NOTHING
    losers = ", ".join(dict.fromkeys(each.queue for each in found.victims))
    of = losers if _names_all(found) else ""
    return _after(one), found.policy, _few(gets) or _own(one), winners, _victims([one]), of, node


def _names_all(found: decisions_pb2.Decision) -> bool:
    """Return whether the decision has few enough victims to name them in one cell."""
    return len(found.victims) <= NAMED_MAX


def _few(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""


def _own(one: pb.ForeseenDecision) -> str:
    """Return the purpose of a decision without a preemptor.

    Such a decision enforces a queue's max (quota) or deserved shares (trim).
    """
    run = one.decision.quota_run
    of_queue = policies.facts(one.decision.policy).shrinks_queue
    return f"the max of {run.queue}" if of_queue else "shares by weight"


def _victims(found: Sequence[pb.ForeseenDecision]) -> str:
    """Return the names of the victims if there is exactly one decision and it has few victims.

    If there are several decisions or many victims, return the number of victims by queue.
    """
    goes = [each for one in found for each in one.decision.victims]
    if not goes:
        return "nothing"
    if len(found) == 1 and _names_all(found[0].decision):
        return ", ".join(each.name or each.allocation_key for each in goes)
    counts = Counter(each.queue for each in goes)
    return ", ".join(f"{plural(count, 'pod')} of {queue}" for queue, count in counts.items())


def _folded(found: Sequence[pb.ForeseenDecision]) -> list[tuple[str, ...]]:
    """Return rows of decisions; consecutive decisions with equal instant, policy and queue share a row."""
    rows: list[list[pb.ForeseenDecision]] = []
    for one in found:
        if rows and _alike(rows[-1][0]) == _alike(one):
            rows[-1].append(one)
        else:
            rows.append([one])
    return [_row(line[0]) if len(line) == 1 else _together(line) for line in rows]


def _alike(one: pb.ForeseenDecision) -> tuple[object, ...]:
    queues = tuple(sorted({each.queue for each in one.decision.beneficiaries}))
    return one.after_ms, one.decision.policy, queues


def _together(line: Sequence[pb.ForeseenDecision]) -> tuple[str, ...]:
    gets = [each.queue for one in line for each in one.decision.beneficiaries]
    nodes = {each.node_id for one in line for each in one.decision.victims}
    asks = f"{plural(len(gets), 'ask')}{_of(gets)}" if gets else _own(line[0])
    where = plural(len(nodes), "node") if len(nodes) != 1 else next(iter(nodes))
    return _after(line[0]), line[0].decision.policy, asks, "", _victims(line), "", where


def _victims_named(one: pb.PartitionSimulation, width: int) -> Iterator[RenderableType]:
    """For each decision with several victims, yield a table of the victims and the rules that chose them."""
    for found in one.decisions:
        if len(found.decision.victims) > 1:
            yield from victims(found.decision.victims, f"evicted {_when(found)}", width)


def _victims_listed(one: pb.PartitionSimulation) -> Iterator[RenderableType]:
    """Yield the names of the first victims that no row names, and the rules that chose the most victims."""
    folded = len(one.decisions) > ROWS_MAX
    every = [each for found in one.decisions for each in found.decision.victims]
    unnamed = [
        each.name or each.allocation_key
        for found in one.decisions
        if folded or not _names_all(found.decision)
        for each in found.decision.victims
    ]
    told = []
    if unnamed:
        left = len(unnamed) - LISTED_MAX
        names = ", ".join(unnamed[:LISTED_MAX])
        told.append(("evicted", names + (f" and {left:,} more: --all" if left > 0 else "")))
    rules = Counter(each.because for each in every if each.because).most_common()
    for place, (rule, count) in enumerate(rules[:RULES_MAX]):
        many = f"{plural(count, 'pod')}: " if len(rules) > 1 else ""
        told.append(("" if place else "because", f"{many}{rule}"))
    if told:
        yield facts(told)


def _when(one: pb.ForeseenDecision) -> str:
    if one.at_ms:
        return f"at {instant(one.at_ms)}"
    return "at once" if not one.after_ms else f"after {span(one.after_ms)}"


def _after(one: pb.ForeseenDecision) -> str:
    if one.at_ms:
        return instant(one.at_ms)
    return "at once" if not one.after_ms else span(one.after_ms)


def _placed(one: pb.PartitionSimulation) -> Iterator[RenderableType]:
    freed = Counter(each.queue for each in one.placements if each.decision_id)
    free = Counter(each.queue for each in one.placements if not each.decision_id)
    for counts, where in ((freed, "on capacity that is freed"), (free, "on free capacity")):
        if counts:
            said = ", ".join(f"{count:,} of {queue}" for queue, count in counts.most_common(5))
            more = f", and {plural(len(counts) - 5, 'more queue')}" if len(counts) > 5 else ""  # noqa: PLR2004
            yield Text(
                f"{plural(counts.total(), 'waiting ask')} would be placed {where}: {said}{more}"
            )


# Queues ---------------------------------------------------------------------------------------------------------------

_NAMES = ("queue", "type", "holds now", "then", "guaranteed", "deserves")


@dataclass(frozen=True, slots=True)
class _Row:
    """The changes of one resource type of a queue."""

    queue: str
    texts: tuple[str, ...]
    """The cells for the columns of `_NAMES` except the queue."""
    rank: tuple[bool, int] = (False, 0)
    """Sort key of the row; the most important row has the smallest key.

    Rows in which the guarantee changes come first, and so do rows in which the deserved share changes to an amount that
    the queue does not use now. Among these rows, and among all other rows, cores come before memory, and memory before
    other types.
    """


def _most_telling(rows: Sequence[_Row], most: int) -> Sequence[_Row]:
    """Return the most important rows, in the order in which they were given.

    The rows of the root count as least important, because its numbers are sums over the other queues.
    """

    def rank(at: int) -> tuple[bool, tuple[bool, int], int]:
        return "." not in rows[at].queue, rows[at].rank, at

    return [rows[at] for at in sorted(sorted(range(len(rows)), key=rank)[:most])]


def _queue_columns(rows: Sequence[_Row]) -> Sequence[Column]:
    gives_way = (0, 0, 0, 0, 2, 1)
    paths = [one.queue for one in rows]
    named = ["" if at and paths[at - 1] == path else path for at, path in enumerate(paths)]
    cells = [named, *([one.texts[at] for one in rows] for at in range(len(_NAMES) - 1))]
    return [
        Column(name, cells[at], gives_way[at], right=at in {2, 3}, names=name == "queue")
        for at, name in enumerate(_NAMES)
    ]


def _queue_rows(found: Iterable[pb.QueueForecast]) -> Iterator[_Row]:
    """Yield a row for each resource type (but not for pods) whose usage, guarantee or deserved share changes in a queue.

    A queue that is new or removed has one row, which says so.
    """
    for one in found:
        if not one.HasField("before") or not one.HasField("applied"):
            fate = "new" if one.HasField("applied") else "removed"
            yield _Row(one.queue, (NOTHING, NOTHING, fate, "", ""))
            continue
        before, applied, after = one.before, one.applied, one.after
        kinds = {
            *before.held,
            *after.held,
            *before.guaranteed,
            *applied.guaranteed,
            *applied.deserved,
        }
        for place, kind in enumerate(in_order(kinds - {PODS})):
            held = before.held.get(kind, 0), after.held.get(kind, 0)
            owed = before.guaranteed.get(kind, 0), applied.guaranteed.get(kind, 0)
            share = _share(before, kind), _share(applied, kind)
            if held[0] != held[1] or owed[0] != owed[1] or share[0] != share[1]:
                texts = amount(kind, held[0]), amount(kind, held[1]), _pair(kind, owed)
                uneven = share[0] != share[1] and applied.deserved.get(kind, 0) != held[0]
                telling = owed[0] != owed[1] or uneven
                cells = (heading(kind), *texts, _change(share))
                yield _Row(one.queue, cells, (not telling, place))


def _pair(kind: str, values: tuple[int, int]) -> str:
    return _change((amount(kind, values[0]), amount(kind, values[1]))) if any(values) else ""


def _share(numbers: pb.QueueNumbers, kind: str) -> str:
    return amount(kind, numbers.deserved.get(kind, 0)) if numbers.proportional else ""


def _change(values: tuple[str, str]) -> str:
    before, after = values
    return after if before == after else f"{before or NOTHING} -> {after or NOTHING}"


# Assumptions ----------------------------------------------------------------------------------------------------------


def _notes(found: pb.SimulateConfigurationResponse, *, whole: bool) -> Iterator[RenderableType]:
    if whole:
        yield Text()
    if found.not_judged:
        said = ", ".join(f"{one.field} of {one.subject}" for one in found.not_judged[:3])
        more = f" and {len(found.not_judged) - 3} more" if len(found.not_judged) > 3 else ""  # noqa: PLR2004
        yield Text(f"not judged, it concerns only what arrives later: {said}{more}", style="faint")
    if any(one.at_ms for part in found.partitions for one in part.decisions):
        yield Text(
            "a time of day is the end of a delay or back-off that runs already; asks that are tried before the file is"
            " applied wait for their next back-off",
            style="faint",
        )
    looked = f"simulated for {span(found.until_ms)}"
    if not found.until_ms and not found.complete:
        looked = "simulated for a part of the instant at which it is applied"
    elif not found.until_ms:
        looked = "simulated for the instant at which it is applied"
    end = "after that nothing more happens by itself" if found.complete else found.cut
    yield Text(f"{looked}: {end}", style="faint")
    if found.assumptions:
        told = found.assumptions if whole else found.assumptions[:1]
        left = len(found.assumptions) - len(told)
        more = f"; {left} more: --all" if left else ""
        yield Text(f"assumed: {'; '.join(told)}{more}", style="faint")
