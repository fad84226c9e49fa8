"""For each kind of fault, the evidence that it took effect, and acceptable reasons when it did not."""

from collections.abc import Mapping
from typing import Final, NamedTuple

CORE_AWAY: Final = "core away"
"""The counter of faults that began while no core was running."""
PAGE_BYTES: Final = 4_096
"""Bytes that may still fit on a full disk: the rest of a page of the log."""
AT_ONCE: Final = 8
"""Number of calls that a hostile client makes at the same time."""


class Effect(NamedTuple):
    """The proof that a fault took effect: the counter `shown_by` is at least `least`, unless the counter `occasion` is zero."""

    shown_by: str
    least: int = 1
    occasion: str = ""
    occasion_least: int = 1
    within_s: float = 5.0
    """Seconds for which the driver waits for the effect."""
    needs_core: bool = True


EFFECTS: Final[dict[str, Effect]] = {
    "disk-full": Effect("writes on a full disk", 1, "written bytes", PAGE_BYTES),
    "disk-slow": Effect("writes slowed", 1, "writes"),
    "disk-failing": Effect("writes refused", 1, "writes"),
    "disk-read-only": Effect("refused 2", needs_core=False),
    "core-killed": Effect("killed -9"),
    "core-ended": Effect("ended 0"),
    "core-stopped": Effect("core stopped"),
    "core-small": Effect("core limited", needs_core=False),
    "shim-killed": Effect("shim killed", needs_core=False),
    "shim-stopped": Effect("shim stopped", needs_core=False),
    "clock-ahead": Effect("clock reads shifted", 1, "clock reads", within_s=0),
    "clock-behind": Effect("clock reads shifted", 1, "clock reads", within_s=0),
    "clock-wrong-at-start": Effect("clock reads shifted", needs_core=False),
    "net-slow": Effect("pieces delayed"),
    "net-narrow": Effect("pieces narrowed"),
    "net-stalled": Effect("pieces held"),
    "net-cut": Effect("connections cut"),
    "net-half-closed": Effect("connections half-closed"),
    "hostile-bytes": Effect("calls answered", AT_ONCE, within_s=15),
    "hostile-refused": Effect("calls answered", AT_ONCE, within_s=15),
    "hostile-reads": Effect("calls answered", AT_ONCE, within_s=15),
    "hostile-deaf": Effect("streams opened", within_s=15),
    "hostile-configurations": Effect("calls answered", within_s=15),
    "hostile-raw": Effect("connections taken", within_s=15),
    "hostile-selectors": Effect("selectors asked", needs_core=False),
    "config-applied": Effect("configurations applied"),
}
"""The evidence by kind of fault; a changed clock may have no effect, because a running core seldom reads the wall clock."""


def has_struck(kind: str, seen: Mapping[str, int]) -> bool:
    """Return whether a fault took effect, judged by the counts of its window."""
    effect = EFFECTS[kind]
    return seen.get(effect.shown_by, 0) >= effect.least


def excuse(kind: str, seen: Mapping[str, int]) -> str:
    """Return the reason why a fault could not take effect; empty when it could."""
    effect = EFFECTS[kind]
    if effect.needs_core and seen.get(CORE_AWAY, 0):
        return "the core was away"
    if effect.occasion and seen.get(effect.occasion, 0) < effect.occasion_least:
        return f"{effect.occasion}: fewer than {effect.occasion_least}"
    return ""
