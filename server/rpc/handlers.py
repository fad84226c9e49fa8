"""Handlers of a service, made from its descriptor: every method of the .proto has a method of the same name here.

`ListNodes` is answered by `list_nodes(request)`: a coroutine, or for a stream of answers an asynchronous generator.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from server.rpc.calls import Context, Handler, Handlers

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


Complete = Callable[[Message, Message], None]
"""Fills in what answers of every service carry; called with the request and its answer."""


def handlers(service: ServiceDescriptor, implementation: object, complete: Complete) -> Handlers:
    """Return a handler for each method; raises AttributeError when the implementation lacks one."""
    return {method.name: _handler(method, implementation, complete) for method in service.methods}


def _handler(method: MethodDescriptor, implementation: object, complete: Complete) -> Handler:
    behaviour: Callable[[Message], Any] = getattr(
        implementation, _WORD.sub("_", method.name).lower()
    )
    request = GetMessageClass(method.input_type)
    response = GetMessageClass(method.output_type)
    make, adapt = (
        (grpc.unary_stream_rpc_method_handler, _generating)
        if method.server_streaming
        else (grpc.unary_unary_rpc_method_handler, _answering)
    )
    return make(
        adapt(behaviour, complete),
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )


def _answering(behaviour: Callable[[Message], Awaitable[Message]], complete: Complete) -> Any:  # noqa: ANN401
    async def answer(request: Message, _: Context) -> Message:
        found = await behaviour(request)
        complete(request, found)
        return found

    return answer


def _generating(behaviour: Callable[[Message], AsyncIterator[Message]], complete: Complete) -> Any:  # noqa: ANN401
    async def generate(request: Message, _: Context) -> AsyncIterator[Message]:
        async for message in behaviour(request):
            complete(request, message)
            yield message

    return generate
