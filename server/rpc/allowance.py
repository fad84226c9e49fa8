"""The amount of work of a kind that is done at once, learned from how long the last pieces took.

The core knows steps and events, never time; time enters here: work that takes long is cut into smaller pieces, and
the event loop turns between two pieces. The input trace records the pieces, so that a replay repeats them.
"""


class Allowance:
    """An amount between ``least`` and ``most`` that takes about ``seconds`` at the most."""

    def __init__(self, least: int, most: int, seconds: float) -> None:
        self._least = least
        self._most = most
        self._seconds = seconds
        self.amount = most
        """The events or steps of the next piece."""

    def took(self, seconds: float) -> None:
        """Adapt the amount to the time that a piece took: smaller after a slow one, up to twice as large after a quick one."""
        if seconds > self._seconds:
            self.amount = max(self._least, int(self.amount * self._seconds / seconds))
        elif 2 * seconds < self._seconds:
            self.amount = min(self._most, 2 * self.amount)
