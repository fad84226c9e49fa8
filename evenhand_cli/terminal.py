"""The two streams of a command: results on the standard output, and all other texts on the error stream.

Consoles are created when they are needed, because the streams may be replaced. Consoles respect NO_COLOR. A colour
only repeats what a word or a sign already says.
"""

import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from evenhand_cli.escaping import EscapingConsole, escaped
from evenhand_cli.faults import Fault

PIPE_WIDTH = 240
"""Number of columns when the output is not a terminal and COLUMNS is not set.

Every allocation key fits into this width.
"""

UNLIMITED = 10_000
"""Number of columns of `--output wide`.

Every table fits into this width.
"""

PATIENCE_S = 1.0
"""Seconds after which a command prints what it is doing."""

INDENT = len("where: ")
"""Number of columns before the text of a fault."""

WRAP_MIN = 30
"""Minimum number of columns of a wrapped line."""

_COMMAND = re.compile(
    r"`[^`]+`|evenhand [a-z-]+(?: [a-z]+(?= --| [A-Z]))?(?: --?[\w-]+| [A-Z:|]{2,})*"
)
"""A command within a sentence: in backquotes, or the program name with the words after it."""
_BLANK = "\0"
"""The character that replaces a blank at which a line must not end."""

THEME = Theme(
    {
        "good": "green",
        "warn": "yellow",
        "bad": "bold red",
        "key": "bold",
        "faint": "bright_black",
        "heading": "bold cyan",
        "bar.within": "green",
        "bar.over": "yellow",
        "bar.full": "red",
        "bar.free": "bright_black",
        "bar.mark": "bold white",
    }
)


def results(width: int | None = None) -> EscapingConsole:
    """Return a console for the output stream.

    If no width is given, the console is as wide as the terminal. If the output is no terminal, the console has the
    width that COLUMNS says, or PIPE_WIDTH if COLUMNS is not set.
    """
    if width is None and not sys.stdout.isatty():
        width = shutil.get_terminal_size((PIPE_WIDTH, 50)).columns
    return EscapingConsole(theme=THEME, highlight=False, width=width)


def line(text: str) -> None:
    """Write a line to the output without wrapping, and flush it."""
    sys.stdout.write(escaped(text) + "\n")
    sys.stdout.flush()


def document(text: str) -> None:
    """Write a text that may be saved as a file: escaped on a terminal, otherwise unchanged."""
    sys.stdout.write(escaped(text) if sys.stdout.isatty() else text)
    if not text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()


def notices() -> Console:
    """Return the console of the error stream, for notices, progress and faults."""
    return EscapingConsole(theme=THEME, highlight=False, stderr=True)


def say(message: str) -> None:
    """Print a notice for users on the error stream. A notice is never part of the result."""
    console = notices()
    for line in wrapped(message, _width_of(console)):
        console.print(Text(line), soft_wrap=True)


@contextmanager
def patience(doing: str) -> Iterator[Callable[[str], None]]:
    """Print a text about the work in progress if the block takes long. The yielded function changes this text."""
    console = notices()
    status = console.status(Text(doing))
    start = status.start if console.is_terminal else (lambda: console.print(Text(f"{doing} ...")))
    timer = threading.Timer(PATIENCE_S, start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda words: status.update(Text(words))
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def show_fault(fault: Fault) -> None:
    """Print a fault: what is wrong, where, and what to do."""
    console = notices()
    width = _width_of(console)
    parts = (
        ("error", "bad", fault.what),
        ("where", "key", fault.where),
        ("do", "key", fault.advice),
    )
    for word, style, body in parts:
        if body:
            left = None if width is None else width - INDENT
            lines = [part for line in body.splitlines() for part in wrapped(line, left)]
            head = Text.assemble((f"{word + ':':<{INDENT}}", style), lines[0])
            console.print(head, soft_wrap=True)
            for line in lines[1:]:
                console.print(Text(" " * INDENT + line), soft_wrap=True)


def wrapped(text: str, width: int | None) -> list[str]:
    """Return a text as lines that are broken between words, but never within a command.

    Return one line when `width` is None.
    """
    if width is None:
        return [text]
    bound = _COMMAND.sub(lambda found: found[0].replace(" ", _BLANK), text)
    lines = textwrap.wrap(
        bound, max(width, WRAP_MIN), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_BLANK, " ") for line in lines] or [""]


def _width_of(console: Console) -> int | None:
    """Return the width of lines, which the terminal or COLUMNS determines.

    Return None when lines may have any width.
    """
    return console.width if console.is_terminal or os.environ.get("COLUMNS") else None
