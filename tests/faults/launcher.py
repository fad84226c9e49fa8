"""Start `evenhand serve` unchanged in a process whose disk, clock and memory are controlled by a file.

python -m tests.faults.launcher CONTROL COUNTS MEMORY_MIB serve ...

Faults that took effect are counted in COUNTS. Only writes to the disk of the decision log are counted; CONTROL is
on another disk.
"""

import errno
import json
import os
import resource
import stat
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.faults.counts import Counts

LOOK_S: Final = 0.02
"""Maximum age, in seconds, of the values that were read from the control file."""


class Control:
    """The faults in force according to the control file: `write_ms`, `errno`, `clock_ms`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.disk = path.stat().st_dev
        self._monotonic = time.monotonic
        self._read_at = 0.0
        self._now: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """Return the strength of a fault, 0 when there is none."""
        now = self._monotonic()
        if now - self._read_at > LOOK_S:
            self._read_at = now
            self._now = json.loads(self._path.read_text() or "{}")
        return self._now.get(name, 0)


def hurt_disk(control: Control, counts: Counts) -> None:
    """Delay or refuse writes to regular files, as a slow or failing disk does."""
    write, sync = os.write, os.fsync

    def strike(descriptor: int) -> bool:
        """Apply the fault to a file; return whether the write is counted."""
        found = os.fstat(descriptor)
        is_counted = stat.S_ISREG(found.st_mode) and found.st_dev != control.disk
        if stat.S_ISREG(found.st_mode):
            delay_ms, number = control["write_ms"], control["errno"]
            counts.add("writes", is_counted)
            counts.add("writes slowed", is_counted and delay_ms > 0)
            counts.add("writes refused", is_counted and number > 0)
            time.sleep(delay_ms / 1000)
            if number:
                raise OSError(number, os.strerror(number))
        return is_counted

    def writing(descriptor: int, data: Any) -> int:
        is_counted = strike(descriptor)
        try:
            written = write(descriptor, data)
        except OSError as error:
            counts.add("writes on a full disk", is_counted and error.errno == errno.ENOSPC)
            raise
        counts.add("written bytes", written * is_counted)
        counts.add("writes on a full disk", is_counted and written < len(data))
        return written

    def syncing(fd: Any) -> None:
        strike(fd if isinstance(fd, int) else fd.fileno())
        sync(fd)

    os.write, os.fsync = writing, syncing


def shift_clock(control: Control, counts: Counts) -> None:
    """Shift the wall clock by the value in the control file; the monotonic clock continues, as the kernel's does."""
    seconds, nanoseconds = time.time, time.time_ns

    def shift_ms() -> int:
        shift = control["clock_ms"]
        counts.add("clock reads")
        counts.add("clock reads shifted", shift != 0)
        return shift

    time.time = lambda: seconds() + shift_ms() / 1000
    time.time_ns = lambda: nanoseconds() + shift_ms() * 1_000_000


def main(arguments: list[str]) -> None:
    """Prepare the process, then run the command line."""
    control, counts = Control(Path(arguments[0])), Counts(Path(arguments[1]))
    memory_mib = int(arguments[2])
    if memory_mib:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    hurt_disk(control, counts)
    shift_clock(control, counts)
    from evenhand_cli.app import main as evenhand  # noqa: PLC0415 - after the clock was shifted

    sys.argv = ["evenhand", *arguments[3:]]
    evenhand()


if __name__ == "__main__":
    main(sys.argv[1:])
