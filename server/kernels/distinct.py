"""Which numbers occur in a column: `np.unique`, whose first call in a process imports a package of 10 ms."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from server.kernels.fit import Array, Mask

DENSE: Final = 4
"""A table of this many places for each number is made sooner than the numbers are sorted."""
FEW: Final = 8
"""So many rows are looked at faster one by one."""


def distinct(numbers: Array) -> list[int]:
    """The different numbers, rising."""
    line = np.sort(numbers)
    found: list[int] = line[starts(line)].tolist()
    return found


def as_column(numbers: Iterable[int]) -> Array:
    """The numbers one below the other."""
    return np.fromiter(numbers, dtype=np.int64)


def marked(rows: Array) -> Mask:
    """By row whether it occurs, up to the last that does. Rows are places in a column, so that the largest is small."""
    marks = np.zeros(int(rows.max()) + 1, dtype=np.bool_)
    marks[rows] = True
    return marks


def all_differ(rows: Array) -> bool:
    """Does no row occur twice?"""
    if len(rows) <= FEW:
        return len(set(rows.tolist())) == len(rows)
    return int(np.count_nonzero(marked(rows))) == len(rows)


def starts(line: Array) -> Array:
    """Where each stretch of equal numbers begins in a line that rises."""
    fresh = np.ones(len(line), dtype=np.bool_)
    np.not_equal(line[1:], line[:-1], out=fresh[1:])
    return np.flatnonzero(fresh)


def counted(line: Array) -> tuple[list[int], list[int], list[int]]:
    """Of a line that rises its different numbers, where each begins, and how often it occurs."""
    first = starts(line)
    counts = np.diff(first, append=len(line))
    return line[first].tolist(), first.tolist(), counts.tolist()


def tally(numbers: Array) -> list[int]:
    """How often each number occurs, from 0 to the largest one; the numbers are in any order and not negative."""
    found: list[int] = np.bincount(numbers).tolist()
    return found


def _numbered_densely(numbers: Array) -> tuple[list[int], Array]:
    """Number small numbers without sorting them: a table holds the place of each."""
    known = np.flatnonzero(marked(numbers))
    table = np.zeros(int(known[-1]) + 1, dtype=np.int64)
    table[known] = np.arange(len(known))
    return known.tolist(), table.take(numbers)


def numbered(numbers: Array) -> tuple[list[int], Array]:
    """The different numbers, rising, and by item the place of its number among them."""
    if len(numbers) and int(numbers.min()) >= 0 and int(numbers.max()) < DENSE * len(numbers):
        return _numbered_densely(numbers)
    order = numbers.argsort(kind="stable")
    line = numbers[order]
    first = starts(line)
    places = np.empty(len(numbers), dtype=np.int64)
    places[order] = np.repeat(np.arange(len(first)), np.diff(first, append=len(line)))
    return line[first].tolist(), places
