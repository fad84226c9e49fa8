"""A bar for one quantity: the bar shows how much of a limit is used, and where the guarantee ends.

The colour repeats what the length shows: usage up to the guarantee, usage above the guarantee, or usage at the limit.
"""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

FULL_PPM = 995_000
SIGNS = {"full": "█", "free": "░", "mark": "┃"}
ASCII_SIGNS = {"full": "#", "free": ".", "mark": "|"}


class Bar:
    """A bar of `usage` relative to `limit`, `width` cells wide.

    If `guaranteed` is below the limit, the bar has a mark there.
    """

    def __init__(self, usage: int, limit: int, guaranteed: int = 0, width: int = 20) -> None:
        self.usage = usage
        self.limit = limit
        self.guaranteed = guaranteed
        self.width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Draw the bar, with ASCII characters when the output supports no others."""
        signs = ASCII_SIGNS if options.ascii_only else SIGNS
        mark = self._cells(self.guaranteed) if 0 < self.guaranteed < self.limit else -1
        filled = self._filled()
        used = console.get_style(self._style())
        free = console.get_style("bar.free")
        for cell in range(self.width):
            style = used if cell < filled else free
            if cell == mark:
                behind = Style(bgcolor=style.color) if cell < filled else Style()
                yield Segment(signs["mark"], console.get_style("bar.mark") + behind)
            else:
                yield Segment(signs["full" if cell < filled else "free"], style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the bar's fixed width."""
        del console, options
        return Measurement(self.width, self.width)

    def _filled(self) -> int:
        """Return the number of filled cells.

        At least one cell is filled if anything is used, and all cells are filled only if the limit is reached.
        """
        if self.usage <= 0 or self.limit <= 0:
            return 0
        return min(max(self._cells(self.usage), 1), self.width)

    def _cells(self, value: int) -> int:
        return value * self.width // self.limit

    def _style(self) -> str:
        if self.limit > 0 and self.usage * 1_000_000 >= self.limit * FULL_PPM:
            return "bar.full"
        return "bar.over" if 0 < self.guaranteed < self.usage else "bar.within"
