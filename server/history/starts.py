"""The starts and ends of a core, and the registrations of its managers, with the numbers of pods before and after."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Table

from server.history import schema
from server.history.pods import Pods

Put = Callable[[Table, object, dict[str, Any]], None]

STARTED = "core-started"
ENDED = "core-ended"
KILLED = "core-killed"
REGISTERED = "registered"
SYNCED = "synced"


class Before(NamedTuple):
    """The end of the run before: the instant up to which everything was written, and whether the run ended in order."""

    seen_ms: int
    in_order: bool


class Starts:
    """The rows of the table `failovers`."""

    def __init__(self, put: Put, next_number: Callable[[], int], pods: Pods) -> None:
        self._put = put
        self._next_number = next_number
        self._pods = pods
        self._before: dict[str, tuple[int, int]] = {}
        self._awaited: dict[str, Any] | None = None

    def started(self, now: int, version: str, before: Before | None) -> None:
        """Record the start of a core. If the run before did not record its end, record that it was killed."""
        away = 0 if before is None else max(now - before.seen_ms, 0)
        if before is not None and not before.in_order:
            self._add(before.seen_ms, KILLED, "", "it did not end in order", {})
        self._add(now, STARTED, "", f"version {version}", {"away_ms": away} if away else {})

    def ended(self, now: int, why: str, *, in_order: bool) -> None:
        """Record the end of the core."""
        self._add(now, ENDED if in_order else KILLED, "", why, {})

    def registered(self, rm_id: str, now: int, message: str) -> None:
        """Record a registration, with the numbers of pods that the manager had until then, as far as the history knows."""
        running, asks = self._before[rm_id] = self._pods.counts(rm_id)
        facts = {"allocations_before": running, "asks_before": asks}
        self._add(now, REGISTERED, rm_id, message, facts)

    def synced(self, rm_id: str, now: int, message: str) -> None:
        """Record the end of a manager's sync. The next picture shows which pods have ended meanwhile (`compared`)."""
        running, asks = self._before.pop(rm_id, (0, 0))
        facts = {"allocations_before": running, "asks_before": asks, "gone": 0, "added": 0}
        self._awaited = self._add(now, SYNCED, rm_id, message, facts)

    def compared(self, gone: int, added: int) -> None:
        """Add the result of a comparison with a picture to the latest sync."""
        if self._awaited is None:
            return
        facts = json.loads(self._awaited["facts"])
        facts["gone"] += gone
        facts["added"] += added
        running, asks = self._pods.counts(self._awaited["subject"])
        facts |= {"allocations_after": running, "asks_after": asks}
        self._awaited["facts"] = json.dumps(facts)
        self._put(schema.FAILOVERS, self._awaited["id"], self._awaited)

    def settled(self) -> None:
        """End the comparisons of the latest sync: later ones are not added to it."""
        self._awaited = None

    def _add(
        self, at_ms: int, kind: str, subject: str, text: str, facts: dict[str, int]
    ) -> dict[str, Any]:
        number = self._next_number()
        row = {"id": number, "at_ms": at_ms, "kind": kind, "subject": subject, "text": text}
        row["facts"] = json.dumps(facts)
        self._put(schema.FAILOVERS, number, row)
        return row
