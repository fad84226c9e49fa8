"""Bounds on covering sets.

A covering set is a set of rows of one group. In each column, the sum of their amounts is at least the amount that the group
needs. The bounds say whether a group has a covering set, and how much such a set costs at least. Rows come sorted by group (see
`Groups`). Every bound holds for all covering sets of the group, whatever other rules a covering set has to keep (design 6.7).
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from server.kernels.fit import Array, Mask

PRIORITY_BASE: Final = 1 << 31
"""The number that is added to a priority in sort keys, so that the sum is not negative and is less than 2^32."""
_ORIGINATOR: Final = 33
_OPTED: Final = 34
_HUGE: Final = 1 << 62
Excess = npt.NDArray[Any]
"""The type of an excess: int64, or Python integers for values that int64 cannot hold."""


class Rows(NamedTuple):
    """The rows that can be taken: the amounts that each row frees, one for each column, and the costs of taking the row.

    ``opted`` and ``originator`` mark rows that are used only as a last resort.
    """

    resources: Array
    opted: Mask
    originator: Mask
    priorities: Array


class Bounds(NamedTuple):
    """The bounds of each group: whether its rows can cover the need, and lower bounds on the cost of a covering set."""

    covered: Mask
    rank: Array
    """Lower bounds, for a covering set, on the number of opted-out rows, the number of originators, and the highest priority.

    The three bounds are combined in one number (see `parts`).
    """
    fewest: Array
    """A lower bound on the number of rows of a covering set."""
    excess: Excess
    """A lower bound on the waste of a covering set.

    The set may free more of a column than is needed. The waste is the largest such surplus, as a share of the column's whole.
    Shares are multiplied by the least common multiple of all wholes, so that they are whole numbers (see `measures`).
    """


class Groups(NamedTuple):
    """The rows, divided into groups.

    A group consists of all rows with one *place*, a number such as the row of a node. The rows must be sorted by place.
    """

    places: Array
    """The place of each group."""
    starts: Array
    """The index of each group's first row."""
    at: Array
    """For each row, the index of its group."""

    @property
    def ends(self) -> Array:
        """Return the index of the row at which each group begins, followed by the number of all rows."""
        return np.concatenate((self.starts, [len(self.at)]))


def grouped(sorted_places: Array) -> Groups:
    """Return the groups of the rows with these places, which must be sorted. There must be at least one row."""
    first = np.ones(len(sorted_places), dtype=np.bool_)
    np.not_equal(sorted_places[1:], sorted_places[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    return Groups(sorted_places[starts], starts, np.cumsum(first) - 1)


def parts(rank: int) -> tuple[int, int, int]:
    """Return the parts of a rank: opted-out, originator, highest priority."""
    return rank >> _OPTED, rank >> _ORIGINATOR & 1, (rank & (1 << _ORIGINATOR) - 1) - PRIORITY_BASE


def priorities(ranked: Bounds) -> Array:
    """Return, by group, the highest priority, which is part of the group's rank."""
    found: Array = (ranked.rank & (1 << _ORIGINATOR) - 1) - PRIORITY_BASE
    return found


def measures(whole: Sequence[int]) -> tuple[int, ...]:
    """Return one factor for each column that turns amounts into comparable shares of the whole.

    ``whole`` has, for each column, the amount that is a share of 1. The factor of a column is the least common multiple of
    these amounts, divided by the amount of the column. The factor of a column with the amount 0 is 0.
    """
    positive = [one for one in whole if one > 0]
    common = int(np.lcm.reduce(np.array(positive, dtype=object))) if positive else 1
    return tuple(common // one if one > 0 else 0 for one in whole)


def bounds(rows: Rows, groups: Groups, need: Array, weights: Sequence[int]) -> Bounds:
    """Return the bounds of each group. ``need`` has one line of amounts for each group. No amount is negative."""
    starts, group = groups.starts, groups.at
    sums = np.add.reduceat(rows.resources, starts, axis=0)
    covered = _meets(sums, need)
    rank, count = _together(rows, groups, need, covered)
    excess = _vain(
        np.minimum.reduceat(rows.resources, starts, axis=0) * count[:, None], need, weights
    )
    wanted = need.take(group, axis=0)
    alone = _meets(rows.resources, wanted)
    count = np.maximum(count, 2)
    if alone.any():
        single, least = _alone(rows, starts, group, wanted, weights, alone)
        better = (single < rank) | ((single == rank) & (single < _HUGE))
        rank = np.where(better, single, rank)
        count = np.where(better, 1, count)
        excess = np.where(better, least, excess)
    return Bounds(covered, rank, count, excess)


def _together(rows: Rows, groups: Groups, need: Array, covered: Mask) -> tuple[Array, Array]:
    """Return, for each group, lower bounds on the rank and the size of a covering set with two or more rows."""
    starts = groups.starts
    rank = _priority(rows, starts, groups.at, need) + PRIORITY_BASE
    for last_resort, bit in ((rows.opted, _OPTED), (rows.originator, _ORIGINATOR)):
        others = covered
        if last_resort.any():
            others = _covers(rows.resources * ~last_resort[:, None], starts, need)
        rank = rank + (~others).astype(np.int64) * (1 << bit)
    most = np.maximum(np.maximum.reduceat(rows.resources, starts, axis=0), 1)
    return rank, np.maximum((-(-need // most)).max(axis=1), 2)


def _covers(resources: Array, starts: Array, need: Array) -> Mask:
    return _meets(np.add.reduceat(resources, starts, axis=0), need)


def _meets(have: Array, need: Array) -> Mask:
    """Return, for each line, whether ``have`` is at least ``need`` in every column.

    The lines are compared one column at a time, because there are few columns.
    """
    met = np.ones(len(have), dtype=np.bool_)
    for column in range(have.shape[1]):
        met &= have[:, column] >= need[:, column]
    return met


def _priority(rows: Rows, starts: Array, group: Array, need: Array) -> Array:
    """Return, for each group, a priority: the lowest one for which the rows of this priority and of lower priorities cover the need.

    If the rows do not cover the need, return the group's highest priority.
    """
    priorities = rows.priorities
    if int(priorities.min()) == int(priorities.max()):
        return np.full(len(starts), priorities[0], dtype=np.int64)
    order = np.argsort((group << 33) + priorities + PRIORITY_BASE, kind="stable")
    ends = np.concatenate((starts[1:], [len(order)]))
    sums = np.cumsum(rows.resources.take(order, axis=0), axis=0)
    before = np.zeros_like(need)
    before[1:] = sums[starts[1:] - 1]
    enough = _meets(sums, (before + need).take(group, axis=0))
    at = np.where(enough, np.arange(len(order)), (ends - 1)[group])
    return np.asarray(priorities[order][np.minimum.reduceat(at, starts)])


def _alone(  # noqa: PLR0913, PLR0917 - arrays in, arrays out
    rows: Rows, starts: Array, group: Array, wanted: Array, weights: Sequence[int], alone: Mask
) -> tuple[Array, Excess]:
    """Return, for each group, the rank and excess of the best single row that covers the need.

    If no single row covers the need of a group, the rank of the group is larger than any valid rank.

    ``wanted`` has, for each row, the need of its group.
    """
    ranks = rows.priorities + PRIORITY_BASE
    ranks = ranks + rows.opted.astype(np.int64) * (1 << _OPTED)
    ranks = ranks + rows.originator.astype(np.int64) * (1 << _ORIGINATOR)
    ranks = np.where(alone, ranks, _HUGE)
    best = np.minimum.reduceat(ranks, starts)
    vain = _vain(rows.resources, wanted, weights)
    vain = np.where(ranks == best.take(group), vain, vain.max())
    return best, np.minimum.reduceat(vain, starts)


def in_order(resources: Array, groups: Groups, need: Array) -> Array:
    """Return, for each group, how many rows must be taken in order until they cover the need.

    The number is computed for each column of the need, counting only rows with an amount in that column. The result is the
    largest of these numbers. The rows of a group must already be sorted in the order in which they are to be taken. The result
    of a group that cannot cover its need has no meaning.
    """
    at, starts = groups.at, groups.starts
    most = np.zeros(len(starts), dtype=np.int64)
    for column in np.flatnonzero(need.any(axis=0)).tolist():
        held, wanted = resources[:, column], need[:, column]
        given, helping = np.cumsum(held), np.cumsum(held > 0)
        before = given[starts] - held[starts]
        enough = given - before[at] >= wanted[at]
        last = np.minimum.reduceat(np.where(enough, np.arange(len(at)), len(at) - 1), starts)
        number = helping[last] - helping[starts] + (held[starts] > 0)
        most = np.maximum(most, np.where(wanted > 0, number, 0))
    return most


def shares(lines: Array, weights: Sequence[int]) -> Excess:
    """Return the dominant share of each line: the largest product of a column's amount and the column's weight."""
    return _vain(lines, np.zeros_like(lines), weights)


def _vain(freed: Array, need: Array, weights: Sequence[int]) -> Excess:
    """Return the waste of each line: the largest surplus over the need, as a share of a column's whole (see `measures`)."""
    most: Excess = np.zeros(len(freed), dtype=np.int64)
    for column, weight in enumerate(weights):
        if not weight:
            continue
        over: Excess = np.maximum(freed[:, column] - need[:, column], 0)
        largest = int(over.max(initial=0))
        if not largest:
            continue  # a large weight would not fit an int64 either
        if largest * weight >= _HUGE:
            over = over.astype(object)
        most = np.maximum(most, over * weight)
    return most


def order(ranked: Bounds, names: Array) -> list[int]:
    """Return the groups whose need is covered, the best bound first. ``names`` breaks ties."""
    groups = np.flatnonzero(ranked.covered)
    if ranked.excess.dtype == object:
        keys = zip(
            ranked.rank[groups].tolist(),
            ranked.fewest[groups].tolist(),
            ranked.excess[groups].tolist(),
            names[groups].tolist(),
            groups.tolist(),
            strict=True,
        )
        return [one[-1] for one in sorted(keys)]
    lines = (names[groups], ranked.excess[groups], ranked.fewest[groups], ranked.rank[groups])
    found: list[int] = groups[np.lexsort(lines)].tolist()
    return found
