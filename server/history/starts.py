"""The starts and ends of a core, its terms as the leader, and the registrations of its managers, with the numbers of pods."""

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
LEADS = "leads"
FOLLOWS = "follows"


class Before(NamedTuple):
    """The end of the previous run: the instant up to which everything was written, and whether the run ended normally."""

    seen_ms: int
    in_order: bool


class Starts:
    """The rows of the table `failovers`."""

    def __init__(self, put: Put, next_number: Callable[[], int], pods: Pods) -> None:
        self._put = put
        self._next_number = next_number
        self._pods = pods
        self.core = ""
        """The name of the core."""
        self._before: dict[str, tuple[int, int]] = {}
        self._awaited: dict[str, Any] | None = None
        self._epochs: dict[str, int] = {}
        self._term: dict[str, Any] | None = None
        """The row of the leader's term that has no end yet."""

    @property
    def leader(self) -> str:
        """The name of the core whose term has not ended, "" if every term has ended."""
        return "" if self._term is None else str(self._term["core"])

    def adopt(self, term: dict[str, Any]) -> None:
        """Take over the row of a term whose end an earlier run did not record."""
        self._term = term

    def after(self, before: Before | None) -> None:
        """Record the end of the term that the previous run left open. If that run did not end normally, also record that it was killed."""
        if before is None:
            return
        core = self.leader or self.core
        self._end_term(before.seen_ms)
        if not before.in_order:
            self._add(before.seen_ms, KILLED, "", "it did not end in order", {}, core)

    def started(self, now: int, version: str, before: Before | None) -> None:
        """Record the start of a core. ``before`` is the end of the previous run."""
        self._add(now, STARTED, "", f"version {version}", _away(now, before))

    def leads(self, now: int, before: Before | None = None) -> None:
        """Record that the core leads from now on. ``before`` is the end of another core's run, if that core led before."""
        self._end_term(now)
        self._term = self._add(now, LEADS, "", "it decides", _away(now, before))

    def follows(self, now: int, leader: str) -> None:
        """Record that the core follows another core from now on."""
        self._end_term(now)
        self._add(now, FOLLOWS, "", f"it follows {leader}", {})

    def ended(self, now: int, why: str, *, in_order: bool) -> None:
        """Record the end of the core, and of its term."""
        self._end_term(now)
        self._add(now, ENDED if in_order else KILLED, "", why, {})

    def registering(self, rm_id: str, epoch: int) -> None:
        """Record the epoch with which a manager asks to register."""
        self._epochs[rm_id] = epoch

    def registered(self, rm_id: str, now: int, message: str) -> None:
        """Record a registration, with the numbers of pods that the manager had before, according to the history."""
        running, asks = self._before[rm_id] = self._pods.counts(rm_id)
        facts = {"allocations_before": running, "asks_before": asks}
        epoch = self._epochs.pop(rm_id, 0)
        self._add(now, REGISTERED, rm_id, message, facts | ({"epoch": epoch} if epoch else {}))

    def synced(self, rm_id: str, now: int, message: str) -> None:
        """Record the end of a manager's sync. The next `Picture` shows which pods have ended since (see `compared`)."""
        running, asks = self._before.pop(rm_id, (0, 0))
        facts = {"allocations_before": running, "asks_before": asks, "gone": 0, "added": 0}
        self._awaited = self._add(now, SYNCED, rm_id, message, facts)

    def compared(self, gone: int, added: int) -> None:
        """Add the differences between a picture and the pods in the history to the row of the latest sync.

        ``gone`` counts the pods that only the history had, and ``added`` the pods that only the picture had.
        """
        if self._awaited is None:
            return
        facts = json.loads(self._awaited["facts"])
        running, asks = self._pods.counts(self._awaited["subject"])
        facts["gone"] += gone
        facts["added"] += added
        self._change(self._awaited, facts | {"allocations_after": running, "asks_after": asks})

    def settled(self) -> None:
        """End the comparisons of the latest sync. Later comparisons are not added to this sync."""
        self._awaited = None

    def _end_term(self, now: int) -> None:
        term, self._term = self._term, None
        if term is not None:
            self._change(term, json.loads(term["facts"]) | {"until_ms": max(now, term["at_ms"])})

    def _change(self, row: dict[str, Any], facts: dict[str, int]) -> None:
        row["facts"] = json.dumps(facts)
        self._put(schema.FAILOVERS, row["id"], row)

    def _add(  # noqa: PLR0913, PLR0917 - the columns of a row
        self, at_ms: int, kind: str, subject: str, text: str, facts: dict[str, int], core: str = ""
    ) -> dict[str, Any]:
        number = self._next_number()
        row = {"id": number, "at_ms": at_ms, "kind": kind, "subject": subject, "text": text}
        row |= {"facts": json.dumps(facts), "core": core or self.core}
        self._put(schema.FAILOVERS, number, row)
        return row


def _away(now: int, before: Before | None) -> dict[str, int]:
    """Return the milliseconds since the end of the previous run, as an entry for the column `facts`.

    Return no entry if there was no previous run, or no pause after it.
    """
    away = 0 if before is None else max(now - before.seen_ms, 0)
    return {"away_ms": away} if away else {}
