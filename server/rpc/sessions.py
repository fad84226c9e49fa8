"""The sessions: which stream belongs to which resource manager, and what ends a stream (design 1.10).

A stream belongs to the manager that its first message names. A manager has at most one stream of each kind: a new stream
replaces the previous stream. In this module, a `Session` is one stream. The outboxes of a registered manager stay when its
streams end. Decisions that are made before a stream is opened are therefore not lost.
"""

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from server.core.state import Manager
from server.rpc.epochs import epoch_head
from server.rpc.errors import (
    CallError,
    invalid,
    registered_again,
    replaced,
    silent,
    too_many,
    too_many_of_yours,
    too_slow,
)
from server.rpc.instances import Instances
from server.rpc.kept import Kept
from server.rpc.limits import (
    CALLER_MANAGERS_MAX,
    FIRST_MESSAGE_MS,
    MANAGER_GONE_MS,
    MANAGERS_MAX,
    STREAMS_MAX,
)
from server.rpc.outbox import Outbox
from server.rpc.owners import Owners
from server.rpc.presence import Presence
from server.rpc.roles import LOCAL_OPERATOR, Caller, Role
from si.v1 import si_pb2

Holds = Callable[[str], bool]


class Kind(enum.StrEnum):
    """The three streams of `si.v1`."""

    ALLOCATION = "allocation"
    APPLICATION = "application"
    NODE = "node"


SEQUENCE: Final[Mapping[Kind, int]] = {
    kind: response.DESCRIPTOR.fields_by_name["sequence"].number
    for kind, response in (
        (Kind.ALLOCATION, si_pb2.AllocationResponse),
        (Kind.APPLICATION, si_pb2.ApplicationResponse),
        (Kind.NODE, si_pb2.NodeResponse),
    )
}
"""The number of the field `sequence` in the responses of each stream."""


class Session:
    """One open stream of a client.

    The stream ends when the future `ended` is done. The future has a result if the stream ended normally, and otherwise a
    CallError.
    """

    def __init__(
        self,
        kind: Kind,
        caller: Caller = LOCAL_OPERATOR,
        opened_ms: int = 0,
        epoch: int = 0,
    ) -> None:
        self.kind = kind
        self.caller = caller
        self.opened_ms = opened_ms
        self.epoch = epoch
        """The epoch that the client named when it opened the stream, or 0 if the client named no epoch (design 7.2)."""
        self.rm_id: str | None = None
        self.outbox = Outbox()
        self.written = 0
        """The number of messages that were passed to gRPC for this stream. The number grows while the client reads."""
        self.filled = asyncio.Event()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.farewell: CallError | None = None
        """The error that ends a stream normally. This error is sent after everything in the outbox."""
        self.is_handed_over = False
        """Whether this core handed over.

        If so, another core takes the messages of this stream that this core has not taken yet.
        """

    @property
    def alive(self) -> bool:
        """Whether the stream is open, so that its messages count."""
        return not self.ended.done()

    @property
    def failed(self) -> bool:
        """Whether the stream ended with an error. Nothing more is sent on a failed stream."""
        return not self.alive and not self.ended.cancelled() and self.ended.exception() is not None

    @property
    def failure(self) -> BaseException | None:
        """The error with which the stream ended. If there is none, this is the error of a normal end (`farewell`), or None."""
        return self.ended.exception() if self.failed else self.farewell

    def fail(self, error: Exception) -> None:
        """End the stream now. Do nothing if the stream has already ended."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.filled.set()

    def finish(self, farewell: CallError | None = None) -> None:
        """End the stream once everything in its outbox was sent."""
        if not self.ended.done():
            self.farewell = farewell
            self.ended.set_result(None)
            self.filled.set()

    def attach(self, outbox: Outbox) -> None:
        """Send the content of the outbox on this stream from now on."""
        self.outbox = outbox
        outbox.on_fill = self._on_fill
        self._on_fill()

    def detach(self) -> None:
        """Detach the stream from the outbox. The outbox continues to fill."""
        if self.outbox.on_fill == self._on_fill:
            self.outbox.on_fill = None

    def _on_fill(self) -> None:
        if self.outbox.spilled:
            self.fail(too_slow(len(self.outbox)))
        self.filled.set()


class Sessions:
    """All open streams of a core, and the outboxes of its managers."""

    def __init__(self) -> None:
        self._open: set[Session] = set()
        self._speaking: dict[tuple[str, Kind], Session] = {}
        self._outboxes: dict[tuple[str, Kind], Outbox] = {}
        self._registered: set[str] = set()
        self._instances = Instances()
        self.kept: dict[tuple[str, Kind], Kept] = {}
        """The last decisions of the streams of managers whose sessions can be resumed (design 7.5)."""
        self.owners = Owners()
        self.presence = Presence()
        """The presence of managers. The servicer updates it, because the servicer has the clock."""
        self.gone = asyncio.Event()
        """The event that is set while no stream is open."""
        self.gone.set()

    def open(
        self, kind: Kind, caller: Caller = LOCAL_OPERATOR, now: int = 0, epoch: int = 0
    ) -> Session:
        """Open a stream. Raise CallError if STREAMS_MAX streams are open and the caller already has enough open streams for one manager.

        If STREAMS_MAX are open, streams that have not named a manager in time are ended first, to free places. Each caller
        always has places for the streams of one manager, so that other callers cannot keep this caller out.
        """
        if len(self._open) >= STREAMS_MAX:
            self._end_silent(now)
        own = sum(one.caller.name == caller.name for one in self._open)
        if own >= len(Kind) and len(self._open) >= STREAMS_MAX:
            raise too_many("open streams", STREAMS_MAX)
        session = Session(kind, caller, now, epoch)
        self._open.add(session)
        self.gone.clear()
        return session

    def _end_silent(self, now: int) -> None:
        """End the streams that have not named their manager in time."""
        for session in [one for one in self._open if one.rm_id is None]:
            if now - session.opened_ms >= FIRST_MESSAGE_MS:
                session.fail(silent(FIRST_MESSAGE_MS // 1_000))
                self._open.discard(session)

    def close(self, session: Session) -> None:
        """Remove a stream that has ended."""
        self._open.discard(session)
        session.ended.cancel()
        session.detach()
        if not self._open:
            self.gone.set()
        place = (session.rm_id or "", session.kind)
        if self._speaking.get(place) is session:
            del self._speaking[place]
            if place[0] not in self._registered:
                self._outboxes.pop(place, None)

    def speak(self, session: Session, rm_id: str) -> None:
        """Bind a stream to the manager that its message names.

        Raise CallError for a second manager on one stream, and for a manager of another caller.
        """
        if session.rm_id == rm_id:
            return
        if session.rm_id is not None:
            raise invalid("MANAGER_CHANGED", ("rmID", f"this stream belongs to {session.rm_id!r}"))
        self.owners.check(rm_id, session.caller)
        session.rm_id = rm_id
        place = (rm_id, session.kind)
        older = self._speaking.get(place)
        if older is not None:
            older.fail(replaced(session.kind))
            older.detach()
        self._speaking[place] = session
        session.attach(self._outboxes.setdefault(place, Outbox()))

    def admit(
        self, rm_id: str, instance: str, caller: Caller, now: int, holds: Holds
    ) -> Sequence[str]:
        """Return the managers that were removed to free a place for this manager. Usually no manager has to be removed.

        Raise CallError if there are too many managers or if the manager belongs to another caller. Raise CallError also if the
        process ``instance`` was replaced, and its successor still acts for the manager. ``holds`` says whether the core holds
        an object of a manager.
        """
        self.owners.check(rm_id, caller)
        self._instances.check(rm_id, instance, speaking=bool(self.open_kinds(rm_id)))
        if rm_id in self._registered or not self._why_full(caller):
            return ()
        gone = self._forget_gone(now, holds)
        if full := self._why_full(caller):
            raise full
        return gone

    def _why_full(self, caller: Caller) -> CallError | None:
        """Return why the caller may not register another manager.

        Return None if the caller may do so. Each caller may always register a first manager.
        """
        own = self.owners.count(caller)
        if own and len(self._registered) >= MANAGERS_MAX:
            return too_many("registered resource managers", MANAGERS_MAX)
        if caller.role is not Role.OPERATOR and own >= CALLER_MANAGERS_MAX:
            return too_many_of_yours("resource managers", caller.name, CALLER_MANAGERS_MAX)
        return None

    def _forget_gone(self, now: int, holds: Holds) -> Sequence[str]:
        """Remove and return the managers that have been away for long and have no object in the core."""
        gone = []
        for rm_id in sorted(self._registered):
            since = self.presence.sighting(rm_id, now).away_since_ms
            is_away = bool(since) and now - since >= MANAGER_GONE_MS
            if is_away and not self.open_kinds(rm_id) and not holds(rm_id):
                gone.append(rm_id)
                self._registered.discard(rm_id)
                self.presence.forget(rm_id)
                self._instances.forget(rm_id)
                self.owners.forget(rm_id)
                self.end_session(rm_id)
                for kind in Kind:
                    self._outboxes.pop((rm_id, kind), None)
        return gone

    def registered(
        self,
        rm_id: str,
        instance: str,
        caller: Caller = LOCAL_OPERATOR,
        epoch: int = 0,
        session: str = "",
    ) -> None:
        """Record a registration. From now on each message of the allocation stream carries the epoch.

        If the manager had registered before, end its streams. Otherwise end only the streams that other callers opened for the
        manager. Objects that wait for the ended streams are not sent. If the session that begins has a name, its decisions are
        kept and numbered, so that it can be resumed.
        """
        self._end_streams(rm_id, instance, caller, epoch)
        self.end_session(rm_id)
        for kind in Kind:
            if session:
                self.kept[rm_id, kind] = Kept(session)
            outbox = self._outboxes[rm_id, kind]
            outbox.last = 0
            outbox.sequence_field = SEQUENCE[kind] if session else 0

    def missing(
        self, manager: Manager, received: Mapping[Kind, int]
    ) -> dict[Kind, Sequence[bytes]] | None:
        """Return the decisions of a manager's session that the manager has not received, by stream.

        Return None if not all these decisions are kept. ``received`` has the number of the last decision that the manager
        received.
        """
        found: dict[Kind, Sequence[bytes]] = {}
        for kind in Kind:
            kept = self.kept.get((manager.rm_id, kind))
            if kept is None or manager.session is None or kept.session != manager.session.name:
                return None
            pieces = kept.after(received[kind])
            if pieces is None:
                return None
            found[kind] = pieces
        return found

    def resumed(
        self,
        manager: Manager,
        caller: Caller,
        received: Mapping[Kind, int],
        missing: Mapping[Kind, Sequence[bytes]],
    ) -> None:
        """Record that a manager continues its session. The manager's streams end, and new streams begin with the missing decisions."""
        rm_id = manager.rm_id
        self._end_streams(rm_id, manager.instance, caller, manager.epoch)
        for kind in Kind:
            outbox = self._outboxes[rm_id, kind]
            outbox.clear()
            outbox.last, outbox.sequence_field = received[kind], SEQUENCE[kind]
            outbox.extend([*missing[kind]])

    def follow(self, managers: Mapping[str, Manager]) -> None:
        """Keep decisions for sessions that began in the input of another core, and no longer for sessions that ended there.

        Call this method after each slice of the other core's input.
        """
        going = {rm_id: one.session for rm_id, one in managers.items() if one.session is not None}
        for rm_id, session in going.items():
            for kind in Kind:
                sent, kept = session.sent.get(kind, 0), self.kept.get((rm_id, kind))
                if kept is None or (kept.session, kept.last) != (session.name, sent):
                    self.kept[rm_id, kind] = Kept(session.name, sent)
        if len(self.kept) > len(Kind) * len(going):
            self.kept = {place: kept for place, kept in self.kept.items() if place[0] in going}

    def _end_streams(self, rm_id: str, instance: str, caller: Caller, epoch: int) -> None:
        """Record the caller of a registration, and end the streams that were opened before it."""
        self._instances.registered(rm_id, instance, speaking=bool(self.open_kinds(rm_id)))
        again = rm_id in self._registered
        self._registered.add(rm_id)
        self.owners.registered(rm_id, caller)
        for kind in Kind:
            outbox = self._outboxes.setdefault((rm_id, kind), Outbox())
            session = self._speaking.get((rm_id, kind))
            is_foreign = session is not None and session.caller.name != caller.name
            if again or is_foreign:
                outbox.clear()
                if session is not None:
                    session.fail(registered_again())
                    session.detach()
                    del self._speaking[rm_id, kind]
        self._outboxes[rm_id, Kind.ALLOCATION].head = epoch_head(epoch)

    def end_session(self, rm_id: str) -> None:
        """Stop keeping decisions of a manager and counting its messages, because its session can no longer be resumed."""
        for kind in Kind:
            self.kept.pop((rm_id, kind), None)

    def is_counted(self, rm_id: str) -> bool:
        """Return whether the messages of the manager are counted, because its session can be resumed."""
        return rm_id in self._registered and (rm_id, Kind.NODE) in self.kept

    def is_registered(self, rm_id: str) -> bool:
        """Return whether the manager has registered."""
        return rm_id in self._registered

    def outbox(self, rm_id: str, kind: Kind) -> Outbox | None:
        """Return the outbox for answers to this manager. Return None if the manager neither registered nor has a stream."""
        return self._outboxes.get((rm_id, kind))

    def unwritten(self) -> int:
        """Return the largest number of objects in the outbox of any open stream."""
        waiting = (len(one.outbox) for one in self._speaking.values() if one.alive)
        return max(waiting, default=0)

    def finish(self, farewell: CallError) -> None:
        """End every stream after everything in its outbox was sent."""
        for session in self._open:
            session.finish(farewell)

    def hand_over(self, farewell: CallError) -> None:
        """End every stream after everything in its outbox was sent.

        Messages that this core has not taken yet are left to another core.
        """
        for session in self._open:
            session.is_handed_over = True
            session.finish(farewell)

    def fail(self, error: CallError) -> None:
        """End every stream at once with this error, without sending what is in its outbox."""
        for session in self._open:
            session.fail(error)

    def open_kinds(self, rm_id: str) -> Iterable[Kind]:
        """Return the kinds of streams that a manager has open."""
        return [kind for kind in Kind if (rm_id, kind) in self._speaking]

    def depths(self) -> Mapping[tuple[str, str], int]:
        """Return the number of waiting objects by manager and kind of stream."""
        return {
            (rm_id, kind.value): len(outbox) for (rm_id, kind), outbox in self._outboxes.items()
        }

    def waiting_bytes(self) -> int:
        """Return the number of bytes that wait for streams of registered managers."""
        return sum(outbox.waiting_bytes for outbox in self._outboxes.values())

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._open)
