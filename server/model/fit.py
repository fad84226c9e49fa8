"""The one definition of fit: whether a demand fits, how full a node or queue is, and which priority a parent queue sees.

All functions are pure and use whole numbers. The heaps that order queues and asks call these functions on the live state, and the
scan kernel calls them on a Trial. The reference implementation of the tests calls the functions for one ask at a time (design 1.7
and 6.3). A *demand* is a tuple of ``(index, quantity)`` pairs, where the index identifies a resource type of the partition.
*Amounts* are lists with one quantity for each such index. A *measure* is a list of the amounts with which a usage is compared,
such as a guarantee or a max.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from server.model.asks import PRIORITY_MAX, PRIORITY_MIN

Demand = tuple[tuple[int, int], ...]
Amounts = list[int]

SHARE_BITS: Final = 32
SCORE_BITS: Final = 20
SHARE_ONE: Final = 1 << SHARE_BITS
"""The scaled value of a share of 1. With this share, the usage equals the measure to which it is compared."""
SHARE_UNBOUNDED: Final = 1 << 62
"""The share of a queue that uses a resource type of which the measure is 0."""


def fits(demand: Demand, free: Sequence[int]) -> bool:
    """Return whether ``free`` is large enough for the demand, in every type that the demand requests.

    The amounts of other types in ``free`` may be negative.
    """
    for index, quantity in demand:  # noqa: SIM110 - on the placement path, and all() costs a generator
        if free[index] < quantity:
            return False
    return True


def share(usage: Sequence[int], measure: Sequence[int]) -> int:
    """Return the dominant share: the largest quotient of usage and measure over all types (design 6.3)."""
    largest = 0
    for index, used in enumerate(usage):
        if used > 0:
            base = measure[index]
            ratio = (used << 32) // base if base > 0 else SHARE_UNBOUNDED
            if ratio > largest:  # noqa: PLR1730 - on the placement path, and max() costs a call
                largest = ratio
    return largest


Scale = tuple[int, int]
"""The two numbers by which a usage is divided by its measure: the bits of a left shift before the division, and the divisor.

The divisor is 0 if the type has no measure.
"""

NO_SCALE: Final[Scale] = (SHARE_BITS, 0)
"""The scale of a type without a measure."""


def scales(measure: Iterable[int]) -> list[Scale]:
    """Return, for each type, the `Scale` that yields (usage << 32) // measure.

    Common powers of 2 are removed so that the numbers stay small.

    Memory in whole MiB thus needs no long division. The quotient stays the same, because rounding down twice gives the same
    result as rounding down once.
    """
    return [_scale(base) for base in measure]


@lru_cache(maxsize=1_024)
def _scale(base: int, bits: int = SHARE_BITS) -> Scale:
    zeros = min((base & -base).bit_length() - 1, bits) if base else 0
    return bits - zeros, base >> zeros


Part = tuple[int, int, int, int, int]
"""The values of one type in the score of a node: index, weight, capacity, and the capacity as a `Scale`."""


@lru_cache(maxsize=1_024)
def parts(capacity: tuple[int, ...], weights: tuple[tuple[int, int], ...]) -> tuple[Part, ...]:
    """Return the parts whose sum is the score of a node with this capacity, with the reduced numbers of `scales`.

    All nodes of the same capacity share one object. For ten thousand nodes there are thus only a few objects, which stay in the
    cache of the processor.
    """
    return tuple(
        (index, weight, capacity[index], *_scale(capacity[index], SCORE_BITS))
        for index, weight in weights
        if capacity[index] > 0
    )


def score(capacity: Sequence[int], free: Sequence[int], weights: Iterable[tuple[int, int]]) -> int:
    """Return the degree to which a node is used: the weighted sum of used / capacity, in units of 2^-20.

    Promised capacity counts as used.
    """
    points = 0
    for index, weight in weights:
        whole = capacity[index]
        if whole > 0:
            points += weight * (((whole - free[index]) << SCORE_BITS) // whole)
    return points


def shortfall(demand: Demand, capacity: Sequence[int], free: Sequence[int]) -> int:
    """Return the capacity that a node lacks for a demand, as one number.

    The result is the sum of missing / capacity over the types, in units of 2^-20.
    """
    points = 0
    for index, quantity in demand:
        missing = quantity - max(free[index], 0)
        if missing > 0:
            points += (missing << 20) // capacity[index] if capacity[index] else SHARE_UNBOUNDED
    return points


def adjusted(priority: int, offset: int, *, fence: bool) -> int:
    """Return the priority that a queue shows to its parent (G5).

    With ``fence`` the result is the offset alone. Otherwise the result is the priority plus the offset.

    The sum is limited to the range from PRIORITY_MIN to PRIORITY_MAX.
    """
    if fence:
        return offset
    return min(max(priority + offset, PRIORITY_MIN), PRIORITY_MAX)
