"""The kernel's accounting of memory and CPU of another process."""

import os
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a living process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> int:
    """Return the largest amount of resident memory that a running process has had, in MiB."""
    return _status_kib(pid, "VmHWM") >> 10


def resident_mib(pid: int) -> int:
    """Return the memory that a living process has resident, in MiB."""
    return _status_kib(pid, "VmRSS") >> 10


def _status_kib(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def resident_bytes(pid: int) -> int:
    """Return the memory that a living process has resident, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def own_peak_mib() -> int:
    """Return the peak memory of this process in MiB; `getrusage` would include memory from before `exec`."""
    return peak_mib(os.getpid())


def run_last(pid: int, policy: int = os.SCHED_IDLE) -> None:
    """Let all threads of a process run only while nothing else wants their processor. ``policy`` can end that."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), policy, os.sched_param(0))


def children_of(pid: int) -> list[int]:
    """Return the running children of a process, started by any of its threads; none of a process that has ended."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, tasks.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # A thread that has ended meanwhile.
    return found


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
