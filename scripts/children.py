"""Commands that end together with the process that runs them.

Thus no build continues after `make` was stopped. `make` sends SIGTERM only to its own child, and a Python process that
is killed leaves its children running. Therefore each command gets its own process group. When the `with` block ends, for
whatever reason, the group is ended as Ctrl-C would end it.
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
    """Make SIGTERM and SIGHUP raise SystemExit from now on, so that `with` blocks clean up, as with Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # Under nohup, SIGHUP stays ignored.
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
    """Start a command without input.

    When the block ends, end the processes of the command that still run. `end_s` is how many seconds
    the command may take to clean up before it is killed.
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
    """Run a command to its end. Return its exit code, and its standard output and errors as one text."""
    with started(command, env=env, stdout=subprocess.PIPE, end_s=end_s) as process:
        said, _ = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, said)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end(process: "subprocess.Popen[str]", end_s: float) -> None:
    """End a process group, and kill those of its processes that do not end within `end_s` seconds.

    Programs clean up after SIGINT. SIGTERM is sent to those that ignore SIGINT, as programs in the background of a
    shell do.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    os.killpg(process.pid, signal.SIGTERM if ignored else signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(end_s)
    with suppress(ProcessLookupError):  # Children that ignored the first signal.
        os.killpg(process.pid, signal.SIGKILL)
