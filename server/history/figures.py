"""Figures of waiting times, exact in whole numbers."""

from collections.abc import Sequence
from typing import Final

MEDIAN: Final = 50
NINETIETH: Final = 90
NINETY_NINTH: Final = 99


def percentile(ordered: Sequence[int], percent: int) -> int:
    """Return a percentile of sorted values: at least ``percent`` % of the values are at most as large as the result.

    The result is the smallest of the values with this property. Return 0 for no values. Of n values, return the value at rank ``n
    * percent / 100``, rounded up. The result is always one of the values, and never lies between two.
    """
    if not ordered:
        return 0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(rank, 1) - 1]
