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


def unheard(_method: str, _context: Context) -> Callable[[grpc.StatusCode], None]:
    """A `Called` for when nobody listens."""
    return lambda _code: None
