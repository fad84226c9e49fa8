"""The evidence of a run, recorded outside the core, from which the judge decides."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from server.record.canonical import BadLineError
from server.record.chain import GAP, STARTED, read_link
from server.record.ending import missing_of
from server.record.verify import Verified
from tests.faults.journal import Line


class Window(NamedTuple):
    """The time in which a fault was in force, until the core worked again; `seen` counts its effects (`effects.py`)."""

    kind: str
    from_ms: int
    to_ms: int
    seen: Counter[str]


class Replay(NamedTuple):
    """The result of replaying one run's trace."""

    trace: str
    code: int
    said: str


class Revision(NamedTuple):
    """A revision of the configuration that an apply returned; with `kept`, the answer says that the revision survives a restart."""

    at_ms: int
    number: int
    digest: str
    kept: bool


class Decided(NamedTuple):
    """A decision of a `decided` line: its victims, and the asks that get the capacity."""

    decision: str
    victims: frozenset[str]
    beneficiaries: frozenset[str]

    def is_part_of(self, other: "Decided") -> bool:
        """Return whether all victims and preemptors are among those of the other decision."""
        return self.victims <= other.victims and self.beneficiaries <= other.beneficiaries


@dataclass
class LogPart:
    """The part of one core run in the decision log; a gap says how many lines are `missing`; with `more`, further lines may be missing."""

    decided: list[Decided] = field(default_factory=list)
    missing: int = 0
    more: bool = False


@dataclass
class Evidence:
    """The evidence of a whole run. `pauses_ms` are times in which the driver itself was not running as planned."""

    journal: list[Line] = field(default_factory=list)
    second_journal: list[Line] = field(default_factory=list)
    """The journal of the second manager, which asks only for probes and is connected without the proxy."""
    windows: list[Window] = field(default_factory=list)
    pauses_ms: int = 0
    settled: bool = True
    settling_ms: int = 0
    verified: Verified = field(default_factory=Verified)
    log: list[LogPart] = field(default_factory=list)
    """One part for each `started` line."""
    begun_ms: list[int] = field(default_factory=list)
    """The instants at which the runs of the core were started, without those that were refused."""
    applied: list[Revision] = field(default_factory=list)
    """Each apply that was answered with OK."""
    in_force: list[Revision] = field(default_factory=list)
    """The revisions that `config show` printed after starts of the core."""
    durable: bool = False
    replays: list[Replay] = field(default_factory=list)
    exits: list[tuple[str, int]] = field(default_factory=list)
    resident_mib: list[tuple[int, int]] = field(default_factory=list)
    """Samples: the instant, and how much memory the core had resident."""
    core_said: str = ""
    others_said: str = ""
    codes: list[str] = field(default_factory=list)
    doctor: tuple[int, str] = (0, "")


def log_parts(lines: Iterable[bytes]) -> list[LogPart]:
    """Split the lines of a decision log by run. A run after a killed one reports that run's gap before its own start."""
    parts: list[LogPart] = []
    for written in lines:
        if not written.endswith(b"\n"):
            continue  # The last line, which is incomplete.
        try:
            entry = read_link(written).entry
        except BadLineError:
            continue  # The verification reports this line.
        if entry.kind == STARTED or not parts:
            parts.append(LogPart())
        if entry.kind == GAP:
            missing = missing_of(entry)
            parts[-1].missing += missing.lines
            parts[-1].more |= missing.more
        elif entry.kind == "decided":
            parts[-1].decided.append(_decided(entry.facts["record"]))
    return parts


def _decided(record: Any) -> Decided:
    victims, beneficiaries = (
        frozenset(_keys(record[name])) for name in ("victims", "beneficiaries")
    )
    return Decided(record["decision_id"], victims, beneficiaries)


def _keys(facts: Iterable[Any]) -> Iterator[str]:
    return (one["key"] for one in facts)
