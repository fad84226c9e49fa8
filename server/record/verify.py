"""The check of a decision log from its first line to its last."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from server.record.canonical import BadLineError
from server.record.chain import (
    BROKEN,
    ENDED,
    FIRST_FORMAT,
    FORMAT,
    FORMATS,
    GAP,
    KILLED,
    KINDS,
    ORIGIN,
    STARTED,
    TORN,
    Chain,
    Entry,
    Link,
    read_link,
)
from server.record.ending import Missing, ending, missing_of
from server.record.mark import boot_id, read_mark
from server.record.record_file import is_locked
from server.record.tail import pieces

UNWRITTEN_WHY = "the disk took nothing"

_SAID = {
    KILLED: "the run before this line was killed",
    TORN: "an incomplete line was cut off here when the server started",
    BROKEN: "the server found the log damaged when it started, and went on",
}


class Line(NamedTuple):
    """A line with its place in a file."""

    file: Path
    number: int
    written: bytes

    @property
    def where(self) -> str:
        """The place of the line as FILE:LINE."""
        return f"{self.file}:{self.number}"


class Remark(NamedTuple):
    """A finding of the check about one line of the log, or about the log as a whole."""

    where: str
    what: str
    wrong: bool
    """Whether the log cannot be trusted at the place of the remark."""
    missing: Missing | None = None
    """The lines that are missing at the place of the remark, or None."""


@dataclass(slots=True)
class Verified:
    """The result of a check. ``number`` and ``digest`` are those of the last line.

    An operator who keeps this number and digest elsewhere can later notice lines that were cut off the log.
    """

    files: int = 0
    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    number: int = 0
    digest: str = ORIGIN
    from_ms: int = 0
    to_ms: int = 0
    missing: int = 0
    """The number of lines that the log or its mark file reports as missing."""
    more: bool = False
    """Whether more lines may be missing."""
    fits: bool = True
    format: object = FIRST_FORMAT
    """The format of the last run's lines."""
    remarks: list[Remark] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether every line fits the one before it, and neither the log nor its mark reports missing lines."""
        return self.fits and not self.missing and not self.more

    def miss(self, where: str, missing: Missing) -> None:
        """Add missing lines to the totals, with a remark about the place."""
        self.missing += missing.lines
        self.more = self.more or missing.more
        self.remarks.append(Remark(where, _lost(missing), wrong=True, missing=missing))


def files_of(path: Path) -> list[Path]:
    """Return the files of a log in their order: first the full files, then the file that is being written."""
    return [*pieces(path), *([path] if path.exists() else [])]


def lines_of(files: list[Path]) -> Iterator[Line]:
    """Yield all lines of the files. Raise OSError if a file cannot be read."""
    for file in files:
        with file.open("rb") as opened:
            for number, written in enumerate(opened, 1):
                yield Line(file, number, written)


def verify(files: list[Path]) -> Verified:
    """Check all lines of the files, and return the result. Its remarks are in the order of the lines.

    Raise OSError if a file cannot be read.
    """
    found = Verified(files=len(files))
    chain: Chain | None = None
    last: Entry | None = None
    for line in lines_of(files):
        if not line.written.endswith(b"\n"):
            what = "the last line is incomplete: the server was killed, or writes it just now"
            found.remarks.append(Remark(line.where, what, wrong=False))
            continue
        link = _link(line, found)
        found.lines += 1
        if link is not None:
            _check(found, line, link, chain)
            _count(found, line, link)
        chain = chain or Chain()
        chain.passed(line.written, link.number if link else None)
        found.number, found.digest = chain.number - 1, chain.previous
        last = link.entry if link else None
    if files:
        _look_at_end(found, files[-1], chain or Chain(), last)
    return found


def _look_at_end(found: Verified, path: Path, chain: Chain, last: Entry | None) -> None:
    """Check the end of the last run as the server does at its next start.

    If a server still writes to the log, or if the log has no mark, only add a remark. Raise OSError if a file cannot be read.
    """
    if last is not None and last.kind == ENDED:
        return
    if is_locked(path):
        found.remarks.append(Remark(str(path), "a server is writing to it", wrong=False))
        return
    state = read_mark(path)
    if state is None:
        if found.format != FIRST_FORMAT:
            what = "the last run has no end: the log goes on elsewhere, or its server was killed"
            found.remarks.append(Remark(str(path), what, wrong=False))
        return
    killed, missing = ending(path, chain, last, state, boot_id())
    if killed:
        found.remarks.append(Remark(str(path), "the last run was killed", wrong=False))
    if missing is not None:
        found.miss(str(path), missing)


def _link(line: Line, found: Verified) -> Link | None:
    try:
        return read_link(line.written)
    except BadLineError as error:
        _wrong(found, line, str(error))
        return None


def _wrong(found: Verified, line: Line, what: str) -> None:
    found.fits = False
    found.remarks.append(Remark(line.where, what, wrong=True))


def _note(found: Verified, line: Line, what: str) -> None:
    found.remarks.append(Remark(line.where, what, wrong=False))


def _check(found: Verified, line: Line, link: Link, chain: Chain | None) -> None:
    """Check that the line fits the one before it, and that this version knows the line's kind."""
    if chain is None:
        _check_beginning(found, line, link)
    elif link.number != chain.number:
        what = f"its number is {link.number}, not {chain.number}: lines are missing or were added"
        _wrong(found, line, what)
    elif link.previous != chain.previous:
        _wrong(found, line, "the line before it is not the one that was written: it was changed")
    kind, facts = link.entry.kind, link.entry.facts
    if kind in _SAID:
        _note(found, line, _SAID[kind])
    elif kind not in KINDS:
        _note(found, line, f"this version knows no kind {kind!r}")
    elif kind == STARTED and facts.get("format") not in FORMATS:
        _note(found, line, f"its format is {facts.get('format')!r}, this version reads {FORMAT}")


def _check_beginning(found: Verified, line: Line, link: Link) -> None:
    """Check the first line of the given files. The log may begin earlier, in older files that were moved elsewhere."""
    if link.number == 1 and link.previous != ORIGIN:
        _wrong(found, line, "it is not how a log begins: lines before it are missing")
    elif link.number > 1:
        what = f"the log begins with line {link.number} here: older files are elsewhere"
        _note(found, line, what)


def _count(found: Verified, line: Line, link: Link) -> None:
    at = link.entry.at_ms
    found.kinds[link.entry.kind] += 1
    found.from_ms = found.from_ms or at
    found.to_ms = at
    if link.entry.kind == STARTED:
        found.format = link.entry.facts.get("format")
    elif link.entry.kind == GAP:
        found.miss(line.where, missing_of(link.entry))


def _lost(missing: Missing) -> str:
    """Return as text how many lines are missing, and why."""
    lines = f"{missing.lines:,} {'line is' if missing.lines == 1 else 'lines are'}"
    known = f"{lines} missing" if missing.lines or not missing.more else "lines may be missing"
    others = ", and others may be" if missing.lines and missing.more else ""
    return f"{known}{others}: {missing.why or UNWRITTEN_WHY}"
