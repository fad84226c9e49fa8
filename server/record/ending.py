"""The number of lines that are missing at the end of the last run in a decision log, found from the log and its mark file.

The result never hides missing lines: if the number is not certain, the result says that more may be missing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from server.record.canonical import BadLineError, Plain, digest
from server.record.chain import (
    CORE_KINDS,
    ENDED,
    FIRST_FORMAT,
    GAP,
    STARTED,
    Chain,
    Entry,
    Link,
    read_link,
)
from server.record.mark import State
from server.record.tail import pieces

KILLED_WHY: Final = "the process was killed"
RESTARTED_WHY: Final = "the machine was restarted before the lines were safe"
UNMARKED_WHY: Final = "the run was killed and has no mark beside the log"
DAMAGED_WHY: Final = "the mark beside the log is damaged"
STRANGE_WHY: Final = "the mark beside the log is that of other lines"
FULL_WHY: Final = "the lines still waited for the disk when the server ended"
CUT_WHY: Final = "lines that were written are gone from the end of the log"


class Missing(NamedTuple):
    """The missing lines. At least ``lines`` are missing. ``more`` says that further lines may be missing."""

    lines: int
    more: bool
    from_ms: int
    to_ms: int
    why: str


def missing_of(gap: Entry) -> Missing:
    """Return the content of a `gap` line, with 0 or "" for a field that has the wrong form."""
    lines, from_ms, to_ms = (gap.facts.get(name) for name in ("lines", "from", "to"))
    return Missing(
        _whole(lines),
        gap.facts.get("more") is True,
        _whole(from_ms),
        _whole(to_ms),
        str(gap.facts.get("why", "")),
    )


def gap(missing: Missing, at_ms: int) -> Entry:
    """Return the entry of a `gap` line for missing lines. The fields ``more`` and ``why`` of the entry are left out if they are empty."""
    facts: dict[str, Plain] = {"lines": missing.lines}
    facts |= {"from": missing.from_ms, "to": missing.to_ms}
    if missing.more:
        facts["more"] = True
    return Entry(at_ms, GAP, {**facts, "why": missing.why} if missing.why else facts)


class Ending(NamedTuple):
    """The end of a run: whether the process was killed, and which lines of the run are missing."""

    killed: bool
    missing: Missing | None


class _Standing(NamedTuple):
    """The number of lines of a run that the log contains or reports as missing. The run is the run that wrote the mark last.

    ``doubt`` says why this number is not certain.
    """

    lines: int
    doubt: str = ""


def ending(path: Path, chain: Chain, last: Entry | None, state: State | None, boot: str) -> Ending:
    """Return how the last run ended.

    ``chain`` is the chain after the last line. ``last`` is the last line, or None if there is no line or if the last line cannot
    be read. ``boot`` is the present boot id of the kernel.
    """
    has_end = last is not None and last.kind == ENDED
    if state is None:
        return _unmarked(path, chain, last)
    standing = _standing(path, chain, state)
    lines = max(0, state.handed - standing.lines)
    ended = state.ended or (has_end and not lines)
    doubt = standing.doubt or (DAMAGED_WHY if state.damaged else "")
    if not doubt and not ended and not state.durable and (not boot or state.boot != boot):
        doubt = RESTARTED_WHY
    if not (lines or doubt):
        return Ending(not ended, None)
    from_ms = last.at_ms if last else state.handed_ms
    to_ms = max(from_ms, state.handed_ms)
    why = doubt or (FULL_WHY if state.ended else KILLED_WHY)
    return Ending(not ended, Missing(lines, bool(doubt), from_ms, to_ms, why))


def _unmarked(path: Path, chain: Chain, last: Entry | None) -> Ending:
    """Return the end of the last run of a log that has no mark.

    The run counts as complete in three cases: the log ends with the closing line of the run; the run's version of the program
    wrote neither marks nor closing lines; or the log is empty.
    """
    has_end = last is not None and last.kind == ENDED
    if chain.number == 1 or has_end or _format(path) == FIRST_FORMAT:
        return Ending(killed=False, missing=None)
    at_ms = last.at_ms if last else 0
    return Ending(killed=True, missing=_unknown(at_ms))


def _unknown(at_ms: int) -> Missing:
    return Missing(0, more=True, from_ms=at_ms, to_ms=at_ms, why=UNMARKED_WHY)


def _standing(path: Path, chain: Chain, state: State) -> _Standing:
    number = chain.number - 1
    if number < state.number:
        return _cut(number, state)
    lines, unsure, before = state.accounted, state.unsure, chain.previous
    for written, link in _back(path) if number > state.number else ():
        if link is None:
            continue
        if _is_old(link):
            return _Standing(lines, STRANGE_WHY)
        if link.number <= state.number:
            before = digest(written) if link.number == state.number else ""
            break
        lines += _counted(link.entry)
        unsure = unsure and not _is_unknown(link.entry)
        before = link.previous
    if before != state.digest:
        return _Standing(lines, STRANGE_WHY)
    return _Standing(lines, UNMARKED_WHY if unsure else "")


def _cut(number: int, state: State) -> _Standing:
    """Return the number of lines of the run in the mark, for a log that ends before the line whose number is in the mark.

    Each line that was cut off counts as one missing line. One of the lines that were cut off may have been a `gap`, which itself
    reported several missing lines. The result therefore says that more lines may be missing.
    """
    if number == 0 and state.ended and state.handed == state.accounted and not state.unsure:
        # Another log was put in place of a log that was complete.
        return _Standing(state.accounted)
    return _Standing(state.accounted - (state.number - number), CUT_WHY)


def _counted(entry: Entry) -> int:
    """Return how many lines of the core's decisions an entry accounts for: 1 for a decision, and the reported number for a `gap`."""
    if entry.kind in CORE_KINDS:
        return 1
    return missing_of(entry).lines if entry.kind == GAP else 0


def _is_unknown(entry: Entry) -> bool:
    return entry.kind == GAP and missing_of(entry).more


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _is_old(link: Link) -> bool:
    """Return whether the line begins a run of a version without marks."""
    return link.entry.kind == STARTED and link.entry.facts.get("format") == FIRST_FORMAT


def _format(path: Path) -> object:
    """Return the format of the last run in a log. Return None if no line begins a run."""
    for _, link in _back(path, b'"kind":"started"'):
        if link is not None and link.entry.kind == STARTED:
            return link.entry.facts.get("format")
    return None


def _back(path: Path, having: bytes = b"") -> Iterator[tuple[bytes, Link | None]]:
    """Yield the complete lines of a log that contain the bytes ``having``, the last line first.

    Each line comes with its parsed content, or with None if the content cannot be read.
    """
    for file in reversed([*pieces(path), *([path] if path.exists() else [])]):
        for written in reversed(file.read_bytes().splitlines(keepends=True)):
            if written.endswith(b"\n") and having in written:
                yield written, _read(written)


def _read(written: bytes) -> Link | None:
    try:
        return read_link(written)
    except BadLineError:
        return None
