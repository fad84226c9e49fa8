"""Sessions that can be resumed: the counts of messages and decisions on each stream, and the continuation of a session (design 7.5).

A core that replays the input of another core arrives at the same counts. The replaying core can therefore tell a manager which
messages are missing, and knows which decisions the manager has not received.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from server.core.events import resuming
from server.core.state import State
from server.model.decisions import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    ApplicationUpdateRejected,
    AskRejected,
    AskReleased,
    Decision,
    NodeAccepted,
    NodeRejected,
    Noted,
    Placed,
    PlanCheckEnded,
    PlanCheckRequested,
    Released,
    Withdrawn,
)
from server.model.events import MessagesTaken, SessionResumed
from server.model.reasons import Code

NODE: Final = "node"
APPLICATION: Final = "application"
ALLOCATION: Final = "allocation"

STREAMS: Final[Mapping[type, str]] = {
    NodeAccepted: NODE,
    NodeRejected: NODE,
    ApplicationAccepted: APPLICATION,
    ApplicationRejected: APPLICATION,
    ApplicationUpdateRejected: APPLICATION,
    ApplicationUpdated: APPLICATION,
    Placed: ALLOCATION,
    Released: ALLOCATION,
    Withdrawn: ALLOCATION,
    PlanCheckRequested: ALLOCATION,
    PlanCheckEnded: ALLOCATION,
    AskReleased: ALLOCATION,
    AskRejected: ALLOCATION,
}
"""The stream of each kind of decision that is counted. States of asks are not counted, because only the latest state is sent."""

_MANAGER: Final = attrgetter("rm_id")


def count(state: State, decisions: Sequence[Decision]) -> None:
    """Count decisions for managers whose sessions can be resumed. The caller must pass all decisions of the core, in order."""
    if not decisions or not any(one.session for one in state.managers.values()):
        return
    for kind, run in groupby(decisions, type):
        stream = STREAMS.get(kind)
        if stream is None:
            continue
        for rm_id, number in Counter(map(_MANAGER, run)).items():
            manager = state.managers.get(rm_id)
            if manager is not None and manager.session is not None:
                _add(manager.session.sent, stream, number)


def take_messages(state: State, event: MessagesTaken) -> list[Decision]:
    """Count the messages that a manager has sent."""
    manager = state.managers.get(event.rm_id)
    if manager is None or manager.session is None:
        return []
    if event.ends:
        manager.session = None
        return []
    taken = manager.session.taken
    _add(taken, NODE, event.nodes)
    _add(taken, APPLICATION, event.applications)
    _add(taken, ALLOCATION, event.allocations)
    return []


def _add(counts: dict[str, int], stream: str, number: int) -> None:
    counts[stream] = counts.get(stream, 0) + number


def resume(state: State, event: SessionResumed, now: int) -> list[Decision]:
    """Continue a session: its manager counts as synced again, and the work that waited for the end of a sync is done.

    Do nothing if the session cannot be resumed.
    """
    manager = state.managers.get(event.rm_id)
    if manager is None or not manager.can_resume(event.session):
        return []
    manager.synced, manager.was_synced = True, False
    decisions: list[Decision] = []
    for partition in state.owned_by(event.rm_id):
        decisions += resuming.go_on(state, partition, now)
    message = f"resource manager {event.rm_id!r} continues its session"
    return [
        Noted("manager", event.rm_id, Code.MANAGER_RESUMED, message, "", event.rm_id),
        *decisions,
    ]
