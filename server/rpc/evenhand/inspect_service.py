"""The InspectService: partitions, queues, applications, nodes and allocations of the core."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import inspect_pb2 as pb
from server.core.core import Core
from server.core.queries import doctor, inspect, known_decisions
from server.model.records import DecisionRecord
from server.model.reports import ApplicationReport, Finding, ManagerReport, PartitionReport
from server.rpc.evenhand import encode_queue_settings, encode_reports
from server.rpc.evenhand.pages import wanted
from server.rpc.evenhand.reader import Reader, Scope
from server.rpc.event_buffer import History
from server.rpc.memory import Load, Memory
from server.rpc.memory import findings as over_budget
from server.rpc.names import name_of
from server.rpc.pump import Pump
from server.rpc.roles import CALLER
from server.rpc.sessions import Sessions

WAITING_TALLY_MAX: Final = 20_000
"""The largest number of waiting asks whose reasons are counted by queue for one answer."""


@dataclass(frozen=True, slots=True)
class About:
    """The facts about the server. ``findings`` returns the server's own findings, which are added to those of the core."""

    version: str
    started_ms: int
    findings: Callable[[], Iterable[Finding]] = tuple
    decision_log: str = ""
    """The file of the decision log, empty if no log is written."""
    previous_digest: str = ""
    """The digest of the configuration at the end of the previous run. ``previous_source`` is that configuration's source.

    Digest and source are empty if they are not known.
    """
    previous_source: str = ""
    not_kept: Callable[[], str] = str
    """A function that returns why the configuration in force is not on disk, or "" if it is on disk."""
    durable: bool = False
    """Whether decisions are sent only when they are in the decision log on disk."""
    held: Callable[[], str] = str
    """A function that returns why no decision is sent now, or "" while decisions are sent."""
    resident_bytes: Callable[[], int] = int
    """A function that returns the resident memory of the core in bytes, or 0 if it cannot be read."""


class InspectService:
    """The service that reads the state. The service changes nothing."""

    def __init__(
        self, core: Core, pump: Pump, sessions: Sessions, history: History, about: About
    ) -> None:
        self._core = core
        self._pump = pump
        self._sessions = sessions
        self._history = history
        self._about = about

    def _reader(self) -> Reader:
        return Reader(self._core, CALLER.get())

    def list_partitions(self, _request: pb.ListPartitionsRequest) -> pb.ListPartitionsResponse:
        """Return all partitions with their totals.

        A viewer gets the totals of its own queues.
        """
        reader = self._reader()
        found = [_summary(reader, one, self._history) for one in reader.partitions()]
        return pb.ListPartitionsResponse(partitions=found)

    def get_queue_tree(self, request: pb.GetQueueTreeRequest) -> pb.GetQueueTreeResponse:
        """Return the queues of a partition."""
        picture = queue_tree(self._reader(), request.partition, self._pump.now())
        return pb.GetQueueTreeResponse(tree=picture)

    def list_queue_settings(
        self, request: pb.ListQueueSettingsRequest
    ) -> pb.ListQueueSettingsResponse:
        """Return the settings of a queue and of all queues below it, and the origin of each value."""
        page = wanted(request.page_size, request.page_token)
        found, token = self._reader().settings(request.partition, request.queue, page)
        caller = CALLER.get()
        return pb.ListQueueSettingsResponse(
            queues=[encode_queue_settings.queue(one, caller) for one in found],
            next_page_token=token,
        )

    def list_applications(self, request: pb.ListApplicationsRequest) -> pb.ListApplicationsResponse:
        """Return a page of applications in the order of their submission.

        Applications whose state was not requested are left out, so a page may be shorter than its size.
        """
        reader = self._reader()
        page = wanted(request.page_size, request.page_token)
        found, token = reader.applications(request.partition, request.queue, page)
        states = {state.lower() for state in request.states}
        listed = [one for one in found if not states or one.state.lower() in states]
        waiting = _waiting(reader, request.partition, listed)
        return pb.ListApplicationsResponse(
            applications=[encode_reports.application(one, waiting) for one in listed],
            next_page_token=token,
        )

    def list_nodes(self, request: pb.ListNodesRequest) -> pb.ListNodesResponse:
        """Return a page of nodes in the order of their arrival."""
        page = wanted(request.page_size, request.page_token)
        found, token = self._reader().nodes(request.partition, page)
        return pb.ListNodesResponse(nodes=map(encode_reports.node, found), next_page_token=token)

    def list_allocations(self, request: pb.ListAllocationsRequest) -> pb.ListAllocationsResponse:
        """Return a page of allocations, and of asks if requested, grouped by application.

        Foreign pods that were not requested are left out, so a page may be shorter than its size.
        """
        scope = Scope(
            request.partition,
            request.queue,
            request.application_id,
            request.node_id,
            request.include_asks,
        )
        page = wanted(request.page_size, request.page_token)
        found, token = self._reader().allocations(scope, page)
        listed = [one for one in found if request.include_foreign or not one.foreign]
        answer = pb.ListAllocationsResponse(
            allocations=map(encode_reports.allocation, listed), next_page_token=token
        )
        self._add_decisions(answer.allocations, self._reader().partition_name(request.partition))
        return answer

    def _add_decisions(self, listed: Iterable[pb.Allocation], partition: str) -> None:
        """Add the open decision, and for operators the preemptors, to the message of each allocation that is being evicted."""
        leaving = [one for one in listed if one.state == pb.ALLOCATION_STATE_RELEASING]
        if not leaving:
            return
        sees_cluster = self._reader().sees_cluster
        taken = taken_by(known_decisions.decisions(self._core, partition, open_only=True))
        for one in leaving:
            record = taken.get(one.allocation_key)
            if record is not None:
                one.decision_id = record.decision_id
                if sees_cluster:
                    one.released_for = ", ".join(each.key for each in record.beneficiaries)

    def check_consistency(self, request: pb.CheckConsistencyRequest) -> pb.CheckConsistencyResponse:
        """Return the findings of the doctor about the core, the server and its memory, the most severe first."""
        now = self._pump.now()
        partition = request.partition and self._reader().partition_name(request.partition)
        around = doctor.Around(self._about.started_ms, self._sessions.presence.away(now))
        memory = self._memory()
        found = [
            *doctor.doctor(self._core, now, partition, around, name_of),
            *self._about.findings(),
            *over_budget(memory),
        ]
        findings = map(encode_reports.finding, found)
        ranked = sorted(findings, key=lambda one: (-one.severity, one.subject, one.code))
        checks = (*doctor.CHECKS, *doctor.CHECKS_OF_AGE)
        answer = pb.CheckConsistencyResponse(
            findings=ranked,
            checks=checks,
            checked_at_ms=now,
            started_at_ms=self._about.started_ms,
            memory=encode_reports.memory(memory),
        )
        if self._reader().sees_cluster:
            managers = self._core.state.managers.values()
            answer.recovered_allocations = sum(one.recovered for one in managers)
            answer.recovered_asks = sum(one.recovered_asks for one in managers)
            answer.decision_log = self._about.decision_log
        return answer

    def _memory(self) -> Memory:
        """Return the memory that the core uses, and the load that determines its budget."""
        held = inspect.holdings(self._core)
        load = Load(held, len(self._sessions), self._sessions.waiting_bytes())
        return Memory(self._about.resident_bytes(), load)

    def server_info(self, _request: pb.ServerInfoRequest) -> pb.ServerInfoResponse:
        """Return the facts about the running server.

        A viewer gets no managers and no configuration.
        """
        answer = pb.ServerInfoResponse(
            version=self._about.version,
            started_at_ms=self._about.started_ms,
            now_ms=self._pump.now(),
        )
        if self._reader().sees_cluster:
            state = self._core.state
            answer.decision_log = self._about.decision_log
            answer.decision_log_durable = self._about.durable
            answer.decisions_held = self._about.held()
            revision = state.revision
            answer.config_revision = revision.number
            answer.config_source = revision.source
            answer.config_applied_by = revision.by
            answer.config_not_kept = self._about.not_kept()
            answer.config_digest = state.configuration.digest
            answer.config_applied_at_ms = revision.at_ms
            answer.previous_config_digest = self._about.previous_digest
            answer.previous_config_source = self._about.previous_source
            answer.partitions.extend(sorted(state.partitions))
            answer.managers.extend(map(self._manager, inspect.managers(self._core)))
        answer.visible_queue = self._reader().visible_queue
        return answer

    def _manager(self, report: ManagerReport) -> pb.ManagerInfo:
        seen = self._sessions.presence.sighting(report.rm_id, self._pump.now())
        return pb.ManagerInfo(
            rm_id=report.rm_id,
            version=report.version,
            policy_group=report.policy_group,
            sync_state=pb.SYNC_STATE_SYNCED if report.synced else pb.SYNC_STATE_SYNCING,
            explicit_sync=report.explicit_sync,
            registered_at_ms=report.registered_ms,
            open_streams=self._sessions.open_kinds(report.rm_id),
            nodes=report.nodes,
            applications=report.applications,
            allocations=report.allocations,
            asks=report.asks,
            away_since_ms=seen.away_since_ms,
            away=seen.away,
            last_message_ms=seen.heard_ms,
            recovered_allocations=report.recovered,
            recovered_asks=report.recovered_asks,
        )


def taken_by(records: Iterable[DecisionRecord]) -> dict[str, DecisionRecord]:
    """Return a map from the key of each victim to the decision that evicts the victim."""
    return {
        one.key: record
        for record in records
        for one in record.victims
        if one.key not in record.stayed
    }


def queue_tree(reader: Reader, partition: str, now: int) -> pb.QueueTree:
    """Return the queues of a partition, limited to what the reader's caller may see.

    The reasons for which asks wait are counted only if there are at most `WAITING_TALLY_MAX` asks and allocations.
    """
    name = reader.partition_name(partition)
    root = reader.tree(name)
    waiting: encode_reports.Reasons = {}
    if root.pending_asks and root.pending_asks + root.allocations <= WAITING_TALLY_MAX:
        scope = Scope(name, "" if reader.sees_cluster else root.path, asks=True)
        waiting = encode_reports.reasons_by_queue(
            reader.asks(scope, root.allocations + root.pending_asks)
        )
    shown = encode_reports.queue(root, waiting, reader.limits(name))
    return pb.QueueTree(partition=name, root=shown, taken_at_ms=now)


def summary(reader: Reader, partition: str, history: History) -> pb.Partition:
    """Return a partition with its totals.

    A viewer gets the totals of its queue, and nothing about nodes.
    """
    return _summary(reader, reader.partition(partition), history)


def _summary(reader: Reader, report: PartitionReport, history: History) -> pb.Partition:
    found = encode_reports.partition(report)
    if reader.sees_cluster:
        totals, counts = history.totals, found.counts
        counts.placed_total = totals["placed", report.name]
        counts.released_total = totals["released", report.name]
        counts.rejected_total = totals["rejected", report.name]
        return found
    own = reader.tree(report.name)
    found.visible_queue = own.path
    found.usage.update(own.usage)
    found.promised.update(own.promised)
    found.pending.update(own.pending)
    found.counts.queues = encode_reports.count_queues(own)
    found.counts.applications = own.applications
    found.counts.allocations = own.allocations
    found.counts.waiting_asks = own.pending_asks
    return found


def _waiting(
    reader: Reader, partition: str, listed: Sequence[ApplicationReport]
) -> encode_reports.Reasons:
    """Return, for each application, how many of its asks wait for each reason code.

    At most `WAITING_TALLY_MAX` asks are counted in all. An application whose asks would exceed this limit has no entry.
    """
    counts: dict[str, Counter[str]] = {}
    left = WAITING_TALLY_MAX
    for one in listed:
        if 0 < one.asks <= left:
            left -= one.asks
            scope = Scope(partition, application_id=one.application_id, asks=True)
            asks = reader.asks(scope, one.asks, start=one.allocations)
            counts[one.application_id] = Counter(ask.code for ask in asks)
    return counts
