"""Requests that commands about the present send to the history.

The requests are about earlier runs of the core and old decisions, which the core does not have in memory. If the core
has no readable history, or if the user's role may not see the history, commands answer without the history.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from evenhand.v1 import decisions_pb2, history_pb2_grpc, inspect_pb2, inspect_pb2_grpc, reports_pb2
from evenhand.v1 import history_pb2 as pb
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_cli.paging import PAGE_SIZE, every
from evenhand_cli.render.words import instant, plural

_Answer = TypeVar("_Answer")
PAST_MAX = 200
"""The largest number of past decisions in a listing for which the user names no time."""


def started_ms(core: Core) -> int:
    """Return when the core was started, in Unix milliseconds. Raises Fault if the core does not answer or refuses."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    return core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()).started_at_ms


@dataclass(frozen=True, slots=True)
class Past:
    """Decisions of the history, oldest first. ``is_cut`` says that earlier decisions of the last day were left out."""

    decisions: Sequence[decisions_pb2.Decision] = ()
    is_cut: bool = False


def past_decisions(
    core: Core, wanted: decisions_pb2.ListDecisionsRequest, known: Collection[str]
) -> Past:
    """Return the decisions that match a request and are not among the known decisions. Without a history, return no decisions.

    If the request names no start, return at most the latest `PAST_MAX` decisions of the last day.
    """
    request = pb.ListPastDecisionsRequest(
        partition=wanted.partition,
        policy=wanted.policy,
        queue=wanted.queue,
        since_ms=wanted.since_ms,
    )
    if not wanted.since_ms:
        return _tried(lambda: _latest(core, request, known)) or Past()
    method = _stub(core).ListPastDecisions
    found = _tried(lambda: every(core, method, request, lambda page: page.decisions)) or []
    return Past([one for one in found if one.decision_id not in known])


def _latest(core: Core, request: pb.ListPastDecisionsRequest, known: Collection[str]) -> Past:
    found: list[decisions_pb2.Decision] = []
    request.latest_first, request.page_size = True, PAGE_SIZE
    while True:
        page = core.ask(_stub(core).ListPastDecisions, request)
        found += [one for one in page.decisions if one.decision_id not in known]
        if len(found) > PAST_MAX or not page.next_page_token:
            return Past(found[:PAST_MAX][::-1], len(found) > PAST_MAX)
        request.page_token = page.next_page_token


def past_decision(core: Core, decision_id: str) -> pb.GetPastDecisionResponse | None:
    """Return a decision from the history, or None if the history does not have the decision."""
    request = pb.GetPastDecisionRequest(decision_id=decision_id)
    return _tried(lambda: core.ask(_stub(core).GetPastDecision, request))


def past_pod(core: Core, name: str, partition: str) -> pb.GetPodHistoryResponse | None:
    """Return the history's facts about a pod, or None if the history does not know the pod."""
    request = pb.GetPodHistoryRequest(partition=partition, pod=name)
    return _tried(lambda: core.ask(_stub(core).GetPodHistory, request))


def past_lost_work(
    core: Core, wanted: reports_pb2.GetLostWorkRequest
) -> reports_pb2.GetLostWorkResponse | None:
    """Return the work lost since an instant, from the history. Return None if there is no history."""
    request = pb.GetPastLostWorkRequest(
        partition=wanted.partition,
        queue=wanted.queue,
        policy=wanted.policy,
        since_ms=wanted.since_ms,
    )
    found = _tried(lambda: core.ask(_stub(core).GetPastLostWork, request))
    return None if found is None else as_lost_work(found)


def as_lost_work(found: pb.GetPastLostWorkResponse) -> reports_pb2.GetLostWorkResponse:
    """Return the lost work of the past in the form of the core's report."""
    return reports_pb2.GetLostWorkResponse(
        lines=found.lines,
        owners=found.owners,
        since_ms=found.period.since_ms,
        taken_at_ms=found.period.until_ms,
    )


def from_history(past: Past, started: int, *, of_last_day: bool) -> str:
    """Return the note that says how many decisions of a listing come from the history, and how to list more decisions."""
    count = f"{'the latest ' if past.is_cut else ''}{plural(len(past.decisions), 'decision')}"
    if all(one.at_ms < started for one in past.decisions):
        which = f"{count} made before the core was started at {instant(started)}"
    else:
        which = f"{count} that the core no longer has in memory"
    reach = " of the last day; more: --since 7d" if of_last_day else ""
    return f"{which}: from the history{reach}"


def _stub(core: Core) -> history_pb2_grpc.HistoryServiceStub:
    return history_pb2_grpc.HistoryServiceStub(core.channel)


def _tried(ask: Callable[[], _Answer]) -> _Answer | None:
    try:
        return ask()
    except Fault:
        return None
