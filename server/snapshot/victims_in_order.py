"""The running allocations of some queues, least important first: the candidates for eviction by a quota run (Q11).

A *place* is a position in that order: non-originators before originators, low priority before high, preemptible before opted
out, younger before older, and last by the allocation's id. A partition may configure other sort keys instead of age (V2).
Callers get lists and numbers, and never an array.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from server.kernels import order
from server.kernels.cover import PRIORITY_BASE
from server.kernels.distinct import as_column, counted
from server.kernels.fit import Array, Mask
from server.model.ranking import RANKED_MAX, around
from server.snapshot.columns import GROUPED, OPTED_OUT, ORIGINATOR, RELEASING, AllocationColumns
from server.snapshot.snapshot import Snapshot

CHUNK: Final = 1_024
CANDIDATE: Final = -1
"""The value of ``barred`` for an allocation that no reason excludes."""


class CandidatePlace(NamedTuple):
    """A candidate: its place in the order, the index of its leaf in `Running.leaves`, and its amounts by column."""

    place: int
    home: int
    size: list[int]


Importance = tuple[int, tuple[int, ...], str]
"""The sort key of an allocation.

Allocations sorted by these keys are in the order of their places. An exception is an allocation that counted as opted out when
its key was made.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """A list of candidates."""

    places: Array
    """The places of the candidates in the order."""
    homes: Array
    """The index of each candidate's leaf in `Running.leaves`."""
    sizes: Array
    """The amounts of the candidates: one line for each column, with one amount for each candidate."""

    def __len__(self) -> int:
        return len(self.places)

    def takeable(
        self, start: int, most: int, wanted: Sequence[int], limit: Sequence[int]
    ) -> tuple[int, list[int]]:
        """Return how many candidates from index ``start`` on can be taken before one must be left out.

        Also return the sum of the taken candidates by column.

        The number is at most ``most``.
        """
        return order.takeable(self.sizes[:, start : start + most], wanted, limit)

    def part(self, start: int, stop: int) -> list[int]:
        """Return the places of the candidates at the indexes from ``start`` to ``stop``."""
        found: list[int] = self.places[start:stop].tolist()
        return found

    def rest(self, start: int) -> Iterator[CandidatePlace]:
        """Yield the candidates from index ``start`` on, sorted by place."""
        left = start + self.places[start:].argsort()
        return Lot(self.places[left], self.homes[left], self.sizes[:, left]).walk()

    def walk(self, start: int = 0, stop: int | None = None) -> Iterator[CandidatePlace]:
        """Yield the candidates at the indexes from ``start`` to ``stop``."""
        end = len(self) if stop is None else min(stop, len(self))
        for at in range(start, end, CHUNK):
            to = min(at + CHUNK, end)
            columns = (self.places[at:to], self.homes[at:to], self.sizes[:, at:to].T)
            lines = zip(*(column.tolist() for column in columns), strict=True)
            yield from map(CandidatePlace._make, lines)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The allocations of ``leaves``, sorted with the least important first.

    Every array except ``sizes`` has one item for each place.
    """

    leaves: tuple[str, ...]
    columns: AllocationColumns
    keys: list[str]
    rows: Array
    """The row of each allocation in the snapshot."""
    homes: Array
    """For each allocation, the index of its leaf in ``leaves``."""
    ranks: Array
    """The first sort key (see `rank`)."""
    tails: tuple[Array, ...]
    """The sort keys after the first: by default the age, or the keys that the partition configures instead."""
    barred: Array
    """The number of the first reason that excludes the allocation, or CANDIDATE if no reason excludes it."""
    useful: Mask
    """A mask of the allocations that hold a positive amount of a wanted type."""
    sizes: Array
    """The amounts of the allocations: one line for each column, with one amount for each place."""

    # Candidates -----------------------------------------------------------------------------------

    @property
    def candidates(self) -> Lot:
        """Return the allocations that no reason excludes."""
        return self._lot(np.flatnonzero(self.barred == CANDIDATE))

    def lots(self) -> dict[str, Lot]:
        """Return the candidates by the path of their leaf. Leaves without candidates are left out."""
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
        """Return the candidates that hold a positive amount of a ``lacking`` column.

        The first item of the result has the candidates that may be taken. The second item of the result has the places of the
        candidates that are too large. Candidates in ``without`` are left out. ``limit`` has, for each leaf, the largest amount
        of each column that may be freed. A candidate is too large if it holds more than that amount of a column.
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
        """Return the victims among ``places`` that are not needed.

        ``limit`` has, for each column, the surplus: the amount that the victims free beyond what is necessary. The victims are
        checked in order, the most important first. A victim is not needed if its amounts are within the surplus. The amounts of
        such a victim are then subtracted from the surplus, before the next victim is checked. Only the columns of ``limit`` are
        compared. The places in ``late`` count as opted out.
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
        """Return the places sorted again, with the places in ``late`` counted as opted out.

        The caller must pass the places in rising order.
        """
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
        """Return an excerpt of the candidates around the place ``last``, as a tuple: (number of all candidates, start, places).

        ``places`` has the places of the candidates in the excerpt. ``start`` is the index of the excerpt's first candidate among
        all candidates.
        """
        places = np.flatnonzero(self.barred == CANDIDATE)
        start = around(len(places), int(places.searchsorted(last)))
        found: list[int] = places[start : start + RANKED_MAX].tolist()
        return len(places), start, found

    def standing(self, key: str) -> tuple[int, int, int, int]:
        """Return an allocation's place, its rank among the candidates, the number of candidates, and the reason that excludes it.

        Ranks are counted from 1. The rank of an excluded allocation is 0. The reason is CANDIDATE if the allocation is a
        candidate.
        """
        place = self.keys.index(key)
        reason = int(self.barred[place])
        candidates = np.flatnonzero(self.barred == CANDIDATE)
        number = int(candidates.searchsorted(place)) + 1 if reason == CANDIDATE else 0
        return place, number, len(candidates), reason

    def last_barred(self, reasons: int) -> int | None:
        """Return the number of the reason that excludes the most important excluded allocation.

        Only allocations that hold a wanted type are considered. Return None if there is no such allocation.

        Reasons with the number ``reasons`` or a higher number are ignored.
        """
        places = np.flatnonzero((self.barred != CANDIDATE) & (self.barred < reasons) & self.useful)
        return int(self.barred[places[-1]]) if len(places) else None

    # One place ------------------------------------------------------------------------------------

    def leaf(self, place: int) -> str:
        """Return the path of the queue of the allocation at a place."""
        return self.leaves[int(self.homes[place])]

    def leaves_of(self, places: Iterable[int]) -> list[str]:
        """Return the paths of the queues of some places, without repetitions."""
        homes = dict.fromkeys(self.homes.take(as_column(places)).tolist())
        return [self.leaves[home] for home in homes]

    def size(self, place: int) -> list[int]:
        """Return the amounts, by column, of the allocation at a place."""
        found: list[int] = self.sizes[:, place].tolist()
        return found

    def rank(self, places: Sequence[int]) -> list[int]:
        """Return the first sort key of each place.

        The key is one number, made of the originator flag, the priority and the opted-out flag. The opted-out flag is the
        lowest bit.
        """
        found: list[int] = self.ranks[list(places)].tolist()
        return found

    def importance(self, place: int, *, as_opted_out: bool) -> Importance:
        """Return the sort key of an allocation.

        If ``as_opted_out`` is true, the pod counts as opted out even if it did not opt out.
        """
        tail = tuple(int(line[place]) for line in self.tails)
        return int(self.ranks[place]) | as_opted_out, tail, self.keys[place]

    def disruption_groups(self) -> dict[int, tuple[str, ...]]:
        """Return, by place, the disruption groups of the candidates that have disruption groups."""
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
        """Yield (reason, leaf, number of allocations, keys) for each group of allocations that are not evicted.

        A group consists of the allocations of one leaf that are not evicted for one reason. ``keys`` are the keys of at most
        ``most`` allocations, the least important first. ``gone`` are the victims' places, their positions in the order of all
        allocations. ``reasons`` has the reasons of some candidates, by place. ``otherwise`` is the reason of all other
        candidates. An excluded allocation is in the group of the reason that excludes it.
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
    """The parameters of `running`, which sorts the running allocations of ``leaves``."""

    leaves: Sequence[str]
    types: Sequence[int]
    """The type index of each column of sizes. The first ``wanted`` of these types are the types that a quota run has to free."""
    wanted: int
    bars: Sequence[int]
    """The flags that exclude an allocation.

    The number of the reason is the index of the first of these flags that the allocation has. An allocation without any of these
    flags is excluded if it holds none of the wanted types. This reason has the number ``len(bars)``.
    """
    further: Callable[[int], tuple[int | str, ...]] | None = None
    """A function that returns, for a row, the values of the sort keys after the first key.

    If ``further`` is None, younger allocations come first.
    """


def running(snapshot: Snapshot, standing: Mask, asked: VictimQuery) -> Running:
    """Return the allocations of some leaves, sorted with the least important first.

    ``standing`` marks the rows of allocations that run and whose release is not ordered.
    """
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
    """Return the sort keys after the first key, one array for each, as numbers that sort in the same order as the values of the key."""
    if asked.further is None:
        return [-columns.created_ms[rows]]
    lines = zip(*map(asked.further, rows.tolist()), strict=True)
    return [_numbered(line) for line in lines]


def _numbered(values: Sequence[int | str]) -> Array:
    """Return, for each item, the rank of its value among all values. The values may be texts, or numbers that int64 cannot hold."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return as_column(map(places.__getitem__, values))


def _homes(snapshot: Snapshot, columns: AllocationColumns, leaves: Iterable[str]) -> Array:
    """Return, for each row, the index of its leaf in ``leaves``.

    Return -1 for a row of another leaf, or for a row without an allocation.
    """
    numbers = [snapshot.queues[path].number for path in leaves]
    known = int(columns.leaves.max(initial=0))
    table = np.full(max([known, *numbers], default=0) + 1, -1, dtype=np.int64)
    table[numbers] = range(len(numbers))
    return np.where(columns.alive, table[columns.leaves], -1)


def _ranks(priorities: Array, flags: Array) -> Array:
    """Return the first sort key of each row (Q11).

    The key is one number, made of the originator flag, the priority and the opted-out flag. The opted-out flag is the lowest
    bit.
    """
    originator = ((flags & ORIGINATOR) > 0).astype(np.int64) << 33
    return originator + (priorities + PRIORITY_BASE << 1) + ((flags & OPTED_OUT) > 0)


def _untie(stretches: Iterable[tuple[int, int]], places: Array, keys: list[str]) -> None:
    """Sort allocations with equal sort keys by their allocation keys, in both given lists.

    ``places`` are the places of the allocations, and ``keys`` their allocation keys in the same order. ``stretches`` has the
    (start, stop) indexes of each series of neighbours with equal sort keys. Each series is sorted in place.
    """
    for start, stop in stretches:
        line = sorted(zip(keys[start:stop], places[start:stop].tolist(), strict=True))
        keys[start:stop] = [key for key, _ in line]
        places[start:stop] = [place for _, place in line]


def _barred(flags: Array, bars: Sequence[int]) -> Array:
    found = np.full(len(flags), CANDIDATE, dtype=np.int64)
    for reason, flag in zip(reversed(range(len(bars))), reversed(bars), strict=True):
        found[(flags & flag) > 0] = reason
    return found
