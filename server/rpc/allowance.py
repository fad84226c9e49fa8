"""The number of events or steps in one piece of work, adapted to the time that earlier pieces took.

The core counts steps and events and reads no clock. The limit on time is therefore kept here, outside the core. Long work is cut
into pieces, and the event loop runs other tasks between two pieces. The input trace records the pieces, so that a replay repeats
them.
"""


class Allowance:
    """A number of events or steps between ``least`` and ``most``, chosen so that a piece takes at most about ``seconds``."""

    def __init__(self, least: int, most: int, seconds: float) -> None:
        self._least = least
        self._most = most
        self._seconds = seconds
        self.amount = most
        """The number of events or steps of the next piece."""

    def took(self, seconds: float) -> None:
        """Adapt the amount to the time that a piece took: reduce it after a slow piece, and up to double it after a quick one."""
        if seconds > self._seconds:
            self.amount = max(self._least, int(self.amount * self._seconds / seconds))
        elif 2 * seconds < self._seconds:
            self.amount = min(self._most, 2 * self.amount)
