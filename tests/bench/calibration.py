"""A fixed loop that says how quick this machine is right now, so that figures of different days compare."""

import time

LOOPS = 400_000
REPEATS = 3


def calibrate() -> float:
    """CPU seconds of a fixed piece of plain Python, the quickest of a few: one alone says more of its neighbours."""
    return min(_loop() for _ in range(REPEATS))


def _loop() -> float:
    """Dictionary, tuple and heap-like work."""
    started = time.process_time()
    table: dict[int, tuple[int, int]] = {}
    total = 0
    for step in range(LOOPS):
        slot = (step * 7919) & 1023
        before = table.get(slot, (0, slot))
        table[slot] = (before[0] + step, slot)
        total += before[0] >> 3
    assert total >= 0
    return time.process_time() - started
