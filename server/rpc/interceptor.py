"""The interceptor that every RPC passes first.

The interceptor checks the caller's role and the number of open calls, and turns errors into statuses.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from server.rpc.acknowledging import ACKNOWLEDGE
from server.rpc.callers import CHECKS, OpenCalls
from server.rpc.errors import (
    CallError,
    denied,
    draining,
    late,
    malformed,
    unauthenticated,
    unexpected,
)
from server.rpc.grpc_types import (
    Behaviour,
    Called,
    Context,
    Handler,
    Requests,
    let_go,
    send_headers,
)
from server.rpc.identity import Identities, Metadata
from server.rpc.limits import REQUEST_S
from server.rpc.roles import CALLER, DEEDS, LOCAL_OPERATOR, OPEN, Caller, may

_log = structlog.get_logger(__name__)

_Parse = Callable[[Any], Any]
_Read = Callable[[Requests], Awaitable[Any]]
"""The reader of a call's requests for its handler."""
_Write = Callable[[Requests, Context], Awaitable[None]]
"""The function that reads the requests of a call and writes its answers."""
_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


@dataclass(eq=False, slots=True)
class _Admitted:
    """A call that is being handled, with the caller's credentials.

    ``failure`` is the error that ends the call when the credentials are no longer accepted.
    """

    method: str
    authentication: Mapping[str, Iterable[bytes]]
    metadata: Metadata
    task: "asyncio.Task[Any] | None"
    caller: Caller
    failure: CallError | None = None
    writing: bool = False
    """Whether an answer is being written.

    Such a call is cancelled only after the answer, because gRPC cannot send a status for a call whose first message was
    cancelled.
    """


_CALL: ContextVar[_Admitted | None] = ContextVar("call", default=None)
"""The call that is being handled, or None for a probe."""


class Guard(grpc.aio.ServerInterceptor):
    """The interceptor that admits a call or ends it with a status. Nothing else ends a call with an error."""

    def __init__(self, identities: Identities, called: Called, now: Callable[[], int]) -> None:
        self.identities = identities
        self._now = now
        self._called = called
        self._open = OpenCalls()
        self._admitted: set[_Admitted] = set()
        self.draining = False
        self.refusal: Callable[[str], CallError | None] = lambda _method: None
        """The function that returns why this core does not accept calls of a method now.

        The function returns None if the core accepts such calls.
        """
        self.ready: Callable[[str, Metadata], Awaitable[None]] = _at_once
        """The function that waits until this core may handle a call. The function raises CallError if the core may not handle the call."""

    def checks(self) -> int:
        """Return how many health checks are open."""
        return self._open.count(CHECKS)

    def renew(self, identities: Identities) -> int:
        """Bring these identities into force, and return how many open calls end because of the change.

        The certificates of open calls are also checked for expiry. A call that is writing an answer ends after this answer. If
        its client does not read, the call ends at the next renewal.
        """
        self.identities = identities
        ended = 0
        for call in self._admitted:
            failure = self._refusal(call)
            if failure is None or call.task is None:
                continue
            is_new, call.failure = call.failure is None, call.failure or failure
            ended += is_new
            ends_now = not call.writing if is_new else call.writing
            if ends_now:
                call.task.cancel()
        return ended

    def _refusal(self, call: _Admitted) -> CallError | None:
        """Return the error that ends an open call, or None if the identities in force still admit the call.

        A call is also refused if its caller now has another role, queue or restriction. The client of a refused call has to call
        again.
        """
        try:
            caller = self._judged(call.method, call.authentication, call.metadata)
        except CallError as refused:
            return CallError(refused.code, refused.reason, refused.message)
        if caller == call.caller:
            return None
        return unauthenticated("your role was changed: call again")

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the guarded handler of a call. The handler for an unknown method ends the call with UNIMPLEMENTED."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(self._unknown)
        return self._guarded(str(handler_call_details.method), handler)

    async def _unknown(self, _requests: Requests, context: Context) -> None:
        """End a call of an unknown method.

        Without this handler, gRPC itself would end the call. The observer would then not see the call, and garbage would be
        left.
        """
        ended = self._called("unknown", context)
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("there is no such method; `grpcurl list` names those that are there")
        ended(grpc.StatusCode.UNIMPLEMENTED)

    def _admit(self, method: str, context: Context) -> _Admitted | None:
        """Return the admitted call, which is kept to be checked again later.

        Return None for a probe, which needs no role.

        Raise CallError while the server stops, for an unknown caller, and for a role that may not call the method.
        """
        if method in OPEN:
            return None
        if self.draining and method != ACKNOWLEDGE:
            raise draining()
        shown, metadata = context.auth_context(), tuple(context.invocation_metadata() or ())
        caller = self._judged(method, shown, metadata)
        if (failure := self.refusal(method)) is not None:
            raise failure
        CALLER.set(caller)
        call = _Admitted(method, shown, metadata, asyncio.current_task(), caller)
        _CALL.set(call)
        self._admitted.add(call)
        return call

    def _judged(
        self, method: str, authentication: Mapping[str, Iterable[bytes]], metadata: Metadata
    ) -> Caller:
        caller = self.identities.caller(authentication, metadata, self._now())
        if not may(caller.role, method):
            raise denied(caller.title, DEEDS.get(method, f"call {method}"))
        return caller

    def _guarded(self, method: str, handler: Handler) -> Handler:
        """Return a handler, for any method, that first admits the caller and only then reads the caller's requests."""
        parse = handler.request_deserializer or bytes
        if handler.unary_unary:
            write = _answering(handler.unary_unary, parse)
        elif handler.unary_stream:
            write = _streaming(handler.unary_stream, _one(parse))
        elif handler.stream_stream:
            # Requests that stay bytes need no generator between the call and its reader.
            requests = _each(parse) if handler.request_deserializer else _as_they_are
            write = _streaming(handler.stream_stream, requests)
        else:
            raise AssertionError(
                f"{method} streams requests to one answer: the guard has no such form"
            )

        async def handle(requests: Requests, context: Context) -> None:
            await self._handle(method, write, requests, context)

        return grpc.stream_stream_rpc_method_handler(
            handle, response_serializer=handler.response_serializer
        )

    async def _handle(
        self, method: str, write: _Write, requests: Requests, context: Context
    ) -> None:
        """Handle a call from its admission to its end. An error of the handler becomes the call's status.

        The status is set, and no exception is raised to gRPC, because gRPC would keep the exception in the call's context.
        Exception and context would refer to each other and hold the bytes of the request until a collection of cycles
        (`rpc/garbage`).
        """
        ended, code = self._called(method, context), grpc.StatusCode.CANCELLED
        call: _Admitted | None = None
        try:
            call = self._admit(method, context)
            with self._open.counted(method, call.caller if call else LOCAL_OPERATOR):
                if call is not None:
                    await self.ready(method, call.metadata)
                await write(requests, context)
            code = grpc.StatusCode.OK
        except asyncio.CancelledError:
            if call is None or call.failure is None or call.task is None:
                raise
            call.task.uncancel()
            code = _end(context, call.failure)
        except Exception as error:
            if _cannot_send(error):
                context.set_code(code)
            else:
                code = _end(context, _as_call_error(method, error))
            _let_frames_go(error)
        finally:
            if call is not None:
                self._admitted.discard(call)
                # The task's context refers to the call, and the call refers to the task.
                _CALL.set(None)
            ended(code)


async def _at_once(_method: str, _metadata: Metadata) -> None:
    """Return at once, because by default a call waits for no state of the core."""


def _cannot_send(error: Exception) -> bool:
    """Return whether the error says that gRPC could not send the answer of a call.

    There are three possible causes: the client has disconnected, the call's time is up, or the server has stopped.
    """
    misused = grpc.aio.UsageError, grpc.aio.AbortError
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, misused)


def _end(context: Context, failure: CallError) -> grpc.StatusCode:
    """Set the status of the call to the failure, and return its code."""
    status = rpc_status.to_status(failure.status())
    context.set_code(failure.code)
    context.set_details(failure.message)
    context.set_trailing_metadata(status.trailing_metadata)
    return failure.code


def _let_frames_go(error: BaseException | None) -> None:
    """Remove the tracebacks of an error and its causes.

    The frames of a traceback hold the request, and some frames hold the error itself.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _send(context: Context, answer: object, *, headers: bool = False) -> None:
    """Write an answer. With ``headers``, send the headers first.

    If the call has to end while the answer is written, the call ends after the answer.
    """
    call = _CALL.get()
    if call is None:
        await context.write(answer)
        return
    call.writing = True
    try:
        if headers:
            await send_headers(context)
        await context.write(answer)
    finally:
        call.writing = False
    if call.failure is not None:
        raise asyncio.CancelledError


def _answering(behaviour: Behaviour, parse: _Parse) -> _Write:
    read = _one(parse)

    async def write(requests: Requests, context: Context) -> None:
        await _send(context, await behaviour(await read(requests), context), headers=True)

    return write


def _streaming(behaviour: Behaviour, read: _Read) -> _Write:
    """Return the function that answers a call, for handlers that yield their answers and for handlers that write them."""

    async def pass_on(requests: Requests, context: Context) -> None:
        await behaviour(await read(requests), context)

    async def write(requests: Requests, context: Context) -> None:
        is_first = True
        async for answer in behaviour(await read(requests), context):
            await _send(context, answer, headers=is_first)
            is_first = False

    return write if inspect.isasyncgenfunction(behaviour) else pass_on


def _parsed(parse: _Parse, data: object) -> object:
    try:
        return parse(data)
    except DecodeError as error:
        raise malformed(f"these bytes are no such message: {error}") from error


def _one(parse: _Parse) -> _Read:
    """Return the reader of the message of a unary call.

    The message has to arrive in time, because the number of open calls is limited.
    """

    async def only(requests: Requests) -> object:
        with suppress(TimeoutError):
            async with asyncio.timeout(REQUEST_S):
                async for data in requests:
                    await let_go(requests)
                    return _parsed(parse, data)
                raise malformed("the call has no message")
        raise late(REQUEST_S)

    return only


def _each(parse: _Parse) -> _Read:
    """Return the reader that parses a call's messages one by one."""

    async def parsed(requests: Requests) -> AsyncIterator[object]:
        try:
            async for data in requests:
                yield _parsed(parse, data)
        finally:
            await let_go(requests)

    async def stream(requests: Requests) -> AsyncIterator[object]:
        return parsed(requests)

    return stream


async def _as_they_are(requests: Requests) -> Requests:
    return requests


def _as_call_error(method: str, error: Exception) -> CallError:
    """Return the CallError for an error that a handler raised.

    An error that is no CallError is a defect, and is logged as one. An AbortError is raised again, because gRPC already has the
    status of the call.
    """
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, CallError):
        return error
    _log.error("rpc.unexpected", method=method, exc_info=error)
    return unexpected()
