"""The evicted pods of a demonstration, and the asks that got their capacity, computed from the core's decisions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.output import plain
from evenhand_cli.render.decision_line import decision_line
from evenhand_cli.render.words import plural

UNDONE = (
    pb.DECISION_STATE_ABORTED,
    pb.DECISION_STATE_EXPIRED,
    pb.DECISION_STATE_OBSERVED,
)
"""States of decisions that gave no capacity to an ask."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """The numbers of decisions, victims and served asks over all decisions, and one decision as an example.

    The example is None when there are no decisions.
    """

    policies: Mapping[str, int]
    """Number of decisions by policy, the largest first."""
    gone: int
    leaving: int
    served: int
    """Number of asks that got capacity."""
    observed: int
    """Number of decisions that were evaluated but not carried out."""
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
    """Return a decision that was carried out, preferably one with victims. If no decision was carried out, return any decision."""
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
    """Return lines of text for users, or no lines if there are no decisions.

    The lines have the number of decisions, the policies and an example, and say where to read more.
    """
    if found.example is None:
        return []
    more = (
        "its core is gone now; --watch keeps it: there `evenhand decisions --core HOST:PORT` lists them,"
        " `evenhand explain ID` tells one rule by rule"
    )
    return [
        Text.assemble(("preemption: ", "faint"), _counts(found)),
        Text.assemble(
            ("such as ", "faint"),
            (found.example.decision_id, "key"),
            f" ({found.example.policy}): {decision_line(found.example)}",
        ),
        Text(more, style="faint"),
    ]


def _counts(found: Preempted) -> str:
    evicted = f"{plural(found.gone, 'pod')} evicted"
    gains = f" for {plural(found.served, 'other')}" if found.served else ""
    leaving = f", {found.leaving:,} still leaving" if found.leaving else ""
    policies = ", ".join(f"{count:,} {policy}" for policy, count in found.policies.items())
    observed = f", {found.observed:,} only observed" if found.observed else ""
    return f"{evicted}{gains}{leaving}; {plural(found.decisions, 'decision')}: {policies}{observed}"
