"""The observers of calls and of the messages of streams.

The observers make spans if spans are exported, and free the memory of ended calls.
"""

from collections.abc import Callable, Iterable

import grpc

from server.observe.traces import Traces
from server.rpc.grpc_types import Called, Context
from server.rpc.servicer import Received
from server.rpc.sessions import Kind


def hearing(traces: Traces | None, clock: Callable[[], int]) -> Received:
    """Return the observer of messages. If spans are exported, the observer makes a span for each message."""

    def hear(kind: Kind, objects: int, context: Context) -> None:
        if traces is not None:
            traces.message(kind, objects, context.invocation_metadata() or (), clock())

    return hear


def calls(
    traces: Traces | None,
    clock: Callable[[], int],
    looks: Iterable[Callable[[grpc.StatusCode], None]],
) -> Called:
    """Return the observer of calls. The observer frees the memory of ended calls and, if spans are exported, makes a span for each call."""

    def call_ended(code: grpc.StatusCode) -> None:
        for look in looks:
            look(code)

    if traces is None:
        return lambda _method, _context: call_ended

    def begin(method: str, context: Context) -> Callable[[grpc.StatusCode], None]:
        ended = traces.call(method, context.invocation_metadata() or (), clock())

        def both(code: grpc.StatusCode) -> None:
            ended(code, clock())
            call_ended(code)

        return both

    return begin
