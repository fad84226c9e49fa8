"""Spans: one for each call, one for each message of a stream, and one for each tick that took messages.

Spans of calls and messages continue the trace that the metadata of the call names (`traceparent`). The span of a tick is linked
to the messages that it took. Without an exporter there is no `Traces` object, and no code of this module runs.
"""

from collections.abc import Callable, Iterable
from typing import Final

import grpc
from opentelemetry.context import Context as OtelContext
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.model.decisions import Decisions

LINKS_MAX: Final = 64
"""The largest number of messages to which the span of a tick is linked."""

_NS_OF_MS: Final = 1_000_000
_NS_OF_S: Final = 1_000_000_000
_PROPAGATOR: Final = TraceContextTextMapPropagator()

_FINE: Final = frozenset({grpc.StatusCode.OK, grpc.StatusCode.CANCELLED})
"""The final statuses of a call that are not errors. A client that disconnects cancels its streams."""
Metadata = Iterable[tuple[str, str | bytes]]


def _callers(metadata: Metadata) -> OtelContext:
    """Return the trace context that the caller sent."""
    return _PROPAGATOR.extract({key: value for key, value in metadata if isinstance(value, str)})


class Traces:
    """The maker of spans. The pump (see docs/glossary.md) calls this object for each batch of decisions."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "evenhand"}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("evenhand")
        self._messages: list[SpanContext] = []
        self._decisions = 0

    def call(
        self, method: str, metadata: Metadata, now: int
    ) -> Callable[[grpc.StatusCode, int], None]:
        """Start the span of a call. Return a function that ends the span, given the call's status and instant of end."""
        service, _, name = method.removeprefix("/").partition("/")
        span = self._tracer.start_span(
            f"{service}/{name}",
            context=_callers(metadata),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
            start_time=now * _NS_OF_MS,
        )

        def ended(code: grpc.StatusCode, at: int) -> None:
            span.set_attribute("rpc.grpc.status_code", code.value[0])
            if code not in _FINE:
                span.set_status(StatusCode.ERROR, code.name)
            span.end(at * _NS_OF_MS)

        return ended

    def message(self, stream: str, objects: int, metadata: Metadata, now: int) -> None:
        """Record the span of a message that arrived on a stream."""
        span = self._tracer.start_span(
            f"message {stream}",
            context=_callers(metadata),
            kind=SpanKind.CONSUMER,
            attributes={"evenhand.objects": objects},
            start_time=now * _NS_OF_MS,
        )
        span.end(now * _NS_OF_MS)
        if len(self._messages) < LINKS_MAX:
            self._messages.append(span.get_span_context())

    def decided(self, decisions: Decisions, _now: int) -> None:
        """Count the decisions for the tick's span."""
        self._decisions += len(decisions)

    def sliced(self, events: int, seconds: float, now: int) -> None:
        """Record a span for the tick, if anything happened in it."""
        if not events and not self._decisions:
            return
        start = now * _NS_OF_MS
        span = self._tracer.start_span(
            "tick",
            links=[Link(context) for context in self._messages],
            attributes={"evenhand.events": events, "evenhand.decisions": self._decisions},
            start_time=start,
        )
        span.end(start + int(seconds * _NS_OF_S))
        self._messages.clear()
        self._decisions = 0

    def idle(self) -> None:
        """Ignore that the pump is idle. Spans are recorded by `message` and `sliced`."""

    def close(self) -> None:
        """Send the spans that are not sent yet."""
        self._provider.shutdown()
