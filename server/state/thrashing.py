"""The memory of a partition's thrashing monitor: deficits after claims, strikes, frozen pairs (invariant 18).

Each table has a largest size, and its oldest entries are forgotten first. `preemption.thrash_guard` decides which entries are
written.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from server.model.thrashing import STRIKES_KEPT_MS, FrozenPair, Pair

ENTRIES_MAX: Final = 4_096
"""The largest number of entries of each table."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Deficit(NamedTuple):
    """The deficit of a queue in one type after the last claim of the queue was fulfilled."""

    left: int
    """The amount by which the queue was below its entitlement."""
    entitled: int
    """The queue's entitlement when the claim was fulfilled."""
    lost: int
    """The total amount that the queue had lost by external events when the claim was fulfilled (`Queue.lost`)."""


class Strikes(NamedTuple):
    """The strikes of a pair of preemptor and victim: their number, and the instant of the last strike.

    A strike is recorded for a claim or replacement that no external event explains (see `core.preemption.thrash_guard`).
    """

    number: int
    last_ms: int


class ThrashingTables:
    """The tables of the thrashing monitor.

    A pair consists of a preemptor and a victim. Each of them is a queue, or one kind of pods of a queue: the pods with the same
    request and priority, such as the pods that a controller creates again and again.
    """

    __slots__ = ("deficits", "frozen", "strikes", "taken", "total")

    def __init__(self) -> None:
        self.deficits: dict[tuple[str, str], Deficit] = {}
        """The deficits by queue and type."""
        self.taken: dict[Pair, int] = {}
        """For each pair within one queue, the instant of the last replacement (I2)."""
        self.strikes: dict[Pair, Strikes] = {}
        """The strikes of each pair."""
        self.frozen: dict[Pair, FrozenPair] = {}
        """The freeze of each frozen pair, with the instant at which the freeze ends."""
        self.total = 0
        """The number of times that a pair was frozen."""

    def active(self, now: int) -> frozenset[Pair]:
        """Return the pairs that are frozen at this instant."""
        return frozenset(pair for pair, one in self.frozen.items() if one.until_ms > now)

    def forget_old(self, now: int) -> None:
        """Forget the freezes that are over, the old strikes, and the old entries of ``taken``."""
        for pair in [pair for pair, one in self.frozen.items() if one.until_ms <= now]:
            del self.frozen[pair]
        for pair in [
            one for one, known in self.strikes.items() if known.last_ms + STRIKES_KEPT_MS <= now
        ]:
            del self.strikes[pair]
        for pair in [one for one, at_ms in self.taken.items() if at_ms + STRIKES_KEPT_MS <= now]:
            del self.taken[pair]

    def forget_queues(self, paths: Iterable[str]) -> None:
        """Forget the deficits of removed queues.

        The deficits are not valid for a new queue with the same name, which has lost nothing yet.
        """
        gone = frozenset(paths)
        for key in [key for key in self.deficits if key[0] in gone]:
            del self.deficits[key]

    def thaw(self) -> None:
        """Forget all freezes, strikes and entries of ``taken``, after an external event that may change the entitlements of queues."""
        self.frozen.clear()
        self.strikes.clear()
        self.taken.clear()

    def reset(self) -> None:
        """Forget all entries, because queues and entitlements changed and the earlier measurements are no longer valid."""
        self.thaw()
        self.deficits.clear()


def keep(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Write an entry as the newest entry of a table. If the table then has too many entries, delete the oldest entry."""
    table.pop(key, None)
    table[key] = value
    if len(table) > ENTRIES_MAX:
        del table[next(iter(table))]
