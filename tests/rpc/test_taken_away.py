"""A call whose caller is no longer accepted gets its status, also while a message to it is under way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from server.rpc.calls import Context
from server.rpc.guard import Guard
from server.rpc.identity import Identities
from tests.rpc.harness import Stream


async def test_a_call_that_ends_amid_a_message_gets_message_and_status() -> None:
    guard = Guard(Identities(), lambda _method, _context: lambda _code: None, lambda: 0)

    async def answer(_request: bytes, _context: Context) -> AsyncIterator[bytes]:
        nobody = Identities(open_to_all=False)
        asyncio.get_running_loop().call_soon(guard.renew, nobody)
        yield b"under way"
        await asyncio.Event().wait()

    server = grpc.aio.server(interceptors=[guard])
    handlers: Any = {"UpdateNode": grpc.unary_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("si.v1.Scheduler", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method: Any = channel.unary_stream("/si.v1.Scheduler/UpdateNode")
            stream = Stream(method(b""))
            assert await stream.next() == b"under way"
            assert (await stream.end())[0] is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await server.stop(0)
