"""Answers that fit a screen of 30 lines: of several forms of an answer, the first form that is short enough is shown."""

from collections.abc import Iterable
from io import StringIO

from rich.console import Group, RenderableType

from evenhand_cli.escaping import EscapingConsole
from evenhand_cli.terminal import THEME

LINES_MAX = 30
"""Maximum number of lines of an answer without `--all`; its title is included."""


def first_that_fits(forms: Iterable[RenderableType], width: int) -> RenderableType:
    """Return the first form that has at most 30 lines at this width.

    If no form is short enough, return the last form.
    """
    shown: RenderableType = Group()
    for shown in forms:
        if height(shown, width) <= LINES_MAX:
            break
    return shown


def height(shown: RenderableType, width: int) -> int:
    """Return the number of lines of a renderable at a width, with the note about shortened names."""
    console = EscapingConsole(file=StringIO(), width=width, theme=THEME)
    lines = len(console.render_lines(shown, pad=False))
    return lines + console.lacks_note
