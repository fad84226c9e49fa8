"""The running allocations of some queues, least important first: the candidates of a quota run (Q11).

A *place* is a position in that order: non-originators before originators, low priority before high, preemptible before opted
out, younger before older (or by the keys that a partition configures instead, V2), then by key. Callers never see an array.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from server.kernels import order
from server.kernels.distinct import as_column, counted
from server.kernels.fit import Array, Mask
from server.model.ranking import RANKED_MAX, around
from server.snapshot.columns import GROUPED, OPTED_OUT, ORIGINATOR, RELEASING, AllocationColumns
from server.snapshot.snapshot import Snapshot

CHUNK: Final = 1_024
CANDIDATE: Final = -1
"""The value of ``barred`` for a place that nothing bars."""
_PRIORITY_BITS: Final = 33


class CandidatePlace(NamedTuple):
    """A candidate in order: its number, the number of its leaf, its amounts by column."""

    place: int
    home: int
    size: list[int]


Importance = tuple[int, tuple[int, ...], str]
"""A key that sorts places in the order of their numbers, even when some are counted as opted out that are not."""


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """Some places in order. ``homes`` are leaf numbers; ``sizes`` has one line of amounts per column."""

    places: Array
    homes: Array
    sizes: Array

    def __len__(self) -> int:
        return len(self.places)

    def takeable(
        self, start: int, most: int, wanted: Sequence[int], limit: Sequence[int]
    ) -> tuple[int, list[int]]:
        """Return how many of the next ``most`` places from ``start`` on can be taken without leaving one out, and their sum."""
        return order.takeable(self.sizes[:, start : start + most], wanted, limit)

    def part(self, start: int, stop: int) -> list[int]:
        """Return the places from ``start`` to ``stop``."""
        found: list[int] = self.places[start:stop].tolist()
        return found

    def rest(self, start: int) -> Iterator[CandidatePlace]:
        """Yield the candidates from ``start`` on in the order of their places."""
        left = start + self.places[start:].argsort()
        return Lot(self.places[left], self.homes[left], self.sizes[:, left]).walk()

    def walk(self, start: int = 0, stop: int | None = None) -> Iterator[CandidatePlace]:
        """Yield one candidate after the other, from ``start`` to ``stop``."""
        end = len(self) if stop is None else min(stop, len(self))
        for at in range(start, end, CHUNK):
            to = min(at + CHUNK, end)
            columns = (self.places[at:to], self.homes[at:to], self.sizes[:, at:to].T)
            lines = zip(*(column.tolist() for column in columns), strict=True)
            yield from map(CandidatePlace._make, lines)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The allocations of ``leaves`` by place. ``barred`` has by place the number of the first reason that bars the allocation, CANDIDATE for none.

    ``rows`` are their rows in the snapshot, ``homes`` the numbers of their leaves. ``sizes`` has one line of amounts per
    column. ``useful`` marks the allocations that hold something of a wanted type. ``tails`` are the further keys of the order:
    age, unless the partition configures others.
    """

    leaves: tuple[str, ...]
    columns: AllocationColumns
    keys: list[str]
    rows: Array
    homes: Array
    ranks: Array
    tails: tuple[Array, ...]
    barred: Array
    useful: Mask
    sizes: Array

    # Candidates -----------------------------------------------------------------------------------

    @property
    def candidates(self) -> Lot:
        """Return the allocations that no reason bars."""
        return self._lot(np.flatnonzero(self.barred == CANDIDATE))

    def lots(self) -> dict[str, Lot]:
        """Return the candidates of each leaf that has any."""
        whole = np.flatnonzero(self.barred == CANDIDATE)
        places = whole[self.homes[whole].argsort(kind="stable")]
        homes, firsts, counts = counted(self.homes[places])
        return {
            self.leaves[home]: self._lot(places[first : first + count])
            for home, first, count in zip(homes, firsts, counts, strict=True)
        }

    def _lot(self, places: Array) -> Lot:
        return Lot(places, self.homes[places], self.sizes[:, places])

    def restricted(
        self,
        without: Collection[int],
        lacking: Sequence[int],
        limit: Mapping[str, Sequence[int]],
    ) -> tuple[Lot, list[int]]:
        """Return the candidates outside ``without`` that hold something of a ``lacking`` column, in two lots: allowed, and too large.

        ``limit`` is by leaf how much of each column may be freed at most; a candidate that holds more of a column is too large.
        """
        left = self.barred == CANDIDATE
        left[list(without)] = False
        places = np.flatnonzero(left)
        places = places[order.positive(self.sizes[list(lacking)][:, places])]
        homes = self.homes[places]
        lines = [
            np.array([limit[leaf][column] for leaf in self.leaves], dtype=np.int64)[homes]
            for column in range(len(self.sizes))
        ]
        fine = order.within(self.sizes[:, places], lines)
        return self._lot(places[fine]), places[~fine].tolist()

    def needless(
        self, places: Collection[int], limit: Sequence[int], late: Collection[int]
    ) -> list[int]:
        """Return the victims' places that are not needed: from the most important down, each that fits into what is left of ``limit``.

        Only as many columns count as ``limit`` has; ``late`` are the places that count as opted out.
        """
        some = as_column(places)
        some = some[order.within(self.sizes[: len(limit), some], limit)]
        some = self._in_order(np.sort(some), late)[::-1]
        found: list[int] = some[order.fitting(self.sizes[: len(limit), some], limit)].tolist()
        return found

    def reordered(self, lot: Lot, late: Collection[int]) -> Lot:
        """Return the lot sorted again, with the places in ``late`` counted as opted out."""
        return self._lot(self._in_order(lot.places, late))

    def _in_order(self, places: Array, late: Collection[int]) -> Array:
        """Return the places, given in rising order, sorted again with those in ``late`` counted as opted out."""
        if not late or not len(places):
            return places
        marked = np.zeros(len(self.keys), dtype=np.int64)
        marked[list(late)] = 1
        ranks = self.ranks[places] | marked[places]
        sorting = [ranks, *(tail[places] for tail in self.tails)]
        found = order.ranked(sorting)
        keys = [self.keys[place] for place in places[found].tolist()]
        _untie(order.tied(sorting, found), found, keys)
        return places[found]

    def excerpt(self, last: int) -> tuple[int, int, list[int]]:
        """Return how many candidates there are, where the excerpt around place ``last`` begins, and the places of the excerpt."""
        places = np.flatnonzero(self.barred == CANDIDATE)
        start = around(len(places), int(places.searchsorted(last)))
        found: list[int] = places[start : start + RANKED_MAX].tolist()
        return len(places), start, found

    def standing(self, key: str) -> tuple[int, int, int, int]:
        """Return the place of an allocation, its number among the candidates, their count, and the reason that bars it.

        The number is 0 when a reason bars the allocation.
        """
        place = self.keys.index(key)
        reason = int(self.barred[place])
        candidates = np.flatnonzero(self.barred == CANDIDATE)
        number = int(candidates.searchsorted(place)) + 1 if reason == CANDIDATE else 0
        return place, number, len(candidates), reason

    def last_barred(self, reasons: int) -> int | None:
        """Return which reason below ``reasons`` bars the most important allocation that holds a wanted type; None for none."""
        places = np.flatnonzero((self.barred != CANDIDATE) & (self.barred < reasons) & self.useful)
        return int(self.barred[places[-1]]) if len(places) else None

    # One place ------------------------------------------------------------------------------------

    def leaf(self, place: int) -> str:
        """Return the path of the allocation's queue."""
        return self.leaves[int(self.homes[place])]

    def leaves_of(self, places: Iterable[int]) -> list[str]:
        """Return the paths of the queues of some places, each once."""
        homes = dict.fromkeys(self.homes.take(as_column(places)).tolist())
        return [self.leaves[home] for home in homes]

    def size(self, place: int) -> list[int]:
        """Return the allocation's amounts by column."""
        found: list[int] = self.sizes[:, place].tolist()
        return found

    def rank(self, places: Sequence[int]) -> list[int]:
        """Return by place originator flag, priority and opted-out flag in one number; opted-out is the lowest bit."""
        found: list[int] = self.ranks[list(places)].tolist()
        return found

    def importance(self, place: int, *, as_opted_out: bool) -> Importance:
        """Return the sort key of an allocation, as it is or as if the pod had opted out."""
        tail = tuple(int(line[place]) for line in self.tails)
        return int(self.ranks[place]) | as_opted_out, tail, self.keys[place]

    def disruption_groups(self) -> dict[int, tuple[str, ...]]:
        """Return by place the disruption groups of the candidates that have any."""
        specs = self.columns.specs
        places = np.flatnonzero(
            (self.barred == CANDIDATE) & (self.columns.flags[self.rows] & GROUPED > 0)
        )
        pairs = zip(places.tolist(), map(specs.__getitem__, self.rows[places]), strict=True)
        return {
            place: spec.disruption_groups
            for place, spec in pairs
            if spec is not None and spec.disruption_groups
        }

    def victims(self, places: Sequence[int]) -> tuple[list[int], Iterator[str], Iterator[str]]:
        """Return the rows, the keys and the leaves of some places, in the order of the places."""
        some = np.array(places, dtype=np.int64)
        keys = map(self.keys.__getitem__, places)
        leaves = map(self.leaves.__getitem__, self.homes[some].tolist())
        return self.rows[some].tolist(), keys, leaves

    # Protected allocations ------------------------------------------------------------------------

    def spared(
        self, gone: Collection[int], reasons: Mapping[int, int], otherwise: int, most: int
    ) -> Iterator[tuple[int, str, int, tuple[str, ...]]]:
        """Yield (reason, leaf, count, first keys) of the allocations that stay, grouped; at most ``most`` keys per group.

        ``reasons`` gives the reason for some candidates and ``otherwise`` the reason for all other candidates. A barred
        allocation is listed under the reason that bars it.
        """
        found = np.where(self.barred == CANDIDATE, otherwise, self.barred)
        found[list(reasons)] = list(reasons.values())
        kinds = int(found.max(initial=0)) + 1
        groups = self.homes * kinds + found
        groups[list(gone)] = CANDIDATE
        for group, count, first in order.grouped(groups, most):
            home, reason = divmod(group, kinds)
            yield reason, self.leaves[home], count, tuple(self.keys[place] for place in first)


class VictimQuery(NamedTuple):
    """A question about the running allocations.

    ``further`` reads the values of the keys that follow protection, row by row; None: the younger comes first. ``types`` gives
    the columns of sizes by type index; the first ``wanted`` of these types are the types that a run has to free. ``bars`` are
    flags; the first of them that an allocation has bars it. An allocation that has none, but holds nothing of a wanted type, is
    barred by the reason that follows the last flag.
    """

    leaves: Sequence[str]
    types: Sequence[int]
    wanted: int
    bars: Sequence[int]
    further: Callable[[int], tuple[int | str, ...]] | None = None


def running(snapshot: Snapshot, standing: Mask, asked: VictimQuery) -> Running:
    """Return the allocations of some leaves in order; ``standing`` marks the rows whose release is not ordered."""
    columns = snapshot.allocations
    homes = _homes(snapshot, columns, asked.leaves)
    rows = np.flatnonzero(homes >= 0)
    flags = np.where(standing[rows], columns.flags[rows], columns.flags[rows] | RELEASING)
    ranks = _ranks(columns.priorities[rows], flags)
    tails = _tails(columns, rows, asked)
    sorting = [ranks, *tails]
    places = order.ranked(sorting)
    keys = list(map(columns.keys.__getitem__, rows[places].tolist()))
    _untie(order.tied(sorting, places), places, keys)
    rows = rows[places]
    sizes = np.ascontiguousarray(columns.resources.take(rows, axis=0)[:, list(asked.types)].T)
    useful = order.positive(sizes[: asked.wanted])
    barred = _barred(flags[places], asked.bars)
    barred[(barred == CANDIDATE) & ~useful] = len(asked.bars)
    return Running(
        leaves=tuple(asked.leaves),
        columns=columns,
        keys=keys,
        rows=rows,
        homes=homes[rows],
        ranks=ranks[places],
        tails=tuple(tail[places] for tail in tails),
        barred=barred,
        useful=useful,
        sizes=sizes,
    )


def _tails(columns: AllocationColumns, rows: Array, asked: VictimQuery) -> list[Array]:
    """Return the sort keys that follow protection, as numbers that sort as their values do."""
    if asked.further is None:
        return [-columns.created_ms[rows]]
    lines = zip(*map(asked.further, rows.tolist()), strict=True)
    return [_numbered(line) for line in lines]


def _numbered(values: Sequence[int | str]) -> Array:
    """Return for each item the rank of its value among all values. Values may be texts, or numbers beyond int64."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return as_column(map(places.__getitem__, values))


def _homes(snapshot: Snapshot, columns: AllocationColumns, leaves: Iterable[str]) -> Array:
    """Return by row the index of its leaf in ``leaves``; -1 for another leaf, or without an allocation."""
    numbers = [snapshot.queues[path].number for path in leaves]
    known = int(columns.leaves.max(initial=0))
    table = np.full(max([known, *numbers], default=0) + 1, -1, dtype=np.int64)
    table[numbers] = range(len(numbers))
    return np.where(columns.alive, table[columns.leaves], -1)


def _ranks(priorities: Array, flags: Array) -> Array:
    """Return by row originator flag, priority and opted-out flag in one number; opted-out is the lowest bit (Q11)."""
    shifted = priorities + (1 << (_PRIORITY_BITS - 2))
    originator = ((flags & ORIGINATOR) > 0).astype(np.int64) << _PRIORITY_BITS
    return originator + (shifted << 1) + ((flags & OPTED_OUT) > 0)


def _untie(stretches: Iterable[tuple[int, int]], places: Array, keys: list[str]) -> None:
    """Sort the places of each stretch of equal rank by their keys."""
    for start, stop in stretches:
        line = sorted(zip(keys[start:stop], places[start:stop].tolist(), strict=True))
        keys[start:stop] = [key for key, _ in line]
        places[start:stop] = [place for _, place in line]


def _barred(flags: Array, bars: Sequence[int]) -> Array:
    found = np.full(len(flags), CANDIDATE, dtype=np.int64)
    for reason, flag in zip(reversed(range(len(bars))), reversed(bars), strict=True):
        found[(flags & flag) > 0] = reason
    return found
