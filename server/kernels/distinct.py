"""The distinct numbers of a column.

`np.unique` has the same result, but its first call in a process imports a package, which takes 10 ms.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from server.kernels.fit import Array, Mask

DENSE: Final = 4
"""The largest ratio of a table's size to the number of values at which counting the values in the table is faster than sorting the values."""
FEW: Final = 8
"""The number of rows up to which a loop over single rows is faster than arrays."""


def distinct(numbers: Array) -> list[int]:
    """Return the distinct numbers, in rising order."""
    line = np.sort(numbers)
    found: list[int] = line[starts(line)].tolist()
    return found


def as_column(numbers: Iterable[int]) -> Array:
    """Return the numbers as an array."""
    return np.fromiter(numbers, dtype=np.int64)


def marked(rows: Array) -> Mask:
    """Return a mask that is true at each number in ``rows``. The mask ends at the largest number. ``rows`` must not be empty.

    Row numbers are indexes of a column, so the largest number is small.
    """
    marks = np.zeros(int(rows.max()) + 1, dtype=np.bool_)
    marks[rows] = True
    return marks


def all_differ(rows: Array) -> bool:
    """Return whether no row occurs twice."""
    if len(rows) <= FEW:
        return len(set(rows.tolist())) == len(rows)
    return int(np.count_nonzero(marked(rows))) == len(rows)


def starts(line: Array) -> Array:
    """Return the indexes at which runs of equal numbers begin, in an array in rising order."""
    fresh = np.ones(len(line), dtype=np.bool_)
    np.not_equal(line[1:], line[:-1], out=fresh[1:])
    return np.flatnonzero(fresh)


def counted(line: Array) -> tuple[list[int], list[int], list[int]]:
    """Return the distinct numbers of a sorted array, the index at which each number begins, and how often each number occurs."""
    first = starts(line)
    counts = np.diff(first, append=len(line))
    return line[first].tolist(), first.tolist(), counts.tolist()


def tally(numbers: Array) -> list[int]:
    """Return how often each number from 0 to the largest number occurs. The numbers may come in any order, and must not be negative."""
    found: list[int] = np.bincount(numbers).tolist()
    return found


def _numbered_densely(numbers: Array) -> tuple[list[int], Array]:
    """Return the result of `numbered` for small numbers, computed with a table of the numbers instead of sorting."""
    known = np.flatnonzero(marked(numbers))
    table = np.zeros(int(known[-1]) + 1, dtype=np.int64)
    table[known] = np.arange(len(known))
    return known.tolist(), table.take(numbers)


def numbered(numbers: Array) -> tuple[list[int], Array]:
    """Return the distinct numbers in rising order, and for each item the index of its number among the distinct numbers."""
    if len(numbers) and int(numbers.min()) >= 0 and int(numbers.max()) < DENSE * len(numbers):
        return _numbered_densely(numbers)
    order = numbers.argsort(kind="stable")
    line = numbers[order]
    first = starts(line)
    places = np.empty(len(numbers), dtype=np.int64)
    places[order] = np.repeat(np.arange(len(first)), np.diff(first, append=len(line)))
    return line[first].tolist(), places
