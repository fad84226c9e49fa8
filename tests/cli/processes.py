"""Processes of `evenhand` for tests."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120.0
LOOK_S = 0.1
"""Seconds between two looks at another process."""
COLUMNS = 160
CONSOLE = "console on http://"
"""The text that a console prints before its address."""
_STATES = Path(tempfile.mkdtemp(prefix="evenhand-states-"))
atexit.register(shutil.rmtree, _STATES, ignore_errors=True)


def finished(
    *arguments: str,
    seconds: float = SECONDS_MAX,
    columns: int = COLUMNS,
    folder: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder to its end, on a terminal with this number of columns."""
    command = [sys.executable, "-m", "evenhand_cli", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(columns),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def environment(columns: int = COLUMNS) -> dict[str, str]:
    """Return the environment in which the tests run: the sources on Python's path, and a state directory of its own."""
    paths = [str(ROOT), str(ROOT / "gen")]
    given = {name: value for name, value in os.environ.items() if not name.startswith("EVENHAND_")}
    state = tempfile.mkdtemp(dir=_STATES)
    return (
        given
        | {"EVENHAND_CONFIG": "/nowhere/config.yaml", "XDG_STATE_HOME": state}
        | {"PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1", "COLUMNS": str(columns)}
    )


def until(condition: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    """Wait until a condition of other processes holds; errors: TimeoutError."""
    latest = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > latest:
            raise TimeoutError(f"not within {seconds:.0f} s: {condition}")
        time.sleep(LOOK_S)


@contextmanager
def running(arguments: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command while the block runs; SIGTERM ends it afterwards."""
    command = [sys.executable, "-m", "evenhand_cli", *arguments]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS_MAX)


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints, or "" when it ends. A process that prints none in time is killed."""
    assert process.stdout is not None
    late = Timer(SECONDS_MAX, process.kill)
    late.start()
    try:
        return process.stdout.readline()
    finally:
        late.cancel()


def address_of(process: subprocess.Popen[str], log: Path, before: str = "listening on ") -> str:
    """Return the address that a core prints when it listens, or that another server prints after the text ``before``."""
    line = line_of(process)
    assert line.startswith(before), log.read_text()
    return line.removeprefix(before).strip()
