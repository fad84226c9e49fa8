"""The roles, and which role may call which RPC (design 1.14). There is one row for every RPC of every service on the port."""

import enum
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from server.model.quota import ROOT, is_below


class Role(enum.StrEnum):
    """The role of a caller. A viewer sees one queue with all queues below it. `metrics` only reads the metrics endpoint.

    A follower is another core, which has the whole state of this core and answers the reads of its own callers.
    """

    SHIM = "shim"
    OPERATOR = "operator"
    VIEWER = "viewer"
    METRICS = "metrics"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a call. ``queue`` is the queue that a viewer sees.

    Callers with any other role have the root as their queue. A shim may be restricted to a ``manager`` and to ``partitions``. An
    empty field restricts nothing.
    """

    name: str
    role: Role
    queue: str = ROOT
    manager: str = ""
    partitions: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """The role in words, such as `viewer of root.a`."""
        return f"{self.role} of {self.queue}" if self.role is Role.VIEWER else str(self.role)

    def sees(self, path: str) -> bool:
        """Return whether this queue is the caller's queue or below it."""
        return is_below(path, self.queue) or self.queue == ROOT


LOCAL_OPERATOR: Final = Caller("local", Role.OPERATOR)

_NOBODY: Final[frozenset[Role]] = frozenset()
_EVERYBODY: Final = frozenset({Role.SHIM, Role.VIEWER, Role.OPERATOR})
_SHIMS: Final = frozenset({Role.SHIM, Role.OPERATOR})
_READERS: Final = frozenset({Role.VIEWER, Role.OPERATOR})
_OPERATORS: Final = frozenset({Role.OPERATOR})
_FOLLOWERS: Final = frozenset({Role.FOLLOWER, Role.OPERATOR})

OPEN: Final = frozenset(
    {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/List"}
)
"""The RPCs that need no role, because a probe has no role."""

TABLE: Final[Mapping[str, frozenset[Role]]] = {
    "/si.v1.Scheduler/RegisterResourceManager": _SHIMS,
    "/si.v1.Scheduler/UpdateAllocation": _SHIMS,
    "/si.v1.Scheduler/UpdateApplication": _SHIMS,
    "/si.v1.Scheduler/UpdateNode": _SHIMS,
    # A viewer's answers contain its own queues only. A viewer may not read answers that describe the whole cluster.
    "/evenhand.v1.InspectService/ListPartitions": _READERS,
    "/evenhand.v1.InspectService/GetQueueTree": _READERS,
    "/evenhand.v1.InspectService/ListQueueSettings": _READERS,
    "/evenhand.v1.InspectService/ListApplications": _READERS,
    "/evenhand.v1.InspectService/ListNodes": _OPERATORS,
    "/evenhand.v1.InspectService/ListAllocations": _READERS,
    "/evenhand.v1.InspectService/CheckConsistency": _OPERATORS,
    "/evenhand.v1.InspectService/ServerInfo": _EVERYBODY,
    "/evenhand.v1.ExplainService/Explain": _READERS,
    # A shim applies the ConfigMap of its cluster.
    "/evenhand.v1.ConfigurationService/Validate": _SHIMS,
    "/evenhand.v1.ConfigurationService/Apply": _SHIMS,
    "/evenhand.v1.ConfigurationService/Get": _OPERATORS,
    "/evenhand.v1.ConfigurationService/Diff": _OPERATORS,
    "/evenhand.v1.WatchService/WatchQueues": _READERS,
    # A viewer gets the kinds of events of its own queues, and no events.
    "/evenhand.v1.WatchService/WatchEvents": _READERS,
    # A viewer sees only the part of a decision that concerns its own queues.
    "/evenhand.v1.DecisionService/ListDecisions": _READERS,
    "/evenhand.v1.DecisionService/GetDecision": _READERS,
    "/evenhand.v1.DecisionService/WatchDecisions": _READERS,
    "/evenhand.v1.DecisionService/ListShadowDecisions": _READERS,
    "/evenhand.v1.SimulateService/SimulateAsks": _READERS,
    "/evenhand.v1.SimulateService/SimulateConfiguration": _OPERATORS,
    "/evenhand.v1.ReportService/GetUnmetGuarantees": _READERS,
    "/evenhand.v1.ReportService/GetLostWork": _READERS,
    # A follower gets everything that this core knows.
    "/evenhand.v1.ReplicationService/Follow": _FOLLOWERS,
    "/evenhand.v1.ReplicationService/GetReplication": _EVERYBODY | _FOLLOWERS,
    "/evenhand.v1.ReplicationService/Acknowledge": _FOLLOWERS,
    "/evenhand.v1.ReplicationService/HandOver": _OPERATORS,
    "/evenhand.v1.ReplicationService/GetMove": _OPERATORS,
    "/evenhand.v1.ReplicationService/ExportPartition": _OPERATORS,
    "/evenhand.v1.ReplicationService/ImportPartition": _OPERATORS,
    "/evenhand.v1.ReplicationService/CompleteMove": _OPERATORS,
    "/evenhand.v1.ReplicationService/CancelMove": _OPERATORS,
    # A viewer may read the same things in the history as in the present state.
    "/evenhand.v1.HistoryService/GetQueueHistory": _READERS,
    "/evenhand.v1.HistoryService/GetPodHistory": _READERS,
    "/evenhand.v1.HistoryService/GetWaits": _READERS,
    "/evenhand.v1.HistoryService/ListConfigurations": _OPERATORS,
    "/evenhand.v1.HistoryService/GetConfiguration": _OPERATORS,
    "/evenhand.v1.HistoryService/GetPastLostWork": _READERS,
    "/evenhand.v1.HistoryService/ListFailovers": _OPERATORS,
    "/evenhand.v1.HistoryService/ListPastDecisions": _READERS,
    "/evenhand.v1.HistoryService/GetPastDecision": _READERS,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _EVERYBODY,
}


DEEDS: Final[Mapping[str, str]] = {
    "/si.v1.Scheduler/RegisterResourceManager": "register a cluster",
    "/si.v1.Scheduler/UpdateAllocation": "report pods",
    "/si.v1.Scheduler/UpdateApplication": "report applications",
    "/si.v1.Scheduler/UpdateNode": "report nodes",
    "/evenhand.v1.InspectService/ListPartitions": "list partitions",
    "/evenhand.v1.InspectService/GetQueueTree": "list queues",
    "/evenhand.v1.InspectService/ListQueueSettings": "list settings of queues",
    "/evenhand.v1.InspectService/ListApplications": "list applications",
    "/evenhand.v1.InspectService/ListNodes": "list nodes",
    "/evenhand.v1.InspectService/ListAllocations": "list allocations",
    "/evenhand.v1.InspectService/CheckConsistency": "ask the doctor",
    "/evenhand.v1.InspectService/ServerInfo": "ask for the version",
    "/evenhand.v1.ExplainService/Explain": "ask for explanations",
    "/evenhand.v1.ConfigurationService/Validate": "check a configuration at the core",
    "/evenhand.v1.ConfigurationService/Apply": "apply a configuration",
    "/evenhand.v1.ConfigurationService/Get": "see the configuration in force",
    "/evenhand.v1.ConfigurationService/Diff": "compare configurations",
    "/evenhand.v1.WatchService/WatchQueues": "watch queues",
    "/evenhand.v1.WatchService/WatchEvents": "see events",
    "/evenhand.v1.DecisionService/ListDecisions": "list decisions",
    "/evenhand.v1.DecisionService/GetDecision": "see a decision",
    "/evenhand.v1.DecisionService/WatchDecisions": "watch decisions",
    "/evenhand.v1.DecisionService/ListShadowDecisions": "list what a shadow decided",
    "/evenhand.v1.SimulateService/SimulateAsks": "simulate asks",
    "/evenhand.v1.SimulateService/SimulateConfiguration": "simulate a configuration",
    "/evenhand.v1.ReportService/GetUnmetGuarantees": "see unmet guarantees",
    "/evenhand.v1.ReportService/GetLostWork": "see lost work",
    "/evenhand.v1.ReplicationService/Follow": "follow this core",
    "/evenhand.v1.ReplicationService/GetReplication": "ask whom this core follows",
    "/evenhand.v1.ReplicationService/Acknowledge": "say what a follower has got",
    "/evenhand.v1.ReplicationService/HandOver": "hand over to another core",
    "/evenhand.v1.ReplicationService/GetMove": "ask how a partition moves",
    "/evenhand.v1.ReplicationService/ExportPartition": "move a partition",
    "/evenhand.v1.ReplicationService/ImportPartition": "move a partition",
    "/evenhand.v1.ReplicationService/CompleteMove": "move a partition",
    "/evenhand.v1.ReplicationService/CancelMove": "give up the move of a partition",
    "/evenhand.v1.HistoryService/GetQueueHistory": "see the history of queues",
    "/evenhand.v1.HistoryService/GetPodHistory": "see the history of pods",
    "/evenhand.v1.HistoryService/GetWaits": "see waiting times",
    "/evenhand.v1.HistoryService/ListConfigurations": "list configurations",
    "/evenhand.v1.HistoryService/GetConfiguration": "see an earlier configuration",
    "/evenhand.v1.HistoryService/GetPastLostWork": "see lost work of the past",
    "/evenhand.v1.HistoryService/ListFailovers": "list starts of the core",
    "/evenhand.v1.HistoryService/ListPastDecisions": "list decisions of the past",
    "/evenhand.v1.HistoryService/GetPastDecision": "see a decision of the past",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": "ask for the services",
}
"""The action of each RPC in words, for the refusal: "your role may not ..."."""


SCRAPERS: Final = frozenset({Role.METRICS, Role.OPERATOR})
"""The roles that may read the metrics endpoint. Metrics name every queue with its numbers."""


def may(role: Role, method: str) -> bool:
    """Return whether this role may call this method. A method without a row is refused to all roles."""
    return role in TABLE.get(method, _NOBODY)


CALLER: ContextVar[Caller] = ContextVar("caller")
"""The caller of the RPC that is being handled. The guard sets this variable."""
