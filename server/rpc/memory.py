"""The memory budget of docs/overload.md: the resident memory that a core may have for its load.

`evenhand doctor` reports a core that uses more memory than its budget.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.model.reports import Finding, Holdings

MIB: Final = 1 << 20
_KIB: Final = 1 << 10

BASE_MIB: Final = 128
NODE_KIB: Final = 8
POD_KIB: Final = 2
APPLICATION_KIB: Final = 2
QUEUE_KIB: Final = 8
STREAM_KIB: Final = 128
"""The parts of the budget: MiB of a core without load, KiB of each object in the core, and KiB of each stream of a manager."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a core, which determines its budget. ``waiting_bytes`` is the size of the answers that clients have not read yet."""

    held: Holdings
    streams: int
    waiting_bytes: int = 0

    def __str__(self) -> str:
        """Return the numbers that are not zero as text, such as `1,000 nodes, 10,000 pods, 9 streams`."""
        counts = (
            ("node", self.held.nodes),
            ("pod", self.held.pods),
            ("application", self.held.applications),
            ("queue", self.held.queues),
            ("stream", self.streams),
        )
        parts = [f"{count:,} {name}{'s' * (count != 1)}" for name, count in counts if count]
        if self.waiting_bytes:
            parts.append(f"{_mib(self.waiting_bytes):,} MiB of answers that wait")
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True, slots=True)
class Memory:
    """The resident memory of a core in bytes, and the core's load. The memory is 0 if the size cannot be read."""

    resident_bytes: int
    load: Load

    @property
    def budget_bytes(self) -> int:
        """The bytes that a core with this load may have resident."""
        return budget_bytes(self.load)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes.

    Return 0 if /proc does not have this figure, as on systems other than Linux.
    """
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def budget_bytes(load: Load) -> int:
    """Return the bytes that a core with this load may have resident."""
    held = load.held
    parts = (
        held.nodes * NODE_KIB
        + held.pods * POD_KIB
        + held.applications * APPLICATION_KIB
        + held.queues * QUEUE_KIB
        + load.streams * STREAM_KIB
    )
    return BASE_MIB * MIB + parts * _KIB + load.waiting_bytes


def findings(memory: Memory) -> Iterator[Finding]:
    """Yield the doctor's finding about a core that uses more memory than its budget."""
    budget = memory.budget_bytes
    if memory.resident_bytes <= budget:
        return
    message = f"{_mib(memory.resident_bytes):,} MiB resident, the budget is {_mib(budget):,} MiB for {memory.load}"
    advice = (
        "Ask again in a minute: a long message needs more for a moment. If it stays, make sure that the core's memory limit is "
        f"above {_mib(2 * memory.resident_bytes):,} MiB, restart the core, and report it with `evenhand doctor -o json`."
    )
    yield Finding("warning", "memory", "memory-over-budget", message, advice)


def _mib(count: int) -> int:
    """Return bytes in MiB, rounded up.

    128 MiB and one byte thus show as more than a budget of 128 MiB.
    """
    return -(-count // MIB)
