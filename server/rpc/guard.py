"""What stands before every RPC: the caller's role, the request's bytes, and the form of errors."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from server.rpc.calls import Behaviour, Called, Context, Handler
from server.rpc.failures import CallError, denied, draining, end, malformed, unexpected
from server.rpc.identity import Identities
from server.rpc.roles import CALLER, DEEDS, OPEN, may

_log = structlog.get_logger(__name__)

_Parse = Callable[[Any], Any]
_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class Guard(grpc.aio.ServerInterceptor):
    """Admits a call or ends it with a status; nothing else ends a call with an error."""

    def __init__(self, identities: Identities, called: Called) -> None:
        self._identities = identities
        self._called = called
        self.draining = False

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> "Handler | None":
        """Wraps the handler of a call; an unknown method has none and stays UNIMPLEMENTED."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return self._guarded(str(handler_call_details.method), handler)

    def _admit(self, method: str, context: Context) -> None:
        if method in OPEN:
            return
        if self.draining:
            raise draining()
        metadata = context.invocation_metadata() or ()
        caller = self._identities.caller(context.auth_context(), metadata)
        if not may(caller.role, method):
            raise denied(caller.title, DEEDS.get(method, f"call {method}"))
        CALLER.set(caller)

    @asynccontextmanager
    async def _call(self, method: str, context: Context) -> AsyncIterator[None]:
        """A call from its admission to its end; what goes wrong in it becomes its status."""
        ended, code = self._called(method, context), grpc.StatusCode.CANCELLED
        try:
            self._admit(method, context)
            yield
            code = grpc.StatusCode.OK
        except Exception as error:
            failure = _as_call_error(method, error)
            code = failure.code
            await end(context, failure)
        finally:
            ended(code)

    def _guarded(self, method: str, handler: Handler) -> Handler:
        parse = handler.request_deserializer or bytes
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(
                self._answering(method, handler.unary_unary, parse),
                response_serializer=handler.response_serializer,
            )
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(method, handler.unary_stream, parse),
                response_serializer=handler.response_serializer,
            )
        if handler.stream_stream is None:
            raise AssertionError(
                f"{method} streams requests to one answer: the guard has no such form"
            )
        # Bytes that nobody parses need no generator between the call and who reads them.
        stream = _each(parse) if handler.request_deserializer else _as_it_is
        return grpc.stream_stream_rpc_method_handler(
            self._streaming(method, handler.stream_stream, stream),
            response_serializer=handler.response_serializer,
        )

    def _answering(self, method: str, behaviour: Behaviour, parse: _Parse) -> Behaviour:
        async def answer(data: bytes, context: Context) -> object:
            async with self._call(method, context):
                return await behaviour(_parsed(parse, data), context)

        return answer

    def _streaming(self, method: str, behaviour: Behaviour, parse: _Parse) -> Behaviour:
        """Handlers that yield their answers, and handlers that write them."""

        async def write(data: object, context: Context) -> None:
            async with self._call(method, context):
                await behaviour(_parsed(parse, data), context)

        async def generate(data: object, context: Context) -> AsyncIterator[object]:
            async with self._call(method, context):
                async for answer in behaviour(_parsed(parse, data), context):
                    yield answer

        return generate if inspect.isasyncgenfunction(behaviour) else write


def _parsed(parse: _Parse, data: object) -> object:
    try:
        return parse(data)
    except DecodeError as error:
        raise malformed(f"these bytes are no such message: {error}") from error


def _each(parse: _Parse) -> Callable[[AsyncIterator[bytes]], AsyncIterator[object]]:
    """Parses message by message."""

    async def parsed(stream: AsyncIterator[bytes]) -> AsyncIterator[object]:
        async for data in stream:
            yield _parsed(parse, data)

    return parsed


def _as_it_is(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    return stream


def _as_call_error(method: str, error: Exception) -> CallError:
    """What a handler raised, as a status. Anything but a CallError is a defect and is logged as one."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, CallError):
        return error
    _log.error("rpc.unexpected", method=method, exc_info=error)
    return unexpected()
