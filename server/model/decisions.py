"""The answers and decisions of the core, as values. `rpc.translate` turns these values into messages of the wire.

Each value carries the ``rm_id`` of the resource manager that receives it.
"""

import enum
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeVar, cast

from server.model.asks import NO_TAGS, AskSpec, Generation, Tags
from server.model.reasons import Code
from server.model.records import DecisionRecord, DecisionState
from server.model.shadow import ShadowRecord


class Termination(enum.IntEnum):
    """The reason why an allocation ends: the TerminationType of the published interface, with the same numbers."""

    UNKNOWN = 0
    STOPPED_BY_RM = 1
    TIMEOUT = 2
    PREEMPTED_BY_SCHEDULER = 3
    PLACEHOLDER_REPLACED = 4
    SCHEDULING_FAILED_ON_RM = 5


class ApplicationState(enum.StrEnum):
    """The states of an application, with the names that YuniKorn uses."""

    NEW = "New"
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    RESUMING = "Resuming"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    REJECTED = "Rejected"


class AskState(enum.IntEnum):
    """The scheduling state of an ask, which is sent to the shim when it changes (design 6.9)."""

    SKIPPED = 1
    FAILED = 4


class Placed(NamedTuple):
    """An ask that received its node."""

    rm_id: str
    partition: str
    key: str
    application_id: str
    node_id: str
    spec: AskSpec
    tags: Tags = NO_TAGS
    generation: Generation = Generation.ALLOCATION
    queue: str = ""


class Released(NamedTuple):
    """A release that the core orders, or the core's confirmation of a release that the shim requested."""

    rm_id: str
    partition: str
    key: str
    application_id: str
    termination: Termination
    message: str = ""
    decision_id: str = ""
    beneficiary: str = ""
    nodes: tuple[str, ...] = ()
    generation: Generation = Generation.ALLOCATION
    delivery: str = ""
    """The way in which the victim is ended: "delete", "evict" or "soft". The field is "" if preemption did not order the release."""


class Withdrawn(NamedTuple):
    """A withdrawn eviction: the pod was marked as a victim, but its eviction is no longer needed.

    The pod continues to run (J11).
    """

    rm_id: str
    partition: str
    key: str
    decision_id: str
    reason: str


class PlanCheckRequested(NamedTuple):
    """A question to a manager: whether these asks would fit on their nodes if the victims were gone.

    Nothing is evicted before the manager answers (design 1.8).
    """

    rm_id: str
    partition: str
    check_id: str
    placements: tuple[tuple[str, str], ...]
    """The key and node of each ask."""
    victims: tuple[str, ...]
    """The keys of the allocations that would be gone."""


class PlanCheckEnded(NamedTuple):
    """The end of a plan check.

    The manager may free the capacity that it keeps for the asks, and need not answer the check any more.
    """

    rm_id: str
    partition: str
    check_id: str
    reason: str


class Decided(NamedTuple):
    """A decision of preemption: the whole record, which is sent before the releases that the decision orders.

    After a new plan for an open decision, the decision is sent again with the added victims.
    """

    rm_id: str
    record: DecisionRecord


class DecisionMoved(NamedTuple):
    """A change in the state of a decision, or the veto of the victim ``key``."""

    rm_id: str
    partition: str
    decision_id: str
    state: DecisionState
    at_ms: int
    reason: str = ""
    key: str = ""


class ShadowDecided(NamedTuple):
    """A decision of a partition's shadow, the live decision for the same ask or queue, and the difference between the two.

    The shadow orders nothing.
    """

    rm_id: str
    record: ShadowRecord


class AskReleased(NamedTuple):
    """A waiting ask that ended without a node, sent to a client of the `Generation.ASK` interface.

    The ask timed out (TIMEOUT), or its application has ended.
    """

    rm_id: str
    partition: str
    key: str
    application_id: str
    termination: Termination
    message: str = ""
    generation: Generation = Generation.ASK


class AskRejected(NamedTuple):
    """An ask or existing allocation that the core refused. The core keeps no part of a refused ask or allocation."""

    rm_id: str
    partition: str
    key: str
    application_id: str
    reason: str
    generation: Generation = Generation.ALLOCATION


class ApplicationAccepted(NamedTuple):
    """An application that was accepted and has its queue."""

    rm_id: str
    application_id: str
    partition: str = "default"
    queue: str = ""


class ApplicationRejected(NamedTuple):
    """An application that the core refused. ``reason`` names the rule or field because of which the application was refused."""

    rm_id: str
    application_id: str
    reason: str
    partition: str = "default"


class ApplicationUpdateRejected(NamedTuple):
    """A change of an application that the core refused.

    The application and its queue are unchanged. ``reason`` names the refused field.
    """

    rm_id: str
    application_id: str
    reason: str
    partition: str = "default"


class ApplicationUpdated(NamedTuple):
    """The state of an application, which changed at ``at_ms``."""

    rm_id: str
    application_id: str
    state: ApplicationState
    at_ms: int
    message: str = ""
    partition: str = "default"


class NodeAccepted(NamedTuple):
    """A node that was accepted."""

    rm_id: str
    node_id: str


class NodeRejected(NamedTuple):
    """A node event that the core refused.

    The state is unchanged. ``code`` is a stable word if a client may act on the refusal, and "" otherwise.
    """

    rm_id: str
    node_id: str
    reason: str
    code: str = ""


class AskStateChanged(NamedTuple):
    """The new state of a waiting ask.

    The state is SKIPPED while the ask waits because of a limit, a gang, a placeholder or a stopped queue. Otherwise the state is
    FAILED.
    """

    rm_id: str
    application_id: str
    key: str
    state: AskState
    reason: str
    code: str = ""
    """The code of the reason why the ask waits, such as `queue-limit`."""


class Noted(NamedTuple):
    """A note for operators. A note becomes an event, a metric or a log line, and never changes anything in the cluster.

    ``kind`` is one of queue, application, node, ask, allocation, configuration, manager.
    """

    kind: str
    subject: str
    code: Code
    message: str
    partition: str = ""
    rm_id: str = ""


Decision = (
    Placed
    | Released
    | Withdrawn
    | PlanCheckRequested
    | PlanCheckEnded
    | AskReleased
    | AskRejected
    | ApplicationAccepted
    | ApplicationRejected
    | ApplicationUpdateRejected
    | ApplicationUpdated
    | NodeAccepted
    | NodeRejected
    | AskStateChanged
    | Decided
    | DecisionMoved
    | ShadowDecided
    | Noted
)


BARRIER: Final = "evenhand.io/barrier"
"""The id of an application that never exists.

The core refuses every ask for this application. The core processes the messages of a stream in order. A client that sends such
an ask thus learns from the refusal that the core has processed everything that the client sent on this stream before. Counts of
refusals do not include these asks.
"""


def is_barrier(decision: Decision) -> bool:
    """Return whether a decision is the refusal of a barrier ask (`BARRIER`). Such a refusal reports no fault."""
    return isinstance(decision, AskRejected) and decision.application_id == BARRIER


_Kind = TypeVar("_Kind")


class Run(NamedTuple):
    """Consecutive decisions of one kind in a batch, from position ``begin`` to the last position before ``end``."""

    kind: type
    begin: int
    end: int


class Decisions:
    """The decisions of one batch, in order, with their runs.

    A search for one kind among tens of thousands of decisions then skips the runs of other kinds.
    """

    __slots__ = ("all", "kinds", "runs")

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.all: Final = decisions
        self.runs: Final = list(_runs(decisions))
        self.kinds: Final = {run.kind for run in self.runs}

    def __len__(self) -> int:
        return len(self.all)

    def of(self, *kinds: type[_Kind]) -> list[_Kind]:
        """Return the decisions of the given kinds, in order."""
        if self.kinds.isdisjoint(kinds):
            return []
        found: list[Decision] = []
        for kind, begin, end in self.runs:
            if kind in kinds:
                found += self.all[begin:end]
        return cast("list[_Kind]", found)


def _runs(decisions: Sequence[Decision]) -> Iterator[Run]:
    end = 0
    for kind, alike in groupby(map(type, decisions)):
        begin, end = end, end + len(list(alike))
        yield Run(kind, begin, end)


class Tick(NamedTuple):
    """The decisions of one tick, in order. ``more`` says that another tick must follow at once."""

    decisions: list[Decision]
    more: bool = False
