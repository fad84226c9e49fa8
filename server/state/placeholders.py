"""The placeholders of applications, by which clients of the published interface declare gangs (docs/gang-placeholders.md).

A placeholder is a small pod that holds capacity until the real pod of its task group comes. The state stores only the declared
amounts. The existing placeholders are read from the application's asks and allocations. Therefore no ask waits for a
placeholder that was preempted or deleted, or that timed out.
"""

import enum
from collections import Counter
from typing import TYPE_CHECKING, Final

from server.model.decisions import ApplicationState
from server.model.resources import Resource
from server.state.applications import Gang

if TYPE_CHECKING:
    from server.state.applications import Application, Ask
    from server.state.partition import Partition

TIMEOUT_MS: Final = 900_000
"""The default time within which placeholders must be placed: 15 minutes, as in the published interface."""


PLACEHOLDERS: Final = "(placeholders)"
"""The name of the gang of placeholders whose client names no gang.

No label of a pod can have this value, so that no client can use the name.
"""


class GangStyle(enum.Enum):
    """The outcome for an application if not all of its placeholders are placed in time."""

    SOFT = "Soft"
    """The application continues without the missing placeholders."""
    HARD = "Hard"
    """The application fails."""

    @classmethod
    def of(cls, word: str) -> "GangStyle":
        """Return HARD if ``word`` is "Hard", and SOFT for every other word, as YuniKorn does."""
        return cls.HARD if word == cls.HARD.value else cls.SOFT


class Reserve:
    """The placeholders that an application declared."""

    __slots__ = ("came", "count", "since_ms", "style", "timeout_ms", "wanted")

    def __init__(self, wanted: Resource, style: GangStyle, timeout_ms: int) -> None:
        self.wanted = dict(wanted)
        """The sum, by type, that the placeholders must reach before any other ask of the application is placed.

        A placeholder that ends lowers this sum. If the sum stayed the same, a real pod would wait for that placeholder forever
        (YUNIKORN-1395).
        """
        self.style = style
        self.timeout_ms = timeout_ms or TIMEOUT_MS
        self.came: Counter[str] = Counter()
        """The sum of the amounts of the existing placeholders, waiting and placed, by type."""
        self.count = 0
        """The number of existing placeholders, waiting and placed."""
        self.since_ms = 0
        """The instant at which the first placeholder was created, or 0 if there is no placeholder."""

    @property
    def has_come(self) -> bool:
        """Return whether the existing placeholders reach the declared sum in every type."""
        return all(self.came[name] >= quantity for name, quantity in self.wanted.items())

    def lower(self, resource: Resource) -> None:
        """Subtract one placeholder from the count, and its amounts from ``came`` and ``wanted``."""
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


class Hold(Gang):
    """Real asks of one task group ("" if they have none) that wait for placeholders of their application.

    A hold is never complete. Its members are placed when they replace a placeholder. If no placeholder is left for members,
    they become ordinary asks.
    """

    __slots__ = ()

    @property
    def gathered(self) -> bool:
        """Return False, because the members of a hold are never placed together."""
        return False


def is_reserving(application: "Application") -> bool:
    """Return whether the application still waits for placeholders: it has declared placeholders, and its state is Accepted.

    While the application waits, only its placeholders are placed.
    """
    reserve = application.reserve
    return (
        reserve is not None
        and bool(reserve.wanted)
        and application.state is ApplicationState.ACCEPTED
    )


def is_complete(partition: "Partition", application: "Application") -> bool:
    """Return whether an application's usage has reached the sum that its placeholders must reach.

    Until the usage has reached the sum, only placeholders of the application are placed. Return True if the application declared
    no placeholders.
    """
    reserve, index = application.reserve, partition.types.index
    usage = application.usage
    return reserve is None or all(
        name in index and usage[index[name]] >= quantity
        for name, quantity in reserve.wanted.items()
    )


def is_held(ask: "Ask") -> bool:
    """Return whether a waiting ask has to wait for placeholders.

    Asks that no longer have to wait become ordinary asks in the tick that looks for their placeholders.
    """
    application, spec = ask.application, ask.spec
    if application.reserve is None or spec.placeholder or ask.ordinary or ask.pledge is not None:
        return False
    return bool(spec.task_group) or is_reserving(application)


def is_ready(ask: "Ask") -> bool:
    """Return whether an ask is a placeholder that a real ask may replace (G2, G3).

    The placeholder must be placed. The placeholder must not be releasing, and no ask may be replacing it.

    A placeholder whose release failed may not be replaced before a back-off is over.
    """
    going = ask.releasing or ask.vetoed or ask.released_by is not None
    return ask.spec.placeholder and ask.node is not None and not going
