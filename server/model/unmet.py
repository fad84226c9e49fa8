"""The unmet-guarantee report: how far a queue is below its guarantee, the reason, and the smallest change that helps."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from server.model.records import Spared

Amounts = Mapping[str, int]


class Binding(enum.StrEnum):
    """The reason why a queue does not get its guarantee. The value is a stable word."""

    SERVED = "being-served"
    """Capacity is being freed for the queue, or will be freed in the next round."""
    NOT_READY = "not-ready"
    """The waiting gang is not complete, the queue is stopped, or the manager of the partition is still sending its state."""
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
    """The guarantee of a queue below the unmet queue prevents the claim.

    That queue's guarantee is already met (rule 4), used by firm pods (J4), or too small for a gang (J7).
    """
    CLOSED = "closed-type"
    """The ask lacks a closed resource type, on each node or under a maximum (G2).

    A type may have a deciding queue on the path of the ask. The type is closed if its deciding queue already has its guarantee
    of the type.
    """
    UNDECIDED = "undecided-type"
    """The ask lacks a type that no queue guarantees, and all pods that use this type run inside the claiming queue (G2)."""
    USER_LIMIT = "user-limit"
    OWN_MAX = "own-max"
    ANCESTOR_MAX = "ancestor-max"
    NODE_SHAPE = "node-shape"
    """The ask is larger than every node that it may use, even if the nodes were empty."""
    FRAGMENTATION = "fragmentation"
    """The free capacity suffices in total, but not on any single node."""
    OVER_PROMISED = "over-promised"
    """The guarantees of the queues exceed the capacity of all nodes together."""
    GUARANTEES = "guarantees-of-others"
    PRIORITIES = "priorities"
    PROTECTED = "protected"
    """The candidates are firm or untouchable, or they are members of gangs that must not be broken (J12)."""
    MIN_RUNTIME = "min-runtime"
    BUDGETS = "disruption-budgets"
    VICTIMS_DISABLED = "victim-queues-disabled"
    OWN_SIDE = "own-side"
    """The types that the ask lacks are used only by pods below the claiming queue. The ask itself waits below that queue, too."""
    FOREIGN = "other-schedulers"
    """Only pods of other schedulers run on the nodes on which the ask could run. This core cannot evict these pods."""
    SEARCH = "search-bound"
    NOT_JUDGED = "not-judged"
    """The budget of the report was used up before the queue was judged. A report of the queue alone gives the answer."""


class Change(enum.StrEnum):
    """The kind of the change that a `Cure` proposes. The value is a stable word."""

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
    """A single change of the cluster or the configuration after which waiting asks get capacity, according to the planner.

    ``subject`` is a queue, a setting, a pod or a node.

    ``amounts`` has the amounts by which a limit or guarantee changes, or the capacity of a new node, or the new priority.
    ``until_ms`` is the instant until which the user has to wait. ``serves`` is the number of equal asks that get capacity by
    the change. ``then`` is the reason why one more ask would not get capacity by this change. ``serves`` is 0 if the asks were
    not counted, or if all tried asks get capacity.
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
    """Equal waiting asks of one leaf. A queue on the path of the asks is below its guarantee. ``key`` is the key of the first ask.

    ``gang`` is the gang whose members the asks are. ``gang`` is "" if the asks are not a gang. ``resource`` is the request of one
    ask, or the request of all members of the gang together. If ``cure`` is None and ``searched`` is True, none of the single
    changes that were tried helps. If ``searched`` is False, the budget of the report was used up before these asks were tried.
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
    gang: str = ""


@dataclass(frozen=True, slots=True)
class UnmetType:
    """A resource type of which a queue uses less than its entitlement."""

    resource_type: str
    entitled: int
    held: int
    missing: int


@dataclass(frozen=True, slots=True)
class UnmetQueue:
    """A queue that is below its guarantee while asks in the queue or below it wait for the missing capacity.

    ``others`` is the number of waiting asks that the report did not judge.
    """

    queue: str
    types: tuple[UnmetType, ...]
    asks: tuple[UnmetAsks, ...]
    others: int = 0


@dataclass(frozen=True, slots=True)
class UnmetReport:
    """The report of unmet guarantees in one partition.

    ``over_promised`` has the amounts by which the sum of all guarantees exceeds the capacity of the nodes.

    ``plans`` is the number of searches of the planner. ``left_out`` is the number of unmet queues that are not in the list.
    """

    partition: str
    queues: tuple[UnmetQueue, ...]
    over_promised: Amounts = field(default_factory=dict)
    plans: int = 0
    left_out: int = 0
