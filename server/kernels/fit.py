"""The comparison of sparse demands with rows of free capacity."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def any_fit(
    demands: Sequence[tuple[tuple[int, int], ...]], rows: Sequence[Sequence[int]]
) -> list[bool]:
    """Return for each demand whether at least one row of ``rows`` holds it in every column that it names.

    Demands are sparse (column, quantity) pairs, ``rows`` are dense and of equal width.
    """
    free = np.asarray(rows, dtype=np.int64)
    verdicts = []
    for demand in demands:
        fitting = np.ones(len(free), dtype=bool)
        for column, quantity in demand:
            fitting &= free[:, column] >= quantity
        verdicts.append(bool(fitting.any()))
    return verdicts


def equal(one: Mask | None, other: Mask | None) -> bool:
    """Return whether two masks mark the same rows. None is equal only to None."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
