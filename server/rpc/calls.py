"""Names for the types that grpc gives to a handler. Streams of `si.v1` see bytes, all others see messages."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Requests: TypeAlias = AsyncIterator[bytes]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handlers: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"
"""The handlers of a service by method."""
Behaviour: TypeAlias = Callable[..., Any]
"""What a handler does with a request, or with an iterator of requests, and a context."""
Called: TypeAlias = Callable[[str, Context], Callable[[grpc.StatusCode], None]]
"""Hears of every call by its method when it begins; gives what hears of its end."""


async def let_go(requests: Requests) -> None:
    """Let go of the message that was read last.

    gRPC's iterator keeps it and refers to its call, which refers to the iterator: it would stay until a collection (`rpc/garbage`).
    """
    close = getattr(aiter(requests), "aclose", None)
    if close is not None:
        await close()


def unheard(_method: str, _context: Context) -> Callable[[grpc.StatusCode], None]:
    """A `Called` for when nobody listens."""
    return lambda _code: None
