"""A caller who is gone when the answer is written is no defect of the server."""

from typing import Any

import grpc
import pytest

from server.rpc.calls import Context
from server.rpc.guard import Guard
from server.rpc.identity import Identities


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
    server = grpc.aio.server(interceptors=[guard])
    handlers: Any = {"UpdateNode": grpc.unary_unary_rpc_method_handler(fail)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("si.v1.Scheduler", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/si.v1.Scheduler/UpdateNode")
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"")
    finally:
        await server.stop(0)
    assert ended == [code]
