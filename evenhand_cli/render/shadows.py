"""The comparison of decisions under the shadow settings with live decisions: one line for each ask, and sums."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.output import word
from evenhand_cli.render.amounts import NOTHING, span
from evenhand_cli.render.columns import ANSWER, Column, titled
from evenhand_cli.render.decisions import SHARES
from evenhand_cli.render.listing import Field
from evenhand_cli.render.lost_work import core_time
from evenhand_cli.render.words import instant, plural

STYLES: Final = {
    pb.SHADOW_DIFFERENCE_SAME: "good",
    pb.SHADOW_DIFFERENCE_ONLY_LIVE: "warn",
    pb.SHADOW_DIFFERENCE_ONLY_SHADOW: "warn",
}
VICTIMS_NAMED: Final = 2
CHOICE_LEAST: Final = 16
"""Smallest width to which a decision's text may be folded."""


def decisions(now: int) -> Sequence[Field[pb.ShadowDecision]]:
    """Return the fields of an ask: its live and its shadow decision, their difference, and why a decision is missing."""
    return (
        Field("ask", lambda one: Text(name(one), style="key"), names=True),
        Field(
            "age", lambda one: span(now - one.at_ms), 5, right=True, order=lambda one: -one.at_ms
        ),
        Field("queue", lambda one: one.queue, 4, names=True),
        Field("live", lambda one: choice_text(one, "live"), ANSWER, least=CHOICE_LEAST),
        Field("shadow", lambda one: choice_text(one, "shadow"), ANSWER, least=CHOICE_LEAST),
        Field("difference", _difference, ANSWER),
        Field("why", why, 3, least=CHOICE_LEAST),
    )


def together(found: Sequence[pb.ShadowDecision]) -> list[Column]:
    """Return a line for each queue and kind of difference, with the number of asks, the largest number first."""
    groups: dict[tuple[str, str, str], list[pb.ShadowDecision]] = {}
    for one in found:
        sides = (_policy(one, "live"), _policy(one, "shadow"))
        groups.setdefault((one.queue, difference_word(one.difference), " ".join(sides)), []).append(
            one
        )
    lines = sorted(groups.values(), key=len, reverse=True)
    return [
        Column("asks", [f"{len(line):,}" for line in lines], right=True),
        Column("of queue", [Text(line[0].queue, style="key") for line in lines], names=True),
        Column("difference", [_difference(line[0]) for line in lines], ANSWER),
        Column("live", [_choices(line, "live") for line in lines], ANSWER, least=CHOICE_LEAST),
        Column("shadow", [_choices(line, "shadow") for line in lines], ANSWER, least=CHOICE_LEAST),
    ]


def _policy(one: pb.ShadowDecision, side: str) -> str:
    return getattr(one, side).policy if one.HasField(side) else NOTHING


def _choices(line: Sequence[pb.ShadowDecision], side: str) -> str:
    """Return decisions in words: `28 victims of root.batch.etl`.

    The victims of a decision for several asks are counted once.
    """
    choices = [getattr(one, side) for one in line if one.HasField(side)]
    if not choices:
        return NOTHING
    named = {victim.allocation_key: victim for choice in choices for victim in choice.victims}
    uncounted = sum(one.victims_elsewhere + one.victims_left_out for one in choices)
    queues = sorted({victim.queue for victim in named.values() if victim.queue})
    number = len(named) + uncounted
    if not number:
        return "capacity"
    of = queues[0] if len(queues) == 1 else plural(len(queues), "queue")
    return f"{plural(number, 'victim')}{f' of {of}' if queues else ''}"


def shadow(found: pb.Shadow, width: int) -> list[RenderableType]:
    """Return the settings that differ, and the live and shadow decisions so far."""
    settings = ", ".join(f"{name} {value}" for name, value in sorted(found.settings.items()))
    head = Text.assemble(("\nshadow of partition ", "heading"), (found.partition, "key"))
    head.append(f"  since {instant(found.since_ms)}", style="faint")
    parts: list[RenderableType] = [head]
    if settings:
        parts.append(Text(f"  {settings}"))
    if found.counts:
        told = (f"{difference_word(one.difference)} {one.count:,}" for one in found.counts)
        parts.append(Text(f"  {', '.join(told)}"))
    if found.sums:
        parts += titled("decided", _sums(found.sums), width)
    return parts


def _sums(found: Sequence[pb.ShadowSum]) -> list[Column]:
    return [
        Column("policy", [Text(one.policy, style="key") for one in found]),
        Column("side", ["shadow" if one.shadow else "live" for one in found]),
        Column("decisions", [f"{one.decisions:,}" for one in found], right=True),
        Column("victims", [f"{one.victims:,}" for one in found], right=True),
        Column("lost", [core_time(one.lost_millicore_ms) for one in found], right=True),
    ]


def name(one: pb.ShadowDecision) -> str:
    """Return the ask's name, or its key.

    Return a fixed text for a decision about a queue, and for an ask whose name and key are unknown.
    """
    if one.of_queue:
        return SHARES
    return one.name or one.allocation_key or "another ask"


def choice_text(one: pb.ShadowDecision, side: str) -> str:
    """Return a decision in words: `2 victims on node-a (web/front-1, web/front-2)`."""
    if not one.HasField(side):
        return NOTHING
    choice: pb.ShadowChoice = getattr(one, side)
    number = len(choice.victims) + choice.victims_elsewhere + choice.victims_left_out
    where = f" on {choice.node_id}" if choice.node_id else ""
    named = [victim.name or victim.allocation_key for victim in choice.victims[:VICTIMS_NAMED]]
    more = [*named, "..."] if number > len(named) and named else named
    who = f" ({', '.join(more)})" if more else ""
    return f"{plural(number, 'victim') if number else 'capacity'}{where}{who}"


def _difference(one: pb.ShadowDecision) -> Text:
    return Text(difference_word(one.difference), style=STYLES.get(one.difference, "bad"))


def difference_word(difference: pb.ShadowDifference) -> str:
    """Return the word for the difference of the live and the shadow decision, such as `only-shadow`."""
    return word(pb.ShadowDifference.DESCRIPTOR, difference).replace("_", "-")


def why(one: pb.ShadowDecision) -> str:
    """Return why there is no live or no shadow decision, or why the comparison ended."""
    if one.ended_ms:
        return f"ended: {one.end_reason}" if one.end_reason else "ended"
    return ": ".join(filter(None, (one.law, one.because)))
