"""Checks a decision log from its first line to its last."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from server.record.canonical import BadLineError
from server.record.chain import (
    BROKEN,
    FORMAT,
    GAP,
    KINDS,
    ORIGIN,
    STARTED,
    TORN,
    Chain,
    Link,
    read_link,
)
from server.record.tail import pieces

_SAID = {
    GAP: "lines could not be written here, as this line says",
    TORN: "an incomplete line was cut off here when the server started",
    BROKEN: "the server found the log damaged when it started, and went on",
}


class Line(NamedTuple):
    """A line in its file."""

    file: Path
    number: int
    written: bytes

    @property
    def where(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.number}"


class Remark(NamedTuple):
    """Something about a place in the log; ``wrong``: the log cannot be trusted there."""

    where: str
    what: str
    wrong: bool


@dataclass(slots=True)
class Verified:
    """What was found. ``number`` and ``digest`` are those of the last line: keep them elsewhere to notice a cut end."""

    files: int = 0
    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    number: int = 0
    digest: str = ORIGIN
    from_ms: int = 0
    to_ms: int = 0
    remarks: list[Remark] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Does every line fit the one before it?"""
        return not any(one.wrong for one in self.remarks)


def files_of(path: Path) -> list[Path]:
    """The files of a log in their order: the full ones, then the one that is written."""
    return [*pieces(path), *([path] if path.exists() else [])]


def lines_of(files: list[Path]) -> Iterator[Line]:
    """All lines. Raises OSError."""
    for file in files:
        with file.open("rb") as opened:
            for number, written in enumerate(opened, 1):
                yield Line(file, number, written)


def verify(files: list[Path]) -> Verified:
    """Reads all of it; remarks in the order of the lines. Raises OSError."""
    found = Verified(files=len(files))
    chain: Chain | None = None
    for line in lines_of(files):
        if not line.written.endswith(b"\n"):
            what = "the last line is incomplete: the server was killed, or writes it just now"
            found.remarks.append(Remark(line.where, what, wrong=False))
            continue
        link = _link(line, found)
        found.lines += 1
        if link is not None:
            found.remarks += _remarks(line, link, chain)
            _count(found, link)
        chain = chain or Chain()
        chain.passed(line.written, link.number if link else None)
        found.number, found.digest = chain.number - 1, chain.previous
    return found


def _link(line: Line, found: Verified) -> Link | None:
    try:
        return read_link(line.written)
    except BadLineError as error:
        found.remarks.append(Remark(line.where, str(error), wrong=True))
        return None


def _remarks(line: Line, link: Link, chain: Chain | None) -> Iterator[Remark]:
    if chain is None:
        yield from _beginning(line, link)
    elif link.number != chain.number:
        what = f"its number is {link.number}, not {chain.number}: lines are missing or were added"
        yield Remark(line.where, what, wrong=True)
    elif link.previous != chain.previous:
        what = "the line before it is not the one that was written: it was changed"
        yield Remark(line.where, what, wrong=True)
    kind, facts = link.entry.kind, link.entry.facts
    if kind in _SAID:
        yield Remark(line.where, _SAID[kind], wrong=False)
    elif kind not in KINDS:
        yield Remark(line.where, f"this version knows no kind {kind!r}", wrong=False)
    elif kind == STARTED and facts.get("format") != FORMAT:
        what = f"its format is {facts.get('format')!r}, this version reads {FORMAT}"
        yield Remark(line.where, what, wrong=False)


def _beginning(line: Line, link: Link) -> Iterator[Remark]:
    """The first line there is."""
    if link.number == 1 and link.previous != ORIGIN:
        yield Remark(
            line.where, "it is not how a log begins: lines before it are missing", wrong=True
        )
    elif link.number > 1:
        what = f"the log begins with line {link.number} here: older files are elsewhere"
        yield Remark(line.where, what, wrong=False)


def _count(found: Verified, link: Link) -> None:
    at = link.entry.at_ms
    found.kinds[link.entry.kind] += 1
    found.from_ms = found.from_ms or at
    found.to_ms = at
