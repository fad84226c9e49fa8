"""A session with the core: three streams, with a writer and a reader for each.

The session ends as soon as one stream ends, because the three streams describe one state. The next session reports
that state from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
from grpc.aio import EOF, AioRpcError, Metadata, StreamStreamCall

from shim_client.core_client.outbox import OUTBOX_MAX
from shim_client.core_client.refusals import refusal_in
from shim_client.core_client.resuming import Progress, Stream
from shim_client.messages import Decision, Report
from shim_client.translate import wire
from si.v1 import si_pb2

if TYPE_CHECKING:
    from si.v1.si_pb2_grpc import SchedulerAsyncStub

Call = StreamStreamCall[Any, Any]

EPOCH_KEY = "evenhand-epoch"
"""The key in the metadata of the streams under which the epoch is sent."""

Sink = Callable[[list[Decision]], Awaitable[None]]


class SessionLostError(Exception):
    """The end of a session for a temporary reason: the shim registers again and reports all objects.

    `successor` is the process name of the core that took over the state of the lost core, or "" (design 7.7).
    """

    def __init__(self, message: str, successor: str = "") -> None:
        super().__init__(message)
        self.successor = successor


class SupersededError(Exception):
    """The end of this shim's session, because a newer shim registered under the same cluster id.

    The shim then stops.
    """


class Session:
    """A session: three streams under one registration."""

    def __init__(
        self,
        stub: SchedulerAsyncStub,
        progress: Progress,
        metadata: Metadata,
        sink: Sink,
        epoch: int = 0,
    ) -> None:
        self.progress = progress
        """The progress of the session.

        A later Session object can continue the session from this progress at another core.
        """
        self._sink = sink
        self._epoch = epoch
        if epoch:
            metadata = Metadata(*metadata, (EPOCH_KEY, str(epoch)))
        self._calls: tuple[Call, ...] = (
            stub.UpdateNode(metadata=metadata),
            stub.UpdateApplication(metadata=metadata),
            stub.UpdateAllocation(metadata=metadata),
        )
        self._why_cancelled = ""
        self.is_over = False
        """Whether this shim ended the session. No core may continue a session that the shim ended."""
        self.heard = False
        """Whether the core has sent a message in this session, which shows that the core accepted the session."""

    @property
    def may_resume(self) -> bool:
        """Whether a core may continue the session.

        Three conditions must hold: a core has accepted the session under a name, the shim did not end the session, and
        its progress is whole.
        """
        is_known = bool(self.progress.name) and self.heard
        return is_known and not self.is_over and self.progress.is_whole()

    def send(self, reports: Iterable[Report]) -> None:
        """Queue reports. End the session when too many reports wait because the core does not read them."""
        for report in reports:
            outbox = self.progress.stream_of(report).waiting
            outbox.put(report)
            if outbox.is_full():
                self._cancel(f"the core left {OUTBOX_MAX} reports unread")
                return

    def end(self, why: str) -> None:
        """End the session, so that no core continues it."""
        self.is_over = True
        self._cancel(why)

    def break_off(self) -> None:
        """End the streams without ending the session, so that another core may continue it."""
        for call in self._calls:
            call.cancel()

    def _cancel(self, why: str) -> None:
        self._why_cancelled = why
        self.break_off()

    async def run(self) -> None:
        """Exchange reports and decisions until the session ends. Raises SessionLostError or SupersededError."""
        nodes, applications, allocations = self._calls
        progress = self.progress
        jobs = [
            self._write(nodes, progress.nodes),
            self._write(applications, progress.applications),
            self._write(allocations, progress.allocations),
            self._read(nodes, progress.nodes, wire.node_decisions),
            self._read(applications, progress.applications, wire.application_decisions),
            self._read(allocations, progress.allocations, self._pod_decisions),
        ]
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._finish(tasks[3:])
        finally:
            await self._close(tasks)
        if self._why_cancelled:
            raise SessionLostError(self._why_cancelled)
        _raise_gravest(done)

    def _pod_decisions(self, response: si_pb2.AllocationResponse) -> Iterator[Decision]:
        """Return the decisions of a response, or none if the response was made for another epoch (design 7.2).

        A core of a version without epochs sends no epoch; its responses are accepted.
        """
        if response.epoch not in (0, self._epoch):
            return iter(())
        return wire.pod_decisions(response)

    async def _write(self, call: Call, stream: Stream) -> None:
        """Write reports to a stream. If no report arrives soon, write an empty message first.

        The first message names the resource manager. When too many streams are open, the core closes streams on which
        no message has arrived.
        """
        try:
            while True:
                await call.write(await stream.next())
        except (AioRpcError, asyncio.InvalidStateError) as error:
            raise await _end_of(call, error) from error

    async def _read(
        self, call: Call, stream: Stream, decisions: Callable[[Any], Iterator[Decision]]
    ) -> None:
        try:
            while (response := await _next(call)) is not None:
                self.heard = True
                stream.is_whole = False
                await self._sink(list(decisions(response)))
                stream.received = response.sequence or stream.received
                stream.is_whole = True
        except AioRpcError as error:
            raise await _end_of(call, error) from error
        raise await _end_of(call, None)

    async def _finish(self, readers: list[asyncio.Task[None]]) -> None:
        """Let each reader finish the response that it is processing. Otherwise the session could not be resumed."""
        self.break_off()
        streams = self.progress.nodes, self.progress.applications, self.progress.allocations
        amid = [one for one, stream in zip(readers, streams, strict=True) if not stream.is_whole]
        if amid:
            await asyncio.wait(amid)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        self.break_off()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(call: Call) -> Any:  # noqa: ANN401 - a response of the stream
    """Return the next response, or None at the end of the stream."""
    response: Any = await call.read()
    return None if response is EOF else response


async def _end_of(call: Call, error: BaseException | None) -> Exception:
    """Return the error for the end of a stream.

    The status ABORTED means that a newer registration replaced the registration of this session (design 1.10).
    """
    if isinstance(error, AioRpcError):
        code, details, trailing = error.code(), error.details(), error.trailing_metadata()
    else:
        code, details = await call.code(), await call.details()
        trailing = await call.trailing_metadata()
    if code is grpc.StatusCode.ABORTED:
        return SupersededError(details or "another shim registered with the same cluster id")
    why = f"the core ended the stream: {code.name} {details or ''}".rstrip()
    return SessionLostError(why, refusal_in(trailing).successor)


def _raise_gravest(done: set[asyncio.Task[None]]) -> None:
    """Raise the error that ended the session.

    SupersededError takes precedence over SessionLostError, and an error with a successor takes precedence over an
    error without one.
    """
    ended = [task for task in done if not task.cancelled()]
    errors = [error for task in ended if (error := task.exception()) is not None]
    errors.sort(key=_gravity)
    raise errors[0] if errors else SessionLostError("the streams were cancelled")


def _gravity(error: BaseException) -> int:
    """Return the rank of an error: of all errors of a session, the error with the lowest rank is raised."""
    if isinstance(error, SupersededError):
        return 0
    return 1 if isinstance(error, SessionLostError) and error.successor else 2
