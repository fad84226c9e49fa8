"""Spans of calls, messages and ticks, which continue the caller's trace."""

from collections.abc import Callable
from dataclasses import replace

import grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from evenhand.v1 import explain_pb2, explain_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from server.observe.traces import Traces
from server.rpc.grpc_types import Context
from si.v1 import si_pb2, si_pb2_grpc
from tests.rpc.harness import RM, SETTING, Stream, node, serving, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
METADATA = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),)
NOW = 1_700_000_000_000


class Listening:
    """The traces of a service, whose spans stay in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.traces = Traces(SimpleSpanProcessor(self.exporter))
        self.setting = replace(SETTING, called=self._called, received=self._received)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if one.name == name]

    async def ended(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name once they have ended, which is after the answer was sent."""
        await until(lambda: bool(self.spans(name)))
        return self.spans(name)

    def _called(self, method: str, context: Context) -> Callable[[grpc.StatusCode], None]:
        ended = self.traces.call(method, context.invocation_metadata() or (), NOW)
        return lambda code: ended(code, NOW + 5)

    def _received(self, kind: str, objects: int, context: Context) -> None:
        self.traces.message(kind, objects, context.invocation_metadata() or (), NOW)


def trace_of(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}"


async def test_a_call_continues_the_callers_trace_and_has_its_status() -> None:
    heard = Listening()
    async with serving(heard.setting, (heard.traces,)) as served:
        stub = inspect_pb2_grpc.InspectServiceStub(served.channel)
        await stub.ServerInfo(inspect_pb2.ServerInfoRequest(), metadata=METADATA)
        (span,) = await heard.ended("evenhand.v1.InspectService/ServerInfo")
        assert trace_of(span) == TRACE
        assert span.kind is SpanKind.SERVER
        assert span.attributes is not None
        assert span.attributes["rpc.method"] == "ServerInfo"
        assert span.attributes["rpc.grpc.status_code"] == 0
        assert (span.end_time or 0) - (span.start_time or 0) == 5_000_000


async def test_a_call_that_is_refused_is_an_error() -> None:
    heard = Listening()
    async with serving(heard.setting, (heard.traces,)) as served:
        call = explain_pb2_grpc.ExplainServiceStub(served.channel).Explain(
            explain_pb2.ExplainRequest()
        )
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        (span,) = await heard.ended("evenhand.v1.ExplainService/Explain")
        assert span.status.status_code is StatusCode.ERROR
        assert trace_of(span) != TRACE


async def test_messages_and_the_tick_that_took_them() -> None:
    heard = Listening()
    async with serving(heard.setting, (heard.traces,)) as served:
        stub = si_pb2_grpc.SchedulerStub(served.channel)
        await stub.RegisterResourceManager(
            si_pb2.RegisterResourceManagerRequest(rmID=RM), metadata=METADATA
        )
        (registration,) = await heard.ended("si.v1.Scheduler/RegisterResourceManager")
        assert trace_of(registration) == TRACE
        stream = Stream(stub.UpdateNode(metadata=METADATA))
        await stream.send(si_pb2.NodeRequest(rmID=RM, nodes=[node("n1")]))
        await until(lambda: any(one.links for one in heard.spans("tick")))
        (message,) = heard.spans("message node")
        assert trace_of(message) == TRACE
        linked = next(one for one in heard.spans("tick") if one.links)
        assert [link.context for link in linked.links] == [message.context]
        await stream.close()
        await stream.end()
        await heard.ended("si.v1.Scheduler/UpdateNode")
