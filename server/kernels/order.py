"""The order of rows by columns, and the number of rows that can be taken in that order within given sums and limits.

Sums of a column stay under 2^62 (design 6.13), so that no result leaves int64.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from server.kernels.distinct import counted
from server.kernels.fit import Array, Mask

FEW: Final = 96
"""The number of items up to which a loop over single items is faster than arrays."""


def ranked(columns: Sequence[Array]) -> Array:
    """Return the row numbers sorted by the columns. The first column is compared first. Rows that are equal in all columns keep their order."""
    return np.lexsort(tuple(reversed(columns)))


def tied(columns: Sequence[Array], order: Array) -> list[tuple[int, int]]:
    """Return the runs of equal rows as (start, stop) pairs of indexes of the order.

    A run has two or more rows, which are equal in all columns, and ``stop`` is the index after its last row.
    """
    same = np.ones(len(order) + 1, dtype=np.int8)
    same[[0, -1]] = 0
    for column in columns:
        line = column[order]
        same[1:-1] &= line[1:] == line[:-1]
    edges = np.flatnonzero(np.diff(same))
    return [(int(start), int(stop) + 1) for start, stop in edges.reshape(-1, 2)]


def grouped(groups: Array, most: int) -> list[tuple[int, int, list[int]]]:
    """Return, for each group that has rows, the group number, the number of its rows, and its first ``most`` rows.

    The group numbers are in rising order.

    Rows with a negative group number are left out.
    """
    order = groups.argsort(kind="stable")
    order = order[int(np.searchsorted(groups[order], 0)) :]
    return [
        (group, count, order[start : start + min(count, most)].tolist())
        for group, start, count in zip(*counted(groups[order]), strict=True)
    ]


def takeable(sizes: Array, wanted: Sequence[int], limit: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many items can be taken before one must be left out, and the sum of the taken items by column.

    ``sizes[column, item]`` is the amount of an item in a column. The wanted columns are the first ``len(wanted)`` columns. An
    item can be taken under two conditions. First, it has a positive amount in a wanted column for which the items before it do
    not suffice. Second, in every column in which it has a positive amount, the sum up to and including the item is within
    ``limit``.
    """
    sums = sizes.cumsum(axis=1)
    useful = np.zeros(sizes.shape[1], dtype=np.bool_)
    for total, size, most in zip(sums, sizes, wanted, strict=False):
        useful |= (total - size < most) & (size > 0)
    count = _stretch(useful & _bounded(sizes, sums, limit))
    return count, sums[:, count - 1].tolist() if count else [0] * len(sizes)


def within(sizes: Array, limit: Sequence[int | Array]) -> Mask:
    """Return, for each item, whether all of its positive amounts are within the ``limit`` of their columns.

    ``sizes[column, item]`` is the amount of an item in a column. ``limit`` has, for each column, one number for all items or one
    number for each item.
    """
    return _bounded(sizes, sizes, limit)


def _bounded(sizes: Array, sums: Array, limit: Sequence[int | Array]) -> Mask:
    fine = np.ones(sizes.shape[1], dtype=np.bool_)
    for total, size, most in zip(sums, sizes, limit, strict=True):
        within_it = total <= most
        fine &= within_it if within_it.all() else within_it | (size == 0)
    return fine


def _stretch(good: Mask) -> int:
    """Return the index of the first false item of ``good``, or the number of items if all are true."""
    if not len(good):
        return 0
    first = int(good.argmin())
    return len(good) if good[first] else first


def positive(sizes: Array) -> Mask:
    """Return, for each item, whether any of its amounts is positive. ``sizes[column, item]`` is the amount of an item in a column."""
    found = np.zeros(sizes.shape[1], dtype=np.bool_)
    for size in sizes:
        found |= size > 0
    return found


def fitting(sizes: Array, limit: Sequence[int]) -> list[int]:
    """Return the items that are taken if the items are tried in turn.

    An item is taken if it fits into the amounts of ``limit`` that the items taken before it leave.

    ``sizes[column, item]`` is the amount of an item in a column.
    """
    left, found, free = np.arange(sizes.shape[1]), list[int](), list(limit)
    while len(left) > FEW:
        left = left[within(sizes[:, left], free)]  # the limit only falls
        part = sizes[:, left]
        count = _stretch(_bounded(part, part.cumsum(axis=1), free))
        found += left[:count].tolist()
        free = [have - int(line[:count].sum()) for have, line in zip(free, part, strict=True)]
        left = left[count:]
    for item, size in zip(left.tolist(), sizes[:, left].T.tolist(), strict=True):
        if _fits(size, free):
            found.append(item)
            free = [have - amount for have, amount in zip(free, size, strict=True)]
    return found


def _fits(size: Sequence[int], limit: Sequence[int]) -> bool:
    for amount, have in zip(size, limit, strict=True):  # noqa: SIM110 - all() costs a generator
        if amount > have and amount > 0:
            return False
    return True
