"""The division of amounts over groups of items by water filling.

Each item gets L * weight, but not less than its lower bound and not more than its upper bound.

All items of a group have the same L. The levels at which items start and stop rising are sorted. L is then found between two of
these levels. All results are exact. Amounts are under 2^62, and weights are at most WEIGHT_MAX. For each item, weight * sum of
the group's weights must be under 2^63.
"""

from typing import Final, NamedTuple

import numpy as np

from server.kernels.fit import Array, Mask

WEIGHT_MAX: Final = 1 << 20
_FINER: Final = 40
"""The number of bits by which fractions are scaled.

With denominators up to WEIGHT_MAX, two different fractions still differ when both are rounded down.
"""


class Items(NamedTuple):
    """The items among which an amount is divided.

    Each item has a weight, a lower bound (``least``) and an upper bound (``most``).
    """

    weights: Array
    least: Array
    most: Array


def pour(amounts: Array, group: Array, items: Items) -> Array:
    """Return the part of the amount that each item gets.

    Parts are whole numbers. Units that are left go to the items with the largest remainders. If remainders are equal, the
    earlier item gets the unit.

    ``group`` has the group of each item, in rising order. ``amounts`` has, for each item, the amount of its group. The amount
    of a group must be at least the sum of the lower bounds of the group's items, and less than the sum of their upper bounds.
    """
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    place = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(group)))
    weights, least, most = items
    found = _crossings(amounts, starts, place, items)
    heavy = np.maximum(found.rising, 1)[place]
    whole, rest = np.divmod(found.left[place], heavy)
    more, rest = np.divmod(rest * weights, heavy)
    rises = found.started & ~found.stopped
    parts = np.where(rises, whole * weights + more, np.where(found.stopped, most, least))
    missing = amounts[starts] - np.add.reduceat(parts, starts)
    if missing.any():
        order = np.lexsort((np.where(rises, -rest, 0), place))
        parts[order[np.arange(len(order)) - starts[place] < missing[place]]] += 1
    return parts


class Crossing(NamedTuple):
    """The state of the division when a group's amount is used up.

    ``left`` and ``rising`` have one number for each group. ``left`` is the amount to divide among the items that still rise,
    and ``rising`` is the sum of the weights of these items. ``started`` and ``stopped`` mark the items that have started or
    stopped.
    """

    left: Array
    rising: Array
    started: Mask
    stopped: Mask


def _crossings(amounts: Array, starts: Array, place: Array, items: Items) -> Crossing:
    """Return the state at which each group's amount is used up.

    The sorted levels are least / weight, at which an item starts to rise, and most / weight, at which the item stops. An item
    without a least amount rises from level 0. If an item starts and stops at the same level, its start is counted before its
    stop.
    """
    weights, least, most = items
    later = np.flatnonzero(least)
    at = np.concatenate((place[later], place))
    heavy = np.concatenate((weights[later], weights))
    whole, rest = np.divmod(np.concatenate((least[later], most)), heavy)
    order = np.lexsort(((rest << _FINER) // heavy, whole, at))
    whole, rest, heavy, at = whole[order], rest[order], heavy[order], at[order]
    begins = np.searchsorted(at, np.arange(len(starts)))
    rising = np.add.reduceat(np.where(least, 0, weights), starts)[at]
    rising += _before(np.concatenate((weights[later], -weights))[order], begins, at)
    left = (amounts[starts] - np.add.reduceat(least, starts))[at]
    left += _before(np.concatenate((least[later], -most))[order], begins, at)
    used = _used_up(left, rising, whole, rest, heavy)
    full = np.minimum.reduceat(np.where(used, np.arange(len(order)), len(order)), begins)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    before = position < full[np.concatenate((place[later], place))]
    started = least == 0
    started[later] = before[: len(later)]
    return Crossing(left[full], rising[full], started, before[len(later) :])


def _used_up(left: Array, rising: Array, whole: Array, rest: Array, heavy: Array) -> Mask:
    """Return whether rising * (whole + rest / heavy) >= left.

    In each group, only the values up to the first true value are valid, because later values may have overflowed.
    """
    even = left // np.maximum(rising, 1)
    enough = (rising * rest) // heavy >= left - rising * np.minimum(whole, even)
    return enough | ((whole > even) & (rising > 0))


def _before(changes: Array, begins: Array, at: Array) -> Array:
    """Return, for each change, the sum of the changes before it in its group."""
    before = changes.cumsum() - changes
    return before - before[begins][at]
