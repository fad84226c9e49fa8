"""The order of rows by columns, and the part of an order that sums and bounds allow.

Sums of a column stay under 2^62 (design 6.13), so that nothing here leaves int64.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from server.kernels.distinct import counted
from server.kernels.fit import Array, Mask

FEW: Final = 96
"""The number of items up to which one at a time is faster."""


def ranked(columns: Sequence[Array]) -> Array:
    """Return the row numbers in the order of the columns, the first counting most; equal rows keep their order."""
    return np.lexsort(tuple(reversed(columns)))


def tied(columns: Sequence[Array], order: Array) -> list[tuple[int, int]]:
    """Return the stretches (start, stop) of two rows and more in the order that are equal in all columns."""
    same = np.ones(len(order) + 1, dtype=np.int8)
    same[[0, -1]] = 0
    for column in columns:
        line = column[order]
        same[1:-1] &= line[1:] == line[:-1]
    edges = np.flatnonzero(np.diff(same))
    return [(int(start), int(stop) + 1) for start, stop in edges.reshape(-1, 2)]


def grouped(groups: Array, most: int) -> list[tuple[int, int, list[int]]]:
    """Return (group, rows, the first ``most`` rows of it) for each group that has rows, groups rising.

    Negative groups are left out.
    """
    order = groups.argsort(kind="stable")
    order = order[int(np.searchsorted(groups[order], 0)) :]
    return [
        (group, count, order[start : start + min(count, most)].tolist())
        for group, start, count in zip(*counted(groups[order]), strict=True)
    ]


def takeable(sizes: Array, wanted: Sequence[int], room: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many items from the first on can be taken without leaving one out, and their sum. A line a column.

    An item can be taken when it has something of a column of which those before it brought less than is wanted, and when the
    sum up to it stays within ``room`` in every column that it has something of. The first columns are the wanted ones.
    """
    sums = sizes.cumsum(axis=1)
    useful = np.zeros(sizes.shape[1], dtype=np.bool_)
    for total, size, most in zip(sums, sizes, wanted, strict=False):
        useful |= (total - size < most) & (size > 0)
    count = _stretch(useful & _bounded(sizes, sums, room))
    return count, sums[:, count - 1].tolist() if count else [0] * len(sizes)


def within(sizes: Array, room: Sequence[int | Array]) -> Mask:
    """Return by item whether it stays within ``room`` in every column of which it has something. A line a column.

    ``room`` has for a column one number for all items, or one for each.
    """
    return _bounded(sizes, sizes, room)


def _bounded(sizes: Array, sums: Array, room: Sequence[int | Array]) -> Mask:
    fine = np.ones(sizes.shape[1], dtype=np.bool_)
    for total, size, most in zip(sums, sizes, room, strict=True):
        within_it = total <= most
        fine &= within_it if within_it.all() else within_it | (size == 0)
    return fine


def _stretch(good: Mask) -> int:
    """Return how many items from the first on are good."""
    if not len(good):
        return 0
    first = int(good.argmin())
    return len(good) if good[first] else first


def positive(sizes: Array) -> Mask:
    """Return by item whether it has something of any column. A line a column."""
    found = np.zeros(sizes.shape[1], dtype=np.bool_)
    for size in sizes:
        found |= size > 0
    return found


def fitting(sizes: Array, room: Sequence[int]) -> list[int]:
    """Return the items that fit, in order, each into what the ones before it left of ``room``. A line a column."""
    left, found, free = np.arange(sizes.shape[1]), list[int](), list(room)
    while len(left) > FEW:
        left = left[within(sizes[:, left], free)]  # what does not fit now never will
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


def _fits(size: Sequence[int], room: Sequence[int]) -> bool:
    for amount, have in zip(size, room, strict=True):  # noqa: SIM110 - all() costs a generator
        if amount > have and amount > 0:
            return False
    return True
