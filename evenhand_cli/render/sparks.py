"""Sparklines: a row of small bars, with one bar for each interval. The highest bar shows the largest value."""

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-:=+*#"
UNKNOWN = " "
"""The cell of an interval whose value is not known."""


class Sparkline:
    """A row of bars for `values`, relative to `highest`. None means that a value is not known."""

    def __init__(self, values: Sequence[int | None], highest: int) -> None:
        self.values = values
        self.highest = highest
        self.width = len(values)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Draw the bars, with ASCII characters when the output supports no others."""
        bars = ASCII_BARS if options.ascii_only else BARS
        yield Segment(self.text(bars), console.get_style("bar.within"))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width, which is fixed: one cell for each value."""
        del console, options
        return Measurement(self.width, self.width)

    def text(self, bars: str = BARS) -> str:
        """Return the bars as text. A value above zero is never shown as the lowest bar, unless `bars` has only one bar."""
        return "".join(self._bar(one, bars) for one in self.values)

    def _bar(self, value: int | None, bars: str) -> str:
        if value is None:
            return UNKNOWN
        if value <= 0 or self.highest <= 0:
            return bars[0]
        steps = len(bars) - 1
        return bars[min(-(-value * steps // self.highest), steps)]
