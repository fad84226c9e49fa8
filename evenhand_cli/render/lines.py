"""Records of a stream, one line each.

Text that does not fit the terminal is broken between words, and continues in indented lines.
"""

from typing import Final

from rich.console import Console
from rich.text import Text

from evenhand_cli.terminal import PIPE_WIDTH, wrapped

INDENT: Final = 10
"""Number of columns by which continued lines are indented."""


def line(head: Text, body: str, console: Console, tail: str = "") -> Text:
    """Return a record in one line.

    When the record does not fit the console, ``body`` begins on the line below ``head``. On an output of unknown width
    each record has one line.
    """
    told = Text.assemble(head, "  ", body, (f"  {tail}" if tail else "", "faint"))
    if console.width >= PIPE_WIDTH or told.cell_len <= console.width:
        return told
    lines = wrapped(f"{body}  {tail}".rstrip(), console.width - INDENT)
    below = Text("\n".join(" " * INDENT + one for one in lines))
    if tail and lines[-1].endswith(tail):
        below.stylize("faint", len(below) - len(tail))
    return Text.assemble(head, "\n", below)
