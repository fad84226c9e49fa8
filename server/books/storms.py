"""What the storm monitor remembers of a partition: deficits as claims left them, strikes, frozen pairs (7.7).

It is bounded: of each table the oldest entries are forgotten first. `core.storms` decides what is written here.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from server.model.storms import STRIKES_KEPT_MS, FrozenPair, Pair

ENTRIES_MAX: Final = 4_096
"""Entries of each table."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Deficit(NamedTuple):
    """How far a queue was below its entitlement in one type once its last claim is fulfilled.

    ``entitled`` was its entitlement then; ``lost`` what it had lost to the outside by then (`Queue.lost`).
    """

    left: int
    entitled: int
    lost: int


class Strikes(NamedTuple):
    """Claims of a pair that nothing explains: how many, and when the last one was."""

    number: int
    last_ms: int


class Storms:
    """``deficits`` by queue and type; ``taken`` says when a pair of one queue last took; ``total`` counts freezes."""

    __slots__ = ("deficits", "frozen", "strikes", "taken", "total")

    def __init__(self) -> None:
        self.deficits: dict[tuple[str, str], Deficit] = {}
        self.taken: dict[Pair, int] = {}
        self.strikes: dict[Pair, Strikes] = {}
        self.frozen: dict[Pair, FrozenPair] = {}
        self.total = 0

    def active(self, now: int) -> frozenset[Pair]:
        """The pairs that are frozen at this instant."""
        return frozenset(pair for pair, one in self.frozen.items() if one.until_ms > now)

    def forget_old(self, now: int) -> None:
        """Freezes that are over, and strikes that were long ago."""
        for pair in [pair for pair, one in self.frozen.items() if one.until_ms <= now]:
            del self.frozen[pair]
        for pair in [
            one for one, known in self.strikes.items() if known.last_ms + STRIKES_KEPT_MS <= now
        ]:
            del self.strikes[pair]
        for pair in [one for one, at_ms in self.taken.items() if at_ms + STRIKES_KEPT_MS <= now]:
            del self.taken[pair]

    def forget_queues(self, paths: Iterable[str]) -> None:
        """These queues are gone; others of the same names may come, and have lost nothing yet."""
        gone = frozenset(paths)
        for key in [key for key in self.deficits if key[0] in gone]:
            del self.deficits[key]

    def thaw(self) -> None:
        """Something happened outside that may change who is owed what: every pair begins anew."""
        self.frozen.clear()
        self.strikes.clear()
        self.taken.clear()

    def reset(self) -> None:
        """Queues and entitlements changed: nothing that was measured before says anything."""
        self.thaw()
        self.deficits.clear()


def keep(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Write an entry as the youngest; the oldest one goes when there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > ENTRIES_MAX:
        del table[next(iter(table))]
