"""The recording of a core. The pump calls the recorder in place of the core, and the recorder returns the core's decisions unchanged.

The recorder makes lines in the caller's thread, or passes values from which lines are made later. Only jobs that are passed to
``run`` use files. Bootstrap runs these jobs in a separate thread, so that a slow disk delays no decision. Failures of these jobs
are logged and counted, never raised.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from server.core.decider import Decider
from server.model.decisions import Decision, Tick
from server.model.events import Event
from server.model.parts import Parts
from server.model.phrases import count
from server.model.reports import Finding
from server.model.revisions import Revision
from server.record import trace
from server.record.chain import Entry
from server.record.entries import Told, ended, entry, told
from server.record.log import DecisionLog
from server.record.trace import End, TraceLines
from server.record.tracefile import TraceFile

HANDED_BYTES_MAX: Final = 64 << 20
"""The number of bytes that may wait for the thread that writes. Lines beyond this number are dropped."""
ENTRY_BYTES: Final = 1_000
"""The number of bytes that an entry of the log counts towards `HANDED_BYTES_MAX` before its line is made."""
ENDED_WHY: Final = "the server ended"
FAILED_WHY: Final = "the core failed"

Job = Callable[[], None]


class Unsafe(NamedTuple):
    """The lines that have to be safe before decisions are sent.

    The function ``write`` writes the lines and returns whether all of them are safe. Call this function again until it returns
    True.
    """

    lines: int
    now: int
    write: Callable[[], bool]


class Health(NamedTuple):
    """The health of one file: the number of lines lost for good, why no line can be written now, and the number of gaps.

    The reason is "" if writing works. A gap is a series of consecutive lines that were lost.
    """

    lost: int
    failing: str
    gaps: int = 0


def at_once(job: Job) -> None:
    """Run a job at once, in the caller's thread."""
    job()


class Recording:
    """The recorder of a core. Recording begins with the core's first event.

    ``in_force`` returns the revision of the core's configuration.

    The pump uses the recorder as its `Decider`.
    """

    def __init__(
        self,
        core: Decider,
        in_force: Callable[[], Revision],
        run: Callable[[Job], None] = at_once,
    ) -> None:
        self._core = core
        self._in_force = in_force
        self._run = run
        self._log: DecisionLog | None = None
        self._trace: TraceFile | None = None
        self._lines: TraceLines | None = None
        self._told: list[tuple[Told, int]] = []
        self._decided = 0
        self._handed = 0
        self._done = 0
        self._now = 0
        self._syncing = False
        self._durable = False
        self.slow = ""
        """The reason why nothing is written while a disk does not answer at all. This reason is empty if the disk answers."""
        self._deciding = False
        self.next_due = core.next_due

    def write_log(self, log: DecisionLog, now: int) -> None:
        """Write decisions into this log from now on."""
        self._log = log
        self._now = now
        self._durable = log.durable

    def write_trace(self, file: TraceFile, header: trace.Header) -> None:
        """Write all input into this trace from now on. Call this method before the first event of the core."""
        self._trace = file
        self._lines = TraceLines(header)
        self._now = header.started_ms
        self._hand_trace(header.started_ms)

    def take(self, events: Sequence[Event], now: int) -> list[Decision]:
        """Pass events to the core, record the events and the decisions, and return the decisions."""
        if self._lines is not None:
            for event in events:
                self._lines.event(event, now)
        self._deciding = True
        replies = self._core.take(events, now)
        self._deciding = False
        if replies:
            self._note(replies, now)
        return replies

    def take_in_parts(self, event: Event, now: int) -> Parts[list[Decision]]:
        """Pass an event to the core, which handles it in parts, and record the event."""
        if self._lines is not None:
            self._lines.event(event, now)
        self._deciding = True
        replies = yield from self._core.take_in_parts(event, now)
        self._deciding = False
        if replies:
            self._note(replies, now)
        return replies

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Run a tick of the core in parts, and record the tick and its decisions.

        The lines of the trace are passed to the writer before the core runs. If the core raises an exception, the trace therefore
        contains the input that caused it. Lines of a durable log wait for `unsafe`.
        """
        self._now = now
        if self._lines is not None:
            self._lines.tick(trace.Tick(now, budget, self._decided))
            self._hand_trace(now)
        self._deciding = True
        tick = yield from self._core.tick_in_parts(now, budget)
        self._deciding = False
        if tick.decisions:
            self._note(tick.decisions, now)
        if self._told and not self._durable:
            self._hand_told()
        return tick

    def unsafe(self) -> Unsafe | None:
        """Return the lines that must be safe before the latest decisions are sent. Return each line only once.

        Return None if there are no such lines, or if the log is not durable.
        """
        if not self._told or not self._durable:
            return None
        told, self._told = self._told, []
        assert self._log is not None
        return Unsafe(len(told), told[-1][1], partial(_write_safely, self._log, told))

    def leave(self, safe: Unsafe) -> None:
        """Record that the decisions of these lines may be sent from now on."""
        assert self._log is not None
        self._log.hand(safe.lines, safe.now)

    def health(self) -> dict[str, Health]:
        """Return the health of the files, by name."""
        found = {}
        if self._log is not None:
            found["decision-log"] = Health(
                self._log.lost, self.held() or self._log.failing, self._log.gaps
            )
        if self._trace is not None:
            found["trace"] = Health(0, self._trace.failing)
        return found

    def held(self) -> str:
        """Return why no decision is sent, or "" while decisions are sent."""
        if self._log is None or not self._durable:
            return ""
        return self._log.failing or self.slow

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's findings about the files."""
        for name, (lost, failing, _) in self.health().items():
            if failing and self._durable and name == "decision-log":
                what = f"no decision leaves the core, for none can be written: {failing}"
                advice = "Free space on the disk of the decision log, or start the core without --durable."
                yield Finding("error", name, "decisions-held", what, advice)
            elif failing:
                advice = "Free space on its disk, or see who may write there; scheduling goes on meanwhile."
                yield Finding("warning", name, "record-failing", f"not written: {failing}", advice)
            elif lost:
                advice = "The gap is named in the log itself; `evenhand log verify` shows where."
                yield Finding(
                    "warning", name, "record-lost", f"{count(lost, 'line', 'were')} lost", advice
                )
        if self._log is not None and self._log.uncounted:
            what = f"lines that a crash takes cannot be counted: {self._log.uncounted}"
            advice = "Let the server make FILE.mark beside the log, then restart it."
            yield Finding("note", "decision-log", "record-uncounted", what, advice)

    def sync(self) -> None:
        """Make the written lines safe, and retry lines that could not be written. The server calls this method at intervals."""
        if not self._syncing:
            self._syncing = True
            self._run(self._sync)

    def close(self) -> None:
        """Write the remaining lines and the reason why the run ends, and close both files.

        If the core raised an exception, the run is recorded as failed.
        """
        why = FAILED_WHY if self._deciding else ENDED_WHY
        if self._told:
            self._hand_told()
        if self._trace is not None:
            self._hand_trace(self._now)
            self._run(partial(self._trace.close, End(self._now, why, self._decided)))
        if self._log is not None:
            self._run(partial(_close, self._log, ended(self._now, why)))

    def _sync(self) -> None:
        try:
            for file in (self._log, self._trace):
                if file is not None:
                    file.sync()
        finally:
            self._syncing = False

    def _note(self, decisions: list[Decision], now: int) -> None:
        self._decided += len(decisions)
        if self._log is None:
            return
        new = [(one, now) for one in told(decisions, self._in_force, now)]
        if new:
            self._told += new
            if not self._durable:
                self._log.hand(len(new), now)

    def _hand_told(self) -> None:
        handed, self._told = self._told, []
        assert self._log is not None
        keep = _miss if self._crowded else _write
        self._hand(ENTRY_BYTES * len(handed), partial(keep, self._log, handed))

    def _hand_trace(self, now: int) -> None:
        lines, file = self._lines, self._trace
        if lines is None or file is None:
            return
        taken = lines.take()
        if file.ended:
            self._lines = None
        elif self._crowded:
            # A replay stops at a missing line, so the trace ends here.
            self._lines = None
            self._hand(0, partial(file.end, End(now, "the disk is too slow for it")))
        else:
            self._hand(len(taken), partial(file.write, taken, now))

    @property
    def _crowded(self) -> bool:
        return self._handed - self._done > HANDED_BYTES_MAX

    def _hand(self, size: int, job: Job) -> None:
        self._handed += size

        def work() -> None:
            try:
                job()
            finally:
                self._done += size

        self._run(work)


def _write(log: DecisionLog, handed: list[tuple[Told, int]]) -> None:
    for one, now in handed:
        log.add(entry(one, now))
    log.flush()


def _write_safely(log: DecisionLog, handed: list[tuple[Told, int]]) -> bool:
    for one, now in handed:
        log.add(entry(one, now))
    handed.clear()
    return log.sync()


def _close(log: DecisionLog, last: Entry) -> None:
    log.note(last)
    log.close()


def _miss(log: DecisionLog, handed: list[tuple[Told, int]]) -> None:
    for _, now in handed:
        log.miss(now)
