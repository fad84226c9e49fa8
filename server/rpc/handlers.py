"""The handlers of a service, made from its descriptor.

A method of the implementation answers each method of the .proto: `list_nodes(request)` answers `ListNodes`. The implementation's
method is a function if it only reads (`rpc/reads`), and a coroutine if it acts in this process. The implementation's method is an
asynchronous generator if it yields a stream of answers.
"""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from server.rpc.grpc_types import Context, Handler, Handlers
from server.rpc.reads import Answers

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def handlers(service: ServiceDescriptor, implementation: object, answers: Answers) -> Handlers:
    """Return a handler for each method. Raise AttributeError if the implementation lacks a method."""
    return {method.name: _handler(method, implementation, answers) for method in service.methods}


def _handler(method: MethodDescriptor, implementation: object, answers: Answers) -> Handler:
    behaviour: Callable[[Message], Any] = getattr(
        implementation, _WORD.sub("_", method.name).lower()
    )
    request = GetMessageClass(method.input_type)
    if method.server_streaming:
        make, handle = grpc.unary_stream_rpc_method_handler, _generating(behaviour, answers)
    elif inspect.iscoroutinefunction(behaviour):
        make, handle = grpc.unary_unary_rpc_method_handler, _acting(behaviour, answers)
    else:
        make, handle = (
            grpc.unary_unary_rpc_method_handler,
            _reading(behaviour, method.full_name, answers),
        )
    return make(handle, request_deserializer=request.FromString, response_serializer=_serialized)


def _serialized(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _reading(behaviour: Callable[[Message], Message], method: str, answers: Answers) -> Any:  # noqa: ANN401
    async def read(request: Message, _: Context) -> bytes:
        return await answers.read(method, request, behaviour)

    return read


def _acting(behaviour: Callable[[Message], Awaitable[Message]], answers: Answers) -> Any:  # noqa: ANN401
    async def act(request: Message, _: Context) -> Message:
        found = await behaviour(request)
        answers.complete(request, found)
        return found

    return act


def _generating(
    behaviour: Callable[[Message], AsyncIterator[Message | bytes]], answers: Answers
) -> Any:  # noqa: ANN401
    """Return the handler of a stream of answers. Answers in bytes are complete, and are passed on unchanged."""

    async def generate(request: Message, _: Context) -> AsyncIterator[Message | bytes]:
        async for message in behaviour(request):
            if not isinstance(message, bytes):
                answers.complete(request, message)
            yield message

    return generate
