"""When Python collects cyclic garbage: not while the core decides (design 6.13).

Automatic collection stops when the server starts. From then on garbage is collected when the core is idle, under a load that
never ends one slice behind every `ENOUGH` new objects, and, where calls come but no events, at the end of a call after as many.
What is left then is frozen, that is left out of later collections: each object is looked at once, and no collection takes
longer because the core holds more. What is frozen ends by its reference counts alone, so the core leaves no cycles behind
(`tests/rpc/test_garbage.py`). Libraries may: after `THOROUGH` collections everything is looked at again as soon as nothing has
come for a moment, for that takes long.
"""

import gc
from collections.abc import Callable
from typing import Final, Protocol

from server.model.decisions import Decisions

ENOUGH: Final = 10_000
"""New container objects since the last collection; so many take 2 to 5 ms. A collection costs nothing else."""
THOROUGH: Final = 64
"""Collections from one of everything to the next, which takes about 1.5 ms for each thousand allocations."""
THOROUGH_AT_LAST: Final = 16 * THOROUGH
"""After so many a core that is always busy looks at everything as soon as it is idle at all; one that never is does not."""
EVERYTHING_MAX: Final = 200_000
"""Objects of which so many are looked at in a quiet moment, about 80 ms (50,000 allocations): health answers within 100 ms. A larger
core is looked at after `THOROUGH_AT_LAST` alone."""
QUIET_S: Final = 2.0
"""A moment in which nothing comes."""
_OF_AN_EVENT: Final = 2
"""Objects that stay of an ask. Python counts the net growth only, which is none where others go meanwhile."""


class Timer(Protocol):
    """Something that happens later, or does not."""

    def cancel(self) -> None:
        """It does not."""


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls after so many seconds."""


class Garbage:
    """Drives the collector of this process; `close` gives it back as it was."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._quiet: Timer | None = None
        self._events = self._collections = 0
        self._fresh = True
        self._overdue = False
        self._large = False
        gc.disable()  # what is there by now is collected, and frozen, when the core is idle first

    def decided(self, decisions: Decisions, now: int) -> None:
        """Nothing to do."""

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Collects if the core is never idle."""
        if events:
            self._disturb()
        self._events += events
        if self._new() > ENOUGH:
            if self._overdue:
                self._collect()
            else:  # perhaps the core is idle now: then what it has decided is written first
                self._overdue = True

    def call_ended(self, _code: object = None) -> None:
        """Collect what calls leave, reads and refusals, though no event comes: gRPC leaves a few cycles of each."""
        if self._new() > ENOUGH:
            self._collect()
            self._look_later()

    def idle(self) -> None:
        """Collects when it is worth it."""
        if self._collections >= THOROUGH_AT_LAST:
            self.look_at_everything()
        elif self._fresh or self._new() > ENOUGH:
            self._collect()
        self._look_later()

    def _look_later(self) -> None:
        is_due = self._collections >= THOROUGH and not self._large
        if is_due and self._quiet is None:
            self._quiet = self._later(QUIET_S, self.look_at_everything)

    def look_at_everything(self) -> None:
        """Collects what was frozen, too."""
        self._disturb()
        gc.unfreeze()
        self._collect()
        self._collections = 0

    def close(self) -> None:
        """Automatic collection again, of everything."""
        self._disturb()
        gc.unfreeze()
        gc.enable()

    def _new(self) -> int:
        """New objects since the last collection, about."""
        return max(_OF_AN_EVENT * self._events, gc.get_count()[0])

    def _disturb(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _collect(self) -> None:
        gc.collect()
        gc.freeze()
        self._fresh = self._overdue = False
        self._events = 0
        self._collections += 1
        if self._collections == THOROUGH:  # counting takes some ms, too
            self._large = gc.get_freeze_count() > EVERYTHING_MAX
