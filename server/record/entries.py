"""The decisions that are recorded, and the content of their lines."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from server.model.decisions import Decided, Decision, DecisionMoved, Noted, ShadowDecided
from server.model.reasons import Code
from server.model.revisions import Revision
from server.record.canonical import Plain
from server.record.chain import (
    CONFIGURATION,
    DECIDED,
    ENDED,
    FIRST_FORMAT,
    FORMAT,
    MOVED,
    SHADOW,
    STARTED,
    Entry,
)
from server.record.serialization import Fields, Forms

_FORMS: Final = Forms()
_DECIDED: Final = Fields(Decided, _FORMS.of)
_MOVED: Final = Fields(DecisionMoved, _FORMS.of)
_SHADOW: Final = Fields(ShadowDecided, _FORMS.of)
_KINDS: Final = frozenset({Decided, DecisionMoved, ShadowDecided, Noted})


class Applied(NamedTuple):
    """A configuration that came into force.

    ``by`` is the caller that applied the configuration. ``by`` is empty if no caller applied it, or if the configuration was in
    force already.
    """

    source: str
    digest: str
    revision: int = 0
    by: str = ""


Told = Decided | DecisionMoved | ShadowDecided | Applied
"""The decisions that become lines."""


def told(
    decisions: Sequence[Decision], in_force: Callable[[], Revision], now: int
) -> Iterator[Told]:
    """Yield the decisions that become lines, in their order. ``in_force`` returns the revision in force at ``now``."""
    if _KINDS.isdisjoint(map(type, decisions)):
        return
    for one in decisions:
        if isinstance(one, Decided | DecisionMoved | ShadowDecided):
            yield one
        elif isinstance(one, Noted) and one.code is Code.CONFIGURATION_APPLIED:
            found = in_force()
            by = found.by if found.at_ms == now else ""
            yield Applied(one.subject, found.digest, found.number, by)


def entry(one: Told, now: int, log_format: int = FORMAT) -> Entry:
    """Return the entry of a decision in a log of this format."""
    if isinstance(one, Applied):
        facts: dict[str, Plain] = {"source": one.source, "digest": one.digest}
        if log_format > FIRST_FORMAT:
            facts |= {"revision": one.revision, "by": one.by}
        return Entry(now, CONFIGURATION, facts)
    if isinstance(one, Decided):
        return Entry(now, DECIDED, _DECIDED.write(one))
    if isinstance(one, ShadowDecided):
        return Entry(now, SHADOW, _SHADOW.write(one))
    return Entry(now, MOVED, _MOVED.write(one))


def started(now: int, version: str, digest: str, log_format: int) -> Entry:
    """Return the entry of a core that starts with an empty state.

    ``digest`` is that of the configuration in force, or empty.
    """
    return Entry(now, STARTED, {"format": log_format, "version": version, "configuration": digest})


def ended(now: int, why: str) -> Entry:
    """Return the entry that says that the server ended normally. The line of this entry is the last line of its run."""
    return Entry(now, ENDED, {"why": why})
