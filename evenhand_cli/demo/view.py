"""How the demonstration shows itself while it runs: a live screen, or lines where there is none."""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live

from evenhand_cli import terminal
from evenhand_cli.demo.facts import Progress
from evenhand_cli.demo.screen import Stage, one_line, screen

LINE_EVERY_S = 2.0


class View(Protocol):
    """Shows the progress."""

    def __enter__(self) -> Self:
        """Begins."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends."""

    def update(self, progress: Progress, now_s: float) -> None:
        """Shows the state at an instant."""


class LiveView:
    """A live screen on a terminal; its last state stays."""

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage = stage
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the last screen where it is."""
        self._live.stop()

    def update(self, progress: Progress, now_s: float) -> None:
        """Draws the screen."""
        self._live.update(screen(self._stage, progress, now_s, self._console), refresh=True)


class LineView:
    """A line on the error stream from time to time, and only when something has moved."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._told = ""

    def __enter__(self) -> Self:
        """Nothing to begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to end."""

    def update(self, progress: Progress, now_s: float) -> None:
        """Says a line when it is due."""
        if now_s < self._next_s:
            return
        line = one_line(progress, now_s)
        if line != self._told:
            terminal.say(line)
        self._told = line
        self._next_s = now_s + LINE_EVERY_S
