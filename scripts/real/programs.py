"""Programs that run in the background, identified by their names in one folder.

For each program the folder holds `NAME.pid` and `NAME.log`, so that another process can end the program. Only the
process with that id is ended, and only while it is still that program.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

PAUSE_S = 0.05
END_S_MAX = 20.0
LOG_LINES = 20
COMM_LENGTH = 15
"""Number of characters of a program's name that the kernel keeps."""


def start(folder: Path, program: Path, flags: Sequence[str]) -> int:
    """Start a program in its own session and return its process id.

    Output is appended to its log.
    """
    log = str(folder / f"{program.name}.log")
    pid = os.posix_spawn(
        program,
        [str(program), *flags],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    (folder / f"{program.name}.pid").write_text(f"{pid}\n")
    return pid


def running(folder: Path, name: str) -> int | None:
    """Return the process id of a program of this folder.

    Return None when it does not run.
    """
    try:
        pid = int((folder / f"{name}.pid").read_text())
    except FileNotFoundError:
        return None
    return pid if _runs(pid, name) else None


def end(folder: Path, name: str, how: signal.Signals = signal.SIGTERM) -> None:
    """End a program of this folder if it runs, and wait for its end.

    A program that ignores the signal is killed.
    """
    pid = running(folder, name)
    if pid is not None:
        os.kill(pid, how)
        if not _gone(pid, name):
            os.kill(pid, signal.SIGKILL)
            _gone(pid, name)
    (folder / f"{name}.pid").unlink(missing_ok=True)


def last_words(folder: Path, name: str) -> str:
    """Return the last lines of a program's log."""
    log = folder / f"{name}.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join((f"{name} said last:", *lines[-LOG_LINES:]))


def _gone(pid: int, name: str) -> bool:
    for _ in range(int(END_S_MAX / PAUSE_S)):
        if not _runs(pid, name):
            return True
        time.sleep(PAUSE_S)
    return False


def _runs(pid: int, name: str) -> bool:
    """Return whether the process runs and is that program.

    A child of this process that has ended is reaped.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != pid
    except ChildProcessError:
        return _lives(pid, name)  # Another process started it.


def _lives(pid: int, name: str) -> bool:
    """Return whether a thread of the process runs.

    The first thread may have ended while others still hold the ports.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    comm, _, rest = stat.partition("(")[2].rpartition(")")
    is_dead = rest.strip().startswith("Z") and len(threads) == 1
    return comm == name[:COMM_LENGTH] and not is_dead
