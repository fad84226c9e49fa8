"""Lines of a stream, one per record.

Text that does not fit the terminal continues below, indented and broken between words.
"""

from typing import Final

from rich.console import Console
from rich.text import Text

from evenhand_cli.terminal import PIPE_WIDTH, wrapped

INDENT: Final = 10
"""Columns before a text that continues below its line."""


def line(head: Text, body: str, console: Console, tail: str = "") -> Text:
    """Return a record in one line, or with its text below its head where both do not fit the console.

    An output of unknown width has one line for each record.
    """
    told = Text.assemble(head, "  ", body, (f"  {tail}" if tail else "", "faint"))
    if console.width >= PIPE_WIDTH or told.cell_len <= console.width:
        return told
    lines = wrapped(f"{body}  {tail}".rstrip(), console.width - INDENT)
    below = Text("\n".join(" " * INDENT + one for one in lines))
    if tail and lines[-1].endswith(tail):
        below.stylize("faint", len(below) - len(tail))
    return Text.assemble(head, "\n", below)
