"""The whole core in one process: what the server puts round it, but for the wire.

As `server.rpc.pump` drives it: events in slices, a tick behind each, and every observer that a server has: event
records, the log of decisions, metrics, notes, and the collector of garbage.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from server.core.core import Core
from server.model.decisions import Decision, Placed
from server.model.events import Event
from server.model.quota import Configuration
from server.observe import logs
from server.observe.metrics import Metrics
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.garbage import Garbage
from server.rpc.history import History
from server.rpc.limits import SLICE_EVENTS_MAX, TICK_BUDGET
from server.rpc.pump import Observer

NOW = 1_700_000_000_000


@dataclass(slots=True)
class Shell:
    """A core with its observers; ``longest`` is the longest slice so far in seconds, collections of garbage included."""

    core: Core
    observers: Sequence[Observer]
    longest: float = 0.0
    now: int = NOW

    def take(self, events: Sequence[Event]) -> int:
        """Takes events in slices and goes on until nothing more can be decided; gives how many were placed."""
        placed, at, more = 0, 0, True
        while more or at < len(events):
            begun = time.perf_counter()
            part = events[at : at + SLICE_EVENTS_MAX]
            decisions, more = self._slice(part)
            self._told(decisions, len(part), begun)
            at += len(part)
            placed += sum(type(one) is Placed for one in decisions)
        return placed

    def _slice(self, events: Sequence[Event]) -> tuple[list[Decision], bool]:
        decisions: list[Decision] = []
        for event in events:
            decisions += self.core.handle(event, self.now)
        tick = self.core.tick(self.now, TICK_BUDGET)
        return decisions + tick.decisions, tick.more

    def _told(self, decisions: list[Decision], events: int, begun: float) -> None:
        """Observers hear of a slice, which then is over."""
        if decisions:
            for one in self.observers:
                one.decided(decisions, self.now)
        for one in self.observers:
            one.sliced(events, time.perf_counter() - begun, self.now)
        self.longest = max(self.longest, time.perf_counter() - begun)

    def rest(self) -> None:
        """There is nothing to do for a moment, as between two messages of a client."""
        begun = time.perf_counter()
        for one in self.observers:
            one.idle()
        self.longest = max(self.longest, time.perf_counter() - begun)


def shell(configuration: Configuration) -> Shell:
    """A core as `evenhand serve` makes it; its log lines go nowhere."""
    logs.configure(open(os.devnull, "w"))  # noqa: SIM115 - as long as the process lives
    core = Core(configuration)
    metrics = Metrics(core, dict)
    return Shell(core, [History(), DecisionLog(core), metrics, logs.NoteLog(), Garbage()])
