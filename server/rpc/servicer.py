"""The service `si.v1.Scheduler`: registration and the three streams. No scheduling decision is made here.

The streams carry bytes: the codec decodes messages, and the outbox joins answers from pieces. Each stream has a reader and a
writer. The reader waits while the core's inbox is full. While the reader waits, gRPC's flow control slows down a client that
sends too fast. The writer writes only as fast as the client reads. The outbox of a client that is too slow therefore fills up. A
client that closes its side of a stream gets the answers to its messages. The stream ends after these answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from server.config import Problem
from server.core.core import Core
from server.core.events import epochs
from server.core.events.configuration import counts
from server.core.events.managers import held
from server.core.events.moving import known_manager
from server.model.events import ManagerForgotten, ManagerRegistered, ManagerWiped, SessionResumed
from server.model.parts import Parts
from server.model.quota import Configuration
from server.model.reasons import Code
from server.rpc import table_revision
from server.rpc.configuration_reading import Readings
from server.rpc.epochs import check_stream, refused, stream_epoch
from server.rpc.errors import invalid, malformed
from server.rpc.grpc_types import Context, Handlers, Requests, let_go, send_headers
from server.rpc.limits import (
    DRAIN_WRITE_S,
    LAST_WRITE_S,
    MANAGER_GONE_MS,
    OBJECTS_MAX,
    REGISTRATION_WAIT_S,
    WIPE_OBJECTS,
)
from server.rpc.owners import managers_of
from server.rpc.preparing import prepared
from server.rpc.presence import AWAY_GRACE_MS
from server.rpc.pump import Pump
from server.rpc.resuming import Offer
from server.rpc.roles import CALLER, Caller
from server.rpc.sessions import Kind, Session, Sessions
from server.rpc.steps import in_turns
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.allocations_fast import AllocationCodec, MalformedError
from server.rpc.translate.applications import application_batching, registration
from server.rpc.translate.fields import RefusedError
from server.rpc.translate.nodes import node_batching
from si.v1 import si_pb2

_log = structlog.get_logger(__name__)

_LOOK_AFTER_S: Final = AWAY_GRACE_MS / 1_000 + 0.05
"""The seconds after which an absence is checked.

This time is a little longer than the grace period, because the timer and the instant of the absence come from two clocks, which
may differ slightly.
"""

_Decode = Callable[[bytes], Parts[Batch]]


Received = Callable[[Kind, int, Context], None]
"""The observer of messages. The arguments of the observer are the kind of the stream, the number of objects in the message, and the call."""


class Scheduler:
    """The handlers of the service `si.v1.Scheduler`.

    ``readings`` is None if a file configures the core. Without ``readings``, the configurations in registrations are ignored.
    """

    def __init__(
        self,
        core: Core,
        pump: Pump,
        sessions: Sessions,
        received: Received,
        readings: Readings | None,
    ) -> None:
        self._core = core
        self._pump = pump
        self._sessions = sessions
        self._received = received
        self._readings = readings
        self.lead: Callable[[], None] = lambda: None
        """The function that is called once a registration is accepted. If this core followed another core, the function makes it lead."""
        self.reach: Callable[[Callable[[], bool]], Awaitable[None]] = _no_wait
        """The function that waits until this core has received enough input of the core that it follows.

        It returns at once in a leader.
        """
        self.leads = asyncio.Event()
        """The event that is set while this core leads."""
        self._registering: dict[str, asyncio.Future[None]] = {}
        reader = Reader()
        codec = AllocationCodec(reader)
        self._decoders: dict[Kind, _Decode] = {
            Kind.ALLOCATION: codec.decoding,
            Kind.APPLICATION: _applications,
            Kind.NODE: lambda data: _nodes(data, reader),
        }

    def handlers(self) -> Handlers:
        """Return the handlers by method. The handlers of streams receive and return bytes."""
        return {
            "RegisterResourceManager": grpc.unary_unary_rpc_method_handler(
                self.register,
                request_deserializer=si_pb2.RegisterResourceManagerRequest.FromString,
                response_serializer=si_pb2.RegisterResourceManagerResponse.SerializeToString,
            ),
            "UpdateAllocation": grpc.stream_stream_rpc_method_handler(
                self._stream(Kind.ALLOCATION)
            ),
            "UpdateApplication": grpc.stream_stream_rpc_method_handler(
                self._stream(Kind.APPLICATION)
            ),
            "UpdateNode": grpc.stream_stream_rpc_method_handler(self._stream(Kind.NODE)),
        }

    async def register(
        self, request: si_pb2.RegisterResourceManagerRequest, context: Context
    ) -> si_pb2.RegisterResourceManagerResponse:
        """Register a manager. Raise CallError for a registration that is refused.

        If the registration has an explicit sync and no ``forget`` (see `ManagerRegistered`), the core keeps the objects that the
        manager had reported, and compares them with the new reports. Otherwise the core removes these objects (design 1.10).

        If the manager had registered before, all its streams end. Otherwise only the streams that other callers opened for the
        manager end. During a first registration, messages of the manager wait until the registration is done. (See
        `_after_registration` for later registrations.)
        """
        self._sessions.owners.check(request.rmID, CALLER.get())
        table = table_revision.check(self._core.state, context)
        done = self._registering[request.rmID] = asyncio.get_running_loop().create_future()
        try:
            is_same = table == table_revision.revision_of(self._core.state.assignment)
            resumed = await self._resume(request) if is_same else None
            if resumed is None:
                await self._register(request, table)
        finally:
            done.set_result(None)
            if self._registering.get(request.rmID) is done:
                del self._registering[request.rmID]
        return si_pb2.RegisterResourceManagerResponse(resumed=resumed)

    async def _resume(
        self, request: si_pb2.RegisterResourceManagerRequest
    ) -> si_pb2.ResumedSession | None:
        """Continue the session that the manager names, and return how many of its messages the core has (design 7.5).

        Return None if the manager names no session, or a session that this core cannot continue.
        """
        offer, caller = Offer.of(request), CALLER.get()
        if offer is None:
            return None
        managers = self._core.managers
        await self.reach(lambda: offer.is_reached(managers.get(request.rmID)))
        manager = managers.get(request.rmID)
        if not offer.fits(manager, self._sessions):
            known = None if manager is None else manager.session
            _log.info("session-not-resumed", offered=offer._asdict(), known=known)
            return None
        now = self._pump.now()
        gone = self._sessions.admit(request.rmID, offer.instance, caller, now, self._holds)
        self.lead()
        await self.leads.wait()
        for one in gone:
            await self._pump.ask(ManagerForgotten(one, now - MANAGER_GONE_MS))
        found: list[si_pb2.ResumedSession] = []

        def resumed() -> None:
            manager = managers.get(request.rmID)
            missing = offer.missing(manager, self._sessions)
            if manager is not None and missing is not None and manager.synced:
                found.append(offer.counts(manager))
                self._sessions.resumed(manager, caller, offer.received, missing)
                self._sessions.presence.registered(request.rmID, self._pump.now(), speaking=False)
                self._look_later(request.rmID)

        event = SessionResumed(request.rmID, offer.session)
        await self._pump.ask(event, after=resumed)
        return found[0] if found else None

    async def _register(self, request: si_pb2.RegisterResourceManagerRequest, table: int) -> None:
        """Register a manager that has this revision of the table of cores."""
        configuration = await self._configuration(request.config)
        caller = CALLER.get()
        try:
            event = registration(request, configuration, caller.name)
            event = event._replace(table_revision=table)
        except RefusedError as error:
            field, _, description = str(error).partition(": ")
            raise invalid("INVALID_REGISTRATION", (field, description)) from error
        self._check_epoch(event)
        now = self._pump.now()
        # A process that was elected need not wait until the one before it is gone (design 7.2).
        instance = "" if event.epoch else event.instance
        gone = self._sessions.admit(event.rm_id, instance, caller, now, self._holds)
        self.lead()
        for one in gone:
            await self._pump.ask(ManagerForgotten(one, now - MANAGER_GONE_MS))
        changing = self._sessions.owners.changing if configuration else nullcontext()
        async with changing:
            self._check_configuration(event.rm_id, configuration, caller)
            async with prepared(self._core, self._pump, event.configuration):
                wiping = [] if event.resumes else self._wiping(event)
                await self._pump.ask(
                    *wiping,
                    event,
                    after=lambda: self._registered(event, caller),
                )
        # Another process may have registered while this registration waited. The core then refused this one.
        self._check_epoch(event)

    async def _configuration(self, text: str) -> Configuration | None:
        """Return the configuration of a registration.

        Return None if the text is empty or a file configures the core.

        Raise CallError for a text with errors. The error names the lines and paths of the errors in the text.
        """
        if self._readings is None or not text.strip():
            return None
        configuration, problems, _ = await self._readings.read(text, "config", "config")
        if configuration is None:
            raise invalid(
                "INVALID_CONFIGURATION",
                *(_violation(one) for one in problems if one.severity == "error"),
            )
        return configuration

    def _check_epoch(self, event: ManagerRegistered) -> None:
        """Raise CallError if the core refuses the registration because of its epoch (design 7.2)."""
        manager = known_manager(self._core.state, event.table_revision, event.rm_id)
        if manager is None:
            return
        connected = bool(self._sessions.open_kinds(event.rm_id))
        why = epochs.obstacle(manager, event)
        if not why and connected and manager.epoch > event.epoch:
            why = (
                f"an elected process of resource manager {event.rm_id!r} is connected: end it first"
            )
        if why:
            raise refused(manager, why, connected=connected)

    def _wiping(self, event: ManagerRegistered) -> list[ManagerWiped]:
        """Return events, each of which ends `WIPE_OBJECTS` asks and allocations of a manager.

        The core takes little time for an event of this size.

        The registration itself ends the remaining objects, which are fewer than `WIPE_OBJECTS`.
        """
        known = held(self._core.state, event.rm_id)
        return [ManagerWiped(event.rm_id, WIPE_OBJECTS, event.epoch)] * (
            (known["asks"] + known["allocations"]) // WIPE_OBJECTS
        )

    def _holds(self, rm_id: str) -> bool:
        """Return whether the core holds an object of the manager."""
        return any(held(self._core.state, rm_id).values())

    def _check_configuration(
        self, rm_id: str, configuration: Configuration | None, caller: Caller
    ) -> None:
        """Raise CallError if a registration's configuration would come into force and change a partition of another caller."""
        state = self._core.state
        if configuration is None or state.configured_by not in {"", rm_id}:
            return
        if counts(state, rm_id, configuration.digest):
            self._sessions.owners.check_configuration(
                state.configuration, configuration, managers_of(state), caller
            )

    def _registered(self, event: ManagerRegistered, caller: Caller) -> None:
        """Record a registration, unless the core refused it."""
        rm_id = event.rm_id
        if epochs.obstacle(known_manager(self._core.state, event.table_revision, rm_id), event):
            return
        self._sessions.registered(
            rm_id, event.instance, caller, event.epoch, event.resumable_session
        )
        speaking = bool(self._sessions.open_kinds(rm_id))
        self._sessions.presence.registered(rm_id, self._pump.now(), speaking=speaking)
        self._look_later(rm_id)

    def _heard(self, rm_id: str) -> None:
        if self._sessions.presence.heard(rm_id, self._pump.now()):
            self._pump.wake_watchers()

    def _closed(self, session: Session) -> None:
        """Close a stream. If the closed stream was the last stream of its manager, the manager counts as away from now on."""
        self._sessions.close(session)
        rm_id = session.rm_id
        is_last = rm_id and not self._sessions.open_kinds(rm_id)
        if rm_id and is_last and self._sessions.presence.left(rm_id, self._pump.now()):
            self._look_later(rm_id)

    def _look_later(self, rm_id: str) -> None:
        """Schedule a check that reports the manager's absence if the absence lasts longer than a reconnect takes."""
        asyncio.get_running_loop().call_later(_LOOK_AFTER_S, self._look, rm_id)

    def _look(self, rm_id: str) -> None:
        seen = self._sessions.presence.sighting(rm_id, self._pump.now())
        if seen.away:
            _log.warning(Code.MANAGER_AWAY.value, manager=rm_id, since_ms=seen.away_since_ms)
            self._pump.wake_watchers()

    def _stream(self, kind: Kind) -> Callable[[Requests, Context], object]:
        async def stream(requests: Requests, context: Context) -> None:
            await self._serve(kind, requests, context)

        return stream

    async def _serve(self, kind: Kind, requests: Requests, context: Context) -> None:
        """Serve one stream from its opening to its end."""
        await send_headers(context)
        session = self._sessions.open(kind, CALLER.get(), self._pump.now(), stream_epoch(context))
        reader = asyncio.create_task(self._read(session, requests, context))
        writer = asyncio.create_task(_write(session, context))
        for task in (reader, writer):
            task.add_done_callback(lambda done: _pass_on(done, session))
        try:
            await asyncio.wait({session.ended})
            # The status follows the message that is being written. A client that does not read keeps that message for ever.
            # The session therefore does not wait for it, and gRPC keeps the status until the client reads.
            if session.farewell is not None:
                await _drained(writer, session)
            else:
                await asyncio.wait({writer}, timeout=LAST_WRITE_S if session.failed else None)
        finally:
            reader.cancel()
            writer.cancel()
            failure = session.failure
            self._closed(session)
        if failure is not None:
            raise failure

    async def _read(self, session: Session, requests: Requests, context: Context) -> None:
        """Put messages into the inbox until the client closes its side or the session ends."""
        try:
            async for data in requests:
                await self._take(session, data, context)
        finally:
            await let_go(requests)
        await self._pump.settled()
        session.finish()

    async def _after_registration(self, session: Session, rm_id: str) -> None:
        """If a registration of the manager is in progress, wait until it is done.

        A stream that already speaks for a registered manager does not wait. A new stream of a registered manager waits at most
        REGISTRATION_WAIT_S. A registration whose configuration takes long to read therefore does not stop the manager's streams.
        When the registration in progress is done, the manager's streams end.
        """
        is_known = self._sessions.is_registered(rm_id)
        if is_known and session.rm_id == rm_id:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(REGISTRATION_WAIT_S if is_known else None):
                while (registration := self._registering.get(rm_id)) is not None:
                    await asyncio.wait({registration})

    async def _take(self, session: Session, data: bytes, context: Context) -> None:
        """Decode one message and put it into the inbox. Raise CallError if the message is malformed or the caller may not send it."""
        try:
            batch = await in_turns(self._decoders[session.kind](data))
        except (MalformedError, DecodeError) as error:
            raise malformed(str(error)) from error
        await self._after_registration(session, batch.rm_id)
        check_stream(self._core.state.managers.get(batch.rm_id), session.epoch)
        self._sessions.speak(session, batch.rm_id)
        if session.caller.partitions:
            named = {getattr(event, "partition", "") for event in batch.events} - {""}
            self._sessions.owners.check_partitions(named, session.caller)
        self._heard(batch.rm_id)
        self._received(session.kind, len(batch.events) + len(batch.refusals), context)
        await self._pump.put(session, batch)


async def _no_wait(_is_enough: Callable[[], bool]) -> None:
    """Return at once, because a core that follows no other core has received all input."""


async def _drained(writer: asyncio.Task[None], session: Session) -> None:
    """Wait until everything in the outbox was written, or until the client has read nothing for `DRAIN_WRITE_S`."""
    before = -1
    while not writer.done() and session.written != before:
        before = session.written
        await asyncio.wait({writer}, timeout=DRAIN_WRITE_S)


async def _write(session: Session, context: Context) -> None:
    """Write messages from the outbox. If the session ends normally, the remaining messages are still written.

    If the session fails, the remaining messages are dropped.
    """
    ended = False
    while not ended:
        if session.alive:
            await session.filled.wait()
        session.filled.clear()
        ended = not session.alive
        while not session.failed and (message := session.outbox.take()) is not None:
            await context.write(message)
            session.written += 1


def _pass_on(task: asyncio.Task[None], session: Session) -> None:
    """End the session with the error of its reader or writer, if there is one."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Exception):
        session.fail(error)


def _violation(problem: Problem) -> tuple[str, str]:
    return (
        f"config.{problem.path}" if problem.path else "config",
        f"line {problem.line}: {problem.message}",
    )


def _applications(data: bytes) -> Parts[Batch]:
    message = si_pb2.ApplicationRequest.FromString(data)
    _check(len(message.new) + len(message.updates) + len(message.remove))
    return (yield from application_batching(message))


def _nodes(data: bytes, reader: Reader) -> Parts[Batch]:
    message = si_pb2.NodeRequest.FromString(data)
    _check(sum(1 + len(node.existingAllocations) for node in message.nodes))
    return (yield from node_batching(message, reader))


def _check(objects: int) -> None:
    if objects > OBJECTS_MAX:
        raise MalformedError(f"the message has {objects} objects, allowed are {OBJECTS_MAX}")
