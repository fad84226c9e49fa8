"""The clients that play a script, each in a separate process: the one in Go where Go is installed, else the one in Python."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.real.toolchain import environment, find_go

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("go")
PROGRAM = ROOT / ".bench" / "client"
_BUILD_S_MAX = 300


@dataclass(frozen=True, slots=True)
class Player:
    """A client: its language, for the report, and its command, to which an address is added."""

    language: str
    command: tuple[str, ...]


PYTHON = Player("Python", (sys.executable, "-m", "tests.bench.client"))


@functools.cache
def player() -> Player:
    """Return the client in Go if it can be built, else the one in Python; standard error says why."""
    go = find_go()
    if go is None:
        return PYTHON
    built = subprocess.run(
        [go, "build", "-o", str(PROGRAM), "."],
        cwd=SOURCE,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_S_MAX,
    )
    if built.returncode != 0:
        sys.stderr.write(
            f"the client in Go cannot be built, Python's takes its place: {built.stderr}"
        )
        return PYTHON
    return Player("Go", (str(PROGRAM),))


def surroundings() -> dict[str, str]:
    """Return the environment of processes that run this checkout's Python."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")])}
