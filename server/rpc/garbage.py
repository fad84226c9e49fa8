"""Python's collection of cyclic garbage, which does not run while the core decides (design 6.13).

Automatic collection stops when the server starts. From then on, garbage is collected in three situations: when the core is idle,
under an endless load, and when calls arrive but no events. Under an endless load, a collection runs after a slice once there are
`ENOUGH` new objects. If calls arrive but no events, a collection runs at the end of a call once there are `ENOUGH` new objects.
The remaining objects are frozen, that is, left out of later collections. Each object is therefore examined once, and a collection
does not take longer in a larger core. Frozen objects are freed only by their reference counts, so the core must leave no cycles
(`tests/rpc/test_garbage.py`). Libraries may leave some cycles. Because libraries leave cycles, everything is examined again after
`THOROUGH` collections. Examining everything takes long, so it waits until no event has arrived for a moment.

In a large core the examination would take longer than health checks may wait. Therefore a copy of a large core's process searches
for garbage (`rpc/unreachable`), which delays the core only for the duration of a fork. If the copy finds so much garbage that its
memory matters, the core examines everything itself, and logs this.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from server.model.decisions import Decisions
from server.rpc.errors import CallError
from server.rpc.reads import Reads
from server.rpc.unreachable import Unreachable, look

_log = structlog.get_logger(__name__)

ENOUGH: Final = 10_000
"""The number of new container objects after which a collection is worthwhile. Examining so many objects takes 2 to 5 ms."""
THOROUGH: Final = 64
"""The number of collections after which the next collection examines everything.

To examine everything takes about 1.5 ms for each thousand allocations.
"""
THOROUGH_AT_LAST: Final = 16 * THOROUGH
"""The number of collections after which even a busy core examines everything, or lets a copy search, as soon as it is idle."""
EVERYTHING_MAX: Final = 200_000
"""The largest number of objects that are examined in a quiet moment without a search in a copy first.

Examining so many objects, as a core with 50,000 allocations has, takes about 80 ms. Health checks must be answered within 100 ms.
Where the process cannot be copied, a larger core examines its objects only after `THOROUGH_AT_LAST` collections.
"""
GARBAGE_OBJECTS_MAX: Final = 50_000
GARBAGE_BYTES_MAX: Final = 32 << 20
"""The most garbage that a large core keeps: the number of container objects, and the bytes of these objects and their contents."""
QUIET_S: Final = 2.0
"""The seconds without an event that count as a quiet moment."""
_OF_AN_EVENT: Final = 2
"""The number of container objects that the core keeps for an ask.

With this number, new objects are estimated from events. Python itself counts only net growth, which is zero if other objects are
freed meanwhile.
"""


class Timer(Protocol):
    """A callback that is scheduled and can be cancelled."""

    def cancel(self) -> None:
        """Cancel the pending callback."""


Later = Callable[[float, Callable[[], None]], Timer]
"""The function that schedules a callback after so many seconds."""


class Garbage:
    """The control of Python's garbage collection in this process. `close` restores automatic collection."""

    def __init__(self, later: Later, reads: Reads | None = None) -> None:
        """Stop automatic collection. ``reads`` are for searches in a large core, if they run in copies of this process."""
        self._later = later
        self._copies = reads if reads is not None and reads.apart else None
        self._searching: asyncio.Task[None] | None = None
        self._found: Unreachable | None = None
        self._quiet: Timer | None = None
        self._events = self._collections = 0
        self._fresh = True
        self._overdue = False
        self._large = False
        gc.disable()  # objects that exist by now are collected, and frozen, when the core is first idle

    def decided(self, decisions: Decisions, now: int) -> None:
        """Ignore the decisions. `sliced` counts the events, which is enough to know when a collection is worthwhile."""

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Count the events of a slice. With more than `ENOUGH` new objects, collect at the second slice in a row without an idle moment."""
        if events:
            self._disturb()
        self._events += events
        if self._new() > ENOUGH:
            if self._overdue:
                self._collect()
            else:  # The core may be idle now. Its decisions are then written before the collection.
                self._overdue = True

    def call_ended(self, _code: object = None) -> None:
        """Collect if there are more than `ENOUGH` new objects. gRPC leaves cycles after each call, even if no event arrives."""
        if self._new() > ENOUGH:
            self._collect()
            self._look_later()

    def idle(self) -> None:
        """Collect at the first call, and then if there are more than `ENOUGH` new objects since the last collection.

        After `THOROUGH_AT_LAST` collections, or if a search found much garbage, examine all objects (`look_at_everything`).
        """
        if self._found is not None or self._collections >= THOROUGH_AT_LAST:
            self.look_at_everything()
        elif self._fresh or self._new() > ENOUGH:
            self._collect()
        self._look_later()

    def _look_later(self) -> None:
        is_due = self._collections >= THOROUGH and (not self._large or self._copies is not None)
        if (is_due or self._found is not None) and self._quiet is None:
            self._quiet = self._later(QUIET_S, self.look_at_everything)

    def look_at_everything(self) -> None:
        """Collect all garbage, frozen objects included.

        In a large core, let a copy of the process search for garbage first, and collect only if the copy finds much garbage.
        """
        self._disturb()
        if self._large and self._copies is not None and self._found is None:
            self._collections = 0
            if self._searching is None:
                self._searching = asyncio.create_task(self._search(self._copies))
            return
        gc.unfreeze()
        self._collect()
        self._collections = 0
        if self._found is not None:
            _log.info("garbage-collected", **self._found._asdict())
            self._found = None

    async def _search(self, copies: Reads) -> None:
        """Let a copy search for garbage. If the copy finds much garbage, collect all garbage in the next idle or quiet moment."""
        try:
            found = await look(copies)
        except CallError as error:
            _log.info("garbage-not-searched", why=error.message)
            return
        finally:
            self._searching = None
        if found.objects > GARBAGE_OBJECTS_MAX or found.bytes > GARBAGE_BYTES_MAX:
            self._found = found
            self._look_later()

    def close(self) -> None:
        """Stop scheduled work, and restore Python's automatic collection for all objects, frozen objects included."""
        self._disturb()
        if self._searching is not None:
            self._searching.cancel()
        gc.unfreeze()
        gc.enable()

    def _new(self) -> int:
        """Return about how many objects were made since the last collection."""
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
        if self._collections == THOROUGH:  # Counting takes some milliseconds, too.
            self._large = gc.get_freeze_count() > EVERYTHING_MAX
