"""Decisions as the lines in which a story expects them."""

from collections.abc import Iterable
from typing import Final

from server.model.decisions import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    AskRejected,
    AskReleased,
    AskStateChanged,
    Decision,
    NodeAccepted,
    NodeRejected,
    Noted,
    Placed,
    Released,
)

ALWAYS: Final = (
    Placed,
    Released,
    AskReleased,
    AskRejected,
    ApplicationRejected,
    NodeRejected,
)
ON_DEMAND: Final[dict[str, type]] = {
    "accepted": ApplicationAccepted,
    "applications": ApplicationUpdated,
    "nodes": NodeAccepted,
    "waiting": AskStateChanged,
    "notes": Noted,
}


def told(decisions: Iterable[Decision], also: Iterable[str]) -> list[tuple[str, str]]:
    """Each decision that counts as its line, with the reason or message behind it."""
    kinds = (*ALWAYS, *(ON_DEMAND[word] for word in also))
    return [_line(each) for each in decisions if isinstance(each, kinds)]


def _line(decision: Decision) -> tuple[str, str]:
    match decision:
        case Placed():
            return f"{decision.key} on {decision.node_id}", ""
        case Released():
            return f"{decision.key} released {decision.termination.name}", decision.message
        case AskReleased():
            return f"{decision.key} ended {decision.termination.name}", decision.message
        case AskRejected():
            return f"{decision.key} rejected", decision.reason
        case ApplicationRejected():
            return f"{decision.application_id} rejected", decision.reason
        case NodeRejected():
            return f"{decision.node_id} rejected", decision.reason
        case _:
            return _on_demand(decision)


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
    """Is this the expected line; what follows ``~`` must stand in the reason, in any case."""
    head, tilde, words = (part.strip() for part in expected.partition("~"))
    return head == line and (not tilde or words.lower() in reason.lower())
