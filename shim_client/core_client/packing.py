"""The packing of reports into few messages. Each message costs about 90 microseconds, whatever its size (design 1.2).

A message holds at most `OBJECTS_MAX` objects and about `BYTES_MAX` bytes. Reports about one object keep their order.
The order of reports that are in different lists of one message is lost. For this reason a new message begins if the key
of an object would occur in two lists of one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shim_client.messages import (
    ApplicationRemoval,
    ApplicationReport,
    ApplicationTags,
    BudgetReport,
    NodeReport,
    PlanCheckAnswer,
    PodRelease,
    PodReport,
    SyncComplete,
    Veto,
)
from shim_client.translate import wire
from si.v1 import si_pb2

OBJECTS_MAX = 1000
BYTES_MAX = 1024 * 1024

PodNews = PodReport | PodRelease | Veto | BudgetReport | PlanCheckAnswer
ApplicationNews = ApplicationReport | ApplicationTags | ApplicationRemoval
NodeNews = NodeReport | SyncComplete


@dataclass(slots=True)
class _Load:
    """The content of the message that is being filled."""

    size: int = 0
    lists: dict[str, str] = field(default_factory=dict)
    """For each object in the message, by its key: the name of the list that contains the object."""
    count: int = 0

    def takes(self, key: str, into: str, size: int) -> bool:
        if self.count >= OBJECTS_MAX or (self.count and self.size + size > BYTES_MAX):
            return False
        return self.lists.get(key, into) == into

    def add(self, key: str, into: str, size: int) -> None:
        self.lists[key] = into
        self.count += 1
        self.size += size


def allocation_requests(news: Iterable[PodNews], rm_id: str) -> Iterator[si_pb2.AllocationRequest]:
    """Yield the messages of the allocation stream."""
    request, load = si_pb2.AllocationRequest(rmID=rm_id), _Load()
    for report in news:
        into, message = _pod_message(report)
        size = message.ByteSize()
        if not load.takes(report.key, into, size):
            yield request
            request, load = si_pb2.AllocationRequest(rmID=rm_id), _Load()
        _put(request, message)
        load.add(report.key, into, size)
    if load.count:
        yield request


def application_requests(
    news: Iterable[ApplicationNews], rm_id: str
) -> Iterator[si_pb2.ApplicationRequest]:
    """Yield the messages of the application stream."""
    request, load = si_pb2.ApplicationRequest(rmID=rm_id), _Load()
    for report in news:
        into, message = _application_message(report)
        size = message.ByteSize()
        if not load.takes(report.application, into, size):
            yield request
            request, load = si_pb2.ApplicationRequest(rmID=rm_id), _Load()
        match message:
            case si_pb2.AddApplicationRequest():
                request.new.append(message)
            case si_pb2.ApplicationUpdate():
                request.updates.append(message)
            case si_pb2.RemoveApplicationRequest():
                request.remove.append(message)
        load.add(report.application, into, size)
    if load.count:
        yield request


_ApplicationMessage = (
    si_pb2.AddApplicationRequest | si_pb2.ApplicationUpdate | si_pb2.RemoveApplicationRequest
)


def _application_message(report: ApplicationNews) -> tuple[str, _ApplicationMessage]:
    match report:
        case ApplicationReport():
            return "new", wire.application(report)
        case ApplicationTags():
            return "updates", wire.application_tags(report)
        case ApplicationRemoval():
            return "remove", wire.application_removal(report)


def node_requests(news: Iterable[NodeNews], rm_id: str) -> Iterator[si_pb2.NodeRequest]:
    """Yield the messages of the node stream.

    The report that ends a sync is the last report of its message.
    """
    request, load = si_pb2.NodeRequest(rmID=rm_id), _Load()
    for report in news:
        if isinstance(report, SyncComplete):
            request.syncComplete.CopyFrom(wire.sync_complete(report))
            yield request
            request, load = si_pb2.NodeRequest(rmID=rm_id), _Load()
            continue
        message = wire.node(report)
        size = message.ByteSize()
        if not load.takes(report.node, "nodes", size):
            yield request
            request, load = si_pb2.NodeRequest(rmID=rm_id), _Load()
        request.nodes.append(message)
        load.add(report.node, "nodes", size)
    if load.count:
        yield request


_PodMessage = (
    si_pb2.Allocation
    | si_pb2.AllocationRelease
    | si_pb2.VictimVeto
    | si_pb2.DisruptionBudget
    | si_pb2.PlanCheckAnswer
)


def _pod_message(report: PodNews) -> tuple[str, _PodMessage]:
    match report:
        case PodReport():
            return "allocations", wire.allocation(report)
        case PodRelease():
            return "releases", wire.release(report)
        case Veto():
            return "vetoes", wire.veto(report)
        case BudgetReport():
            return "disruptionBudgets", wire.budget(report)
        case PlanCheckAnswer():
            return "planCheckAnswers", wire.plan_check_answer(report)


def _put(request: si_pb2.AllocationRequest, message: _PodMessage) -> None:
    match message:
        case si_pb2.Allocation():
            request.allocations.append(message)
        case si_pb2.AllocationRelease():
            request.releases.allocationsToRelease.append(message)
        case si_pb2.VictimVeto():
            request.vetoes.append(message)
        case si_pb2.DisruptionBudget():
            request.disruptionBudgets.append(message)
        case si_pb2.PlanCheckAnswer():
            request.planCheckAnswers.append(message)
