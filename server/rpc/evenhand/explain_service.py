"""The ExplainService: why an ask waits, or why an allocation runs where it runs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from evenhand.v1 import explain_pb2 as pb
from server.core.core import Core
from server.core.queries import inspect, next_steps
from server.core.queries.explain_ask import node_text
from server.core.wait_reasons.node_filters import FITS
from server.model.reports import (
    AllocationReport,
    ApplicationReport,
    Explanation,
    LevelReport,
    NodeReport,
    Reserved,
    UserLimitReport,
)
from server.rpc.errors import invalid
from server.rpc.evenhand import encode_fit, encode_queue_settings, encode_reports
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.evenhand.encode_decisions import with_names
from server.rpc.evenhand.explain_preemption import Preempted
from server.rpc.evenhand.reader import Reader
from server.rpc.names import name_of
from server.rpc.pod_names import pod_name
from server.rpc.pump import Pump
from server.rpc.roles import CALLER, Caller

_KINDS: Final = {
    "ask": pb.SUBJECT_KIND_WAITING_ASK,
    "allocation": pb.SUBJECT_KIND_ALLOCATION,
    "application": pb.SUBJECT_KIND_APPLICATION,
    "node": pb.SUBJECT_KIND_NODE,
    "queue": pb.SUBJECT_KIND_QUEUE,
}
_UNKNOWN: Final = "no ask, allocation, application, node, decision or queue has this key"


class ExplainService:
    """The service that answers "why". The service changes nothing."""

    def __init__(self, core: Core, pump: Pump, log: DecisionLog) -> None:
        self._core = core
        self._pump = pump
        self._log = log

    def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        """Return the explanation of one key. For a viewer, keys outside its queues do not exist."""
        if not request.key:
            raise invalid("INVALID_KEY", ("key", "is empty"))
        caller = CALLER.get()
        reader = Reader(self._core, caller)
        if request.partition:
            reader.partition_name(request.partition)
        now = self._pump.now()
        preempted = Preempted(self._core, self._log, caller)
        found = inspect.explain(self._core, request.key, now, request.partition, name_of)
        if found.kind == "unknown":
            decision = preempted.decision(request.key, request.partition, now)
            decision = decision or preempted.evicted(request.key, request.partition, now)
            if decision is not None:
                return decision
        if not reader.sees_cluster:
            found = _for_viewer(found, caller)
        response = answer(found, now)
        response.gang_member = self._gang_member(found, caller)
        self._add_numbers(response, reader, caller)
        if response.HasField("placed"):
            preempted.add_release(response)
            preempted.add_quota(response)
            preempted.add_near(response)
        elif response.HasField("waiting"):
            verdict = preempted.add_verdict(response)
            response.waiting.next_steps.extend(next_steps.of_ask(found, verdict, now))
            preempted.add_shadow(response)
        self._name_pods(response)
        return response

    def _gang_member(self, found: Explanation, caller: Caller) -> str:
        """If the explained name is also the name of a gang, return the key of a member of that gang. Return "" otherwise.

        Return "" also if the caller may not see that member.
        """
        if not found.gang_member:
            return ""
        member = self._core.state.partitions[found.partition].asks[found.gang_member]
        return member.key if caller.sees(member.application.leaf.path) else ""

    def _name_pods(self, response: pb.ExplainResponse) -> None:
        names = self._log.names(response.partition)
        if response.HasField("placed") or response.HasField("waiting"):
            response.name = names(response.key)
        response.lines[:] = [with_names(line, names) for line in response.lines]
        for held in response.waiting.kept_off_by:
            held.name = names(held.allocation_key)

    def _add_numbers(self, response: pb.ExplainResponse, reader: Reader, caller: Caller) -> None:
        """Add to the explanation of a queue, an application or a node its numbers from the reports."""
        partition, key = response.partition, response.key
        if response.kind == pb.SUBJECT_KIND_QUEUE:
            response.queue.CopyFrom(self._queue(reader, partition, key, caller))
        elif response.HasField("node"):
            nodes = inspect.nodes(self._core, partition)
            response.node.CopyFrom(_node(next(one for one in nodes if one.node_id == key)))
        elif response.HasField("application"):
            found = inspect.applications(self._core, partition, response.application.queue)
            report = next(one for one in found if one.application_id == key)
            asks = inspect.allocations(self._core, partition, application_id=key, asks=True)
            response.application.CopyFrom(_application(report, asks))

    def _queue(
        self, reader: Reader, partition: str, path: str, caller: Caller
    ) -> pb.ExplainedQueue:
        report = replace(reader.queue(partition, path), children=())
        (found,) = inspect.queue_settings(self._core, partition, path, size=1)
        reach = inspect.queue_reach(self._core, partition, path)
        return pb.ExplainedQueue(
            queue=encode_reports.queue(report, {}, reader.limits(partition)),
            settings=encode_queue_settings.settings(found.settings, caller),
            reach=encode_queue_settings.reach(reach, caller),
        )


def _for_viewer(found: Explanation, caller: Caller) -> Explanation:
    """Return the explanation without keys, nodes and numbers from outside the viewer's queues."""
    if not found.queue or not caller.sees(found.queue) or found.kind == "node":
        return Explanation("unknown", found.key, lines=(_UNKNOWN,))
    levels = tuple(level if caller.sees(level.path) else _hidden(level) for level in found.levels)
    limit, gang = found.limit, found.gang
    brief = found.brief or found.summary
    return replace(
        found,
        levels=levels,
        summary=brief,
        lines=(brief,),
        nearest="",
        nearest_missing={},
        examples={},
        gang=None if gang is None else encode_fit.seen(gang, caller),
        limit=limit if limit is None or caller.sees(limit.queue) else None,
        limits=tuple(one for one in found.limits if caller.sees(one.queue)),
        kept_off_by=tuple(_of_viewer(one, caller) for one in found.kept_off_by),
        excluded=encode_fit.without_nodes(found.excluded),
    )


def _of_viewer(held: Reserved, caller: Caller) -> Reserved:
    """Return a reservation without its node. If the viewer does not see the queue of the ask, the ask is left out, too."""
    if caller.sees(held.queue):
        return replace(held, node_id="")
    return replace(held, node_id="", key="", queue="")


def _hidden(level: LevelReport) -> LevelReport:
    return replace(level, max={}, usage={}, promised={}, headroom={})


def answer(found: Explanation, now: int) -> pb.ExplainResponse:
    """Return the explanation as a message."""
    response = pb.ExplainResponse(
        kind=_KINDS.get(found.kind, pb.SUBJECT_KIND_UNKNOWN),
        key=found.key,
        partition=found.partition,
        lines=found.lines or (found.summary or _UNKNOWN,),
        taken_at_ms=now,
    )
    if found.kind == "ask":
        response.waiting.CopyFrom(_waiting(found))
    elif found.kind == "allocation":
        response.placed.CopyFrom(_placed(found))
    elif found.kind == "application":
        response.application.CopyFrom(pb.ExplainedApplication(queue=found.queue, state=found.code))
    elif found.kind == "node":
        response.node.CopyFrom(pb.ExplainedNode(capacity=found.resource))
    return response


def _waiting(found: Explanation) -> pb.WaitingAsk:
    waiting = pb.WaitingAsk(
        application_id=found.application_id,
        queue=found.queue,
        resources=found.resource,
        code=found.code,
        since_ms=found.since_ms,
        levels=map(_level, found.levels),
        limits=map(_user_limit, found.limits),
        asks_before=found.asks_before,
        node_tally=_tally(found),
        nodes_examined=sum(found.tally.values()),
        nodes_fitting=found.tally.get(FITS, 0),
        nearest_node=found.nearest,
        nearest_missing=found.nearest_missing,
        priority=found.priority,
    )
    gang = found.gang
    if gang is not None:
        waiting.gang.CopyFrom(encode_fit.group_fit(gang))
        waiting.job_key = gang.key
        waiting.job_members, waiting.job_members_waiting = gang.size, gang.members
    held = found.reserved
    if held is not None:
        waiting.reservation.CopyFrom(
            pb.AskReservation(
                node_id=held.node_id,
                since_ms=held.since_ms,
                decision_id=held.held_by,
                short=held.missing,
                until_ms=held.until_ms,
            )
        )
    waiting.kept_off_by.extend(map(_reservation, found.kept_off_by))
    return waiting


def _reservation(held: Reserved) -> pb.NodeReservation:
    return pb.NodeReservation(
        node_id=held.node_id,
        allocation_key=held.key,
        queue=held.queue,
        priority=held.priority,
        since_ms=held.since_ms,
        until_ms=held.until_ms,
    )


def _level(level: LevelReport) -> pb.QueueLevel:
    return pb.QueueLevel(
        queue=level.path,
        usage=level.usage,
        promised=level.promised,
        max=level.max,
        head_room=level.headroom,
        short_types=level.short,
        blocks=bool(level.short),
    )


def _user_limit(limit: UserLimitReport) -> pb.LimitLevel:
    return pb.LimitLevel(
        queue=limit.queue,
        subject=f"{limit.kind} {limit.name or '(none)'}",
        usage=limit.usage,
        max=limit.max,
        head_room=limit.headroom,
        short_types=limit.short,
        blocks=bool(limit.short),
    )


def _tally(found: Explanation) -> list[pb.NodeTally]:
    """Return, for each reason, the number of nodes that do not take the ask, most frequent reason first."""
    refused = {code: nodes for code, nodes in found.tally.items() if code != FITS}
    ranked = sorted(refused.items(), key=lambda entry: (-entry[1], entry[0]))
    return [
        pb.NodeTally(
            code=code,
            nodes=nodes,
            examples=found.examples.get(code, ()),
            message=node_text(code),
        )
        for code, nodes in ranked
    ]


def _placed(found: Explanation) -> pb.PlacedAllocation:
    return pb.PlacedAllocation(
        application_id=found.application_id,
        queue=found.queue,
        node_id=found.node_id,
        resources=found.resource,
        since_ms=found.since_ms,
        since_at_the_latest=found.since_at_the_latest,
        priority=found.priority,
        foreign=found.foreign,
    )


def _node(report: NodeReport) -> pb.ExplainedNode:
    return pb.ExplainedNode(
        schedulable=report.schedulable,
        capacity=report.capacity,
        available=report.free,
        allocations=report.allocations,
        pledged_to=report.reserved_for,
    )


def _application(
    report: ApplicationReport, asks: Iterable[AllocationReport]
) -> pb.ExplainedApplication:
    """Return the application, with its waiting asks by reason, most frequent first."""
    groups: dict[str, pb.WaitingGroup] = {}
    for ask in asks:
        if ask.node_id:
            continue
        group = groups.setdefault(
            ask.code,
            pb.WaitingGroup(
                code=ask.code,
                example_key=ask.key,
                example_name=pod_name(ask.tags),
                since_ms=ask.waiting_since_ms,
            ),
        )
        group.asks += 1
        group.since_ms = min(group.since_ms, ask.waiting_since_ms)
    ranked: list[pb.WaitingGroup] = sorted(groups.values(), key=lambda one: (-one.asks, one.code))
    return pb.ExplainedApplication(
        queue=report.queue,
        state=report.state,
        allocations=report.allocations,
        asks_waiting=report.asks,
        groups=ranked,
    )
