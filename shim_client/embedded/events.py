"""Events on objects: equal events are counted together, and the oldest events are forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shim_client.cluster import ObjectRef, RecordEvent

EVENTS_MAX = 50_000
"""Maximum number of different events that are kept."""


@dataclass(slots=True)
class KeptEvent:
    """An event with its count and the instants of its first and last occurrence (Unix milliseconds)."""

    about: ObjectRef
    reason: str
    message: str
    warning: bool
    count: int
    first_ms: int
    last_ms: int


class EventBook:
    """The events of a cluster, in the order of their first appearance."""

    def __init__(self) -> None:
        self._events: dict[tuple[ObjectRef, str, str], KeptEvent] = {}

    def record(self, event: RecordEvent, now_ms: int) -> None:
        """Record an event at an instant (Unix milliseconds), or increase its count when an equal event exists."""
        key = (event.about, event.reason, event.message)
        kept = self._events.get(key)
        if kept is not None:
            kept.count += 1
            kept.last_ms = now_ms
            return
        if len(self._events) >= EVENTS_MAX:
            del self._events[next(iter(self._events))]
        self._events[key] = KeptEvent(
            event.about, event.reason, event.message, event.warning, 1, now_ms, now_ms
        )

    def all(self) -> Iterator[KeptEvent]:
        """Yield all events, in the order of their first appearance."""
        return iter(list(self._events.values()))
