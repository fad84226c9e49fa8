"""One preemption decision, rule by rule: the preemptor, the amounts of queues, the victims, and why other pods were protected."""

from dataclasses import dataclass
from typing import Final

import grpc

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc, history_pb2, history_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_cli.output import word
from evenhand_cli.render import decisions as words
from evenhand_cli.render.decision_brief import kept_by
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.reading import status_of, unless_absent
from evenhand_console.view import View
from evenhand_console.views.decisions import state_of

VICTIMS_MAX: Final = 100
"""Largest number of victims on a page."""


@dataclass(frozen=True, slots=True)
class Read:
    """The decision, from the core or from the history. The fields of this object are None if the address has no id."""

    answer: decisions_pb2.GetDecisionResponse | None
    past: history_pb2.GetPastDecisionResponse | None


@dataclass(frozen=True, slots=True)
class VictimLine:
    """A victim with the rules that selected it."""

    victim: decisions_pb2.Victim
    state: str
    flags: str


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    decision: decisions_pb2.Decision | None
    from_history: bool = False
    now_ms: int = 0
    lines: tuple[str, ...] = ()
    state: str = ""
    status: str = ""
    """The state of the decision, with the time and reason of its end, or with the time until it is given up."""
    lost: str = ""
    quota: tuple[tuple[str, str], ...] = ()
    levels: tuple[decisions_pb2.DecidingLevel, ...] = ()
    victims: Part[VictimLine] | None = None
    reasons: tuple[tuple[str, int], ...] = ()
    """The rules that selected victims, each with the number of victims that it selected."""
    protected: int = 0
    kept_by: str = ""


def read(core: Core, query: Query) -> Read:
    """Read a decision, from the history if the core no longer has it.

    Raises Fault if core and history lack the decision, or if the core does not answer or refuses.
    """
    wanted = query["id"]
    if not wanted:
        return Read(None, None)
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    try:
        asked = decisions_pb2.GetDecisionRequest(decision_id=wanted)
        return Read(core.ask(stub.GetDecision, asked), None)
    except Fault as fault:
        if status_of(fault) is not grpc.StatusCode.NOT_FOUND:
            raise
        past = unless_absent(lambda: _past(core, wanted))
        if past is None:
            raise
        return Read(None, past)


def _past(core: Core, wanted: str) -> history_pb2.GetPastDecisionResponse:
    stub = history_pb2_grpc.HistoryServiceStub(core.channel)
    request = history_pb2.GetPastDecisionRequest(decision_id=wanted)
    return core.ask(stub.GetPastDecision, request)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page."""
    answer = found.answer if found.answer is not None else found.past
    if answer is None:
        return Page(None)
    one, now = answer.decision, answer.taken_at_ms
    lines = [
        VictimLine(
            each,
            word(decisions_pb2.VictimState.DESCRIPTOR, each.state) if each.state else "",
            words.flags(each),
        )
        for each in one.victims
    ]
    reasons: dict[str, int] = {}
    for each in one.victims:
        if each.because:
            reasons[each.because] = reasons.get(each.because, 0) + 1
    return Page(
        decision=one,
        from_history=found.answer is None,
        now_ms=now,
        lines=tuple(answer.lines),
        state=state_of(one),
        status=words.state(one, now).plain,
        lost=words.lost(one) if one.lost_ran_ms else "",
        quota=_quota(one),
        levels=tuple(each for each in one.levels if not each.hidden),
        victims=part_of(lines, query["start"], VICTIMS_MAX),
        reasons=tuple(sorted(reasons.items(), key=lambda each: (-each[1], each[0]))),
        protected=sum(each.count for each in one.spared),
        kept_by=kept_by(one) if one.victims or one.victims_elsewhere else "",
    )


def _quota(one: decisions_pb2.Decision) -> tuple[tuple[str, str], ...]:
    if not one.HasField("quota_run"):
        return ()
    return tuple((name, str(value)) for name, value in words.quota_run(one.quota_run))


PARAMETERS: Final = {"id": "", "start": ""}
VIEW: Final = View(
    "decision",
    "Decision",
    "/decision",
    read,
    shape,
    PARAMETERS,
    in_menu=False,
    kinds=frozenset(("decision", "released", "allocation")),
)
