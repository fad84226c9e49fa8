"""The configuration that was in force when the previous run of a server ended, read from its decision log."""

import mmap
from pathlib import Path
from typing import Final, NamedTuple

from server.record.canonical import BadLineError
from server.record.chain import CONFIGURATION, STARTED, read_link
from server.record.tail import pieces

_MARKS: Final = tuple(f'"kind":"{kind}"'.encode() for kind in (CONFIGURATION, STARTED))
FILES_READ: Final = 2
"""The number of files of a log that are searched, newest first."""


class Previous(NamedTuple):
    """The last configuration of a run. ``source`` is empty if the run started with this configuration."""

    digest: str
    source: str


def previous_configuration(path: Path) -> Previous | None:
    """Return the last configuration that a decision log names in its newest FILES_READ files.

    Return None if these files name no configuration or cannot be read.
    """
    files = [path, *reversed(pieces(path))]
    for file in [one for one in files if one.is_file()][:FILES_READ]:
        try:
            found = _last(file)
        except (OSError, ValueError):
            return None
        if found is not None:
            return found
    return None


def _last(file: Path) -> Previous | None:
    if file.stat().st_size == 0:
        return None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = len(text)
        while (at := max(text.rfind(mark, 0, end) for mark in _MARKS)) >= 0:
            start = text.rfind(b"\n", 0, at) + 1
            after = text.find(b"\n", at)
            found = _read(text[start : after + 1]) if after >= 0 else None
            if found is not None:
                return found
            end = at
    return None


def _read(line: bytes) -> Previous | None:
    """Return the configuration in a line.

    Return None for a damaged line, and for a line without a configuration.
    """
    try:
        kind, facts = (entry := read_link(line).entry).kind, entry.facts
    except BadLineError:
        return None
    if kind == CONFIGURATION:
        return Previous(str(facts.get("digest", "")), str(facts.get("source", "")))
    return Previous(str(facts.get("configuration", "")), "") if kind == STARTED else None
