"""The faults of a run in their order, determined only by a seed."""

import random
from dataclasses import dataclass
from typing import Final

DISK: Final = ("disk-full", "disk-slow", "disk-failing", "disk-read-only")
PROCESS: Final = (
    "core-killed",
    "core-ended",
    "core-stopped",
    "core-small",
    "shim-killed",
    "shim-stopped",
)
CLOCK: Final = ("clock-ahead", "clock-behind", "clock-wrong-at-start")
NET: Final = ("net-slow", "net-narrow", "net-stalled", "net-cut", "net-half-closed")
HOSTILE: Final = (
    "hostile-bytes",
    "hostile-refused",
    "hostile-reads",
    "hostile-deaf",
    "hostile-configurations",
    "hostile-raw",
    "hostile-selectors",
)
OPERATOR: Final = ("config-applied",)
KINDS: Final = (*DISK, *PROCESS, *CLOCK, *NET, *HOSTILE, *OPERATOR)
ALONE: Final = frozenset(
    {"disk-read-only", "core-small", "clock-wrong-at-start", "core-killed", "core-ended"}
)
"""Faults that restart the core themselves."""
DISK_MS: Final = 2_500
"""Milliseconds by which faults of the disk last longer, because an ask waits for a second before it claims."""
KILL_AMID: Final = 0.35
"""The probability that the core is killed during another fault; after an apply it always is."""
APPLY_AMID: Final = 0.15
"""The probability that an operator applies a configuration during another fault."""


@dataclass(frozen=True)
class Fault:
    """A fault after a quiet time. With `kill_amid`, the core is killed before the fault ends.

    With `apply_amid`, an operator applies a configuration when the fault begins, and may lose the answer.
    """

    kind: str
    calm_ms: int
    lasts_ms: int
    kill_amid: bool
    apply_amid: bool


def schedule(seed: int, seconds: float, kinds: tuple[str, ...] = KINDS) -> list[Fault]:
    """Return faults in shuffled rounds of all kinds until the time is used up; each round is completed."""
    dice = random.Random(seed)
    dealt: list[Fault] = []
    spent_ms = 0
    while spent_ms < seconds * 1000:
        for kind in dice.sample(kinds, len(kinds)):
            kill = kind in OPERATOR or (kind not in ALONE and dice.random() < KILL_AMID)
            apply = kind not in ALONE and kind not in OPERATOR and dice.random() < APPLY_AMID
            lasts = dice.randint(500, 2_000) + (DISK_MS if kind in DISK else 0)
            fault = Fault(kind, dice.randint(200, 700), lasts, kill, apply)
            spent_ms += fault.calm_ms + fault.lasts_ms
            dealt.append(fault)
    return dealt
