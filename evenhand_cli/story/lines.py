"""Decisions as lines of text, in the form in which a story expects them."""

from collections.abc import Iterable, Mapping
from typing import Final

from server.model.decisions import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    ApplicationUpdateRejected,
    AskRejected,
    AskReleased,
    AskStateChanged,
    Decided,
    Decision,
    DecisionMoved,
    NodeAccepted,
    NodeRejected,
    Noted,
    Placed,
    PlanCheckEnded,
    PlanCheckRequested,
    Released,
    ShadowDecided,
    Termination,
    Withdrawn,
)
from server.model.records import DecisionRecord
from server.model.shadow import Choice

ALWAYS: Final = (
    Placed,
    Released,
    Withdrawn,
    PlanCheckRequested,
    PlanCheckEnded,
    AskReleased,
    AskRejected,
    ApplicationRejected,
    ApplicationUpdateRejected,
    NodeRejected,
)
ON_DEMAND: Final[dict[str, type | tuple[type, ...]]] = {
    "accepted": ApplicationAccepted,
    "applications": ApplicationUpdated,
    "nodes": NodeAccepted,
    "waiting": AskStateChanged,
    "notes": Noted,
    "decisions": (Decided, DecisionMoved),
}


def told(
    decisions: Iterable[Decision], also: Iterable[str], names: dict[str, str]
) -> list[tuple[str, str]]:
    """Return each decision of the listed kinds as a line with its reason or message.

    The line of a release also has the way of eviction, in square brackets. ``names`` maps the ids of preemption
    decisions to their names in the story; new decisions are added.
    """
    kinds = (*ALWAYS, *(ON_DEMAND[word] for word in also))
    lines = []
    for each in decisions:
        if isinstance(each, Decided):
            names[each.record.decision_id] = _name(each.record)
        if isinstance(each, kinds):
            lines.append(_line(each, names))
    return lines


def released(decisions: Iterable[Decision]) -> list[Released]:
    """Return, of the given decisions, the releases that belong to a preemption decision."""
    return [one for one in decisions if isinstance(one, Released) and one.decision_id]


def checked(decisions: Iterable[Decision]) -> dict[str, str]:
    """Return the ids of new plan checks by the keys of their asks."""
    return {
        key: one.check_id
        for one in decisions
        if isinstance(one, PlanCheckRequested)
        for key, _ in one.placements
    }


def _plan_check(decision: PlanCheckRequested | PlanCheckEnded) -> tuple[str, str]:
    if isinstance(decision, PlanCheckEnded):
        return "a plan check has ended", decision.reason
    where = "+".join(f"{key} on {node_id}" for key, node_id in decision.placements)
    return f"would {where} fit without {'|'.join(decision.victims)}", ""


def beside(decisions: Iterable[Decision]) -> list[tuple[str, str]]:
    """Return the decisions of a shadow, each as a line and its reason."""
    return [_beside(one) for one in decisions if isinstance(one, ShadowDecided)]


def _beside(decision: ShadowDecided) -> tuple[str, str]:
    record = decision.record
    if record.ended_ms:
        return f"{record.key} ended", record.end_reason
    sides = [_choice(one) for one in (record.live, record.shadow) if one is not None]
    if record.difference == "same":
        sides = sides[:1]
    return (
        f"{record.key} {record.difference} {' / '.join(sides)}",
        f"{record.law}: {record.because}",
    )


def _choice(choice: Choice) -> str:
    victims = "|".join(one.key for one in choice.victims)
    return " ".join(filter(None, (choice.node_id, victims)))


def _name(record: DecisionRecord) -> str:
    who = "+".join(f"{one.key} on {one.node_id}" for one in record.beneficiaries)
    what = f"of {record.shrink.queue}" if record.shrink else f"for {who}"
    return f"{record.policy} {what}"


def _line(decision: Decision, names: Mapping[str, str]) -> tuple[str, str]:
    match decision:
        case Placed():
            return f"{decision.key} on {decision.node_id}", ""
        case Released():
            return _released(decision), f"{decision.message} [{decision.delivery}]"
        case PlanCheckRequested() | PlanCheckEnded():
            return _plan_check(decision)
        case Withdrawn():
            return f"{decision.key} stays", decision.reason
        case AskReleased():
            return f"{decision.key} ended {decision.termination.name}", decision.message
        case AskRejected() | ApplicationRejected() | ApplicationUpdateRejected() | NodeRejected():
            return _rejected(decision), decision.reason
        case Decided() | DecisionMoved():
            return _of_preemption(decision, names)
        case _:
            return _on_demand(decision)


def _rejected(
    decision: AskRejected | ApplicationRejected | ApplicationUpdateRejected | NodeRejected,
) -> str:
    match decision:
        case AskRejected():
            return f"{decision.key} rejected"
        case ApplicationRejected():
            return f"{decision.application_id} rejected"
        case ApplicationUpdateRejected():
            return f"{decision.application_id} unchanged"
        case NodeRejected():
            return f"{decision.node_id} rejected"


def _of_preemption(decision: Decided | DecisionMoved, names: Mapping[str, str]) -> tuple[str, str]:
    if isinstance(decision, Decided):
        return f"{_name(decision.record)} {decision.record.state}", decision.record.summary
    name = names.get(decision.decision_id, decision.decision_id)
    return f"{name} {decision.key or decision.state}", decision.reason


def _released(decision: Released) -> str:
    """Return the line of a release.

    The line has the victim, its preemptor and its node; in a quota run there is no preemptor.
    """
    if decision.termination is Termination.PLACEHOLDER_REPLACED:
        return (
            f"{decision.key} makes place for {decision.beneficiary} on {'|'.join(decision.nodes)}"
        )
    if decision.termination is not Termination.PREEMPTED_BY_SCHEDULER or not decision.decision_id:
        return f"{decision.key} released {decision.termination.name}"
    if not decision.beneficiary:
        return f"{decision.key} is evicted"
    return f"{decision.key} is evicted for {decision.beneficiary} on {'|'.join(decision.nodes)}"


def _on_demand(decision: Decision) -> tuple[str, str]:
    match decision:
        case ApplicationAccepted():
            return f"{decision.application_id} in {decision.queue}", ""
        case ApplicationUpdated():
            return f"{decision.application_id} is {decision.state}", decision.message
        case AskStateChanged():
            return f"{decision.key} {decision.state.name.lower()}", decision.reason
        case NodeAccepted():
            return f"{decision.node_id} accepted", ""
        case Noted():
            return f"{decision.code} {decision.subject}", decision.message
        case _:
            raise TypeError(f"no line for {decision!r}")


def matches(expected: str, line: str, reason: str) -> bool:
    """Return whether a line and its reason are as expected.

    The text after ``~`` in `expected` must occur in the reason, in upper or lower case.
    """
    head, tilde, words = (part.strip() for part in expected.partition("~"))
    return head == line and (not tilde or words.lower() in reason.lower())
