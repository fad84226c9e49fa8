"""The comparison of a replay's decisions with a decision log, byte for byte, up to the first line that differs."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from server.record.canonical import BadLineError
from server.record.chain import ENDED, GAP, KILLED, STARTED, TORN, Chain, Entry, Link, read_link
from server.record.trace import Header
from server.record.verify import Line, lines_of

CONTEXT: Final = 2
"""The number of lines before a difference that are shown with it."""
_LOST_KINDS: Final = (GAP, TORN, KILLED)
"""The kinds of lines that report missing lines before them."""
_WORDS: Final = {kind: f'"kind":"{kind}"'.encode() for kind in (*_LOST_KINDS, ENDED)}
"""For each kind, the bytes that all lines of this kind contain."""


class NotThisLogError(Exception):
    """The error that no run of the log begins as the trace's header says."""


class Difference(NamedTuple):
    """The first difference between the log and the replay. At a difference, either the log or the replay may have no line."""

    where: str
    logged: Link | None
    replayed: Entry | None
    parts: list[tuple[str, object, object]]
    """For each value that differs: its path, its value in the log, and its value in the replay."""
    before: list[Link]
    short: bool
    """Whether the log ends while the replay continues."""


class Comparison:
    """The comparison of the entries of a replay with a log, in their order."""

    def __init__(self, files: list[Path], header: Header) -> None:
        """Find the run of the header in the files.

        Raise NotThisLogError if the files do not have the run, and OSError if a file cannot be read.
        """
        self._lines = self._run(lines_of(files), header)
        self._next = next(self._lines, None)
        if self._next is None:
            raise NotThisLogError
        self._chain = Chain(header.number, header.previous)
        self._before: deque[Link] = deque(maxlen=CONTEXT)
        self._skip = 0
        self._killed = self._ended = False
        self._where = ""
        self.same = 0
        """The number of equal lines."""
        self.missed = 0
        """The number of entries of the replay whose lines are missing in the log.

        The log reports these lines as missing, or the run was killed. The last decisions of a killed run may be missing. After
        the line that reports the kill, more entries of the replay are therefore no difference.
        """
        self.difference: Difference | None = None

    def entry(self, entry: Entry) -> None:
        """Compare the next entry of the replay with the next line of the log."""
        if self.difference is not None:
            return
        self._pass_own(_LOST_KINDS)
        if entry.kind == ENDED:
            self._end(entry)
            return
        if self._skip or self._killed:
            self._skip = max(0, self._skip - 1)
            self.missed += 1
            return
        written = self._chain.line(entry)
        line = self._next
        if line is None or line.written != written:
            self._part(line, entry)
            return
        self._accept(line, read_link(written))
        self.same += 1

    def finish(self) -> None:
        """End the comparison after the last entry of the replay.

        Further lines in the log are a difference. Two kinds of lines are exceptions: lines that report missing lines, and the
        run's last line if the replay made no last line.
        """
        if self.difference is None:
            self._pass_own(_LOST_KINDS if self._ended else (*_LOST_KINDS, ENDED))
            if self._next is not None:
                self._part(self._next, None)

    def _run(self, lines: Iterator[Line], header: Header) -> Iterator[Line]:
        """Yield the lines from the beginning of the run up to the beginning of the next run."""
        wanted = header.number, header.previous, header.started_ms
        inside = False
        for line in lines:
            beginning = _beginning(line)
            if inside and beginning is not None:
                return
            inside = inside or beginning == wanted
            if inside and line.written.endswith(b"\n"):
                yield line

    def _end(self, entry: Entry) -> None:
        """Compare the last entry of the replay with the log. The log may lack the line of this entry, because the disk was full.

        The missing line is no difference.
        """
        self._ended = True
        line = self._next
        if line is not None and line.written == self._chain.line(entry):
            self._accept(line, read_link(line.written))
            self.same += 1

    def _pass_own(self, kinds: tuple[str, ...]) -> None:
        """Skip the log's next lines while they have one of these kinds, in which the log reports on itself.

        A line that reports missing lines is no difference, because the replay makes no such line.
        """
        while self._next is not None and any(_WORDS[kind] in self._next.written for kind in kinds):
            link = _read(self._next)
            if link is None or link.entry.kind not in kinds:
                return
            lines = link.entry.facts.get("lines")
            self._skip += lines if isinstance(lines, int) else 0
            self._killed = self._killed or link.entry.kind in {KILLED, TORN}
            self._accept(self._next, link)

    def _accept(self, line: Line, link: Link) -> None:
        self._chain.passed(line.written)
        self._before.append(link)
        self._where = line.where
        self._next = next(self._lines, None)

    def _part(self, line: Line | None, entry: Entry | None) -> None:
        logged = None if line is None else _read(line)
        where = f"behind {self._where}" if line is None else line.where
        parts: list[tuple[str, object, object]] = []
        if logged is not None and entry is not None:
            replayed = read_link(self._chain.line(entry))
            parts = list(_parts("", logged._asdict(), replayed._asdict()))
        self.difference = Difference(
            where, logged, entry, parts, list(self._before), short=line is None
        )


def _beginning(line: Line) -> tuple[int, str, int] | None:
    """Return the number, the previous digest and the instant that a line has if it begins a run. Return None for any other line."""
    if b'"kind":"started"' not in line.written:
        return None
    link = _read(line)
    if link is None or link.entry.kind != STARTED:
        return None
    return link.number, link.previous, link.entry.at_ms


def _read(line: Line) -> Link | None:
    try:
        return read_link(line.written)
    except BadLineError:
        return None


def _parts(path: str, one: object, other: object) -> Iterator[tuple[str, object, object]]:
    """Yield each path at which two plain values differ, with the two values."""
    if isinstance(one, Entry) and isinstance(other, Entry):
        yield from _parts(path, one._asdict(), other._asdict())
    elif isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _parts(f"{path}.{name}".removeprefix("."), one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _parts(f"{path}[{place}]", left, right)
    elif one != other:
        yield path, one, other
