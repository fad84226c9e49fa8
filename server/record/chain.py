"""The hash chain of a decision log: each line carries its number and the digest of the line before it.

A line that was changed, or one taken out, no longer fits what follows. Nothing can tell that lines were cut off at
the end, unless somebody kept a later digest elsewhere.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from server.record import canonical
from server.record.canonical import DIGEST_CHARACTERS, Plain

FIRST_FORMAT: Final = 1
"""Of runs that wrote no line when they ended."""
FORMAT: Final = 2
"""Version of the lines; named by each line that says that a server started."""
FORMATS: Final = frozenset({FIRST_FORMAT, FORMAT})
"""Those that this version reads."""

ORIGIN: Final = "0" * DIGEST_CHARACTERS
"""What stands before the first line."""

STARTED: Final = "started"
"""A server began to write: format, version, digest of its configuration."""
CONFIGURATION: Final = "configuration"
"""A configuration came into force."""
DECIDED: Final = "decided"
MOVED: Final = "moved"
SHADOW: Final = "shadow"
"""What the shadow of a partition decided beside the live side; nothing was done."""
GAP: Final = "gap"
"""Lines are missing here: how many, of what time, and why; ``more`` when there may be others."""
TORN: Final = "torn"
"""The last line was incomplete when the server started; it was cut off."""
ENDED: Final = "ended"
"""The server ended in order; the last line of a run."""
KILLED: Final = "killed"
"""The run before did not end in order."""
BROKEN: Final = "broken"
"""What stands before does not fit together; the chain goes on from its last line."""

_STEPS: Final = 4
"""The line, its facts, the record, its victims."""

CORE_KINDS: Final = frozenset({CONFIGURATION, DECIDED, MOVED, SHADOW})
"""What comes from the core, and from a replay of its input."""
KINDS: Final = CORE_KINDS | {STARTED, ENDED, KILLED, GAP, TORN, BROKEN}


class Entry(NamedTuple):
    """What a line says, without its place in the chain."""

    at_ms: int
    kind: str
    facts: Mapping[str, Plain]


class Chain:
    """Gives entries their places. ``number`` and ``previous`` are those of the next line."""

    def __init__(self, number: int = 1, previous: str = ORIGIN) -> None:
        self.number = number
        self.previous = previous

    def line(self, entry: Entry) -> bytes:
        """The entry as the next line; its place is taken by `passed` alone."""
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
        """The line stands; ``number`` is its own where that is not the expected one."""
        self.number = (self.number if number is None else number) + 1
        self.previous = canonical.digest(written)


class Link(NamedTuple):
    """A line as it was read."""

    number: int
    previous: str
    entry: Entry


def read_link(written: bytes) -> Link:
    """The parts of a line. Raises BadLineError."""
    value = canonical.parsed(written)
    types = {"number": int, "previous": str, "at": int, "kind": str, "facts": dict}
    wrong = [name for name, kind in types.items() if type(value.get(name)) is not kind]
    if wrong:
        raise canonical.BadLineError(f"it has no {wrong[0]!r} as lines of a decision log have")
    entry = Entry(value["at"], value["kind"], value["facts"])
    return Link(value["number"], value["previous"], entry)
