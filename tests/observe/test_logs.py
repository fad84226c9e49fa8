"""Log lines: a name from a caller neither affects the terminal that shows it nor begins a line of its own."""

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from server.observe import logs

HOSTILE = "x\x1b[2J\x9b31m\u202e\x07\nforged"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_names_in_log_lines_are_escaped(kind: type[io.StringIO]) -> None:
    stream = kind()
    logs.configure(stream)
    structlog.get_logger("test").warning(HOSTILE, manager=HOSTILE, those=[HOSTILE])
    logging.getLogger("a.library").warning("refused %s", HOSTILE)
    text = stream.getvalue()
    assert text.count("\n") == 2, text
    assert not any(sign in text for sign in ("\x1b[2J", "\x9b", "\u202e", "\x07")), text


def test_a_traceback_keeps_its_lines() -> None:
    stream = Terminal()
    logs.configure(stream)
    try:
        _fail()
    except ValueError:
        structlog.get_logger("test").exception("failed")
    text = stream.getvalue()
    assert text.count("\n") > 3
    assert not any(sign in text for sign in ("\x1b[2J", "\x9b", "\u202e", "\x07")), text


def _fail() -> None:
    raise ValueError(HOSTILE)
