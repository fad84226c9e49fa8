"""The display of a running demonstration: a live screen on a terminal, lines on another output."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from evenhand_cli import terminal
from evenhand_cli.demo.facts import Progress
from evenhand_cli.demo.screen import Stage, one_line, screen

LINE_EVERY_S = 2.0

Update = Callable[[Progress, float], None]
"""A function that shows the progress at an instant, given in seconds."""


@contextmanager
def live_view(stage: Stage, console: Console) -> Iterator[Update]:
    """Show a live screen on a terminal and yield the function that updates it; the last update stays visible."""
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda progress, now_s: live.update(
            screen(stage, progress, now_s, console), refresh=True
        )


@contextmanager
def line_view() -> Iterator[Update]:
    """Yield a function that writes a line on the error stream at intervals, and only after a change."""
    next_s, told = 0.0, ""

    def update(progress: Progress, now_s: float) -> None:
        nonlocal next_s, told
        if now_s < next_s:
            return
        line = one_line(progress, now_s)
        if line != told:
            terminal.say(line)
        told, next_s = line, now_s + LINE_EVERY_S

    yield update
