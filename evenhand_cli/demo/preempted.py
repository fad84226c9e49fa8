"""Evicted pods of a demonstration and the asks for which they were evicted, from the core's decisions, as pure functions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.output import plain
from evenhand_cli.render import decisions as render
from evenhand_cli.render.words import plural
from server.model.policies import facts

UNDONE = (
    pb.DECISION_STATE_ABORTED,
    pb.DECISION_STATE_EXPIRED,
    pb.DECISION_STATE_OBSERVED,
)
"""States of decisions that gave no capacity to an ask."""
NAMED_MAX = 2
"""Maximum number of victims that the example names."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """Counts over all decisions, and one decision as an example; the example is None without decisions."""

    policies: Mapping[str, int]
    """Number of decisions by policy, the largest first."""
    gone: int
    leaving: int
    served: int
    """Number of asks that got capacity."""
    observed: int
    """Number of decisions that were only evaluated, not carried out."""
    example: pb.Decision | None

    @property
    def decisions(self) -> int:
        """The number of all decisions."""
        return sum(self.policies.values())


def preempted(decisions: Sequence[pb.Decision]) -> Preempted:
    """Count the evicted pods and the asks that got their capacity."""
    states = Counter(victim.state for one in decisions for victim in one.victims)
    done = [one for one in decisions if one.state not in UNDONE]
    return Preempted(
        policies=dict(Counter(one.policy for one in decisions).most_common()),
        gone=states[pb.VICTIM_STATE_GONE],
        leaving=states[pb.VICTIM_STATE_LEAVING],
        served=len({gets.allocation_key for one in done for gets in one.beneficiaries}),
        observed=sum(one.state == pb.DECISION_STATE_OBSERVED for one in decisions),
        example=_example(decisions),
    )


def _example(decisions: Iterable[pb.Decision]) -> pb.Decision | None:
    """Return a decision that was carried out and evicted pods; when there is none, any decision."""
    ranked = sorted(decisions, key=lambda one: (one.state in UNDONE, not one.victims))
    return ranked[0] if ranked else None


def preempted_value(found: Preempted) -> dict[str, Any]:
    """Return the counts and the example as JSON."""
    return {
        "decisions": found.decisions,
        "policies": dict(found.policies),
        "gone": found.gone,
        "leaving": found.leaving,
        "served": found.served,
        "observed": found.observed,
        "example": None if found.example is None else plain(found.example),
    }


def preempted_lines(found: Preempted) -> list[Text]:
    """Return lines of text for people; none without decisions.

    The lines say how many decisions there were and by which policies, give an example, and say where to read more.
    """
    if found.example is None:
        return []
    more = (
        "its core is gone now; --watch keeps it: there `evenhand decisions --core HOST:PORT` lists them,"
        " `evenhand explain ID` tells one rule by rule"
    )
    return [
        Text.assemble(("preemption: ", "faint"), _counts(found)),
        Text.assemble(("such as ", "faint"), *_story(found.example)),
        Text(more, style="faint"),
    ]


def _counts(found: Preempted) -> str:
    evicted = f"{plural(found.gone, 'pod')} evicted"
    gains = f" for {plural(found.served, 'other')}" if found.served else ""
    leaving = f", {found.leaving:,} still leaving" if found.leaving else ""
    policies = ", ".join(f"{count:,} {policy}" for policy, count in found.policies.items())
    observed = f", {found.observed:,} only observed" if found.observed else ""
    return f"{evicted}{gains}{leaving}; {plural(found.decisions, 'decision')}: {policies}{observed}"


def _story(one: pb.Decision) -> Iterator[str | tuple[str, str]]:
    """Yield the parts of a line about a decision for an ask, of a quota run, or of a surplus reclaim."""
    yield one.decision_id, "key"
    yield f" ({one.policy}): "
    if facts(one.policy).shrinks_partition:
        yield f"queues above their shares give back {_whom(one)}"
        return
    if one.HasField("quota_run"):
        yield f"{one.quota_run.queue} is reduced to its max without {_whom(one)}"
        return
    gets = one.beneficiaries[0]
    is_are = "is" if len(one.victims) == 1 else "are"
    yield f"{_whom(one)} {is_are} evicted from {gets.node_id} for {render.beneficiary(one)} of {gets.queue}"


def _whom(one: pb.Decision) -> str:
    named = [each.name or each.allocation_key for each in one.victims[:NAMED_MAX]]
    rest = len(one.victims) + one.victims_left_out - len(named)
    queues = ", ".join(dict.fromkeys(each.queue for each in one.victims))
    every = f"{', '.join(named)} and {rest:,} more" if rest else " and ".join(named)
    return f"{every} of {queues}" if named else "nobody"
