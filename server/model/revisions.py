"""The revisions of the configuration: the revision in force, its source, and the revision from which a change was made."""

from collections.abc import Mapping
from typing import NamedTuple

from server.model.assignment import Assignment
from server.model.phrases import date, time_of_day


class Revision(NamedTuple):
    """A configuration that came into force. ``number`` rises with each configuration that differs from the one before it."""

    number: int = 1
    digest: str = ""
    source: str = ""
    by: str = ""
    """The name of the caller that applied the configuration. The name is empty if the configuration came from a file."""
    at_ms: int = 0
    standing: bool = True
    """Whether the text has a lasting source that sends it again after a restart.

    A configuration file and the ConfigMap of a shim are lasting sources.
    """

    def __str__(self) -> str:
        """Return `revision 7 by ada (apply queues.yaml)`."""
        by = f" by {self.by}" if self.by else ""
        return f"revision {self.number}{by} ({self.source or 'the built-in default'})"

    def without_source(self) -> str:
        """Return the revision as text with its time instead of its source: `revision 7 by ada (2026-11-24 14:05:10 UTC)`.

        The source is left out, because it may name a manager or a file of another caller. If ``by`` is empty, return the
        revision with its source.
        """
        if not self.by:
            return str(self)
        return f"revision {self.number} by {self.by} ({date(self.at_ms)} {time_of_day(self.at_ms)})"


class Beginning(NamedTuple):
    """The configuration with which a core starts.

    ``configured`` says that the configuration comes from a file, and that the configurations in registrations are ignored.
    Without an ``assignment`` the core decides for all partitions.
    """

    revision: Revision
    given: Mapping[str, str] = {}
    configured: bool = True
    assignment: Assignment | None = None


class Base(NamedTuple):
    """The revision from which a change was made. If both fields are empty, any revision may be in force.

    If a digest is given, only the digest is compared. A digest identifies its text even after a restart, when revision numbers
    begin at 1 again.
    """

    number: int = 0
    digest: str = ""

    def __str__(self) -> str:
        """Return `revision 6`, or the digest if no number is given."""
        return f"revision {self.number}" if self.number else f"configuration {self.digest[:12]}"

    def is_stale(self, now: Revision) -> bool:
        """Return whether the configuration in force differs from the base."""
        if self.digest:
            return self.digest != now.digest
        return self.number not in {0, now.number}


ANY_BASE = Base()
