"""A search in a decision log on disk: the decisions of all its runs, each in its latest state."""

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from server.model.decisions import Decided, DecisionMoved
from server.model.records import DecisionRecord, DecisionState, touches
from server.record.canonical import BadLineError
from server.record.chain import DECIDED, MOVED, Entry, read_link
from server.record.serialization import BadFormError, Fields, Forms
from server.record.verify import lines_of

_FORMS: Final = Forms()
_DECIDED: Final = Fields(Decided, _FORMS.of)
_MOVED: Final = Fields(DecisionMoved, _FORMS.of)


class Wanted(NamedTuple):
    """The filter of a search. An empty field does not restrict the search.

    ``victim`` and ``beneficiary`` are keys of pods or ids of applications. A decision matches a period if it was made in this
    period.
    """

    queue: str = ""
    policy: str = ""
    victim: str = ""
    beneficiary: str = ""
    state: str = ""
    since_ms: int = 0
    until_ms: int = 0

    def matches(self, record: DecisionRecord) -> bool:
        """Return whether a decision passes the filter."""
        if self.policy not in {"", record.policy} or self.state not in {"", record.state.value}:
            return False
        if record.at_ms < self.since_ms or (self.until_ms and record.at_ms > self.until_ms):
            return False
        gets = [(one.key, one.application_id) for one in record.beneficiaries]
        goes = [(one.key, one.application_id) for one in record.victims]
        return (
            _names(self.beneficiary, gets)
            and _names(self.victim, goes)
            and touches(record, self.queue)
        )


class Found(NamedTuple):
    """The decisions of a log, oldest first, the number of lines that could not be read, and the instant of the last line."""

    records: list[DecisionRecord]
    unreadable: int
    latest_ms: int
    """The instant of the last line that could be read, in Unix milliseconds. The instant is 0 if no line could be read."""

    def matching(self, wanted: Wanted) -> list[DecisionRecord]:
        """Return the decisions that match, oldest first."""
        return [one for one in self.records if wanted.matches(one)]


def read_decisions(files: list[Path]) -> Found:
    """Return the decisions in the files of a log. Raise OSError if a file cannot be read."""
    found: dict[str, DecisionRecord] = {}
    unreadable = latest_ms = 0
    for line in lines_of(files):
        try:
            entry = read_link(line.written).entry
            latest_ms = entry.at_ms
            _take(entry, found)
        except (BadLineError, BadFormError):
            unreadable += 1
    return Found(list(found.values()), unreadable, latest_ms)


def after(record: DecisionRecord, moved: DecisionMoved) -> DecisionRecord:
    """Return the record of a decision after a change of its state, or after the veto of a victim."""
    if moved.key:
        record = replace(record, vetoed=(*record.vetoed, moved.key))
    elif not moved.state.is_open:
        record = replace(record, ended_ms=moved.at_ms, end_reason=moved.reason)
    if moved.state in {DecisionState.CONFIRMED, DecisionState.FULFILLED}:
        stayed = record.stayed
        gone = tuple(one.key for one in record.victims if one.key not in stayed)
        record = replace(record, confirmed=gone)
    return replace(record, state=moved.state)


def _take(entry: Entry, found: dict[str, DecisionRecord]) -> None:
    if entry.kind == DECIDED:
        decided = _DECIDED.read(dict(entry.facts))
        assert isinstance(decided, Decided)
        found[decided.record.decision_id] = decided.record
    elif entry.kind == MOVED:
        moved = _MOVED.read(dict(entry.facts))
        assert isinstance(moved, DecisionMoved)
        record = found.get(moved.decision_id)
        if record is not None:
            found[moved.decision_id] = after(record, moved)


def _names(wanted: str, pods: list[tuple[str, str]]) -> bool:
    return not wanted or any(wanted in one for one in pods)
