"""Lines of a stream, one a record: what does not fit the terminal goes on below, indented and between words."""

from typing import Final

from rich.console import Console
from rich.text import Text

from evenhand_cli.terminal import PIPE_WIDTH, wrapped

INDENT: Final = 10
"""Columns before what goes on below its line."""


def line(head: Text, body: str, console: Console, tail: str = "") -> Text:
    """Return a record in one line, or with its text below its head where both do not fit the console.

    An output whose width is not known has one line for each record.
    """
    told = Text.assemble(head, "  ", body, (f"  {tail}" if tail else "", "faint"))
    if console.width >= PIPE_WIDTH or told.cell_len <= console.width:
        return told
    lines = wrapped(f"{body}  {tail}".rstrip(), console.width - INDENT)
    below = Text("\n".join(" " * INDENT + one for one in lines))
    if tail and lines[-1].endswith(tail):
        below.stylize("faint", len(below) - len(tail))
    return Text.assemble(head, "\n", below)
