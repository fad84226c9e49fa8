"""The end of a decision log, read at the start of a server: where the chain continues, and any fault of the last lines."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from server.record import canonical
from server.record.canonical import BadLineError, Plain
from server.record.chain import BROKEN, ORIGIN, TORN, Chain, Entry, Link, read_link
from server.record.record_file import RecordError

WINDOW: Final = 1 << 20
"""The number of bytes at the end of the file that are checked at the start.

If these bytes have fewer than two lines, more bytes are checked.

`evenhand log verify` checks the whole file.
"""
_BEGINNING: Final = b'{"at":'
"""The bytes with which the lines of a decision log begin."""


class Found(NamedTuple):
    """A fault at the end of the log, to be recorded in the log itself."""

    kind: str
    facts: dict[str, Plain]


class Tail(NamedTuple):
    """The end of a log: ``size`` bytes of complete lines, perhaps followed by an incomplete line."""

    chain: Chain
    size: int
    first: int
    """The number of the file's first line."""
    found: list[Found]
    last: Entry | None = None
    """The content of the file's last line. The value is None if there is no line, or if the last line cannot be read."""


def read_tail(descriptor: int, path: Path) -> Tail:
    """Return the end of an open file, which may be empty. Raise RecordError if the file is no decision log."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return Tail(Chain(), 0, 1, [])
    if os.pread(descriptor, len(_BEGINNING), 0) != _BEGINNING[:size]:
        raise _strange(path)
    window = _window(descriptor, size)
    whole = size - len(window) + window.rfind(b"\n") + 1
    torn = size - whole
    found = [Found(TORN, _torn(window[-torn:]))] if torn else []
    if whole == 0:
        return Tail(Chain(), 0, 1, found)
    first = _first(descriptor, path)
    chain, broken, last = _checked(window[: len(window) - torn].splitlines(keepends=True))
    if size == len(window) and first.number == 1 and first.previous != ORIGIN:
        broken = broken or _broken(first.number, "the chain has another beginning")
    return Tail(chain, whole, first.number, [*found, *([broken] if broken else [])], last)


def pieces(path: Path) -> list[Path]:
    """Return the full files of a log, oldest first: FILE.0000000001 and so on, named by the number of their first lines."""
    beside = path.parent.glob(f"{path.name}.*")
    numbered = [one for one in beside if one.name.removeprefix(f"{path.name}.").isdecimal()]
    return sorted(numbered, key=lambda one: int(one.suffix[1:]))


def piece(path: Path, first: int) -> Path:
    """Return the path of a full file whose first line has this number."""
    return path.with_name(f"{path.name}.{first:010}")


def _window(descriptor: int, size: int) -> bytes:
    """Return the last bytes of the file, beginning with a whole line.

    The result has at least two lines if the file has at least two lines.
    """
    wanted = WINDOW
    while wanted < size:
        read = os.pread(descriptor, wanted, size - wanted)
        start = read.find(b"\n") + 1
        if start and read.count(b"\n", start) > 1:
            return read[start:]
        wanted *= 2
    return os.pread(descriptor, size, 0)


def _first(descriptor: int, path: Path) -> Link:
    """Return the first line. Raise RecordError if the line shows that the file is no decision log."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        line = file.readline()
    try:
        return read_link(line)
    except BadLineError as error:
        raise _strange(path) from error


def _strange(path: Path) -> RecordError:
    return RecordError(f"{path}: is no decision log; name another file, nothing was written to it")


def _checked(lines: list[bytes]) -> tuple[Chain, Found | None, Entry | None]:
    """Return the chain that continues after these lines, the first fault in them, and the content of the last line."""
    chain, broken, last = None, None, None
    for written, link in _links(lines):
        if link is None:
            number = 1 if chain is None else chain.number
            broken = broken or _broken(number, "a line is not readable")
        elif chain is not None and (link.number, link.previous) != (chain.number, chain.previous):
            broken = broken or _broken(link.number, "it does not fit the line before it")
        chain = chain or Chain()
        chain.passed(written, link.number if link else None)
        last = link.entry if link else None
    assert chain is not None
    return chain, broken, last


def _links(lines: list[bytes]) -> Iterator[tuple[bytes, Link | None]]:
    for written in lines:
        try:
            yield written, read_link(written)
        except BadLineError:
            yield written, None


def _broken(number: int, why: str) -> Found:
    return Found(BROKEN, {"line": number, "why": why})


def _torn(cut: bytes) -> dict[str, Plain]:
    return {"bytes": len(cut), "digest": canonical.digest(cut)}
