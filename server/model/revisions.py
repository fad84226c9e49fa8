"""The revisions of the configuration: which one is in force, where it came from, and which one a change was made from."""

from collections.abc import Mapping
from typing import NamedTuple

from server.model.phrases import date, time_of_day


class Revision(NamedTuple):
    """A configuration as it came into force. The number rises with each that differs from the one before."""

    number: int = 1
    digest: str = ""
    source: str = ""
    by: str = ""
    """The name of the caller that applied it; empty for a file."""
    at_ms: int = 0
    standing: bool = True
    """Whether the text stays and is sent again: a file of the start, or the ConfigMap of a shim."""

    def __str__(self) -> str:
        """Return `revision 7 by ada (apply queues.yaml)`."""
        by = f" by {self.by}" if self.by else ""
        return f"revision {self.number}{by} ({self.source or 'the built-in default'})"

    def without_source(self) -> str:
        """Return `revision 7 by ada (2026-11-24 14:05:10 UTC)`: the source may name a manager or a file of another caller."""
        if not self.by:
            return str(self)
        return f"revision {self.number} by {self.by} ({date(self.at_ms)} {time_of_day(self.at_ms)})"


class Beginning(NamedTuple):
    """The configuration state with which a core begins. ``given`` has by manager the digest of what it sent last.

    ``configured``: a file configures the core, registrations do not.
    """

    revision: Revision
    given: Mapping[str, str] = {}
    configured: bool = True


class Base(NamedTuple):
    """The revision that a change was made from; with both fields empty, the one in force, whatever it is.

    A digest has the last word: it names the same text also after a restart that began to count from 1 again.
    """

    number: int = 0
    digest: str = ""

    def __str__(self) -> str:
        """Return `revision 6`, or the digest where no number is given."""
        return f"revision {self.number}" if self.number else f"configuration {self.digest[:12]}"

    def is_stale(self, now: Revision) -> bool:
        """Return whether another configuration than the base is in force."""
        if self.digest:
            return self.digest != now.digest
        return self.number not in {0, now.number}


ANY_BASE = Base()
