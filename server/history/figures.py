"""Figures of waiting times, exact in whole numbers."""

from collections.abc import Sequence
from typing import Final

MEDIAN: Final = 50
NINETIETH: Final = 90
NINETY_NINTH: Final = 99


def percentile(ordered: Sequence[int], percent: int) -> int:
    """Return the least value within which this part of the values lies; 0 if there are none. The values are in order.

    Of n values it is the one at rank ``n * percent / 100``, rounded up: no value between two of them is invented.
    """
    if not ordered:
        return 0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(rank, 1) - 1]
