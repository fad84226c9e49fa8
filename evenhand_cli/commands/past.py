"""What commands about the present ask the history, for what happened before the core was started.

If the core has no history or cannot read it, or if the user's role may not see it, commands answer without the history.
"""

from collections.abc import Callable
from typing import TypeVar

from evenhand.v1 import decisions_pb2, history_pb2_grpc, inspect_pb2, inspect_pb2_grpc, reports_pb2
from evenhand.v1 import history_pb2 as pb
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_cli.paging import every
from evenhand_cli.render.words import instant, plural

_Answer = TypeVar("_Answer")


def started_ms(core: Core) -> int:
    """Return when the core was started, in Unix milliseconds. Raises Fault."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    return core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()).started_at_ms


def past_decisions(
    core: Core, wanted: decisions_pb2.ListDecisionsRequest, until_ms: int
) -> list[decisions_pb2.Decision]:
    """Return the decisions that match a request and were made before an instant; [] without a history."""
    if not wanted.since_ms or wanted.since_ms >= until_ms:
        return []
    request = pb.ListPastDecisionsRequest(
        partition=wanted.partition,
        policy=wanted.policy,
        queue=wanted.queue,
        since_ms=wanted.since_ms,
        until_ms=until_ms - 1,
    )
    method = _stub(core).ListPastDecisions
    return _tried(lambda: every(core, method, request, lambda page: page.decisions)) or []


def past_decision(core: Core, decision_id: str) -> pb.GetPastDecisionResponse | None:
    """Return a decision from the history, None if the history does not have it."""
    request = pb.GetPastDecisionRequest(decision_id=decision_id)
    return _tried(lambda: core.ask(_stub(core).GetPastDecision, request))


def past_pod(core: Core, name: str, partition: str) -> pb.GetPodHistoryResponse | None:
    """Return what the history knows of a pod, None if the history does not know the pod."""
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


def from_history(count: int, started: int) -> str:
    """Return the note that says how many decisions of a listing are from the history."""
    return f"{plural(count, 'decision')} made before the core was started at {instant(started)}: from the history"


def _stub(core: Core) -> history_pb2_grpc.HistoryServiceStub:
    return history_pb2_grpc.HistoryServiceStub(core.channel)


def _tried(ask: Callable[[], _Answer]) -> _Answer | None:
    try:
        return ask()
    except Fault:
        return None
