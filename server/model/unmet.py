"""The unmet-guarantee report: how far a queue is below its guarantee, the reason, and the smallest change that helps."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from server.model.records import Spared

Amounts = Mapping[str, int]


class Binding(enum.StrEnum):
    """The obstacle between a queue and its guarantee. The value is a stable word."""

    SERVED = "being-served"
    """Capacity is being freed for the queue, or will be in the next round."""
    NOT_READY = "not-ready"
    """The queue's gang is not complete, the queue is stopped, or its manager is still sending what it has."""
    DELAY = "delay"
    BACK_OFF = "back-off"
    FROZEN = "frozen-pair"
    POLICY_OFF = "preemption-off"
    OBSERVED = "observe-only"
    DISABLED = "preemption-disabled"
    NEVER = "never-preempts"
    RM_CHECK = "rm-check"
    NAMED_NODE = "named-node"
    FENCE = "fence"
    OWN_GUARANTEE = "lower-guarantee"
    """A queue below this one has a guarantee that is met (rule 4), used up by firm pods (J4), or too small for a gang (J7)."""
    CLOSED = "closed-type"
    """On every node, or below a maximum, the ask lacks a type whose guarantee its deciding queue already uses up (G2)."""
    UNDECIDED = "undecided-type"
    """No queue guarantees a type that the ask lacks. The pods that use the type run inside the queue that would claim (G2)."""
    USER_LIMIT = "user-limit"
    OWN_MAX = "own-max"
    ANCESTOR_MAX = "ancestor-max"
    NODE_SHAPE = "node-shape"
    """The ask is larger than every node that it may use, even if the node were empty."""
    FRAGMENTATION = "fragmentation"
    """The free capacity suffices in sum, but not on any single node."""
    OVER_PROMISED = "over-promised"
    """The guarantees of the queues exceed what all nodes have together."""
    GUARANTEES = "guarantees-of-others"
    PRIORITIES = "priorities"
    PROTECTED = "protected"
    """The candidates are firm or untouchable, or members of gangs that must not be broken (J12)."""
    MIN_RUNTIME = "min-runtime"
    BUDGETS = "disruption-budgets"
    VICTIMS_DISABLED = "victim-queues-disabled"
    OWN_SIDE = "own-side"
    """All pods that use what the ask lacks run below the queue that claims, like the ask itself."""
    FOREIGN = "other-schedulers"
    """Pods of other schedulers occupy the nodes on which the ask could run, and this core has no pods there."""
    SEARCH = "search-bound"
    NOT_JUDGED = "not-judged"
    """The report's budget was used up before the queue was judged. A report of the queue alone has the answer."""


class Change(enum.StrEnum):
    """The kind of change that a cure makes. The value is a stable word."""

    WAIT = "wait"
    RAISE_MAX = "raise-max"
    RAISE_USER_LIMIT = "raise-user-limit"
    RAISE_GUARANTEE = "raise-guarantee"
    LOWER_GUARANTEE = "lower-guarantee"
    LIFT_FENCE = "lift-fence"
    ENABLE_QUEUE = "enable-queue"
    RAISE_PRIORITY = "raise-priority"
    ALLOW_PREEMPTION = "allow-preemption"
    DROP_CHECK = "drop-check"
    SETTING = "setting"
    UNCORDON = "uncordon"
    ADD_NODE = "add-node"


@dataclass(frozen=True, slots=True)
class Cure:
    """A change with which preemption, or placement, was found to help. ``subject`` is a queue, setting, pod or node.

    ``amounts`` has the amounts by which a limit or guarantee changes, the capacity of a new node, or the new priority.
    ``until_ms`` is the instant to wait for. ``serves`` is how many of the equal asks the change serves. ``then`` is the reason
    why it does not serve the next one. ``serves`` is 0 if the asks were not counted, or if the change serves all that were
    tried.
    """

    change: Change
    subject: str
    text: str
    amounts: Amounts = field(default_factory=dict)
    until_ms: int = 0
    serves: int = 0
    then: str = ""


@dataclass(frozen=True, slots=True)
class UnmetAsks:
    """Equal waiting asks of one leaf. A queue on their path is below its guarantee. ``key`` is the key of the first ask.

    ``job`` is the gang of which they are the members, "" if each is on its own. ``resource`` is the request of one ask, or of
    all members together. If ``cure`` is None and ``searched`` is set, none of the single changes that were tried helps. Without
    ``searched`` the report's budget was used up before these asks were tried.
    """

    leaf: str
    key: str
    count: int
    resource: Amounts
    priority: int
    binding: Binding
    because: str
    law: str = ""
    spared: tuple[Spared, ...] = ()
    fragmented: bool = False
    cure: Cure | None = None
    searched: bool = True
    job: str = ""


@dataclass(frozen=True, slots=True)
class UnmetType:
    """A resource type of which a queue holds less than it is entitled to."""

    resource_type: str
    entitled: int
    held: int
    missing: int


@dataclass(frozen=True, slots=True)
class UnmetQueue:
    """A queue that is below its guarantee, while asks in it or below it wait for the missing capacity.

    ``others`` is the number of asks that were not judged.
    """

    queue: str
    types: tuple[UnmetType, ...]
    asks: tuple[UnmetAsks, ...]
    others: int = 0


@dataclass(frozen=True, slots=True)
class UnmetReport:
    """The report of one partition. ``over_promised`` is by how much the sum of all guarantees exceeds what the nodes have.

    ``plans`` is the number of searches that the planner made. ``left_out`` is the number of unmet queues that are not listed.
    """

    partition: str
    queues: tuple[UnmetQueue, ...]
    over_promised: Amounts = field(default_factory=dict)
    plans: int = 0
    left_out: int = 0
