"""What an application keeps its placeholders for: the record of a gang of the published interface (specification 1.9).

A placeholder is a small pod that holds a place until the real pod of its task group comes. The books remember what
was declared; which placeholders there are is seen from the application's asks and allocations, so that one that was
preempted, deleted or timed out is waited for by nobody.
"""

import enum
from collections import Counter
from typing import TYPE_CHECKING, Final

from server.books.applications import Job
from server.model.decisions import ApplicationState
from server.model.resources import Resource

if TYPE_CHECKING:
    from server.books.applications import Application, Ask
    from server.books.partition import Partition

TIMEOUT_MS: Final = 900_000
"""How long placeholders may take when their application does not say: the published 15 minutes."""


PLACEHOLDERS: Final = "(placeholders)"
"""The job of placeholders whose client names none; no label of a pod can have this value."""


class GangStyle(enum.Enum):
    """What becomes of an application whose placeholders did not all get their places in time."""

    SOFT = "Soft"
    """It goes on without them."""
    HARD = "Hard"
    """It fails."""

    @classmethod
    def of(cls, word: str) -> "GangStyle":
        """The style that a word of the wire means; whatever is not Hard is Soft, as published."""
        return cls.HARD if word == cls.HARD.value else cls.SOFT


class Reserve:
    """What an application declared of its placeholders.

    ``wanted`` is by type what they still have to sum up to before anything else of it is placed; a placeholder that
    ends lowers it, so that no real pod waits for it for ever (YUNIKORN-1395). ``came`` is by type what the placeholders
    that there are, waiting and placed, sum up to. ``count`` is how many there are, ``since_ms`` when the first of these was made, 0 when there are none.
    """

    __slots__ = ("came", "count", "since_ms", "style", "timeout_ms", "wanted")

    def __init__(self, wanted: Resource, style: GangStyle, timeout_ms: int) -> None:
        self.wanted = dict(wanted)
        self.style = style
        self.timeout_ms = timeout_ms or TIMEOUT_MS
        self.came: Counter[str] = Counter()
        self.count = 0
        self.since_ms = 0

    @property
    def has_come(self) -> bool:
        """Do the placeholders that there are sum up to what was declared, in every type?"""
        return all(self.came[name] >= quantity for name, quantity in self.wanted.items())

    def lower(self, resource: Resource) -> None:
        """One placeholder less."""
        self.count -= 1
        self.came.subtract(dict(resource))
        if not self.count:
            self.since_ms = 0
        for name, quantity in resource:
            left = self.wanted.get(name, 0) - quantity
            if left > 0:
                self.wanted[name] = left
            else:
                self.wanted.pop(name, None)


class Hold(Job):
    """Real asks of one task group ("": of none) that wait for placeholders of their application.

    A job that is never complete: its members are placed when a placeholder gives them its place, or when they are
    let go because no placeholder is left to wait for.
    """

    __slots__ = ()

    @property
    def gathered(self) -> bool:
        """Never: nobody places them together."""
        return False


def is_reserving(application: "Application") -> bool:
    """Does nothing but placeholders of it get a place yet?"""
    reserve = application.reserve
    return (
        reserve is not None
        and bool(reserve.wanted)
        and application.state is ApplicationState.ACCEPTED
    )


def is_complete(partition: "Partition", application: "Application") -> bool:
    """Have its placeholders all their places? Nothing else of it has one before."""
    reserve, index = application.reserve, partition.types.index
    usage = application.usage
    return reserve is None or all(
        name in index and usage[index[name]] >= quantity
        for name, quantity in reserve.wanted.items()
    )


def is_held(ask: "Ask") -> bool:
    """Has a waiting ask to wait for placeholders? The tick that serves them lets go whoever need not."""
    application, spec = ask.application, ask.spec
    if application.reserve is None or spec.placeholder or ask.ordinary or ask.pledge is not None:
        return False
    return bool(spec.task_group) or is_reserving(application)


def is_ready(ask: "Ask") -> bool:
    """Is this a placeholder whose place a real ask may take: placed, and neither ordered to go nor taken (G2, G3)?

    One that could not go a moment ago is left alone for a while.
    """
    going = ask.releasing or ask.vetoed or ask.released_by is not None
    return ask.spec.placeholder and ask.node is not None and not going
