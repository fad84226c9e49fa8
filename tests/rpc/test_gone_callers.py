"""A caller that is gone when its answer is written causes no error in the server; one that is cut off gets the status."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from server.rpc.grpc_types import Context, unheard
from server.rpc.identity import Identities
from server.rpc.interceptor import Guard
from tests.rpc.harness import Stream

METHOD = "/si.v1.Scheduler/UpdateNode"


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
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (grpc.aio.InternalError("Failed execute_batch"), grpc.StatusCode.CANCELLED),
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
