"""The vocabulary of planning. A policy has intents, and the planner answers each intent with a plan or a refusal."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.kernels.distinct import as_column
from server.kernels.fit import Array
from server.model.policies import PolicyFacts, facts
from server.model.ranking import Ranking
from server.model.records import Level, Shrink
from server.snapshot.waiting import WaitingAsk, WaitingGang

if TYPE_CHECKING:
    from server.preemption.trial import Trial

_ROW: Final[Callable[["Release"], int]] = itemgetter(0)
SPARED_KEYS_MAX: Final = 20
"""The largest number of candidates of one leaf and rule that a plan lists by key.

Further candidates are only counted (design 6.8).
"""


class Rule(enum.StrEnum):
    """A rule that an ask, a candidate or a plan can break. Explanations show the value of the enumeration member."""

    # Rules on the ask and its queue.
    NO_NODE = "no-node"
    """No node could hold the ask."""
    STOPPED_QUEUE = "stopped-queue"
    HEAD_ROOM = "head-room"
    USER_LIMIT = "user-limit"
    """A limit of the ask's user or group has no headroom. The eviction of other users' pods gives no headroom below this limit.
    """
    ONE_AN_ASK = "one-commitment-an-ask"
    ONE_A_NODE = "one-commitment-a-node"
    LEAF_FULL = "reservations-of-the-leaf"
    PARTITION_FULL = "reservations-of-the-partition"
    NEVER_PREEMPTS = "never-preempts"
    """The ask's PriorityClass says `preemptionPolicy: Never` (G1)."""
    RM_CHECK = "rm-check"
    """The ask may fail to bind (design 1.8).

    Its manager checks nodes but answers no plan checks, or the manager refused all plans so far.
    """
    PLAN_CHECK = "plan-check"
    """The ask's manager has not yet answered whether the ask would fit after the planned evictions (design 1.8)."""
    POLICY_OFF = "policy-off"
    """The partition does not list the policy that could plan for the ask, or has preemption turned off (docs/configuration.md)."""
    DISABLED = "preemption-disabled"
    """The ask's queue has `preemption.policy: disabled` (G3)."""
    DELAY = "preemption-delay"
    """The ask has not yet waited for its queue's `preemption.delay` (G1, I5)."""
    BACK_OFF = "back-off"
    """The ask was refused, and its back-off has not ended (G1, C6)."""
    PACE = "pace"
    """A budget of the round is used up, and the decision is postponed (P5)."""
    ROUND = "round-interval"
    """The next round of claims has not begun (P1)."""
    NO_GUARANTEE = "no-guarantee"
    """No queue on the ask's path within the fence guarantees a type that the ask requests (G2)."""
    OVER_GUARANTEE = "over-guarantee"
    """A deciding queue already has its guarantee (G2)."""
    OVER_MAX = "over-max"
    """A queue on the ask's path is over its maximum (G9)."""
    NO_VICTIMS = "no-covering-victims"
    """The victims that the rules allow do not free enough capacity on any node (G8, G12)."""
    NO_TRIGGER = "no-trigger"
    """The ask's label `can-preempt` forbids evictions for the ask, or the label is missing and the partition requires it (J3)."""
    GATHERING = "job-gathering"
    """Members of the ask's gang have not arrived yet (J1)."""
    FIRM_LIMIT = "firm-over-guarantee"
    """Firm pods would use more than the guarantee of a queue on the path (J4)."""
    MAX = "job-over-max"
    """A maximum on the gang's path has no headroom for the gang, even if all possible victims below it were gone (J4, J6, J8)."""
    MEMBER = "member-without-node"
    """One member of the gang gets no node. Therefore no member gets a node (J8)."""
    SEARCH_BOUND = "search-bound"
    """The search for victims reached its limit (G8)."""
    FROZEN = "frozen-pair"
    """The ask's queue claimed from another queue repeatedly.

    Claims between the two queues are frozen for a while (invariant 18).
    """
    # Rules on a candidate.
    OWN_APPLICATION = "own-application"
    """The candidate belongs to the preemptor's application (I2) or to the preemptor's gang (J7)."""
    GANG = "gang-broken"
    """The candidate's gang would have fewer members than it needs, and not all members of the gang may be evicted (J12)."""
    OTHER_QUEUE = "other-queue"
    """The candidate runs in another queue.

    A replacement takes no victim in another queue (I2). A gang whose own queue is entitled to nothing takes no victim in another
    queue either (J7).
    """
    OWN_QUEUE = "own-queue"
    """The candidate runs in the preemptor's leaf, in which a claim takes no victim (G3)."""
    FENCE = "outside-fence"
    """The candidate runs outside the preemptor's fence (G3)."""
    DECIDING_QUEUE = "inside-deciding-queue"
    """The candidate runs below the queue whose deficit lets the ask claim. Its eviction would not help that queue (G2)."""
    CANDIDATE_DISABLED = "victim-queue-disabled"
    """The candidate's queue is protected by `preemption.policy: disabled` (G3)."""
    PRIORITY = "higher-priority"
    """The candidate's priority is higher than the preemptor's, as seen by the lowest queue above both (G5)."""
    REQUIRED_NODE = "required-node"
    """The candidate is a DaemonSet's pod (G6, Q10)."""
    RELEASING = "already-releasing"
    REPLACED = "placeholder-being-replaced"
    NO_COMMON_TYPE = "no-common-type"
    """The candidate holds none of the lacking types (G6, Q10)."""
    FIRM = "firm"
    """The candidate is firm: protection level 2 (V3)."""
    UNTOUCHABLE = "untouchable"
    """The candidate is untouchable (protection level 3), has a system PriorityClass, or was vetoed so recently that the back-off has not ended (V3)."""
    MIN_RUNTIME = "min-runtime"
    """The candidate has run for less than its queue's `preemption.minruntime` (V4)."""
    BUDGET = "disruption-budget"
    """No pod of the candidate's disruption group may be disrupted now, and the partition respects disruption budgets (V5)."""
    NOT_OVER_GUARANTEE = "not-over-guarantee"
    """The candidate's queue, or a queue above it, exceeds its guarantee of a lacking type by at most the dead zone (G4, P9)."""
    BELOW_GUARANTEE = "below-guarantee"
    """A queue would be below its guarantee without the candidate (G4, Q12)."""
    OVERSHOOT = "overshoot"
    """The setting is `overshoot: none`, and the candidate is larger than the part of the target that is still to be freed (Q13).
    """
    NOT_NEEDED = "not-needed"
    """The other victims free enough without the candidate."""
    OTHER_NODE = "node-not-chosen"
    """The candidate's node was not chosen, because another node has a better set of victims (G8)."""
    # Rules on a plan.
    SEVERAL_NODES = "several-nodes"
    """The victims of the plan run on several nodes (G8)."""
    NOT_MINIMAL = "not-minimal"
    """A victim of the plan is not needed: without it, the plan would still free enough (invariant 11)."""
    VICTIM_TWICE = "victim-twice"
    """Another decision already evicts the victim (invariant 10)."""
    NO_ROOM_MADE = "no-room-made"
    """The preemptor would not fit after the releases (invariant 12)."""
    PART_OF_GANG = "part-of-a-job"
    """The plan places some members of a gang, but not all members (J8, invariant 9)."""
    OVER_SHARE = "beyond-the-guarantee"
    """The plan takes more from other queues than the gang's own queue may still claim (J7)."""
    TARGET_TYPES = "target-types"
    """A quota run takes a victim that holds none of its target types (invariant 15)."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An ask or a gang for which a policy makes a plan."""

    policy: str
    ask: WaitingAsk
    gang: WaitingGang | None = None
    """The gang for which capacity is needed as a whole. ``ask`` is the first member of that gang."""


@dataclass(frozen=True, slots=True)
class ShrinkIntent:
    """A quota run or surplus reclaim that is to be planned.

    In a quota run, a queue gives back the amount above its maximum. In a surplus reclaim, the root gives back the amount above
    capacity.

    ``replans`` is the id of the open decision that the plan continues, or "".
    """

    policy: str
    queue: str
    replans: str = ""


@dataclass(frozen=True, slots=True)
class PlannedPledge:
    """A pledge that a plan makes: a node keeps capacity for an ask before the capacity is free. ``row`` is the node's row in the snapshot.

    With ``exclusive``, no other ask gets capacity on the node until the ask of the pledge is placed (G11).
    """

    ask: WaitingAsk
    row: int
    node_id: str
    exclusive: bool = False


class Release(NamedTuple):
    """An allocation to evict."""

    row: int
    """The allocation's row in the snapshot."""
    key: str
    leaf: str
    because: str
    """The rule by which the allocation was chosen."""


@dataclass(frozen=True, slots=True)
class ProtectedCandidates:
    """The candidates of one leaf that one rule protected: their number, and the keys of the first SPARED_KEYS_MAX."""

    rule: Rule
    leaf: str
    count: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A plan. Either all of its releases and pledges are carried out, or none of them."""

    policy: str
    pledges: tuple[PlannedPledge, ...]
    releases: tuple[Release, ...] = ()
    spared: tuple[ProtectedCandidates, ...] = ()
    """The candidates that rules protected."""
    levels: tuple[Level, ...] = ()
    """The amounts of queues that explain the plan to users."""
    shrink: Shrink | None = None
    """The amounts of a quota run or surplus reclaim, and None for other plans. A quota run or surplus reclaim has no pledges."""
    replans: str = ""
    """The id of the open decision that the plan continues, or "" if the plan makes a new decision."""
    ranking: Ranking | None = None
    """The order in which candidates were considered. A plan without victims has no ranking."""

    @cached_property
    def facts(self) -> PolicyFacts:
        """Return the row of the plan's policy in the table of policies. Every rule reads this row."""
        return facts(self.policy)

    @cached_property
    def rows(self) -> Array:
        """Return the victims' rows in the snapshot as an array, in the order of the releases."""
        return as_column(map(_ROW, self.releases))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an intent gets no plan, or why a plan is not applied."""

    rule: Rule
    because: str
    final: bool = False
    """Whether no later intent of the same policy can get a plan."""
    node_id: str = ""
    """The node that lacks the least for the ask."""
    missing: tuple[tuple[int, int], ...] = ()
    """The amounts that the node ``node_id`` lacks, by type index."""
    spared: tuple[ProtectedCandidates, ...] = ()
    """The candidates that rules protected."""
    levels: tuple[Level, ...] = ()
    shrink: Shrink | None = None
    """The amounts of a quota run without victims, and None for other intents."""


class PlanMaker(Protocol):
    """A module that makes a plan for each intent that carries the module's name.

    Such a module stores nothing between calls. The module reads all facts from the snapshot, and never from other policies or
    the live state. Quota enforcement and surplus reclaim are no plan makers, because no ask gets the capacity that they free.
    These two policies answer a `ShrinkIntent`.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a module is a policy, and this is its constant
        """Return the name of the policy in commitments, explanations and metrics."""
        ...

    def plan(self, trial: "Trial", intent: Intent) -> Plan | Refusal:
        """Return a plan for an intent, given the plans so far, or the reason why there is none. The Trial stays unchanged."""
        ...


class Policy(PlanMaker, Protocol):
    """A preemption policy. The intents of the policy name the asks that need capacity.

    An intent can carry the name of another module, which then makes the plan. For example, the intents of policy `guaranteed`
    include gangs, for which policy `job` makes the plans.
    """

    def intents(self, trial: "Trial") -> Iterator[Intent]:
        """Yield the policy's intents, most important first.

        Each intent is made only when it is requested, after the plans for earlier intents.
        """
        ...
