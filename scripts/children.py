"""Commands that end with the process that runs them, so that no build continues after a stopped `make`.

make sends SIGTERM to its own child alone, and a killed Python leaves its children running. So each
command gets a process group of its own, which is ended as Ctrl-C would end it, however the block ends.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

END_S = 15.0


def listen() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit from now on, so that blocks end in order, as with Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # Not behind nohup.
            signal.signal(number, _leave)


@contextmanager
def started(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    end_s: float = END_S,
) -> Iterator["subprocess.Popen[str]"]:
    """Start a command without input; end whatever of it still runs at the block's end.

    `end_s`: how long the command may take to clean up before it is killed.
    """
    with subprocess.Popen(  # noqa: S603 -- our words.
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout,
        stderr=subprocess.STDOUT if stdout else None, text=True, process_group=0,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                _end(process, end_s)


def run(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, end_s: float = END_S
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; return its exit code, and all that it printed as its output."""
    with started(command, env=env, stdout=subprocess.PIPE, end_s=end_s) as process:
        said, _ = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, said)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end(process: "subprocess.Popen[str]", end_s: float) -> None:
    """End a process group, and kill what of it does not end in time.

    Programs clean up after SIGINT; SIGTERM is sent where SIGINT is ignored, as behind a shell's `&`.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    os.killpg(process.pid, signal.SIGTERM if ignored else signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(end_s)
    with suppress(ProcessLookupError):  # Its children that ignored the signal.
        os.killpg(process.pid, signal.SIGKILL)
