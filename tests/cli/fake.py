"""A small core with prepared answers, for tests of output, pages and errors of the command line."""

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from evenhand.v1 import (
    config_pb2,
    decisions_pb2,
    explain_pb2,
    history_pb2,
    inspect_pb2,
    replication_pb2,
    reports_pb2,
    simulate_pb2,
    watch_pb2,
)

FILES = (
    health_pb2,
    config_pb2,
    decisions_pb2,
    explain_pb2,
    history_pb2,
    inspect_pb2,
    replication_pb2,
    reports_pb2,
    simulate_pb2,
    watch_pb2,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of an RPC with google.rpc.Status and its details."""

    code: grpc.StatusCode
    message: str
    details: tuple[Message, ...] = ()

    def status(self) -> grpc.Status:
        packed = []
        for detail in self.details:
            any_message = AnyMessage()
            any_message.Pack(detail)
            packed.append(any_message)
        number = self.code.value[0]
        status = status_pb2.Status(code=number, message=self.message, details=packed)
        return rpc_status.to_status(status)


class Turns:
    """Answers of a method that differ from call to call; further calls get the last one."""

    def __init__(self, *answers: "Message | Failure") -> None:
        self._answers = list(answers)

    def take(self) -> "Message | Failure":
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


Answer = Message | Failure | Sequence[Message] | Turns


class FakeCore(grpc.GenericRpcHandler):
    """A core that answers each method as prepared: with a message, a stream or pages, or a failure.

    Methods without a prepared answer do not exist. `requests` has all requests, in order.
    """

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.requests: list[Message] = []
        self.metadata: list[dict[str, str]] = []
        self.address = ""
        self.kinds: queue.Queue[Sequence[str]] | None = None
        """The kinds of events that the streams of kinds send. None: they end with `kinds_fault`. They are not in `requests`."""
        self.kinds_fault = Failure(grpc.StatusCode.UNIMPLEMENTED, "no such stream")

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        method = METHODS.get(handler_call_details.method)
        if method is None or method.name not in self.answers:
            return None
        request_class = GetMessageClass(method.input_type)
        answer = self.answers[method.name]
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._stream(answer, request, context),
                request_deserializer=request_class.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._unary(answer, request, context),
            request_deserializer=request_class.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _note(self, request: Message, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})

    def _unary(self, answer: Answer, request: Message, context: grpc.ServicerContext) -> Message:
        self._note(request, context)
        if isinstance(answer, Turns):
            answer = answer.take()
        if isinstance(answer, Failure):
            context.abort_with_status(answer.status())
        if isinstance(answer, Message):
            return answer
        assert isinstance(answer, Sequence)
        return answer[int(getattr(request, "page_token", "") or 0)]

    def _stream(
        self, answer: Answer, request: Message, context: grpc.ServicerContext
    ) -> Iterator[Message]:
        if isinstance(request, watch_pb2.WatchEventsRequest) and request.kinds_only:
            yield from self._kinds(context)
            return
        self._note(request, context)
        if isinstance(answer, Failure):
            context.abort_with_status(answer.status())
        assert isinstance(answer, Sequence)
        yield from answer

    def _kinds(self, context: grpc.ServicerContext) -> Iterator[Message]:
        if self.kinds is None:
            context.abort_with_status(self.kinds_fault.status())
        assert self.kinds is not None
        yield watch_pb2.WatchEventsResponse()
        while context.is_active():
            try:
                yield watch_pb2.WatchEventsResponse(kinds=self.kinds.get(timeout=0.1))
            except queue.Empty:
                continue


def methods() -> dict[str, MethodDescriptor]:
    """Return every RPC of evenhand.v1 and of the health service by its path."""
    return {
        f"/{service.full_name}/{method.name}": method
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


METHODS = methods()


@contextmanager
def running(core: FakeCore) -> Iterator[FakeCore]:
    """Hold the fake core on a free port of the loopback."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((core,))
    core.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield core
    finally:
        server.stop(None).wait()
