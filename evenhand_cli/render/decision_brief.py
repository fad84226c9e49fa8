"""A decision in at most 30 lines: the victims, the pod that gets the capacity, the rule, the numbers and the next step.

Equal victims share a line, and so do equal asks. With `--all` each victim and each ask has a line.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.render.amounts import amount, heading, in_order, pair, phrase, span
from evenhand_cli.render.columns import facts
from evenhand_cli.render.decisions import lost, quota_run, state, victims_table, victims_title
from evenhand_cli.render.fits import NextSteps
from evenhand_cli.render.screen import first_that_fits
from evenhand_cli.render.words import instant, plural, some
from server.model import policies

Row = TypeVar("Row")

ROWS_MAX = 8
"""Maximum number of victims with a line each. If there are more victims, equal victims share a line."""
QUEUES_NAMED_MAX = 2
"""Maximum number of queues that the line of one protecting rule names. All other queues are only counted."""


class Detail(NamedTuple):
    """The amount of detail with which a decision is shown.

    `table` says whether each victim has a line. Each other field is the maximum number of lines or names of one kind;
    further lines or names are only counted. `rules`: rules that protect candidates, in full. `codes`: further rules
    that protect candidates, by code. `groups`: groups of equal asks, equal victims, reasons or queues. `names`: names
    in a group. `order`: sentences about the order of victims.
    """

    table: bool = False
    rules: int = 0
    codes: int = 8
    groups: int = 3
    names: int = 3
    order: int = 3


DETAILS = (
    Detail(table=True, rules=4),
    Detail(table=True, rules=2),
    *(Detail(rules=rules) for rules in (4, 3, 2, 1, 0)),
    *(Detail(codes=5, groups=groups, names=1) for groups in (3, 2, 1)),
    *(Detail(codes=3, groups=1, names=1, order=order) for order in (2, 1, 0)),
    Detail(codes=2, groups=0, order=0),
    Detail(codes=0, groups=0, order=0),
)
"""Levels of detail from the most to the least.

The first level whose lines fit is used.
"""


def decision_brief(
    found: pb.Decision, title: Text, now: int, width: int, told: str = "", asked: str = ""
) -> RenderableType:
    """Return a decision with as much detail as fits the screen.

    When the user asked about one victim, `asked` is the victim's key and `told` the answer about this victim.
    """
    forms = (Group(title, *_parts(found, now, width, told, asked, one)) for one in DETAILS)
    return first_that_fits(forms, width)


def _parts(
    found: pb.Decision, now: int, width: int, told: str, asked: str, detail: Detail
) -> Iterator[RenderableType]:
    with_table = detail.table and 1 < len(found.victims) <= ROWS_MAX
    yield Padding(Text(told or found.summary), (0, 0, 0, 2), expand=False)
    yield Text()
    rows = [
        *_gets(found, detail),
        *([] if with_table else _folded(found, asked, detail)),
        *_elsewhere(found),
        *_because(found, asked, detail.groups),
        *numbers(found, detail.groups + 1, with_victims=not told),
        *([] if told else _decided(found, now)),
        *_ends(found, now),
        *(("order", line) for line in found.why_these[: detail.order]),
        *_stay(found.spared, detail),
    ]
    yield facts(_named_once(rows))
    if with_table:
        yield from victims_table(found.victims, victims_title(found), width)
        yield Text()
    yield NextSteps(_next(found, asked))


def _named_once(rows: Iterable[tuple[str, str | Text]]) -> Iterator[tuple[str, str | Text]]:
    """Yield the rows. If consecutive rows have equal names, only the first of these rows keeps its name."""
    before = ""
    for name, value in rows:
        yield "" if name == before else name, value
        before = name


def _gets(found: pb.Decision, detail: Detail) -> Iterator[tuple[str, str | Text]]:
    """Yield the asks that get the capacity; equal asks of a queue share a line."""
    groups = _groups(found.beneficiaries, lambda one: (one.queue, _amounts(one), one.priority))
    for same in groups[: detail.groups]:
        one = same[0]
        names = some([each.name or each.allocation_key for each in same], 1)
        nodes = list(dict.fromkeys(each.node_id for each in same if each.node_id))
        where = (
            f" on {nodes[0] if len(nodes) == 1 else plural(len(nodes), 'node')}" if nodes else ""
        )
        each = "each " if len(same) > 1 else ""
        yield (
            "for",
            f"{names} of {one.queue}{where}: {each}{phrase(one.resources)}, priority {one.priority}",
        )
    rest = sum(map(len, groups[detail.groups :]))
    if rest:
        yield "for", _others(rest, "ask", detail.groups)
    if found.beneficiaries_elsewhere:
        yield "for", f"{plural(found.beneficiaries_elsewhere, 'ask')} of another queue"
    if found.HasField("quota_run"):
        yield from quota_run(found.quota_run)


def numbers(
    found: pb.Decision, most: int, *, with_victims: bool
) -> Iterator[tuple[str, str | Text]]:
    """Yield the usage of each deciding queue together with its guarantee, one line for each queue."""
    queues: dict[tuple[bool, str], list[pb.DecidingLevel]] = {}
    for one in found.levels:
        is_victim = one.role == "victim"
        if not one.hidden and (with_victims or not is_victim):
            queues.setdefault((is_victim, one.queue), []).append(one)
    ranked = sorted(queues.items(), key=lambda each: (each[0][0], -len(each[0][1])))
    for (_, path), levels in ranked[:most]:
        told = ", ".join(map(_held, levels))
        yield "held", f"{path} {told} ({levels[0].role})"
    if len(ranked) > most:
        yield "held", plural(len(ranked) - most, "more queue")


def _held(one: pb.DecidingLevel) -> str:
    """Return a phrase with the usage of a queue and its guarantee or share.

    The phrase also has the queue's max, if the queue held more than the max or has no guarantee.
    """
    kind, name = one.resource_type, heading(one.resource_type)
    told = [f"{amount(kind, one.held)} {name}, no guarantee"]
    if one.by_weight:
        told = [f"{pair(kind, one.held, one.guaranteed)} {name} entitled by weight"]
    elif one.guaranteed:
        told = [f"{pair(kind, one.held, one.guaranteed)} {name} guaranteed"]
    if one.HasField("max") and (one.held > one.max or not one.guaranteed):
        told.append(f"max {amount(kind, one.max)}")
    return ", ".join(told)


def _decided(found: pb.Decision, now: int) -> Iterator[tuple[str, str | Text]]:
    yield "policy", f"{found.policy}, decided {span(now - found.at_ms)} ago, {instant(found.at_ms)}"


def _ends(found: pb.Decision, now: int) -> Iterator[tuple[str, str | Text]]:
    yield "state", state(found, now)
    if found.lost_ran_ms:
        yield "lost", lost(found)


def _folded(found: pb.Decision, asked: str, detail: Detail) -> Iterator[tuple[str, str | Text]]:
    """Yield the victims. Equal victims share a line.

    The group of the victim that the user asked about comes first.
    """
    groups = _groups(
        found.victims,
        lambda one: (one.queue, _amounts(one), one.priority, one.opted_out, one.originator),
    )
    groups.sort(key=lambda same: all(one.allocation_key != asked for one in same))
    if len(found.victims) > 1:
        yield "victims", victims_title(found).removeprefix("victims: ")
    for same in groups[: detail.groups]:
        same.sort(key=lambda one: one.allocation_key != asked)
        one = same[0]
        names = some([each.name or each.allocation_key for each in same], detail.names)
        each = "each " if len(same) > 1 else ""
        nodes = list(dict.fromkeys(each.node_id for each in same if each.node_id))
        where = f" on {nodes[0]}" if len(nodes) == 1 else ""
        told = f"{names} of {one.queue}{where}: {each}{phrase(one.resources)}"
        yield "victim" if len(found.victims) == 1 else "victims", f"{told}, priority {one.priority}"
    rest = sum(map(len, groups[detail.groups :])) + found.victims_left_out
    if rest:
        yield "victims", _others(rest, "victim", detail.groups)


def _elsewhere(found: pb.Decision) -> Iterator[tuple[str, str | Text]]:
    if found.victims_elsewhere:
        yield "others", f"{plural(found.victims_elsewhere, 'victim')} of other queues"


def _because(found: pb.Decision, asked: str, most: int) -> Iterator[tuple[str, str | Text]]:
    """Yield the rules that chose victims, except the rule that the text about the victim `asked` already names."""
    told = {one.because for one in found.victims if one.allocation_key == asked}
    why = Counter(one.because for one in found.victims if one.because)
    others = [(rule, count) for rule, count in why.most_common() if rule not in told]
    for rule, count in others[:most]:
        yield "why", rule if len(why) == 1 else f"{plural(count, 'victim')}: {rule}"
    rest = sum(count for _, count in others[most:])
    if rest:
        yield "why", f"{plural(rest, 'victim')} by {'other' if most else 'several'} rules"


def _stay(found: Sequence[pb.SparedCandidates], detail: Detail) -> Iterator[tuple[str, str | Text]]:
    """Yield the protected candidates.

    The first few rules have a line each. Of all further rules, only the codes and counts follow.
    """
    rules: dict[str, list[pb.SparedCandidates]] = {}
    for one in found:
        rules.setdefault(one.law, []).append(one)
    ranked = sorted(rules.items(), key=lambda rule: -_count(rule[1]))
    for rule, groups in ranked[: detail.rules]:
        queues = some([f"{one.count:,} of {one.queue}" for one in groups], QUEUES_NAMED_MAX)
        yield "stay", Text.assemble(f"{queues}: ", (rule, "key"), f", {groups[0].rule}")
    rest = [(rule, _count(groups)) for rule, groups in ranked[detail.rules :]]
    if rest:
        more = "further " if detail.rules else ""
        told = _by_rules(rest, more)
        named = [f"{count:,} {rule}" for rule, count in rest[: detail.codes]]
        if len(rest) > len(named) > 0:
            named.append(plural(sum(count for _, count in rest[detail.codes :]), "other"))
        yield "stay", f"{told}: {', '.join(named)}" if named else told


def _count(groups: Iterable[pb.SparedCandidates]) -> int:
    return sum(one.count for one in groups)


def _by_rules(rest: Sequence[tuple[str, int]], more: str) -> str:
    """Return how many candidates the rules protect, such as `178 candidates by 8 further rules`."""
    candidates = plural(sum(count for _, count in rest), "candidate")
    return f"{candidates} by {plural(len(rest), f'{more}rule')}"


def _next(found: pb.Decision, asked: str) -> Iterator[str]:
    """Yield a line about the settings that would have protected a victim, and a line with the command that shows more."""
    of_asked = [one.queue for one in found.victims if one.allocation_key == asked]
    queues = of_asked or [one.queue for one in found.victims]
    if found.HasField("quota_run"):
        queues = [found.quota_run.queue]
    if queues and policies.facts(found.policy).kept_by:
        ((queue, _),) = Counter(queues).most_common(1)
        yield f"evenhand explain {queue}: {kept_by(found)}"
    yield f"evenhand decisions {found.decision_id} --all: all of it"


def kept_by(found: pb.Decision) -> str:
    """Return the settings that would have protected the victims of a decision; "" if no setting protects against its policy."""
    policy = policies.facts(found.policy)
    by_weight = policy.claims and any(one.by_weight for one in found.levels)
    return policies.TRIM.kept_by if by_weight else policy.kept_by


def _groups(found: Iterable[Row], alike: Callable[[Row], Hashable]) -> list[list[Row]]:
    """Return groups of rows, the largest group first. The rows of a group have the same value of `alike`."""
    groups: dict[Hashable, list[Row]] = {}
    for one in found:
        groups.setdefault(alike(one), []).append(one)
    return sorted(groups.values(), key=lambda same: -len(same))


def _others(rest: int, noun: str, groups: int) -> str:
    return f"{plural(rest, f'more {noun}')} of other kinds" if groups else plural(rest, noun)


def _amounts(one: pb.Beneficiary | pb.Victim) -> tuple[tuple[str, int], ...]:
    return tuple((kind, one.resources[kind]) for kind in in_order(one.resources))
