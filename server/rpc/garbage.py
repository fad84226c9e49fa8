"""When Python collects cyclic garbage: not while the core decides (design 6.13).

After the first sync, or the first time the core is idle after many events, everything that is there is frozen, that is
left out of later collections, and automatic collection stops. From then on it happens when the core is idle, and under
a load that never ends at every `UNDER_LOAD` new objects, young ones only.
"""

import gc
from collections.abc import Sequence
from typing import Final

from server.model.decisions import Decision, Noted
from server.model.reasons import Code

FREEZE_AT: Final = 50_000
"""Events taken since the start."""
IDLE_AT: Final = 20_000
UNDER_LOAD: Final = 2_000_000
"""Net new container objects since the last collection."""


class Garbage:
    """Drives the collector of this process; `close` gives it back as it was."""

    def __init__(self) -> None:
        self._frozen = False
        self._events = 0

    def decided(self, decisions: Sequence[Decision], _now: int) -> None:
        """Freezes after a sync."""
        if not self._frozen and any(
            isinstance(one, Noted) and one.code is Code.SYNC_COMPLETE for one in decisions
        ):
            self._freeze()

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Collects young objects if the core is never idle."""
        self._events += events
        if self._frozen and gc.get_count()[0] > UNDER_LOAD:
            gc.collect(0)

    def idle(self) -> None:
        """Collects when it is worth it."""
        if self._frozen:
            if gc.get_count()[0] > IDLE_AT:
                gc.collect()
        elif self._events > FREEZE_AT:
            self._freeze()

    def close(self) -> None:
        """Automatic collection again, of everything."""
        if self._frozen:
            gc.unfreeze()
            gc.enable()

    def _freeze(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._frozen = True
