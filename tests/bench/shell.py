"""The whole core in one process with everything that the server adds, except the wire.

The core is driven as `server.rpc.pump` drives it: events come in batches, with a tick after each batch. Every
observer of a server is present: event records, the log of decisions, metrics, notes, and the garbage collector.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from server.core.core import Core
from server.model.decisions import Decision, Decisions, Placed
from server.model.events import Event
from server.observe import logs
from server.observe.metrics import Metrics
from server.rpc.evenhand.decision_log import DecisionLog
from server.rpc.event_buffer import History
from server.rpc.garbage import Garbage
from server.rpc.limits import SLICE_EVENTS_MAX, TICK_BUDGET
from server.rpc.names import names_now
from server.rpc.pump import Observer
from tests.bench.calibration import cpu_seconds_here

NOW = 1_700_000_000_000


def _nothing(_decisions: Decisions) -> None:
    """Discard decisions, because there is no wire."""


@dataclass(slots=True)
class Shell:
    """A core with its observers; it records the longest batches so far, garbage collections included."""

    core: Core
    observers: Sequence[Observer]
    garbage: Garbage
    send: Callable[[Decisions], None] = _nothing
    """The receiver of decisions before the observers, in the place of a server's dispatcher."""
    longest: float = 0.0
    """Longest slice in seconds of real time."""
    longest_cpu: float = 0.0
    """Longest slice in seconds of CPU time, which does not grow when a slice waits for a busy machine."""
    now: int = NOW

    def take(self, events: Sequence[Event]) -> int:
        """Process events in batches until nothing more can be decided, and return how many asks were placed."""
        placed, at, more = 0, 0, True
        while more or at < len(events):
            part = events[at : at + SLICE_EVENTS_MAX]
            decisions, more = self.turn(part)
            at += len(part)
            placed += list(map(type, decisions)).count(Placed)
        return placed

    def turn(self, events: Sequence[Event] = ()) -> tuple[list[Decision], bool]:
        """Run one batch and notify the observers; return the decisions, and whether more can be decided at once."""
        begun = _instant()
        decisions, more = self._slice(events)
        self._told(decisions, len(events), begun)
        return decisions, more

    def _slice(self, events: Sequence[Event]) -> tuple[list[Decision], bool]:
        decisions = self.core.take(events, self.now)
        tick = self.core.tick(self.now, TICK_BUDGET)
        return decisions + tick.decisions, tick.more

    def _told(self, decisions: list[Decision], events: int, begun: tuple[float, float]) -> None:
        """Send the decisions of a batch, notify the observers, and end the batch."""
        if decisions:
            told = Decisions(decisions)
            self.send(told)
            for one in self.observers:
                one.decided(told, self.now)
        for one in self.observers:
            one.sliced(events, time.perf_counter() - begun[0], self.now)
        self._over(begun)

    def rest(self) -> None:
        """Do the idle work of a moment without events, such as between two messages of a client."""
        begun = _instant()
        for one in self.observers:
            one.idle()
        self._over(begun)

    def forget(self) -> None:
        """Reset the longest times so far."""
        self.longest = self.longest_cpu = 0.0

    def _over(self, begun: tuple[float, float]) -> None:
        wall, cpu = _instant()
        self.longest = max(self.longest, wall - begun[0])
        self.longest_cpu = max(self.longest_cpu, cpu - begun[1])


def _instant() -> tuple[float, float]:
    return time.perf_counter(), cpu_seconds_here()


class _Never:
    """A timer that never runs, because a measurement has no idle moments."""

    def cancel(self) -> None:
        """Do nothing, because no timer runs."""


def shell(core: Core) -> Shell:
    """Return the shell that `evenhand serve` puts around a core; its log lines are discarded."""
    logs.configure(open(os.devnull, "w"))  # noqa: SIM115 - as long as the process lives
    garbage = Garbage(lambda _seconds, _then: _Never())
    observers: list[Observer] = [
        History(),
        DecisionLog(core),
        Metrics(core),
        logs.NoteLog(names_now(core)),
        garbage,
    ]
    return Shell(core, observers, garbage)
