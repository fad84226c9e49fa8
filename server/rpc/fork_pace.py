"""The times at which copies of the core may be made: the share of time that forks take, and whether the core makes many decisions.

A fork stops the core. The pause after a fork is counted in multiples of the fork's processor time. The pause is longer while
the core makes many decisions, because every ask that arrives during a fork waits until the fork ends.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

_REST: Final = 20
"""The pause that each fork adds, in multiples of its processor time, so that forks take at most 5 % of the time in the long run."""
_BURST: Final = 3
"""The number of forks that may follow each other after a quiet time, before the pauses of all of them are due."""
_REST_BUSY: Final = 100
"""The pause that each fork adds while the core makes many decisions, so that forks take at most 1 % of the time."""
_BUSY_SLICES: Final = 10
"""The number of slices with events within `_BUSY_S` from which on the core makes many decisions."""
_BUSY_S: Final = 1.0


class ForkPace:
    """The pace of forks."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """Begin without forks. ``seconds`` returns seconds that never decrease."""
        self._seconds = seconds
        self._sliced: deque[float] = deque(maxlen=_BUSY_SLICES)
        """The instants of the latest slices with events."""
        self._rested_at = 0.0
        """The instant at which the pauses of all forks have passed."""
        self.pause = 0.0
        """The pause in seconds that the latest fork added."""
        self.not_before = 0.0
        """The instant before which no further fork may be made."""

    @property
    def is_busy(self) -> bool:
        """Whether the core makes many decisions: it had `_BUSY_SLICES` slices with events within the last `_BUSY_S`."""
        latest = self._sliced
        return len(latest) == _BUSY_SLICES and self._seconds() - latest[0] <= _BUSY_S

    def sliced(self) -> None:
        """Count a slice with events."""
        self._sliced.append(self._seconds())

    def forked(self, started: float, ended: float, cpu: float) -> None:
        """Count a fork. The next fork may follow after as much time as this fork took, so that the core can decide in between.

        A fork that would exceed `_BURST` has to wait for the pauses of earlier forks. While the core makes many decisions, each
        fork has to wait for these pauses.
        """
        busy = self.is_busy
        self.pause = (_REST_BUSY if busy else _REST) * cpu
        self._rested_at = max(self._rested_at, ended) + self.pause
        burst = 0.0 if busy else (_BURST - 1) * self.pause
        self.not_before = max(self._rested_at - burst, 2 * ended - started)
