"""The result of preemption for a waiting ask: the rule that prevents evictions, the nearest node, and the next attempt."""

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.render.amounts import phrase, span
from evenhand_cli.render.columns import facts
from evenhand_cli.render.decisions import levels, spared
from evenhand_cli.render.fits import by_rule


def verdict(
    found: pb.PreemptionVerdict, now: int, width: int, title: str = "preemption"
) -> list[RenderableType]:
    """Return the verdict with its numbers, and the protected candidates by rule."""
    return [
        Text(f"\n{title}", style="heading"),
        facts(_facts(found, now)),
        *levels(found.levels, width),
        *spared(found.spared),
    ]


def brief(found: pb.PreemptionVerdict, now: int) -> str:
    """Return the verdict in one sentence.

    The sentence says whether preemption can free capacity. If preemption cannot free capacity, the sentence has the
    reason and the time of the next attempt.
    """
    if not found.policy and not found.law:
        return "no policy concerns it"
    because = found.because.rstrip(".")
    if not found.law:
        return f"{found.policy} can free capacity" + (f": {because}" if because else "")
    lacks = f"; {found.node_id} lacks {phrase(found.missing)}" if found.missing else ""
    who = f"{found.policy} frees" if found.policy else "frees"
    return f"{who} no capacity (`{found.law}`): {because or found.rule}{lacks}; next try {retried(found, now)}"


def protected(found: pb.PreemptionVerdict) -> str:
    """Return how many candidates each rule protects; "" when none are protected."""
    counts = Counter[str]()
    for one in found.spared:
        counts[one.law] += one.count
    return by_rule(counts) if counts else ""


def _facts(found: pb.PreemptionVerdict, now: int) -> Iterator[tuple[str, str | Text]]:
    yield "policy", found.policy or "none concerns it"
    if found.law:
        yield "blocked by", Text.assemble((found.law, "bad"), f": {found.rule}")
    elif found.policy:
        yield "blocked by", Text("nothing", style="good")
    if found.because:
        yield "because", found.because
    if found.node_id:
        lacks = f", which lacks {phrase(found.missing)}" if found.missing else ""
        yield "nearest node" if found.law else "node", f"{found.node_id}{lacks}"
    if found.at_ms:
        yield "judged", f"{span(now - found.at_ms)} ago"
    if found.law:
        yield "tried again", retried(found, now)


def retried(found: pb.PreemptionVerdict, now: int) -> str:
    """Return when preemption is tried again for an ask."""
    if not found.retry_ms:
        return "when something changes"
    return f"in {span(found.retry_ms - now)} at the latest" if found.retry_ms > now else "now"
