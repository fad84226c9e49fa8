"""The decisions of preemption as values: the preemptor, the victims, the protected candidates, and the rules.

The core makes a record when it decides, and keeps the record for a limited time. `decisions` and `explain` show the record, and
the decision log writes the record. A record does not say where pods are now, because the live state has this information.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from server.model.quota import is_below
from server.model.reports import GroupFit
from server.model.resources import NOTHING, Resource

Amounts = Mapping[str, int]
"""Amounts in whole units, by resource type."""


class DecisionState(enum.StrEnum):
    """The states of a decision (C1)."""

    PLANNED = "planned"
    ORDERED = "ordered"
    CONFIRMED = "confirmed"
    FULFILLED = "fulfilled"
    ABORTED = "aborted"
    EXPIRED = "expired"
    OBSERVED = "observed"
    """A decision that was only evaluated: the partition only observes, and nothing was sent."""

    @property
    def is_open(self) -> bool:
        """Return whether the decision is planned, ordered or confirmed: it has not ended. An observed decision is not open."""
        return self in {DecisionState.PLANNED, DecisionState.ORDERED, DecisionState.CONFIRMED}


class ShrinkResult(enum.StrEnum):
    """The results that a quota run can have (Q14)."""

    COMPLETE = "complete"
    WITHIN_MISS = "within-miss"
    SHORTFALL = "shortfall"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Beneficiary:
    """An ask for which capacity is freed, and the node on which the capacity is freed."""

    key: str
    application_id: str
    queue: str
    node_id: str
    resource: Resource
    priority: int


class Victim(NamedTuple):
    """An allocation that a decision evicts.

    ``because`` has the rules by which the victim was chosen, each in words and with the id of the rule.

    A victim is a named tuple, because a quota run makes tens of thousands of victims. Making a frozen dataclass takes several
    times as long.
    """

    key: str
    application_id: str
    queue: str
    node_id: str
    resource: Resource
    priority: int
    opted_out: bool
    originator: bool
    because: str
    ran_ms: int = 0
    """The time in milliseconds for which the victim had run when its eviction was ordered.

    The value 0 may also mean that the time was not measured.
    """


@dataclass(frozen=True, slots=True)
class Spared:
    """Candidates of one queue that one and the same rule protects: their number, and the keys of some of them (design 6.8).

    ``law`` is the rule that protects the candidates, or `not-needed` or `node-not-chosen` (`server.model.ranking`).
    """

    law: str
    queue: str
    count: int
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """The numbers of a queue that affected a decision, in one resource type, at the time of the decision.

    ``role`` is `deciding`, `blocking` or `victim`. A `deciding` queue is below its guarantee, so that the ask may claim (G2). A
    `blocking` queue already has its guarantee, so that the claim was refused (G2). In a quota run, a `blocking` queue would fall
    below its guarantee if more pods were evicted. A `victim` queue is the queue of a victim, or the lowest queue above it with a
    guarantee.
    """

    queue: str
    role: str
    resource_type: str
    guaranteed: int
    max: int | None
    held: int
    by_weight: bool = False
    """Whether ``guaranteed`` is the share to which the queue is entitled by weight (W6)."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """A quota run or a surplus reclaim (trim): the amounts that had to be freed, and the amounts that were freed (Q14).

    ``blocked_by`` is the rule that protected the most important skipped candidate. ``blocking_queue`` is the queue that this
    rule protects.
    """

    queue: str
    target: Amounts
    freed: Amounts
    missing: Amounts
    result: ShrinkResult
    candidates: int
    blocked_by: str = ""
    blocking_queue: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The record of a decision.

    ``summary`` is one sentence. If ``expires_ms`` is 0, the decision never expires. If ``ended_ms`` is 0, the decision is still
    open.

    A decision for asks has beneficiaries. A quota run or a trim has ``shrink`` instead. ``confirmed``, ``vetoed`` and
    ``withdrawn`` have the keys of victims. A withdrawn victim was only marked, and its eviction is no longer needed (J11).
    """

    decision_id: str
    policy: str
    partition: str
    at_ms: int
    state: DecisionState
    summary: str
    beneficiaries: tuple[Beneficiary, ...] = ()
    victims: tuple[Victim, ...] = ()
    spared: tuple[Spared, ...] = ()
    levels: tuple[Level, ...] = ()
    shrink: Shrink | None = None
    expires_ms: int = 0
    ended_ms: int = 0
    confirmed: tuple[str, ...] = ()
    vetoed: tuple[str, ...] = ()
    end_reason: str = ""
    withdrawn: tuple[str, ...] = ()

    @property
    def stayed(self) -> frozenset[str]:
        """Return the keys of the victims that are not evicted: vetoed or withdrawn victims."""
        return frozenset(self.vetoed + self.withdrawn)


CORES: Final = "vcore"


class Lost(NamedTuple):
    """The work that is lost with victims: the number of victims, the time for which they had run, and this time multiplied by their cores.

    All numbers are whole: 1,000,000 of ``millicore_ms`` is one core-second.
    """

    victims: int = 0
    ran_ms: int = 0
    millicore_ms: int = 0

    def plus(self, other: "Lost") -> "Lost":
        """Return the sum of this lost work and ``other``."""
        return Lost(
            self.victims + other.victims,
            self.ran_ms + other.ran_ms,
            self.millicore_ms + other.millicore_ms,
        )


def lost_by(resource: Resource, ran_ms: int) -> Lost:
    """Return the work that is lost with one victim that had run for ``ran_ms``."""
    return Lost(1, ran_ms, dict(resource).get(CORES, 0) * ran_ms)


def lost_of(victims: Iterable[Victim]) -> Lost:
    """Return the work that is lost with victims, each with the time for which it had run when its eviction was ordered."""
    found = Lost()
    for one in victims:
        found = found.plus(lost_by(one.resource, one.ran_ms))
    return found


def lost_work(record: DecisionRecord) -> Lost:
    """Return the work that is lost with the victims of a decision. A victim that was not evicted loses no work."""
    stayed = record.stayed
    return lost_of(one for one in record.victims if one.key not in stayed)


def lost_amounts(record: DecisionRecord) -> Amounts:
    """Return the amounts that the evicted victims of a decision held, multiplied by the milliseconds for which they had run."""
    stayed = record.stayed
    found: Counter[str] = Counter()
    for one in record.victims:
        if one.key not in stayed:
            found.update({kind: amount * one.ran_ms for kind, amount in one.resource})
    return found


def touches(record: DecisionRecord, queue: str) -> bool:
    """Return whether a decision gives capacity to the queue or to a queue below it, or takes capacity from one of these queues.

    If ``queue`` is empty, return True.
    """
    return not queue or any(is_below(path, queue) for path in _queues(record))


def _queues(record: DecisionRecord) -> Iterator[str]:
    if record.shrink is not None:
        yield record.shrink.queue
    yield from (one.queue for one in record.beneficiaries)
    yield from (one.queue for one in record.victims)


@dataclass(frozen=True, slots=True)
class LostLine:
    """The lost work of one combination of policy, preemptor's queue and victims' queue, since the core's start or since an instant."""

    policy: str
    claimant: str
    victim: str
    lost: Lost
    amounts: Mapping[str, int] = field(default_factory=dict)
    """The amounts by resource type, in the unit of the type multiplied by milliseconds."""
    user: str = ""
    application: str = ""
    """The application of the victims. The field is empty if the sums are by queue alone."""

    def touches(self, queue: str) -> bool:
        """Return whether the preemptor or the victims are in a queue or below it. If ``queue`` is empty, return True."""
        return not queue or is_below(self.claimant, queue) or is_below(self.victim, queue)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of preemption for a waiting ask, now or at the last try: a plan, or the first rule that forbids the preemption (G12)."""

    policy: str
    law: str = ""
    because: str = ""
    node_id: str = ""
    missing: Amounts = field(default_factory=dict)
    at_ms: int = 0
    retry_ms: int = 0
    """The latest instant at which the ask is tried again.

    The value is 0 if the ask is tried again only after a change of the state.
    """
    spared: tuple[Spared, ...] = ()
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class AskSimulation:
    """The simulated outcome of an ask that is not submitted. ``outcome`` is placed, preempts, waits or refused.

    Asks that are simulated together are judged in sequence, each as if the earlier asks had got their nodes.
    """

    outcome: str
    queue: str
    node_id: str = ""
    resource: Resource = NOTHING
    victims: tuple[Victim, ...] = ()
    spared: tuple[Spared, ...] = ()
    levels: tuple[Level, ...] = ()
    verdict: Verdict | None = None
    lines: tuple[str, ...] = ()
    brief: str = ""
    """The capacity that a waiting ask lacks, without the names of nodes and other queues.

    The text is "" if the lacking capacity is not known.
    """
    group: int = 0
    """The number of the ask's group, counted from 1. The number is 0 if the ask is in no group."""


@dataclass(frozen=True, slots=True)
class GroupSimulation:
    """The result for a simulated gang, or for equal simulated asks that wait.

    The result says which asks fit together, and what the user can do.
    """

    fit: GroupFit
    next_steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueSimulation:
    """The effect of a configuration on one queue that exceeds its new maximum.

    ``due_ms`` is the instant at which the quota run would begin. If nothing would enforce the maximum, ``due_ms`` is 0, and
    ``why_not`` has the reason.
    """

    queue: str
    target: Amounts
    delay_ms: int
    due_ms: int
    victims: tuple[Victim, ...] = ()
    shrink: Shrink | None = None
    why_not: str = ""
