"""The rows that the thread of the history sends to the writing process: plain tuples, which are quick to make and to send.

The first field of a row is its kind (`Row`). Events and decisions that the history does not keep have no row. A run that was packed
(`rows_fast`) is sent as one row.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

from server.history.rows_fast import Run
from server.history.tap import Item, Kind
from server.model.decisions import (
    BARRIER,
    ApplicationAccepted,
    AskRejected,
    AskReleased,
    AskStateChanged,
    Decided,
    DecisionMoved,
    Noted,
    Placed,
    Released,
    Withdrawn,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    LeadershipTaken,
    ManagerRegistered,
    ReleaseRequested,
)
from server.model.reasons import Code

ROWS_MAX: Final = 200
"""The largest number of rows that are made at once, so that the event loop is not kept waiting for the interpreter's lock."""


class Row(StrEnum):
    """The kinds of rows."""

    RUN = "run"
    """The rows of events or decisions of one kind, packed."""
    APPLICATION = "application"
    QUEUE = "queue"
    APPLICATION_ENDED = "application-ended"
    ASK = "ask"
    RUNNING = "running"
    PLACED = "placed"
    REASON = "reason"
    ENDED = "ended"
    ORDERED = "ordered"
    REFUSED = "refused"
    STAYS = "stays"
    DECIDED = "decided"
    VICTIMS = "victims"
    MOVED = "moved"
    MANAGER = "manager"
    CONFIGURATION = "configuration"
    SAMPLE = "sample"
    PICTURE = "picture"
    GAP = "gap"
    TERM = "term"
    LEADS = "leads"
    FOLLOWS = "follows"
    STARTED = "started"
    BEAT = "beat"
    STOPPED = "stopped"


class Frame(NamedTuple):
    """Rows of one instant. ``number`` is the number of the item from which the rows were made."""

    number: int
    now: int
    rows: list[tuple[Any, ...]]


def encoded(frame: Frame) -> bytes:
    """Return the bytes of a frame: its length, then its content."""
    content = pickle.dumps(tuple(frame), pickle.HIGHEST_PROTOCOL)
    return len(content).to_bytes(4, "big") + content


def frames(read: Callable[[int], bytes]) -> Iterator[tuple[Frame, int]]:
    """Yield the frames of a stream until the stream ends, each with its number of bytes. A frame that is cut off at the end is left out."""
    while len(head := read(4)) == 4:  # noqa: PLR2004 - the bytes of a length
        length = int.from_bytes(head, "big")
        content = read(length)
        if len(content) < length:
            return
        frame = Frame(*pickle.loads(content))  # noqa: S301 - from the process that started this one
        yield frame, length


def rows_of(item: Item) -> Iterator[Frame]:
    """Yield the frames of an item, each with at most `ROWS_MAX` rows."""
    rows = iter(_rows(item))
    while some := list(islice(rows, ROWS_MAX)):
        yield Frame(item.number, item.now, some)


def _rows(item: Item) -> Iterator[tuple[Any, ...]]:
    if item.kind in {Kind.EVENTS, Kind.DECISIONS}:
        for one in item.values:
            yield from made(one)
        return
    for one in item.values:
        yield (_OTHERS[item.kind], one)


def made(one: object) -> "Rows":
    """Return the rows of an event, of a decision, or of a run."""
    make = _MAKERS.get(type(one))
    return () if make is None else make(one)


_OTHERS: Final[Mapping[Kind, Row]] = {
    Kind.CONFIGURATION: Row.CONFIGURATION,
    Kind.SAMPLE: Row.SAMPLE,
    Kind.PICTURE: Row.PICTURE,
    Kind.GAP: Row.GAP,
    Kind.FOLLOWS: Row.FOLLOWS,
}

Rows = Sequence[tuple[Any, ...]] | Iterator[tuple[Any, ...]]


def _run(one: Run) -> Rows:
    return ((Row.RUN.value, *one),)


def _application_added(one: ApplicationAdded) -> Rows:
    return ((Row.APPLICATION.value, one.partition, one.application_id, one.user),)


def _application_accepted(one: ApplicationAccepted) -> Rows:
    return ((Row.QUEUE.value, one.partition, one.application_id, one.queue),)


def _application_removed(one: ApplicationRemoved) -> Rows:
    return ((Row.APPLICATION_ENDED.value, one.partition, one.application_id),)


def _ask_added(one: AskAdded) -> Rows:
    if one.application_id == BARRIER:
        return ()
    spec = one.spec
    return (
        (
            *(Row.ASK.value, one.rm_id, one.partition, one.key, one.application_id),
            *(one.created_ms, spec.resource, spec.priority, one.tags),
        ),
    )


def _allocation_added(one: AllocationAdded) -> Rows:
    spec = one.spec
    return (
        (
            *(Row.RUNNING.value, one.rm_id, one.partition, one.key, one.application_id),
            *(one.created_ms, spec.resource, spec.priority, one.tags, one.node_id, one.started_ms),
        ),
    )


def _placed(one: Placed) -> Rows:
    return ((Row.PLACED.value, one.partition, one.key, one.node_id, one.queue),)


def _state_changed(one: AskStateChanged) -> Rows:
    return ((Row.REASON.value, one.rm_id, one.key, one.code or one.state.name.lower()),)


def _release_requested(one: ReleaseRequested) -> Rows:
    return (
        (
            *(Row.ENDED.value, one.partition, one.application_id, one.key),
            *(one.termination.name, one.message, one.asks_only),
        ),
    )


def _released(one: Released | AskReleased) -> Rows:
    decision_id = one.decision_id if isinstance(one, Released) else ""
    return (
        (Row.ORDERED.value, one.partition, one.key, one.termination.name, one.message, decision_id),
    )


def _rejected(one: AskRejected) -> Rows:
    return () if one.application_id == BARRIER else ((Row.REFUSED.value, one.partition, one.key),)


def _withdrawn(one: Withdrawn) -> Rows:
    return ((Row.STAYS.value, one.partition, one.key, one.decision_id),)


def _decided(one: Decided) -> Iterator[tuple[Any, ...]]:
    record = one.record
    yield (Row.DECIDED.value, replace(record, victims=()))
    victims = iter(record.victims)
    while some := [tuple(victim) for victim in islice(victims, ROWS_MAX)]:
        yield (Row.VICTIMS.value, record.partition, record.decision_id, some)


def _moved(one: DecisionMoved) -> Rows:
    return (
        (
            *(Row.MOVED.value, one.partition, one.decision_id, one.state.value, one.at_ms),
            *(one.reason, one.key),
        ),
    )


_MANAGERS: Final = frozenset(
    {Code.MANAGER_REGISTERED, Code.MANAGER_REPLACED, Code.SYNC_COMPLETE, Code.SYNC_MISMATCH}
)


def _noted(one: Noted) -> Rows:
    if one.code not in _MANAGERS:
        return ()
    return ((Row.MANAGER.value, one.rm_id, one.code.value, one.message),)


def _registering(one: ManagerRegistered) -> Rows:
    return ((Row.TERM.value, one.rm_id, one.epoch),)


def _leads(_one: LeadershipTaken) -> Rows:
    return ((Row.LEADS.value,),)


_MAKERS: Final[Mapping[type, Callable[[Any], Rows]]] = {
    Run: _run,
    ApplicationAdded: _application_added,
    ApplicationAccepted: _application_accepted,
    ApplicationRemoved: _application_removed,
    AskAdded: _ask_added,
    AllocationAdded: _allocation_added,
    Placed: _placed,
    AskStateChanged: _state_changed,
    ReleaseRequested: _release_requested,
    Released: _released,
    AskReleased: _released,
    AskRejected: _rejected,
    Withdrawn: _withdrawn,
    Decided: _decided,
    DecisionMoved: _moved,
    Noted: _noted,
    ManagerRegistered: _registering,
    LeadershipTaken: _leads,
}
