"""The replay of a trace in a new core. Equal events at equal instants make equal decisions, byte for byte."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from server.core.core import Core
from server.model.decisions import Decided, Decision, Decisions, Placed, Released
from server.model.records import DecisionRecord
from server.record.chain import FIRST_FORMAT, Entry
from server.record.entries import ended, entry, started, told
from server.record.reading import Ended, Given, Step, Ticked, TraceReader
from server.record.start import digest_of
from server.record.trace import Header, kind_of


class CoreFailedError(Exception):
    """The error of a core that raised an exception in a replay.

    ``__cause__`` is the core's exception. ``line`` is the number of the trace's line with the input at which the core failed.
    """

    def __init__(self, line: int, now: int) -> None:
        super().__init__(f"line {line}")
        self.line = line
        self.now = now


@dataclass(slots=True)
class Summary:
    """The totals of a replay: its input and its decisions."""

    from_ms: int
    to_ms: int
    events: Counter[str] = field(default_factory=Counter)
    ticks: int = 0
    decisions: int = 0
    placements: int = 0
    policies: Counter[str] = field(default_factory=Counter)
    victims: int = 0
    releases: int = 0
    parted: tuple[int, int, int] | None = None
    """The first tick at which the numbers of decisions differ, or None.

    The value has the number of the tick's line in the trace, the number of decisions that the recorded core had made, and the
    number that the replay had made.
    """
    ended: str | None = None
    """The reason why the trace ends. The value is None if the core did not end normally, so that the trace has no line `End`."""


class Replay:
    """A trace and its core. ``observers`` get all decisions with their instants."""

    def __init__(self, reader: TraceReader) -> None:
        header = reader.header
        self.core = Core(header.configuration, header.beginning)
        self.observers: list[Callable[[Decisions, int], None]] = []
        self.summary = Summary(header.started_ms, header.started_ms)
        self._reader = reader
        self._victims: dict[str, set[str]] = {}

    def entries(self, progress: Callable[[int], None]) -> Iterator[Entry]:
        """Yield the entries of the run: the first entry, the entries of the core's decisions, and the last entry if the trace has an end.

        ``progress`` is called for each step with the number of trace bytes read so far. Logs of the first format have no last
        entry. Raise BadTraceError if the trace cannot be replayed, and CoreFailedError if the core raises an exception.
        """
        yield first(self._reader.header)
        for step in self._reader:
            progress(self._reader.read)
            if isinstance(step, Ended):
                self._count(step.end.decided, step.line)
                self.summary.ended = step.end.why
                if step.end.decided is not None and self._reader.header.log_format > FIRST_FORMAT:
                    yield ended(step.end.at_ms, step.end.why)
                continue
            now = step.now if isinstance(step, Given) else step.tick.now
            decisions = Decisions(self._give(step))
            self.summary.to_ms = now
            self._sum_up(decisions)
            for hear in self.observers:
                hear(decisions, now)
            for one in told(decisions.all, lambda: self.core.state.revision, now):
                yield entry(one, now, self._reader.header.log_format)

    def _give(self, step: Given | Ticked) -> Sequence[Decision]:
        if isinstance(step, Given):
            self.summary.events[kind_of(type(step.event))] += 1
            return self._safely(step, step.now, lambda: self.core.handle(step.event, step.now))
        self.summary.ticks += 1
        now, budget, decided = step.tick
        self._count(decided, step.line)
        return self._safely(step, now, lambda: self.core.tick(now, budget).decisions)

    def _safely(
        self, step: Step, now: int, ask: Callable[[], Sequence[Decision]]
    ) -> Sequence[Decision]:
        try:
            return ask()
        except Exception as error:
            raise CoreFailedError(step.line, now) from error

    def _count(self, wanted: int | None, line: int) -> None:
        """Compare the number of decisions made so far with that of the recorded core."""
        given = self.summary.decisions
        if wanted is not None and wanted != given and self.summary.parted is None:
            self.summary.parted = line, wanted, given

    def _sum_up(self, decisions: Decisions) -> None:
        summary = self.summary
        summary.decisions += len(decisions)
        summary.placements += len(decisions.of(Placed))
        summary.releases += len(decisions.of(Released))
        for one in decisions.of(Decided):
            self._decided(one.record)

    def _decided(self, record: DecisionRecord) -> None:
        """Count a decision once. A decision that is planned again after a veto is reported again, with further victims."""
        known = self._victims.get(record.decision_id)
        if known is None:
            self.summary.policies[record.policy] += 1
            known = self._victims[record.decision_id] = set()
        named = {one.key for one in record.victims}
        self.summary.victims += len(named - known)
        known |= named


def first(header: Header) -> Entry:
    """Return the first entry of the run that a trace's header describes."""
    digest = digest_of(header.configuration)
    return started(header.started_ms, header.version, digest, header.log_format)
