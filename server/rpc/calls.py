"""Names for the types that grpc gives to a handler. Streams of `si.v1` see bytes, all others see messages."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]
Requests = AsyncIterator[bytes]
Handler = grpc.RpcMethodHandler[Any, Any]
Handlers = dict[str, Handler]
"""The handlers of a service by method."""
Behaviour = Callable[..., Any]
"""What a handler does with a request, or with an iterator of requests, and a context."""
