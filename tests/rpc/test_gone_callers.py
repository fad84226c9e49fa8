"""A caller that is gone when its answer is written causes no error in the server; one that is cut off gets the status."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest

from server.rpc.grpc_types import Context, send_headers, unheard
from server.rpc.identity import Identities
from server.rpc.interceptor import Guard
from server.rpc.sessions import Kind
from si.v1 import si_pb2 as si
from tests.rpc.harness import PATIENCE_S, RM, SETTING, Stream, serving, until

METHOD = "/si.v1.Scheduler/UpdateNode"
UNREAD_BYTES = 30 << 20
"""More than gRPC takes before a write waits for the client to read."""


@asynccontextmanager
async def guarded(guard: Guard, handler: Any) -> AsyncIterator[Any]:
    """Serve one method behind a guard, and yield a channel to it; typed as Any, for gRPC's own types fit no bytes."""
    server = grpc.aio.server(interceptors=[guard])
    _, service, name = METHOD.split("/")
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {name: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        options = (("grpc.max_receive_message_length", -1),)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            yield channel
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (grpc.aio.InternalError("Failed execute_batch"), grpc.StatusCode.CANCELLED),
        (grpc.aio.BaseError("Server is stopped"), grpc.StatusCode.CANCELLED),
        (grpc.aio.UsageError("Metadata already sent"), grpc.StatusCode.INTERNAL),
        (ZeroDivisionError(), grpc.StatusCode.INTERNAL),
    ],
)
async def test_an_answer_that_cannot_be_written_ends_a_call_as_cancelled(
    error: Exception, code: grpc.StatusCode
) -> None:
    ended: list[grpc.StatusCode] = []

    async def fail(_request: bytes, _context: Context) -> Any:
        raise error

    guard = Guard(Identities(), lambda _method, _context: ended.append, lambda: 0)
    async with guarded(guard, grpc.unary_unary_rpc_method_handler(fail)) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(METHOD)(b"")
    assert ended == [code]


async def test_a_call_that_is_taken_away_amid_a_message_gets_message_and_status() -> None:
    guard = Guard(Identities(), unheard, lambda: 0)

    async def answer(_request: bytes, _context: Context) -> AsyncIterator[bytes]:
        asyncio.get_running_loop().call_soon(guard.renew, Identities(open_to_all=False))
        yield b"under way"
        await asyncio.Event().wait()

    async with guarded(guard, grpc.unary_stream_rpc_method_handler(answer)) as channel:
        stream = Stream(channel.unary_stream(METHOD)(b""))
        assert await stream.next() == b"under way"
        assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture
async def unretrieved() -> AsyncIterator[list[str]]:
    """Collect what the event loop reports of errors that no code retrieved."""
    reported: list[str] = []

    def collect(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Other reports, as on a busy machine of gRPC's reader of completions, are of no error that was left behind.
        if "never retrieved" in context["message"]:
            reported.append(f"{context['message']}: {context.get('exception')!r}")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(collect)
    yield reported
    loop.set_exception_handler(None)


async def streamed(_request: bytes, _context: Context) -> AsyncIterator[bytes]:
    """Yield an answer that waits for its reader."""
    yield b"-" * UNREAD_BYTES


async def at_once(_request: bytes, _context: Context) -> bytes:
    """Return an answer that waits for its reader."""
    return b"-" * UNREAD_BYTES


@pytest.mark.parametrize(
    "handler",
    [
        grpc.unary_stream_rpc_method_handler(streamed),
        grpc.unary_unary_rpc_method_handler(at_once),
    ],
    ids=["stream", "one answer"],
)
async def test_a_call_whose_first_message_is_not_read_gets_the_status_when_it_is_taken_away(
    handler: Any,
) -> None:
    ended = asyncio.Event()

    def called(_method: str, _context: Context) -> Any:
        return lambda _code: ended.set()

    guard = Guard(Identities(), called, lambda: 0)
    async with guarded(guard, handler) as channel:
        stream = Stream(channel.unary_stream(METHOD)(b""))
        await stream.call.initial_metadata()
        closed = Identities(open_to_all=False)
        assert guard.renew(closed) == 1
        assert not ended.is_set(), "the message in progress is not cut at once"
        guard.renew(closed)
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_that_is_taken_away_amid_its_first_message_gets_the_status() -> None:
    async with serving() as served:
        await served.register()
        stream = await served.open("UpdateNode", si.NodeRequest(rmID=RM))
        sessions = served.endpoint.sessions
        await until(lambda: Kind.NODE in sessions.open_kinds(RM))
        outbox = sessions.outbox(RM, Kind.NODE)
        assert outbox is not None
        answer = si.NodeResponse(accepted=[si.AcceptedNode(nodeID="n")])
        outbox.extend([answer.SerializeToString()])
        await asyncio.sleep(0)  # the writer hands the message to gRPC
        served.endpoint.renew(Identities(open_to_all=False))
        assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED


class FailingContext:
    """A context whose headers fail when the test says so."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()

    async def send_initial_metadata(self, _metadata: object) -> None:
        """Fail as gRPC does for a caller that has left."""
        await self.fails.wait()
        raise grpc.aio.InternalError("Failed execute_batch")


@pytest.mark.parametrize("cancellations", [0, 1, 2])
async def test_headers_that_fail_leave_no_error_behind(
    unretrieved: list[str], cancellations: int
) -> None:
    """A call is cancelled when its caller leaves, and once more when its token is taken away."""
    context: Any = FailingContext()
    sending = asyncio.create_task(send_headers(context))
    for _ in range(cancellations):
        await asyncio.sleep(0)
        sending.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not sending.done(), "a cancellation waits for the headers"
    context.fails.set()
    with pytest.raises(asyncio.CancelledError if cancellations else grpc.aio.InternalError):
        await sending
    del sending
    gc.collect()
    assert unretrieved == []


class OpenCalls:
    """An observer that counts the calls that a server handles."""

    def __init__(self) -> None:
        self.count = 0

    def called(self, _method: str, _context: Context) -> Callable[[grpc.StatusCode], None]:
        """Count a call, and return the function that takes it off the count."""
        self.count += 1
        return self._ended

    def _ended(self, _code: grpc.StatusCode) -> None:
        self.count -= 1


async def leave(start: Callable[[], Any], open_calls: OpenCalls) -> None:
    """Start calls and cancel them soon after, many times."""
    for turns in range(100):
        calls = [start() for _ in range(5)]
        for _ in range(turns % 10):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await until(lambda: open_calls.count == 0)
    last = start()
    await last.initial_metadata()  # The server has seen every call before this one.
    last.cancel()
    await until(lambda: open_calls.count == 0)
    gc.collect()


async def test_streams_whose_callers_leave_amid_the_headers_leave_no_error_behind(
    unretrieved: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    open_calls = OpenCalls()
    async with serving(replace(SETTING, called=open_calls.called)) as served:
        await leave(served.stub.UpdateNode, open_calls)
    assert unretrieved == []
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_answers_whose_callers_leave_amid_the_headers_leave_no_error_behind(
    unretrieved: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_request: bytes, _context: Context) -> AsyncIterator[bytes]:
        yield b"under way"
        await asyncio.Event().wait()

    open_calls = OpenCalls()
    guard = Guard(Identities(), open_calls.called, lambda: 0)
    async with guarded(guard, grpc.unary_stream_rpc_method_handler(answer)) as channel:
        await leave(lambda: channel.unary_stream(METHOD)(b""), open_calls)
    assert unretrieved == []
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []
