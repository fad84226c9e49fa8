"""How much work of a kind is begun at once, learned from what the last pieces of it took.

The core knows steps and events, never time; this is where time comes in: what takes long is cut into smaller pieces, and
between two pieces the event loop turns. The input trace records which pieces were chosen, so a replay does the same.
"""


class Allowance:
    """An amount between ``least`` and ``most`` that takes about ``seconds`` at the most."""

    def __init__(self, least: int, most: int, seconds: float) -> None:
        self._least = least
        self._most = most
        self._seconds = seconds
        self.amount = most
        """Events or steps of the next piece."""

    def took(self, seconds: float) -> None:
        """Learn what a piece took: after a slow one the next is smaller, after a quick one up to twice as large."""
        if seconds > self._seconds:
            self.amount = max(self._least, int(self.amount * self._seconds / seconds))
        elif 2 * seconds < self._seconds:
            self.amount = min(self._most, 2 * self.amount)
