"""The reason why a pod or gang waits, or the node of a pod.

Each blocker has the wanted, free and used amounts, and the next step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc

from evenhand.v1 import (
    decisions_pb2,
    explain_pb2,
    explain_pb2_grpc,
    history_pb2,
    history_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
)
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_cli.named_pods import belongs_to, meant
from evenhand_cli.near import MATCHES_MAX, near_matches
from evenhand_cli.output import word
from evenhand_cli.paging import PAGE_SIZE_MAX, every
from evenhand_cli.render.explanation import decision_of
from evenhand_cli.render.fits import members
from evenhand_cli.render.history import ENDS, life
from evenhand_cli.render.tables import pod_name
from evenhand_cli.render.verdicts import brief, protected
from evenhand_cli.render.words import plural
from evenhand_console.at_once import begin
from evenhand_console.query import Query
from evenhand_console.queue_numbers import every_queue
from evenhand_console.reading import status_of, unless_absent
from evenhand_console.view import View

HOLDERS_MAX: Final = 10
"""Largest number of holders that are named for one blocker."""
PODS_MAX: Final = 100
"""Largest number of pods of a workload in the list."""
UNKNOWN: Final = (explain_pb2.SUBJECT_KIND_UNKNOWN, explain_pb2.SUBJECT_KIND_UNSPECIFIED)
HEADROOM: Final = "O1"
FIRM: Final = "J4"
RESERVED: Final = "C7"


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built. A list that the page does not need is empty."""

    answer: explain_pb2.ExplainResponse
    found: Sequence[inspect_pb2.Allocation]
    """The pods among which the name in the address was looked up."""
    tree: inspect_pb2.QueueTree | None
    applications: Sequence[inspect_pb2.Application]
    """The applications of the ask's leaf queue if a limit of this queue blocks the ask, else none."""
    on_node: Sequence[inspect_pb2.Allocation] | None
    """The pods on the node that comes nearest to holding the ask; None if the caller may not see nodes."""
    past: history_pb2.GetPodHistoryResponse | None = None
    """The history of a pod that the core no longer knows; None if there is no such history."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An object that holds capacity that the ask needs: `what` is its kind, and `key` is its key for the link."""

    what: str
    key: str
    name: str
    amounts: Mapping[str, int]
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Blocker:
    """One obstacle to the placement of the ask, such as a limit or a node."""

    subject: str
    queue: str
    """The queue to which the text `subject` links, "" if there is no link."""
    wanted: Mapping[str, int]
    free: Mapping[str, int]
    lacks: Mapping[str, int]
    holders: tuple[Holder, ...]
    holders_left_out: int
    rule: str
    """The id of the rule by which the obstacle blocks the ask."""
    changes: str
    until_ms: int = 0
    """The latest instant at which the obstacle ends by itself, 0 if this is not known."""


@dataclass(frozen=True, slots=True)
class PodLine:
    """A link to a pod that belongs to the object in the address, such as a pod of a workload."""

    key: str
    name: str
    state: str
    node: str
    code: str


@dataclass(frozen=True, slots=True)
class PastAsk:
    """One ask of a pod of the past, from its arrival to its end."""

    found: history_pb2.PastPod
    waits: tuple[tuple[str, int], ...]
    """The reasons why the ask waited, each with the milliseconds of waiting for this reason."""
    ran_ms: int
    """Milliseconds for which the pod ran; 0 if the ask was not placed."""
    end: str


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page. If the address has no key, the page is only a form."""

    key: str
    kind: str
    name: str
    partition: str
    now_ms: int
    lines: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    gang: str = ""
    answer: explain_pb2.ExplainResponse | None = None
    blockers: tuple[Blocker, ...] = ()
    preemption: str = ""
    protected: str = ""
    shadow: str = ""
    kept_by_decision: str = ""
    """The decision that keeps capacity for the pod, "" if there is none."""
    pods: tuple[PodLine, ...] = ()
    pods_left_out: int = 0
    past: tuple[PastAsk, ...] = ()
    """The asks of a pod that has ended, the latest first."""


def read(core: Core, query: Query) -> Read:
    """Read the explanation, and the objects that hold the capacity that the ask lacks.

    Raises Fault if the core does not answer or refuses.
    """
    key, partition = query["key"], query["partition"]
    if not key:
        return Read(explain_pb2.ExplainResponse(), (), None, (), ())
    answer, found = _explained(core, key, partition), list[inspect_pb2.Allocation]()
    if answer.kind in UNKNOWN:
        found = _allocations(core, inspect_pb2.ListAllocationsRequest(partition=partition))
        keys, _ = meant(found, key)
        if len(keys) != 1:
            return Read(answer, found, None, (), (), None if keys else _past(core, key, partition))
        answer = _explained(core, keys[0], partition)
    if answer.gang_member:
        answer = _explained(core, answer.gang_member, answer.partition)
    if not answer.HasField("waiting"):
        return Read(answer, found, None, (), ())
    waiting, partition = answer.waiting, answer.partition
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    blocked = {one.queue for one in waiting.levels if one.blocks or one.short_types}
    blocked |= {one.queue for one in waiting.gang.limits}
    node = inspect_pb2.ListAllocationsRequest(partition=partition, node_id=waiting.nearest_node)
    asked = inspect_pb2.GetQueueTreeRequest(partition=partition)
    of_leaf = inspect_pb2.ListApplicationsRequest(partition=partition, queue=waiting.queue)
    tree = begin(lambda: core.ask(inspect.GetQueueTree, asked)) if blocked else None
    applications = (
        begin(lambda: every(core, inspect.ListApplications, of_leaf, lambda it: it.applications))
        if waiting.queue in blocked
        else None
    )
    on_node = unless_absent(lambda: _allocations(core, node)) if waiting.nearest_node else ()
    return Read(
        answer,
        found,
        None if tree is None else tree.result().tree,
        () if applications is None else applications.result(),
        on_node,
    )


def _explained(core: Core, key: str, partition: str) -> explain_pb2.ExplainResponse:
    stub = explain_pb2_grpc.ExplainServiceStub(core.channel)
    return core.ask(stub.Explain, explain_pb2.ExplainRequest(partition=partition, key=key))


def _past(core: Core, key: str, partition: str) -> history_pb2.GetPodHistoryResponse | None:
    """Return the history of a pod; None if there is no history, or if the history does not know the pod."""
    stub = history_pb2_grpc.HistoryServiceStub(core.channel)
    request = history_pb2.GetPodHistoryRequest(partition=partition, pod=key)
    try:
        return unless_absent(lambda: core.ask(stub.GetPodHistory, request))
    except Fault as fault:
        if status_of(fault) is not grpc.StatusCode.NOT_FOUND:
            raise
        return None


def _allocations(
    core: Core, request: inspect_pb2.ListAllocationsRequest
) -> list[inspect_pb2.Allocation]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request.include_asks, request.include_foreign = not request.node_id, True
    return every(core, stub.ListAllocations, request, lambda page: page.allocations, PAGE_SIZE_MAX)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page. Raises Fault if the name belongs to no object, or to several pods."""
    key, answer = query["key"], found.answer
    if not key:
        return Page("", "", "", query["partition"], 0)
    if answer.kind in UNKNOWN:
        if found.past is None or not found.past.pods:
            raise _unknown(found.found, key)
        return _ended(found.past)
    kind = word(explain_pb2.SubjectKind.DESCRIPTOR, answer.kind).replace("_", " ")
    waiting = answer.waiting if answer.HasField("waiting") else None
    now = answer.taken_at_ms
    pods = [one for one in found.found if belongs_to(one, key)]
    return Page(
        key=answer.key,
        kind="gang" if waiting is not None and waiting.HasField("gang") else kind,
        name=answer.name or key,
        partition=answer.partition,
        now_ms=now,
        lines=tuple(answer.lines),
        steps=tuple(waiting.next_steps) if waiting is not None else (),
        gang=members(waiting.gang) if waiting is not None and waiting.HasField("gang") else "",
        answer=answer,
        blockers=tuple(_blockers(found, waiting)) if waiting is not None else (),
        preemption=_verdict(answer, "preemption"),
        protected=protected(waiting.preemption) if waiting is not None else "",
        shadow=_verdict(answer, "shadow"),
        kept_by_decision=decision_of(waiting.reservation) if waiting is not None else "",
        pods=tuple(_pod(one) for one in pods[:PODS_MAX]),
        pods_left_out=max(0, len(pods) - PODS_MAX),
    )


def _ended(past: history_pb2.GetPodHistoryResponse) -> Page:
    """Return the page of a pod that the core no longer knows: the values come from its history."""
    latest, now = past.pods[0], past.period.until_ms
    return Page(
        key=latest.key,
        kind="ended pod" if latest.ended_ms else "pod of the history",
        name=latest.name or latest.key,
        partition=latest.partition,
        now_ms=now,
        lines=(life(latest, now),),
        answer=explain_pb2.ExplainResponse(),
        past=tuple(_past_ask(one, now) for one in past.pods),
    )


def _past_ask(one: history_pb2.PastPod, now: int) -> PastAsk:
    return PastAsk(
        found=one,
        waits=tuple((each.code, (each.until_ms or now) - each.since_ms) for each in one.waits),
        ran_ms=(one.ended_ms or now) - one.placed_ms if one.placed_ms else 0,
        end=ENDS.get(one.end_code, one.end_code) if one.ended_ms else "",
    )


def _unknown(found: Sequence[inspect_pb2.Allocation], key: str) -> Fault:
    """Return the fault for a name that belongs to no object, or to several pods."""
    keys, _ = meant(found, key)
    if keys:
        named = sorted(pod_name(one) for one in found if one.allocation_key in keys)
        several = " or ".join(named[:MATCHES_MAX])
        what = f"{plural(len(keys), 'pod', 'have')} the name `{key}`"
        return Fault(what, where="argument key", advice=f"say which: {several}")
    near = near_matches(key, [pod_name(one) or one.allocation_key for one in found])
    advice = (
        near
        or "the core no longer knows a pod that has ended, and the history has none of this name"
    )
    return Fault(
        f"nothing has the name `{key}`: no pod, application, node or queue",
        where="argument key",
        advice=advice,
    )


def _verdict(answer: explain_pb2.ExplainResponse, name: str) -> str:
    if not answer.waiting.HasField(name):
        return ""
    found: decisions_pb2.PreemptionVerdict = getattr(answer.waiting, name)
    return brief(found, answer.taken_at_ms)


def _blockers(found: Read, ask: explain_pb2.WaitingAsk) -> Iterator[Blocker]:
    """Yield the blockers: limits from the leaf to the root, then nodes, then capacity that is kept for other asks."""
    if ask.HasField("gang"):
        yield from (_gang_limit(found, ask, one) for one in ask.gang.limits)
    else:
        yield from (_level(found, ask, one) for one in ask.levels if one.blocks or one.short_types)
        yield from (_limit(ask, one) for one in ask.limits if one.blocks)
    yield from _nodes(found, ask)
    yield from (_kept(ask, one) for one in ask.kept_off_by)


def _level(found: Read, ask: explain_pb2.WaitingAsk, one: explain_pb2.QueueLevel) -> Blocker:
    short = list(one.short_types) or list(one.max)
    wanted = {kind: ask.resources.get(kind, 0) for kind in short}
    free = {kind: max(0, one.head_room.get(kind, 0)) for kind in short}
    holders, left_out = _of_queue(found, one.queue, short)
    return Blocker(
        subject=f"max of queue {one.queue}",
        queue=one.queue,
        wanted=wanted,
        free=free,
        lacks=_less(wanted, free),
        holders=holders,
        holders_left_out=left_out,
        rule=HEADROOM,
        changes="when pods of the queue end, or its max is raised",
    )


def _limit(ask: explain_pb2.WaitingAsk, one: explain_pb2.LimitLevel) -> Blocker:
    short = list(one.short_types) or list(one.max)
    wanted = {kind: ask.resources.get(kind, 0) for kind in short}
    free = {kind: max(0, one.head_room.get(kind, 0)) for kind in short}
    used = {kind: one.usage.get(kind, 0) for kind in short}
    return Blocker(
        subject=f"limit of {one.subject} in queue {one.queue}",
        queue=one.queue,
        wanted=wanted,
        free=free,
        lacks=_less(wanted, free),
        holders=(Holder("other", "", one.subject, used),),
        holders_left_out=0,
        rule=HEADROOM,
        changes=f"when pods of {one.subject} end, or the limit is raised",
    )


def _gang_limit(found: Read, ask: explain_pb2.WaitingAsk, one: explain_pb2.LimitFit) -> Blocker:
    wanted = {kind: ask.gang.rest.get(kind, 0) for kind in one.missing}
    free = {kind: max(0, wanted[kind] - one.missing[kind]) for kind in one.missing}
    of_queue = one.kind in {"queue", "firm"}
    name = one.name if of_queue else one.queue
    what = {"queue": "max of queue", "firm": "guarantee of queue"}.get(one.kind, one.kind)
    where = "" if of_queue else f" in queue {one.queue}"
    holders, left_out = _of_queue(found, name, list(one.missing)) if of_queue else ((), 0)
    return Blocker(
        subject=f"{what} {one.name}{where}",
        queue=name,
        wanted=wanted,
        free=free,
        lacks=dict(one.missing),
        holders=holders,
        holders_left_out=left_out,
        rule=FIRM if one.kind == "firm" else HEADROOM,
        changes="when pods that count against it end, or it is raised",
    )


def _nodes(found: Read, ask: explain_pb2.WaitingAsk) -> Iterator[Blocker]:
    """Yield the nearest node if no node can hold the ask, or the nearest nodes of a gang."""
    if ask.HasField("gang"):
        for one in ask.gang.nodes:
            if one.missing:
                yield Blocker(
                    subject=f"node {one.node_id}, for {one.rest} more of its members",
                    queue="",
                    wanted={
                        kind: one.free.get(kind, 0) + one.missing[kind] for kind in one.missing
                    },
                    free={kind: one.free.get(kind, 0) for kind in one.missing},
                    lacks=dict(one.missing),
                    holders=(),
                    holders_left_out=0,
                    rule="J8",
                    changes="when pods on the node end",
                )
        return
    if not ask.nearest_node or not ask.nearest_missing:
        return
    lacks = dict(ask.nearest_missing)
    wanted = {kind: ask.resources.get(kind, 0) for kind in lacks}
    pods = [_on_node(one, lacks) for one in found.on_node or ()]
    pods.sort(key=lambda one: (*(-value for value in one.amounts.values()), one.name, one.key))
    yield Blocker(
        subject=f"node {ask.nearest_node}, the nearest",
        queue="",
        wanted=wanted,
        free={kind: max(0, wanted[kind] - lacks[kind]) for kind in lacks},
        lacks=lacks,
        holders=tuple(pods[:HOLDERS_MAX]),
        holders_left_out=max(0, len(pods) - HOLDERS_MAX),
        rule=HEADROOM,
        changes="when pods on the node end, or a node is added",
    )


def _on_node(one: inspect_pb2.Allocation, kinds: Mapping[str, int]) -> Holder:
    amounts = {kind: one.resources.get(kind, 0) for kind in kinds}
    return Holder("pod", one.allocation_key, pod_name(one) or one.allocation_key, amounts)


def _kept(ask: explain_pb2.WaitingAsk, one: explain_pb2.NodeReservation) -> Blocker:
    name = one.name or one.allocation_key or f"an ask of priority {one.priority}"
    what = "pod" if one.allocation_key else "other"
    return Blocker(
        subject=f"node {one.node_id}, kept for another ask" if one.node_id else "a kept node",
        queue="",
        wanted=dict(ask.resources),
        free={},
        lacks={},
        holders=(Holder(what, one.allocation_key, name, {}, one.until_ms),),
        holders_left_out=0,
        rule=RESERVED,
        changes="when that ask is placed, or the reservation ends",
        until_ms=one.until_ms,
    )


def _of_queue(found: Read, path: str, kinds: Sequence[str]) -> tuple[tuple[Holder, ...], int]:
    """Return the largest child queues or applications of a queue, by usage, and the number of those that are left out."""
    holders: list[Holder] = []
    root = found.tree.root if found.tree is not None else inspect_pb2.Queue()
    queue = next((one for one in every_queue(root) if one.path == path), None)
    if queue is not None:
        holders = [
            Holder("queue", one.path, one.path, {kind: one.usage.get(kind, 0) for kind in kinds})
            for one in queue.children
        ]
    holders += [
        Holder(
            "application",
            one.application_id,
            one.application_id,
            {kind: one.usage.get(kind, 0) for kind in kinds},
        )
        for one in found.applications
        if one.queue == path
    ]
    holders = [one for one in holders if any(one.amounts.values())]
    holders.sort(key=lambda one: (*(-value for value in one.amounts.values()), one.name))
    return tuple(holders[:HOLDERS_MAX]), max(0, len(holders) - HOLDERS_MAX)


def _less(wanted: Mapping[str, int], free: Mapping[str, int]) -> dict[str, int]:
    return {kind: value - free[kind] for kind, value in wanted.items() if value > free[kind]}


def _pod(one: inspect_pb2.Allocation) -> PodLine:
    return PodLine(
        key=one.allocation_key,
        name=pod_name(one) or one.allocation_key,
        state=word(inspect_pb2.AllocationState.DESCRIPTOR, one.state),
        node=one.node_id,
        code=one.waiting_code,
    )


PARAMETERS: Final = {"key": "", "partition": ""}
VIEW: Final = View("why", "Why", "/why", read, shape, PARAMETERS, pause_s=2.0)
