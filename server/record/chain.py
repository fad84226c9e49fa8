"""The hash chain of a decision log: each line carries its number and the digest of the line before it.

A line that was changed or removed no longer fits the lines after it. Lines that were cut off at the end go unnoticed, unless a
later digest is kept elsewhere.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from server.record import canonical
from server.record.canonical import DIGEST_CHARACTERS, Plain

FIRST_FORMAT: Final = 1
"""The format of versions that wrote no line at the end of a run."""
FORMAT: Final = 2
"""The current format of the lines. Each line of kind `started` names the format."""
FORMATS: Final = frozenset({FIRST_FORMAT, FORMAT})
"""The formats that this version reads."""

ORIGIN: Final = "0" * DIGEST_CHARACTERS
"""The digest before the first line."""

STARTED: Final = "started"
"""The kind of a server's first line: its format, its version, and the digest of its configuration."""
CONFIGURATION: Final = "configuration"
"""The kind of the line for a configuration that came into force."""
DECIDED: Final = "decided"
MOVED: Final = "moved"
SHADOW: Final = "shadow"
"""The kind of a line that compares two decisions for one ask or queue.

One decision was made with the settings in force. The other was made with the shadow's settings, and was not carried out.
"""
GAP: Final = "gap"
"""The kind of a line that says that lines are missing: how many, since when, and why.

The field ``more`` says that more lines may be missing.
"""
TORN: Final = "torn"
"""The kind of a line that says that the last line was incomplete when the server started, and was removed."""
ENDED: Final = "ended"
"""The kind of the last line of a run that ended normally."""
KILLED: Final = "killed"
"""The kind of a line that says that the previous run did not end normally."""
BROKEN: Final = "broken"
"""The kind of a line that says that earlier lines do not fit together: one of them does not carry the digest of the line before it.

The chain continues from the last of these lines.
"""

_STEPS: Final = 4
"""The number of nested levels that are encoded one by one: the line, its facts, the record, its victims."""

CORE_KINDS: Final = frozenset({CONFIGURATION, DECIDED, MOVED, SHADOW})
"""The kinds of lines that the core makes. A replay of the core's input makes such lines too."""
KINDS: Final = CORE_KINDS | {STARTED, ENDED, KILLED, GAP, TORN, BROKEN}


class Entry(NamedTuple):
    """The content of a line, without its number and the digest of the line before."""

    at_ms: int
    kind: str
    facts: Mapping[str, Plain]


class Chain:
    """The chain of entries."""

    def __init__(self, number: int = 1, previous: str = ORIGIN) -> None:
        self.number = number
        """The number of the next line."""
        self.previous = previous
        """The digest that the next line carries."""

    def line(self, entry: Entry) -> bytes:
        """Return the entry as the next line. The chain advances only when `passed` is called with the line."""
        return canonical.line(
            {
                "number": self.number,
                "previous": self.previous,
                "at": entry.at_ms,
                "kind": entry.kind,
                "facts": dict(entry.facts),
            },
            _STEPS,
        )

    def passed(self, written: bytes, number: int | None = None) -> None:
        """Continue the chain after a line that was written.

        ``number`` is the line's own number, if it differs from the expected number.
        """
        self.number = (self.number if number is None else number) + 1
        self.previous = canonical.digest(written)


class Link(NamedTuple):
    """A line that was read."""

    number: int
    previous: str
    entry: Entry


def read_link(written: bytes) -> Link:
    """Return the parts of a line. Raise BadLineError if the line lacks a part."""
    value = canonical.parsed(written)
    types = {"number": int, "previous": str, "at": int, "kind": str, "facts": dict}
    wrong = [name for name, kind in types.items() if type(value.get(name)) is not kind]
    if wrong:
        raise canonical.BadLineError(f"it has no {wrong[0]!r} as lines of a decision log have")
    entry = Entry(value["at"], value["kind"], value["facts"])
    return Link(value["number"], value["previous"], entry)
