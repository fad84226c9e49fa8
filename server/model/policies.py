"""The table of preemption policies. Each policy has one row, with every fact in which policies differ.

A policy is a row here and a plan module in `server.preemption`. `server.core.preemption.rounds` lists the plan modules. All
other code reads facts from a row, and never compares names of policies. `tests/tidy/test_policies.py` enforces this rule.
`docs/development/add-a-policy.md` shows how to add a policy.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class Scope(enum.Enum):
    """The allocations that a policy may evict."""

    NONE = enum.auto()
    """No allocations, because the policy evicts nothing."""
    NODE = enum.auto()
    """The allocations on the node that the ask requires by name, whatever the guarantees of their queues (G11)."""
    OTHER_QUEUES = enum.auto()
    """The allocations of queues above their entitlement (G2 to G5)."""
    OWN_QUEUE = enum.auto()
    """The allocations in the ask's own queue that have a lower priority than the ask (I2)."""
    OWN_AND_OTHER_QUEUES = enum.auto()
    """First the allocations of lower priority in the gang's own queue, then allocations of queues above their entitlement (J7)."""
    BELOW_QUEUE = enum.auto()
    """The allocations below the queue whose usage is reduced to its maximum (Q6)."""
    PARTITION = enum.auto()
    """The allocations of all queues that use more than their shares (W3)."""


class Delay(enum.Enum):
    """The time that an ask waits before the policy plans for it."""

    NONE = enum.auto()
    QUEUE = enum.auto()
    """The `preemption.delay` of the ask's queue (I5)."""
    QUEUE_UNLESS_SHARED_OUT = enum.auto()
    """The `preemption.delay` of the ask's queue (G1). There is no delay if queues are entitled to shares by weight (W6)."""


class Retry(enum.Enum):
    """The event after which a refused ask is tried again."""

    BACK_OFF = enum.auto()
    """The end of `backoff`. If a budget postponed the ask, the ask is tried again in the next round (G1, P5)."""
    NODE = enum.auto()
    """A change of the node that the ask requires (G11)."""
    ROUND = enum.auto()
    """The next round. The core does not store such a refusal with the ask, so the ask is tried again in every round."""


class Shrinks(enum.Enum):
    """The queues whose usage a policy reduces. Only policies that serve no ask reduce the usage of queues."""

    NOTHING = enum.auto()
    """No queue, because the policy serves asks."""
    QUEUE = enum.auto()
    """One queue, whose usage is reduced to its maximum (Q1)."""
    PARTITION = enum.auto()
    """All queues of a partition.

    While the usage exceeds the capacity of the nodes, the usage of these queues is reduced to their shares (W3).
    """


@dataclass(frozen=True, slots=True)
class VictimOrder:
    """A list of sort keys by which victims are compared (V2). `server.model.comparing` has the names of all sort keys."""

    name: str
    """The key of this list under `preemption.order`."""
    fixed: tuple[str, ...]
    """The keys with which the list begins. A partition cannot change these keys."""
    usual: tuple[str, ...]
    """The keys that follow the fixed keys if the partition sets no keys."""


CLAIM_ORDER: Final = VictimOrder("claim", ("protection", "originator", "priority"), ("age",))
"""The order of victims in claims, and in replacements within a queue."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The facts of one policy. The default values describe a tentative placement, which belongs to no policy."""

    name: str
    """The name of the policy in records, explanations, metrics and messages."""
    letter: str = ""
    """The first letter of the policy's decision ids.

    The letter is "" if the policy has no decision ids. After a restart the letter identifies the policy that chose a victim.
    """
    listed: bool = False
    """Whether the name of the policy in `preemption.policies` enables the policy.

    A policy that is not enabled in this way has its own setting.
    """

    scope: Scope = Scope.NONE
    gang: bool = False
    """Whether the asks of the policy are gangs, whose members are placed all together or not at all (J8, J10)."""
    reserves: bool = False
    """Whether the policy only keeps a node for an ask. Such a policy evicts nothing and yields to all other policies (design 6.6)."""
    replaces_placeholder: bool = False
    """Whether a real pod replaces a placeholder of its application. This is not a preemption (docs/gang-placeholders.md)."""
    shrinks: Shrinks = Shrinks.NOTHING

    delay: Delay = Delay.NONE
    waits_for_rounds: bool = False
    """Whether the policy plans only in the rounds of `rounds.interval` (P1)."""
    budgeted: bool = False
    """Whether the victims of the policy use up the budgets of a round. A budget may then postpone a decision (P5, P9)."""
    order: VictimOrder = CLAIM_ORDER

    keeps_guarantees: bool = True
    """Whether the queues of the victims must stay at or above their entitlement (rule 2)."""
    keeps_disruption_budgets: bool = True
    """Whether the policy must obey `disruptionbudgets: respect`.

    If the value is False, the policy only prefers victims that no budget protects (G11).
    """
    breaks_firm: bool = False
    """Whether the policy may evict firm pods if `firmbreak: true` is set (G11)."""
    may_thrash: bool = True
    """Whether the thrashing guard watches the policy, and may stop its evictions between a preemptor and its victims.

    The value is False for a policy without victims, and for a policy whose evictions are bounded in another way (invariant 18).
    """

    retry: Retry = Retry.BACK_OFF
    reported_after_others: bool = True
    """Whether a refusal by this policy is reported even if another policy refused the ask in the same round."""
    compared: bool = True
    """Whether the decisions of the policy are compared with the decisions of a shadow (docs/shadow.md)."""
    kept_by: str = ""
    """The text for users that says what would have protected the victims of the policy."""

    @property
    def shrinks_queue(self) -> bool:
        """Return whether the policy reduces the usage of one queue to its maximum."""
        return self.shrinks is Shrinks.QUEUE

    @property
    def shrinks_partition(self) -> bool:
        """Return whether the policy reduces the usage of all queues of a partition to their shares."""
        return self.shrinks is Shrinks.PARTITION

    @property
    def claims(self) -> bool:
        """Return whether the policy takes the capacity to which the ask's queue is entitled from other queues (G2, J7)."""
        return self.scope is Scope.OTHER_QUEUES or self.scope is Scope.OWN_AND_OTHER_QUEUES


REQUIRED_NODE: Final = PolicyFacts(
    name="required-node",
    letter="n",
    listed=True,
    scope=Scope.NODE,
    order=VictimOrder("required-node", ("kind", "priority"), ("age", "size")),
    keeps_guarantees=False,
    keeps_disruption_budgets=False,
    breaks_firm=True,
    may_thrash=False,
    retry=Retry.NODE,
    kept_by="of its pods those of a higher priority are evicted last",
)
"""The policy `required-node`: the pod of a DaemonSet gets the node that it requires (G11)."""

GUARANTEED: Final = PolicyFacts(
    name="guaranteed",
    letter="g",
    listed=True,
    scope=Scope.OTHER_QUEUES,
    delay=Delay.QUEUE_UNLESS_SHARED_OUT,
    waits_for_rounds=True,
    budgeted=True,
    kept_by="a higher guarantee keeps more of its pods",
)
"""The policy `guaranteed`: a single ask of a queue below its entitlement claims capacity (rules 1 to 7, G1 to G12)."""

JOB: Final = PolicyFacts(
    name="job",
    letter="j",
    listed=True,
    scope=Scope.OWN_AND_OTHER_QUEUES,
    gang=True,
    waits_for_rounds=True,
    budgeted=True,
    order=VictimOrder("job", ("protection", "priority", "originator"), ("job",)),
    kept_by="a higher guarantee keeps more of its pods",
)
"""The policy `job`: all members of a gang get nodes, or no member does (J1 to J12)."""

IN_QUEUE: Final = PolicyFacts(
    name="in-queue",
    letter="i",
    listed=True,
    scope=Scope.OWN_QUEUE,
    delay=Delay.QUEUE,
    waits_for_rounds=True,
    budgeted=True,
    reported_after_others=False,
    kept_by="a higher priority keeps a pod",
)
"""The policy `in-queue`: an ask replaces pods of a lower priority in the ask's own queue (I1 to I5)."""

QUOTA: Final = PolicyFacts(
    name="quota",
    letter="q",
    scope=Scope.BELOW_QUEUE,
    shrinks=Shrinks.QUEUE,
    order=VictimOrder("quota", ("originator", "priority", "protection"), ("age",)),
    may_thrash=False,
    compared=False,
    kept_by="a higher max keeps more of its pods",
)
"""The policy `quota`: the usage of one queue is reduced to its maximum (Q1 to Q14)."""

TRIM: Final = PolicyFacts(
    name="trim",
    letter="t",
    scope=Scope.PARTITION,
    shrinks=Shrinks.PARTITION,
    waits_for_rounds=True,
    order=VictimOrder(
        "trim", ("protection", "originator", "priority"), ("not-running", "running-time")
    ),
    may_thrash=False,
    kept_by="a higher weight or guarantee keeps more of its pods",
)
"""The policy `trim`: queues above their shares give back their surplus while the usage exceeds the capacity of the nodes (W3)."""

RESERVATION: Final = PolicyFacts(
    name="reservation",
    reserves=True,
    may_thrash=False,
    retry=Retry.ROUND,
    compared=False,
)
"""The policy `reservation`: a node is kept for an ask that is too large for the present free capacity (design 6.6)."""

REPLACEMENT: Final = PolicyFacts(name="replacement", replaces_placeholder=True)
"""The policy `replacement`: a real pod replaces its placeholder, without a preemption round (docs/gang-placeholders.md)."""

NO_POLICY: Final = PolicyFacts(name="")
"""The facts of a tentative placement, which belongs to no policy."""

TABLE: Final[tuple[PolicyFacts, ...]] = (
    REQUIRED_NODE,
    GUARANTEED,
    JOB,
    IN_QUEUE,
    QUOTA,
    TRIM,
    RESERVATION,
    REPLACEMENT,
)
ORDERS: Final[tuple[VictimOrder, ...]] = (
    CLAIM_ORDER,
    QUOTA.order,
    REQUIRED_NODE.order,
    JOB.order,
    TRIM.order,
)
"""The lists of victim sort keys of all policies, without duplicates."""
REPLACING: Final[tuple[PolicyFacts, ...]] = tuple(
    one for one in TABLE if one.scope is Scope.OWN_QUEUE
)
"""The policies by which an ask may replace pods of a lower priority in its own queue."""
LISTED: Final[tuple[str, ...]] = tuple(one.name for one in TABLE if one.listed)
"""The names that `preemption.policies` may list."""
_BY_NAME: Final[Mapping[str, PolicyFacts]] = {one.name: one for one in TABLE}
_BY_LETTER: Final[Mapping[str, PolicyFacts]] = {one.letter: one for one in TABLE if one.letter}


def facts(name: str) -> PolicyFacts:
    """Return the row of a policy. Return the default facts for a name without a row, such as the name of a tentative placement."""
    return _BY_NAME.get(name, NO_POLICY)


def of_letter(letter: str) -> PolicyFacts:
    """Return the row of the policy whose decision ids begin with the letter.

    If no policy has the letter, return the row of the policy `guaranteed`.
    """
    return _BY_LETTER.get(letter, GUARANTEED)
