"""The return of unused memory from the C library to the operating system, a moment after work.

The library holds a message of a few MB as many small pieces. When the pieces are freed, the process keeps the memory until the
library is asked to return it. For example, 100 messages of 10,001 objects left 180 MiB on an idle core. Returning the memory
takes 20 to 200 microseconds.
"""

import ctypes
from collections.abc import Callable
from typing import Final

from server.model.decisions import Decisions
from server.rpc.garbage import Later, Timer

TRIM_S: Final = 5.0
"""The seconds from the first work after a trim to the next trim."""


def give_back() -> None:
    """Give unused memory of the C library back to the operating system, if that library can do so."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Trimming:
    """The observer that returns memory to the system after work.

    The pump reports its slices, and the interceptor reports ended calls. Memory is returned once, `TRIM_S` after the first work
    since the last return.
    """

    def __init__(self, later: Later, trim: Callable[[], None] = give_back) -> None:
        self._later = later
        self._trim = trim
        self._due: Timer | None = None

    def decided(self, decisions: Decisions, now: int) -> None:
        """Ignore the decisions, because the end of each slice is reported to `sliced`."""

    def sliced(self, events: int, _seconds: float, _now: int) -> None:
        """Schedule a trim if the slice had events."""
        if events:
            self.call_ended()

    def idle(self) -> None:
        """Ignore that the pump is idle, because the timer started by `sliced` returns the memory."""

    def call_ended(self, _code: object = None) -> None:
        """Schedule a trim, unless one is scheduled."""
        if self._due is None:
            self._due = self._later(TRIM_S, self._now)

    def close(self) -> None:
        """Cancel the scheduled trim."""
        if self._due is not None:
            self._due.cancel()

    def _now(self) -> None:
        self._due = None
        self._trim()
