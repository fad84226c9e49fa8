"""Preemption decisions: a line for each, one decision rule by rule, and changes of decisions."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.output import word
from evenhand_cli.render.amounts import NOTHING, PODS, amount, heading, in_order, phrase, span
from evenhand_cli.render.columns import ANSWER, Column, facts, titled
from evenhand_cli.render.lines import line
from evenhand_cli.render.listing import Field
from evenhand_cli.render.lost_work import core_time, type_time
from evenhand_cli.render.words import enum_state, instant, plural
from server.model import policies

ENDED = (pb.DECISION_STATE_FULFILLED, pb.DECISION_STATE_ABORTED, pb.DECISION_STATE_EXPIRED)
CORES = "vcore"
ELSEWHERE = "another queue"
SHARES = "shares below"
"""The text in place of a preemptor for a surplus reclaim.

In a surplus reclaim, queues below the named queue lose what they use above their shares.
"""
VICTIMS_SHOWN_MAX = 50
"""Maximum number of victims in a table.

Further victims are counted below the table, and JSON has all victims.
"""
REASONS_SHOWN_MAX = 10
STATE_WIDTH = len("fulfilled")
SPARED_SHOWN_MAX = 8
"""Maximum number of groups of protected candidates with a line each."""
EXAMPLES_MAX = 3
"""Maximum number of protected candidates that are named in one line."""


def decisions(now: int) -> Sequence[Field[pb.Decision]]:
    """Return the fields of a decision, for a table with one line for each decision."""
    return (
        Field("decision", lambda one: Text(one.decision_id, style="key")),
        Field(
            "age", lambda one: span(now - one.at_ms), 8, right=True, order=lambda one: -one.at_ms
        ),
        Field("policy", lambda one: one.policy, ANSWER),
        Field("for", _in_favour_of, ANSWER, names=True),
        Field("queue", queue, 4, names=True),
        Field("node", nodes, 6, names=True),
        Field("victims", counted_victims, ANSWER, right=True, order=_victims_count),
        Field("of", lambda one: ", ".join(queues_of_victims(one)), 3, names=True),
        Field("lost", _lost, 7, right=True, order=lambda one: one.lost_millicore_ms),
        Field("state", lambda one: enum_state(pb.DecisionState, one.state), ANSWER),
    )


def decision(found: pb.Decision, now: int, width: int) -> list[RenderableType]:
    """Return all facts about one decision, the most important facts first."""
    parts: list[RenderableType] = [
        Padding(Text(found.summary), (0, 0, 0, 2), expand=False),
        Text(),
        facts(_facts(found, now)),
    ]
    if found.victims:
        parts += victims(found.victims, victims_title(found), width, len(found.victims))
    if found.why_these:
        parts.append(Text("\nwhy these and not others", style="heading"))
        parts += [Padding(Text(one), (0, 0, 0, 2), expand=False) for one in found.why_these]
    kept = spared(found.spared, len(found.spared))
    return [*parts, *kept, *levels(found.levels, width)]


def victims(
    found: Sequence[pb.Victim], title: str, width: int, most: int = VICTIMS_SHOWN_MAX
) -> list[RenderableType]:
    """Return a table of the victims with their nodes. Below the table are the rules by which the victims are evicted."""
    parts = victims_table(found[:most], title, width)
    if len(found) > most:
        more = f"{len(found) - most:,} more: see --output json"
        parts.append(Text(more, style="faint"))
    why = Counter(one.because for one in found if one.because).most_common(REASONS_SHOWN_MAX)
    if why:
        rules = [(plural(count, "victim"), because) for because, count in why]
        parts += [Text("\nwhy they go", style="heading"), facts(rules)]
    return parts


def victims_table(found: Sequence[pb.Victim], title: str, width: int) -> list[RenderableType]:
    """Return a line for each victim."""
    return titled(title, _victims(found), width)


def _victims(found: Sequence[pb.Victim]) -> list[Column]:
    pods = [Text(one.name or one.allocation_key, style="key") for one in found]
    return [
        Column("pod", pods, names=True),
        Column("queue", [one.queue for one in found], ANSWER, names=True),
        Column("application", [one.application_id for one in found], 8, names=True),
        Column("node", [one.node_id for one in found], 2, names=True),
        Column("takes", [phrase(one.resources) for one in found], 4),
        Column("priority", [str(one.priority) for one in found], 3, right=True),
        Column("had run", [span(one.ran_ms) if one.ran_ms else "" for one in found], 7, right=True),
        Column("flags", [flags(one) for one in found], 6),
        Column("state", [_victim_state(one) for one in found], 2),
    ]


def spared(
    found: Sequence[pb.SparedCandidates], most: int = SPARED_SHOWN_MAX
) -> list[RenderableType]:
    """Return the protected candidates by rule and queue.

    Each large group has a line, and the other groups are counted.
    """
    if not found:
        return []
    lines = [(f"{one.count:,} of {one.queue}", _rule(one)) for one in found[:most]]
    parts: list[RenderableType] = [
        Text("\nwhat keeps running, and by which rule", style="heading"),
        facts(lines),
    ]
    rest = found[most:]
    if rest:
        candidates = plural(sum(one.count for one in rest), "candidate")
        more = f"{candidates} in {plural(len(rest), 'more group')}: see --output json"
        parts.append(Text(more, style="faint"))
    return parts


def _rule(one: pb.SparedCandidates) -> Text:
    such = f"; such as {', '.join(one.examples[:EXAMPLES_MAX])}" if one.examples else ""
    return Text.assemble((one.law, "key"), f": {one.rule}{such}")


def levels(found: Sequence[pb.DecidingLevel], width: int) -> list[RenderableType]:
    """Return the queues whose numbers decided, with these numbers at the time of the decision."""
    shown = [one for one in found if not one.hidden]
    if not shown:
        return []
    columns = [
        Column("queue", [one.queue for one in shown], names=True),
        Column("type", [heading(one.resource_type) for one in shown]),
        Column("held", [amount(one.resource_type, one.held) for one in shown], right=True),
        Column("entitled", [_guaranteed(one) for one in shown], right=True),
        Column("max", [_max(one) for one in shown], 1, right=True),
        Column("role", [one.role for one in shown], 2),
    ]
    return titled("queues that decided", columns, width)


def change(found: pb.DecisionChange, console: Console) -> Text:
    """Return a change of a decision as text.

    The text has one line, or as many lines as the console's width requires.
    """
    state = enum_state(pb.DecisionState, found.state)
    head = Text.assemble(
        (instant(found.time_ms), "faint"),
        (f"  {found.decision_id}", "key"),
        (f"  {found.policy:<13}", "heading"),
        "  ",
        state,
        " " * (STATE_WIDTH - len(state)),
    )
    return line(head, _news(found), console)


def _news(found: pb.DecisionChange) -> str:
    if found.HasField("decision"):
        return found.decision.summary
    if found.vetoed_key:
        kept = found.vetoed_name or found.vetoed_key
        return f"{kept} stays: {found.reason or 'its manager cannot take it away'}"
    return found.reason


def beneficiary(found: pb.Decision) -> str:
    """Return the preemptor as a pod's name or a number of pods.

    A quota run or a surplus reclaim has no preemptor.
    """
    everybody = len(found.beneficiaries) + found.beneficiaries_elsewhere
    if found.beneficiaries and everybody == 1:
        one = found.beneficiaries[0]
        return one.name or one.allocation_key
    if everybody:
        return plural(everybody, "ask")
    if not found.HasField("quota_run"):
        return NOTHING
    return SHARES if policies.facts(found.policy).shrinks_partition else "its max"


def _in_favour_of(found: pb.Decision) -> str:
    """Return the preemptor with its queue in words."""
    told, path = beneficiary(found), queue(found)
    if found.HasField("quota_run"):
        shares = policies.facts(found.policy).shrinks_partition
        return f"shares below {path}" if shares else f"max of {path}"
    if len(found.beneficiaries) > 1:
        return f"{told} of {path}"
    return told


def queue(found: pb.Decision) -> str:
    """Return the queue that gets capacity, or whose usage has to fall to its max."""
    if found.HasField("quota_run"):
        return found.quota_run.queue
    named = list(dict.fromkeys(one.queue for one in found.beneficiaries))
    return ", ".join(named) or (ELSEWHERE if found.beneficiaries_elsewhere else NOTHING)


def nodes(found: pb.Decision) -> str:
    """Return the node on which a decision frees capacity, or the number of nodes."""
    named = [one.node_id for one in found.beneficiaries if one.node_id]
    all_of = list(dict.fromkeys(named or [one.node_id for one in found.victims]))
    return all_of[0] if len(all_of) == 1 else plural(len(all_of), "node") if all_of else NOTHING


def _victims_count(found: pb.Decision) -> int:
    return len(found.victims) + found.victims_elsewhere + found.victims_left_out


def counted_victims(found: pb.Decision) -> str:
    """Return the number of victims: `3`, or `1/3 gone` while the decision is open."""
    every = _victims_count(found)
    gone = sum(one.state == pb.VICTIM_STATE_GONE for one in found.victims)
    return f"{every:,}" if found.state in ENDED or not gone else f"{gone:,}/{every:,} gone"


def _lost(found: pb.Decision) -> str:
    """Return the work that the victims had done when their eviction was ordered, as one quantity."""
    return core_time(found.lost_millicore_ms) if found.lost_ran_ms else ""


def queues_of_victims(found: pb.Decision) -> list[str]:
    """Return the queues that lose pods."""
    named = list(dict.fromkeys(one.queue for one in found.victims))
    return [*named, ELSEWHERE] if found.victims_elsewhere else named


def _facts(found: pb.Decision, now: int) -> Iterable[tuple[str, str | Text]]:
    yield "policy", found.policy
    yield "state", state(found, now)
    yield "decided", f"{span(now - found.at_ms)} ago, {instant(found.at_ms)}"
    for one in found.beneficiaries:
        where = f" on {one.node_id}" if one.node_id else ""
        name = one.name or one.allocation_key
        yield "for", f"{name}{where}: {phrase(one.resources)}, priority {one.priority}"
        yield "queue", one.queue
    if found.beneficiaries_elsewhere:
        yield "for", f"{plural(found.beneficiaries_elsewhere, 'ask')} of another queue"
    if found.victims_elsewhere:
        yield "others", f"{plural(found.victims_elsewhere, 'victim')} of other queues"
    if found.lost_ran_ms:
        yield "lost", lost(found)
    if found.HasField("quota_run"):
        yield from quota_run(found.quota_run)


def lost(found: pb.Decision) -> str:
    """Return the work that the victims had done when their eviction was ordered, by resource type."""
    held = found.lost_resource_seconds
    others = [kind for kind in in_order(held) if held[kind] and kind not in {CORES, PODS}]
    times = [core_time(found.lost_millicore_ms), *(type_time(kind, held[kind]) for kind in others)]
    return f"{', '.join(times)}: they had run {span(found.lost_ran_ms)} in all"


def quota_run(run: pb.QuotaRun) -> Iterable[tuple[str, str | Text]]:
    """Yield the amounts that a queue has to free, and the part of these amounts that this run frees."""
    yield "queue", run.queue
    if not run.target:
        return
    yield "has to free", phrase(run.target)
    result = word(pb.QuotaResult.DESCRIPTOR, run.result).replace("_", "-")
    style = "good" if run.result == pb.QUOTA_RESULT_COMPLETE else "warn"
    frees = f"{phrase(run.freed)} of {plural(run.candidates, 'candidate')}"
    yield "frees", Text.assemble(f"{frees}: ", (result, style))
    if run.missing:
        yield "missing", Text(phrase(run.missing), style="bad")
    if run.blocked_by and run.result != pb.QUOTA_RESULT_COMPLETE:
        protects = f", which protects {run.blocking_queue}" if run.blocking_queue else ""
        yield "blocked by", f"{run.blocked_by}{protects}"


def state(found: pb.Decision, now: int) -> Text:
    """Return the state of a decision.

    For a decision that has ended, the text also has the time since the end, and the reason. For an open decision, the
    text also has the time until the decision is given up.
    """
    rest = ""
    if found.ended_ms:
        why = f": {found.end_reason}" if found.end_reason else ""
        rest = f", {span(now - found.ended_ms)} ago{why}"
    elif found.expires_ms:
        rest = f", given up in {span(found.expires_ms - now)}"
    return Text.assemble(enum_state(pb.DecisionState, found.state), rest)


def victims_title(found: pb.Decision) -> str:
    """Return the number of victims, and the number of victims that are gone."""
    gone = sum(one.state == pb.VICTIM_STATE_GONE for one in found.victims)
    every = len(found.victims) + found.victims_left_out
    return f"victims: {every:,}, {gone:,} of them gone"


def _victim_state(one: pb.Victim) -> Text | str:
    return enum_state(pb.VictimState, one.state) if one.state else ""


def flags(one: pb.Victim) -> str:
    """Return a victim's properties that matter for preemption: that it opted out, or that it is the originator of its application."""
    known = {"opted out": one.opted_out, "originator": one.originator}
    return ", ".join(flag for flag, is_set in known.items() if is_set)


def _guaranteed(one: pb.DecidingLevel) -> str:
    return amount(one.resource_type, one.guaranteed) if one.guaranteed else NOTHING


def _max(one: pb.DecidingLevel) -> str:
    return amount(one.resource_type, one.max) if one.HasField("max") else NOTHING
