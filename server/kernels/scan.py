"""Scans of all rows at once for the rows that hold a demand, the row that ranks best, and the row that lacks least.

All results are exact for whole numbers up to 2^62. When a quotient would not fit int64, Python's integers are used.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from server.kernels.fit import Array, Mask

Sparse = tuple[tuple[int, int], ...]
Ranks = npt.NDArray[Any]
"""The type of ranks: int64, or Python integers for values that int64 cannot hold."""

SCALE: Final = 20
_SHIFTABLE: Final = 1 << (62 - SCALE)
_SUMMABLE: Final = 1 << 56
"""The largest value of a term with which a sum over at most 64 columns stays within int64."""


def holding(free: Array, demand: Sparse) -> Mask:
    """Return a mask of the rows that hold at least the demand in every column that the demand names."""
    fitting = np.ones(len(free), dtype=np.bool_)
    for column, quantity in demand:
        fitting &= free[:, column] >= quantity
    return fitting


def scaled(part: Array, whole: Array) -> Ranks:
    """Return floor(part * 2^20 / whole) for each row, for 0 <= part < 2^62 and 0 < whole < 2^62."""
    if not len(part) or int(part.max()) < _SHIFTABLE:
        return (part << SCALE) // whole
    units, rest = part // whole, part % whole
    if int(units.max()) >= _SHIFTABLE:
        pairs = zip(part.tolist(), whole.tolist(), strict=True)
        return np.array([(one << SCALE) // all_of_it for one, all_of_it in pairs], dtype=object)
    quotient = units
    for _ in range(SCALE):
        rest = rest << 1
        bit = rest >= whole
        rest = rest - np.where(bit, whole, 0)
        quotient = (quotient << 1) | bit
    return quotient


def fullness(free: Array, whole: Array, weights: Iterable[tuple[int, int]]) -> Ranks:
    """Return the weighted sum of (whole - free) / whole for each row, in units of 2^-20.

    A column with a whole of 0 is left out of the sum.
    """
    sums: Ranks = np.zeros(len(free), dtype=np.int64)
    for column, weight in weights:
        measure = whole[:, column]
        used = np.where(measure > 0, measure - free[:, column], 0)
        sums = sums + _times(scaled(used, np.maximum(measure, 1)), weight)
    return sums


def _times(ranks: Ranks, weight: int) -> Ranks:
    if ranks.dtype != object and len(ranks) and int(ranks.max()) * weight >= _SUMMABLE:
        ranks = ranks.astype(object)
    return ranks * weight


def lacking(free: Array, whole: Array, demand: Sparse) -> Ranks:
    """Return, for each row, the sum of missing / whole over the demand's columns, in units of 2^-20.

    The ``whole`` of each row must hold the demand.
    """
    sums: Ranks = np.zeros(len(free), dtype=np.int64)
    for column, quantity in demand:
        missing = np.maximum(quantity - np.maximum(free[:, column], 0), 0)
        sums = sums + scaled(missing, whole[:, column])
    return sums


def first(rows: Array, ranks: Ranks, numbers: Array) -> int:
    """Return the row with the smallest pair of rank and number, or -1 if there are no rows.

    ``ranks`` has one item for each item of ``rows``. ``numbers`` has one item for each row of the table, and is indexed by row.
    """
    if not len(rows):
        return -1
    tied = rows[ranks == ranks.min()]
    return int(tied[numbers[tied].argmin()])
