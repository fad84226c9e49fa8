"""When Python collects cyclic garbage: not while the core decides (design 6.13).

Automatic collection stops when the server starts. From then on garbage is collected when the core is idle, and under a
load that never ends at every `UNDER_LOAD` new objects. What is left then is frozen, that is left out of later
collections: each object is looked at once, and no collection takes longer because the core holds more. What is frozen
ends by its reference counts alone, so the core leaves no cycles behind (`tests/rpc/test_garbage.py`). Libraries may: once in
`THOROUGH` times an idle core looks at everything again.
"""

import gc
from collections.abc import Sequence
from typing import Final

from server.model.decisions import Decision

IDLE_AT: Final = 10_000
UNDER_LOAD: Final = 25_000
"""New container objects since the last collection; so many take about 10 ms."""
THOROUGH: Final = 64
"""Collections from one of everything to the next, which takes about a millisecond for each thousand allocations."""
_OF_AN_EVENT: Final = 2
"""Objects that stay of an ask. Python counts the net growth only, which is none where others go meanwhile."""


class Garbage:
    """Drives the collector of this process; `close` gives it back as it was."""

    def __init__(self) -> None:
        self._events = self._collections = 0
        gc.disable()  # what is there by now is collected, and frozen, when the core is idle first

    def decided(self, decisions: Sequence[Decision], now: int) -> None:
        """Nothing to do."""

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Collects if the core is never idle."""
        self._events += events
        if self._new() > UNDER_LOAD:
            self._collect()

    def idle(self) -> None:
        """Collects when it is worth it."""
        if self._new() > IDLE_AT:
            if self._collections >= THOROUGH:
                self._collections = 0
                gc.unfreeze()
            self._collect()

    def close(self) -> None:
        """Automatic collection again, of everything."""
        gc.unfreeze()
        gc.enable()

    def _new(self) -> int:
        """New objects since the last collection, about."""
        return max(_OF_AN_EVENT * self._events, gc.get_count()[0])

    def _collect(self) -> None:
        gc.collect()
        gc.freeze()
        self._events = 0
        self._collections += 1
