"""Start `evenhand serve` unchanged in a process whose disk, clock and memory a control file governs.

python -m tests.faults.launcher CONTROL MEMORY_MIB serve ...
"""

import json
import os
import resource
import stat
import sys
import time
from pathlib import Path
from typing import Any, Final

LOOK_S: Final = 0.02
"""How old what was read of the control file may be."""


class Control:
    """The faults in force, as the control file says them: `write_ms`, `errno`, `clock_ms`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._monotonic = time.monotonic
        self._read_at = 0.0
        self._now: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """The strength of a fault, 0 when there is none."""
        now = self._monotonic()
        if now - self._read_at > LOOK_S:
            self._read_at = now
            self._now = json.loads(self._path.read_text() or "{}")
        return self._now.get(name, 0)


def hurt_disk(control: Control) -> None:
    """Delay or refuse what is written to regular files, as a slow or failing disk does."""
    write, sync = os.write, os.fsync

    def strike(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            time.sleep(control["write_ms"] / 1000)
            if control["errno"]:
                raise OSError(control["errno"], os.strerror(control["errno"]))

    def writing(descriptor: int, data: Any) -> int:
        strike(descriptor)
        return write(descriptor, data)

    def syncing(fd: Any) -> None:
        strike(fd if isinstance(fd, int) else fd.fileno())
        sync(fd)

    os.write, os.fsync = writing, syncing


def shift_clock(control: Control) -> None:
    """Move the wall clock by what the control file says; the monotonic clock goes on, as the kernel's does."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + control["clock_ms"] / 1000
    time.time_ns = lambda: nanoseconds() + control["clock_ms"] * 1_000_000


def main(arguments: list[str]) -> None:
    """Prepare the process, then run the command line of the product."""
    control, memory_mib = Control(Path(arguments[0])), int(arguments[1])
    if memory_mib:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    hurt_disk(control)
    shift_clock(control)
    from evenhand_cli.app import main as evenhand  # noqa: PLC0415 - after the clock was shifted

    sys.argv = ["evenhand", *arguments[2:]]
    evenhand()


if __name__ == "__main__":
    main(sys.argv[1:])
