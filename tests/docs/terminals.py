"""A page that a user follows in two terminals: its commands are run by two shells, and what they print is compared.

    console terminal N    commands after a `$`, continued by lines that begin with `> `, each with what it prints; what is
                          printed before the first command is what the terminal shows by then; a line `...` leaves lines out

These are the words after the three backquotes of a block; other blocks are ignored. Numbers that differ from run to run are
made equal by `normal`, on the page and in the output alike, and nothing else is.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from evenhand_cli.story.reading import Block, blocks
from tests.cli.processes import SECONDS_MAX, environment

KIND: Final = "console terminal "
WIDTH, HEIGHT = 104, 50
"""Columns and lines of a terminal."""
LOOK_S: Final = 0.1
DONE: Final = "<done>"
SHOWN_PORTS: Final = (50051, 50052)
"""The ports of core and cluster on the page."""
PROCESSES: Final = {1}
"""The terminals in which processes go on running, so that a command there is not waited for."""
PROGRAM: Final = """\
#!{python}
import sys

from evenhand_cli import terminal
from evenhand_cli.app import main

OWN = {{"serve": ["--listen", "127.0.0.1:{core}"], "shim": ["--cluster-listen", "127.0.0.1:{cluster}"]}}
terminal.PATIENCE_S = 600.0
sys.argv += OWN.get(sys.argv[1], [])
main()
"""
"""The program `evenhand` with ports of its own; on a busy machine it does not say that it waits."""
LOOKING: Final = (
    "evenhand cluster get",
    "evenhand cluster events",
    "evenhand cluster describe",
    "evenhand queues",
    "evenhand allocations",
    "evenhand explain",
    "evenhand decisions",
    "evenhand apps",
    "evenhand nodes",
    "evenhand doctor",
)
"""The commands that change nothing; such a command is repeated until it prints what the page shows, as a reader would."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_INSTANT: Final = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| UTC)?")
_CLOCK: Final = re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b")
_DECISION: Final = re.compile(r"\b[a-z]-[0-9a-f]{11}-\d+\b")
_SPAN: Final = re.compile(r"\b(?:\d+ h \d\d m|\d+ m \d\d s|\d+(?:\.\d)? s)\b")


@dataclass(frozen=True)
class Step:
    """A command of a terminal and what is printed from then on; without a command, what the terminal shows by then."""

    line: int
    terminal: int
    command: str
    shown: str


def steps(text: str) -> Iterator[Step]:
    """Yield the steps of a page in order."""
    for block in blocks(text):
        if block.info.startswith(KIND):
            yield from steps_of(block)


def steps_of(block: Block) -> Iterator[Step]:
    """Yield the steps of a block of a terminal in order."""
    terminal = int(block.info.removeprefix(KIND))
    command, shown, line = "", list[str](), block.line
    for offset, each in enumerate(block.text.splitlines()):
        if each.startswith("$ "):
            if command or shown:
                yield Step(line, terminal, command, _joined(shown))
            command, shown, line = each[2:], [], block.line + offset
        elif each.startswith("> ") and command and not shown:
            command += f"\n{each[2:]}"
        else:
            shown.append(each)
    yield Step(line, terminal, command, _joined(shown))


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def normal(text: str, ports: Mapping[int, int]) -> str:
    """Return a text without what differs from run to run: escape codes, instants, lengths of time, ids of decisions, ports, widths of columns.

    `ports` has for each port of the test the one that the page shows.
    """
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    for own, shown in ports.items():
        text = text.replace(f"127.0.0.1:{own}", f"127.0.0.1:{shown}")
    text = _INSTANT.sub("<instant>", text)
    text = _CLOCK.sub("<clock>", text)
    text = _DECISION.sub("<decision>", text)
    text = _SPAN.sub("<time>", text)
    return re.sub(r"[ \t]+", " ", text).replace(" \n", "\n")


def matches(shown: str, printed: str) -> bool:
    """Return whether normal texts agree, except for the lines that a line `...` of the page leaves out."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), printed) is not None


class Terminal:
    """A shell whose output goes to a terminal of its own, as that of a user does."""

    def __init__(self, folder: Path, given: Mapping[str, str]) -> None:
        self._reader, writer = pty.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        os.set_blocking(self._reader, False)
        self._decode = getincrementaldecoder("utf-8")().decode
        self.printed = ""
        """What was printed and not compared yet."""
        self._shell = subprocess.Popen(
            ["bash", "--norc", "-s"],
            cwd=folder,
            env=dict(given),
            stdin=subprocess.PIPE,
            stdout=writer,
            stderr=writer,
            text=True,
            start_new_session=True,
        )
        os.close(writer)

    def send(self, command: str) -> None:
        """Type a command, and another one that prints DONE."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command}\necho '{DONE}'\n")
        self._shell.stdin.flush()

    def read(self) -> None:
        """Add what was printed meanwhile."""
        try:
            while found := os.read(self._reader, 1 << 16):
                self.printed += self._decode(found)
        except OSError:  # Nothing more for now, or the shell has ended.
            return

    def end(self) -> None:
        """End the shell with all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
        os.close(self._reader)


class Terminals:
    """The terminals of a reader, in one folder. A command there has only the given environment variables."""

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, str],
        alike: Callable[[str], str],
        looking: Sequence[str] = LOOKING,
        background: Collection[int] = PROCESSES,
    ) -> None:
        """Open no terminal yet. ``alike`` returns a text in normal form, ``looking`` are the beginnings of commands that change nothing.

        ``background`` are the terminals in which processes go on running.
        """
        self._folder, self._given, self._normal = folder, given, alike
        self._looking, self._background = tuple(looking), background
        self._open: dict[int, Terminal] = {}

    def follow(self, step: Step, page: str) -> None:
        """Carry out a step of a page, until what was printed is what the page shows. Raises AssertionError after SECONDS_MAX."""
        terminal = self._open.get(step.terminal)
        if terminal is None:
            terminal = self._open[step.terminal] = Terminal(self._folder, self._given)
        wanted, latest = self._normal(step.shown), time.monotonic() + SECONDS_MAX
        repeats = step.command.startswith(self._looking)
        if step.command:
            terminal.send(step.command)
        while True:
            terminal.read()
            ended = f"{DONE}\r\n" in terminal.printed
            found = self._normal(terminal.printed.replace(f"{DONE}\r\n", ""))
            complete = ended or step.terminal in self._background
            if complete and matches(wanted, found):
                terminal.printed = ""
                return
            assert time.monotonic() <= latest, f"{page}:{step.line} {step.command}\n{found}"
            if ended and repeats:
                terminal.printed = ""
                terminal.send(step.command)
            time.sleep(LOOK_S)

    def close(self) -> None:
        """End all terminals with what was started in them."""
        for terminal in self._open.values():
            terminal.end()


def of_evenhand(folder: Path, ports: Mapping[str, int]) -> Terminals:
    """Return terminals in which `evenhand` uses ports of its own, and takes no other notice of the machine."""
    program = folder / "bin" / "evenhand"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, **ports))
    program.chmod(0o755)
    given = environment()
    del given["COLUMNS"]
    own = {
        "PATH": f"{program.parent}{os.pathsep}{given['PATH']}",
        "EVENHAND_CORE": f"127.0.0.1:{ports['core']}",
        "EVENHAND_CLUSTER": f"127.0.0.1:{ports['cluster']}",
        "TERM": "xterm",
        "TZ": "UTC",
    }
    shown = dict(zip(ports.values(), SHOWN_PORTS, strict=True))
    return Terminals(folder, given | own, partial(normal, ports=shown))
