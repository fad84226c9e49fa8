"""The comparison of sparse demands with rows of free capacity."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Demand = tuple[tuple[int, int], ...]
"""The amounts by column that an item needs."""


def any_fit(demands: Sequence[Demand], rows: Sequence[Sequence[int]]) -> list[bool]:
    """Return, for each demand, whether at least one row of ``rows`` holds the demand in every column that the demand names.

    Demands are sparse (column, quantity) pairs. ``rows`` are dense and have equal widths.
    """
    free = np.asarray(rows, dtype=np.int64)
    verdicts = []
    for demand in demands:
        fitting = np.ones(len(free), dtype=bool)
        for column, quantity in demand:
            fitting &= free[:, column] >= quantity
        verdicts.append(bool(fitting.any()))
    return verdicts


class Rows:
    """Rows of free capacity, with which many demands are compared one after another."""

    __slots__ = ("_columns", "_failed", "_most")

    def __init__(self, rows: Sequence[Sequence[int]] | Array) -> None:
        free = np.asarray(rows, dtype=np.int64)
        self._columns = np.ascontiguousarray(free.T)
        self._most: list[int] = self._columns.max(axis=1).tolist() if len(free) else []
        """The largest amount in each column."""
        self._failed: Demand | None = None
        """The smallest demand so far that no row can hold. A demand that is at least as large in every column fits no row either."""

    def hold(self, demand: Demand) -> bool:
        """Return whether at least one row holds the demand in every column that the demand names."""
        if not self._most or any(self._most[column] < quantity for column, quantity in demand):
            return False
        if self._failed is not None and _includes(demand, self._failed):
            return False
        fitting = np.ones(self._columns.shape[1], dtype=np.bool_)
        for column, quantity in demand:
            fitting &= self._columns[column] >= quantity
        if fitting.any():
            return True
        if self._failed is None or _includes(self._failed, demand):
            self._failed = demand
        return False


class SlotRows:
    """Rows of free capacity that belong to numbered slots."""

    __slots__ = ("_free", "_slots")

    def __init__(self, slots: Sequence[int], rows: Sequence[Sequence[int]]) -> None:
        self._slots = np.array(slots, dtype=np.int64)
        self._free = np.array(rows, dtype=np.int64)

    def marked(self, marks: bytearray) -> Rows:
        """Return the rows of the slots whose bytes in ``marks`` are 1. All other bytes must be 0."""
        return Rows(self._free[np.frombuffer(marks, dtype=np.bool_)[self._slots]])


def _includes(demand: Demand, other: Demand) -> bool:
    """Return whether ``demand`` is at least as large as ``other`` in every column that ``other`` names."""
    wanted = dict(demand)
    return all(wanted.get(column, -1) >= quantity for column, quantity in other)


def equal(one: Mask | None, other: Mask | None) -> bool:
    """Return whether two masks mark the same rows.

    None is equal only to None.
    """
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
