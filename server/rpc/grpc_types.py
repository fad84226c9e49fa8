"""Names for the types that gRPC gives to a handler. Handlers of `si.v1` streams get bytes. All other handlers get messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Requests: TypeAlias = AsyncIterator[bytes]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handlers: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"
"""The handlers of a service by method."""
Behaviour: TypeAlias = Callable[..., Any]
"""The function behind a handler. The arguments of the function are a request, or an iterator of requests, and a context."""
Called: TypeAlias = Callable[[str, Context], Callable[[grpc.StatusCode], None]]
"""An observer of calls.

The observer is called with the method when a call begins. The observer returns a function, to be called with the call's final
status.
"""


async def let_go(requests: Requests) -> None:
    """Release the message that was read last.

    gRPC's iterator keeps the message that was read last. The iterator refers to its call, and the call refers to the iterator. A
    message that is not released stays in memory until a collection of cycles (`rpc/garbage`).
    """
    close = getattr(aiter(requests), "aclose", None)
    if close is not None:
        await close()


async def send_headers(context: Context) -> None:
    """Send the headers of a call before its first message.

    If the call is cancelled, the cancellation takes effect after the headers are sent.

    gRPC sends headers with the first message. gRPC counts the headers as sent when that message is written. A call that is
    cancelled before the first message is written can send no status, so its client would wait for ever. Raise
    grpc.aio.InternalError if the caller has left.
    """
    sending = asyncio.ensure_future(context.send_initial_metadata(()))
    is_cancelled = False
    while not sending.done():
        try:
            await asyncio.wait({sending})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        sending.exception()  # Retrieve the error of a caller that has left: asyncio logs an error that no code retrieves.
        raise asyncio.CancelledError
    sending.result()


def unheard(_method: str, _context: Context) -> Callable[[grpc.StatusCode], None]:
    """Return a function that ignores the end of the call, for servers without an observer."""
    return lambda _code: None
