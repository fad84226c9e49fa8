"""Spans: one for each message and one for each tick that took messages.

A message's span continues the trace in the metadata of its call (`traceparent`); the tick's span is linked to the
messages that it took. Without an exporter there is no `Traces` object, and nothing of this runs.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.model.decisions import Decision

LINKS_MAX: Final = 64
"""Messages that a tick's span is linked to."""

_NS_OF_MS: Final = 1_000_000
_NS_OF_S: Final = 1_000_000_000
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Traces:
    """Makes the spans. An observer of the pump."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "evenhand"}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("evenhand")
        self._messages: list[SpanContext] = []
        self._decisions = 0

    def message(
        self, stream: str, objects: int, metadata: Iterable[tuple[str, str | bytes]], now: int
    ) -> None:
        """A message came over a stream."""
        carrier = {key: value for key, value in metadata if isinstance(value, str)}
        span = self._tracer.start_span(
            f"message {stream}",
            context=_PROPAGATOR.extract(carrier),
            kind=SpanKind.CONSUMER,
            attributes={"evenhand.objects": objects},
            start_time=now * _NS_OF_MS,
        )
        span.end(now * _NS_OF_MS)
        if len(self._messages) < LINKS_MAX:
            self._messages.append(span.get_span_context())

    def decided(self, decisions: Sequence[Decision], _now: int) -> None:
        """Counts for the tick's span."""
        self._decisions += len(decisions)

    def sliced(self, events: int, seconds: float, now: int) -> None:
        """A span for the tick, unless nothing happened in it."""
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
        """Nothing to do."""

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()
