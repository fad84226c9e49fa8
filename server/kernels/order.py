"""Orders rows by columns, and walks an order as far as sums and bounds allow.

Sums of a column stay under 2^62 (design 6.13), so that nothing here leaves int64.
"""

from collections.abc import Sequence

import numpy as np

from server.kernels.fit import Array, Mask


def ranked(columns: Sequence[Array]) -> Array:
    """The row numbers in the order of the columns, the first counting most; equal rows keep their order."""
    return np.lexsort(tuple(reversed(columns)))


def tied(columns: Sequence[Array], order: Array) -> list[tuple[int, int]]:
    """Stretches (start, stop) of the order whose rows are equal in all columns, those of two rows and more."""
    same = np.ones(len(order) + 1, dtype=np.int8)
    same[[0, -1]] = 0
    for column in columns:
        line = column[order]
        same[1:-1] &= line[1:] == line[:-1]
    edges = np.flatnonzero(np.diff(same))
    return [(int(start), int(stop) + 1) for start, stop in edges.reshape(-1, 2)]


def grouped(groups: Array, most: int) -> list[tuple[int, int, list[int]]]:
    """(group, rows, the first rows of it) for each group that has rows, groups rising; negative groups are left out."""
    order = groups.argsort(kind="stable")
    order = order[int(np.searchsorted(groups[order], 0)) :]
    found, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    return [
        (group, count, order[start : start + min(count, most)].tolist())
        for group, start, count in zip(
            found.tolist(), starts.tolist(), counts.tolist(), strict=True
        )
    ]


def takeable(sizes: Array, wanted: Sequence[int], room: Sequence[int]) -> tuple[int, list[int]]:
    """How many rows from the first on can be taken without leaving one out, and their sum.

    A row can be taken when it has something of a column of which those before it brought less than is wanted, and when
    the sum up to it stays within the room of every column that it has something of. The first columns are the wanted.
    """
    sums = sizes.cumsum(axis=0)
    first = len(wanted)
    held = sizes > 0
    useful = ((sums[:, :first] - sizes[:, :first] < wanted) & held[:, :first]).any(axis=1)
    good = np.asarray(useful & ~((sums > room) & held).any(axis=1))
    count = len(good) if good.all() else int(good.argmin())
    return count, sums[count - 1].tolist() if count else [0] * sizes.shape[1]


def within(sizes: Array, room: Array) -> Mask:
    """The rows that stay within the room of every column that they have something of; ``room`` has one line or one a row."""
    return np.asarray(((sizes == 0) | (sizes <= room)).all(axis=1))
