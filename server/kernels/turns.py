"""The order in which waiting asks would be taken one at a time, and the usage after the last ask is taken.

This module computes order and usage for all asks at once.

When asks are taken one at a time, the next ask is found from the root down. At each level the child with the smallest key is
taken. The share of a child only grows while its asks are taken, so the keys of its asks rise. Taking the smallest key first
therefore merges sorted lists. One sort of all keys gives the same order. Levels are merged from the applications up to the
root.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from server.kernels.distinct import as_column, starts
from server.kernels.fit import Array
from server.model.fit import SHARE_UNBOUNDED, Scale

_SHORT: Final = 1 << 15
"""The number of indexes that fit into a signed number of 16 bits. Such numbers are sorted several times as fast as wider ones."""
_BITS: Final = 62
"""The largest number of bits that a shifted amount may have, so that each division stays within int64."""


class Children(NamedTuple):
    """The children of one level that have asks, one item for each child.

    If siblings have equal shares, the sibling with the lower index comes first.
    """

    above: Sequence[int]
    """For each child, the index of its parent in the next higher level.

    The parent of all children of the highest level is the root, with index 0.
    """
    ranked: Sequence[bool]
    """For each child, whether its share is compared. A share that is not compared counts as 0."""
    usage: Sequence[Sequence[int]]
    """The amounts that each child uses: one line for each child, with one amount for each column."""
    shares: Sequence[int]
    scale: Sequence[int]
    """For each child, the index of the line of ``scales`` by which its usage is divided."""
    scales: Sequence[Sequence[Scale]]
    """Lines of divisors, with one divisor for each column."""


class Turns(NamedTuple):
    """The order of the asks, and for each level the usage and the share of each child after all asks are taken.

    ``groups`` is the number of groups. A group consists of the asks of one application with one demand.
    """

    order: list[int]
    usage: list[list[list[int]]]
    shares: list[list[int]]
    groups: int


def in_turn(
    asking: Sequence[int],
    kinds: Sequence[int],
    demands: Sequence[Sequence[int]],
    levels: Sequence[Children],
) -> Turns | None:
    """Return the order in which asks would be taken one at a time, with the usage and the shares after the last ask.

    ``asking`` has, for each ask, the index of its application in the lowest level, and ``kinds`` has the index of its demand in
    ``demands``. The asks of one application must come in the order in which they are to be taken. Return None if a number would
    not fit 64 bits.
    """
    try:
        return _merged(asking, kinds, demands, levels)
    except OverflowError:
        return None


def _merged(
    asking: Sequence[int],
    kinds: Sequence[int],
    demands: Sequence[Sequence[int]],
    levels: Sequence[Children],
) -> Turns:
    child, kind = as_column(asking), as_column(kinds)
    demand = _columns(demands).take(kind, axis=1)
    groups = len(starts(np.sort(child * len(demands) + kind)))
    line = np.arange(len(child))
    usage, shares = [], []
    for level in levels:
        order, amounts, ratios = _climb(level, child.take(line), demand.take(line, axis=1))
        line = line.take(order)
        child = as_column(level.above).take(child)
        usage.append(amounts.T.tolist())
        shares.append(ratios.tolist())
    return Turns(line.tolist(), usage, shares, groups)


def _columns(lines: Sequence[Iterable[int]]) -> Array:
    """Return an array with one line for each column of the given lines. The given lines must have equal lengths."""
    cells = as_column(chain.from_iterable(lines))
    return np.ascontiguousarray(cells.reshape(len(lines), -1).T)


def _climb(level: Children, child: Array, demand: Array) -> tuple[Array, Array, Array]:
    """Merge the orders of asks of one level into the orders of the level above.

    Also return the usage and the share of each child of the level after all asks are taken.

    Raise OverflowError if a number would not fit 64 bits.
    """
    count = len(level.above)
    by_child = (child.astype(np.int16) if count <= _SHORT else child).argsort(kind="stable")
    child, demand = child.take(by_child), demand.take(by_child, axis=1)
    last = np.bincount(child, minlength=count).cumsum() - 1
    sums = demand.cumsum(axis=1)
    before, first = sums - demand, np.concatenate(([0], last[:-1] + 1))
    start = _columns(level.usage) - before.take(first, axis=1)
    total = sums.take(last, axis=1) + start
    scale, known = as_column(level.scale), as_column(level.shares)
    parts = _columns([chain.from_iterable(line) for line in level.scales])
    shifts, bases = parts[0::2].take(scale, axis=1), parts[1::2].take(scale, axis=1)
    if not _is_small(total, shifts, bases):
        raise OverflowError
    used = before + start.take(child, axis=1)
    share = _shares(used, shifts.take(child, axis=1), bases.take(child, axis=1))
    share = np.maximum(share, known.take(child)) * as_column(level.ranked).take(child)
    return (
        by_child.take(share.argsort(kind="stable")),
        total,
        np.maximum(_shares(total, shifts, bases), known),
    )


def _shares(used: Array, shifts: Array, bases: Array) -> Array:
    """Return the dominant share of each item, as `model.fit.share` defines it.

    If a divisor is 0, any usage makes the share unbounded.
    """
    nothing = bases == 0
    ratios = _ratios(used, shifts, np.where(nothing, 1, bases) if nothing.any() else bases)
    if nothing.any():
        ratios = np.where(nothing, np.where(used > 0, SHARE_UNBOUNDED, 0), ratios)
    largest: Array = ratios.max(axis=0)
    return largest


def _ratios(used: Array, shifts: Array, bases: Array) -> Array:
    """Return (used << shift) // base.

    If the shifted amount would not fit int64, the amount is shifted a few bits at a time, as in long division.
    """
    if not (used >> (_BITS - shifts)).any():
        return (used << shifts) // bases
    ratios, rests = np.divmod(used, bases)
    most, left = _BITS - int(bases.max()).bit_length(), shifts
    while left.any():
        bits = np.minimum(left, most)
        more, rests = np.divmod(rests << bits, bases)
        ratios, left = (ratios << bits) + more, left - bits
    return ratios


def _is_small(used: Array, shifts: Array, bases: Array) -> bool:
    """Return whether int64 suffices to compute the ratios of these amounts and of all smaller amounts."""
    whole = used // np.maximum(bases, 1)
    return int(bases.max()) < 1 << (_BITS - 1) and not (whole >> (_BITS - 1 - shifts)).any()
