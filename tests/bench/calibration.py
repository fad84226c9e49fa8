"""A fixed loop whose duration tells how fast this machine is now, so that figures of different days can be compared."""

import time
from typing import Final

LOOPS = 400_000
REPEATS = 3

cpu_seconds_here: Final = time.thread_time
"""CPU seconds of the thread that measures.

The process's CPU time is too coarse: while a timer of CPU time runs, such as the probe's timer (`quiet`), Linux
counts it in ticks of 4 ms.
"""


def calibrate() -> float:
    """Return the CPU seconds of a fixed piece of plain Python: the fastest of a few runs, because single runs are disturbed."""
    return min(_loop() for _ in range(REPEATS))


def _loop() -> float:
    """Run a fixed amount of dictionary, tuple and heap work."""
    started = cpu_seconds_here()
    table: dict[int, tuple[int, int]] = {}
    total = 0
    for step in range(LOOPS):
        slot = (step * 7919) & 1023
        before = table.get(slot, (0, slot))
        table[slot] = (before[0] + step, slot)
        total += before[0] >> 3
    assert total >= 0
    return cpu_seconds_here() - started
