"""Asks that come together, in the order in which one at a time would be taken, and what they use together.

The next one is always the first ask of the child with the least key, level by level down a tree. A child's share only
grows while it takes, so that its asks stand in line by rising keys, and taking the least first is merging such lines:
a sort. Every level is merged at once, from the applications up to the root.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from server.kernels.fit import Array
from server.model.fit import SHARE_UNBOUNDED, Scale

_BITS: Final = 62
"""A shifted amount stays below 2 to this power, so that no division leaves int64."""


class Children(NamedTuple):
    """All children of one level that have asks, a line each.

    ``above`` is the number of its parent among those of the next level (all 0 below the root), ``tie`` what decides
    between siblings of the same share. The amounts are by column; ``scales`` says what a child's are divided by.
    Where ``ranked`` is not set the share of a child does not count.
    """

    above: Sequence[int]
    tie: Sequence[int]
    ranked: Sequence[bool]
    usage: Sequence[Sequence[int]]
    shares: Sequence[int]
    scales: Sequence[Sequence[Scale]]


class Turns(NamedTuple):
    """The order of the asks, and by level what each child uses after them, and its share then."""

    order: list[int]
    usage: list[list[list[int]]]
    shares: list[list[int]]


def in_turn(
    asking: Sequence[int],
    kinds: Sequence[int],
    demands: Sequence[Sequence[int]],
    levels: Sequence[Children],
) -> Turns | None:
    """Asks with the number of their application and of their demand, those of one application in its order.

    None where numbers are too large for whole numbers of 64 bits.
    """
    child = np.array(asking, dtype=np.int64)
    demand = np.array(demands, dtype=np.int64)[np.array(kinds, dtype=np.int64)]
    line = np.arange(len(child))
    usage, shares = [], []
    for level in levels:
        climbed = _climb(level, child[line], demand[line])
        if climbed is None:
            return None
        order, amounts, ratios = climbed
        line = line[order]
        child = np.array(level.above, dtype=np.int64)[child]
        usage.append(amounts.tolist())
        shares.append(ratios.tolist())
    return Turns(line.tolist(), usage, shares)


def _climb(level: Children, child: Array, demand: Array) -> tuple[Array, Array, Array] | None:
    """One level: the asks in the order of their parents, and what each child uses after them, and its share then."""
    by_child = child.argsort(kind="stable")
    child, demand = child[by_child], demand[by_child]
    last = np.bincount(child, minlength=len(level.tie)).cumsum() - 1
    sums = demand.cumsum(axis=0)
    before, first = sums - demand, np.concatenate(([0], last[:-1] + 1))
    start = np.array(level.usage, dtype=np.int64) - before[first]
    used, total = before + start[child], sums[last] + start
    scale = np.array(level.scales, dtype=np.int64)
    shifts, bases = scale[:, :, 0], scale[:, :, 1]
    if not _is_small(total, shifts, bases):
        return None
    known = np.array(level.shares, dtype=np.int64)
    share = np.maximum(_shares(used, shifts[child], bases[child]), known[child])
    tie = np.array(level.tie, dtype=np.int64)[child]
    counts = np.array(level.ranked, dtype=np.bool_)[child]
    order = np.lexsort((tie, np.where(counts, share, 0)))
    return by_child[order], total, np.maximum(_shares(total, shifts, bases), known)


def _shares(used: Array, shifts: Array, bases: Array) -> Array:
    """The dominant share of each line, as `model.fit.share` has it; of nothing usage is without bound."""
    nothing = bases == 0
    ratios = _ratios(used, shifts, np.where(nothing, 1, bases) if nothing.any() else bases)
    if nothing.any():
        ratios = np.where(nothing, np.where(used > 0, SHARE_UNBOUNDED, 0), ratios)
    largest: Array = ratios.max(axis=1)
    return largest


def _ratios(used: Array, shifts: Array, bases: Array) -> Array:
    """(used << shift) // base; a few bits at a time, as in long division, where the shifted amount would leave int64."""
    if not (used >> (_BITS - shifts)).any():
        return (used << shifts) // bases
    ratios, rests = np.divmod(used, bases)
    room, left = _BITS - int(bases.max()).bit_length(), shifts
    while left.any():
        bits = np.minimum(left, room)
        more, rests = np.divmod(rests << bits, bases)
        ratios, left = (ratios << bits) + more, left - bits
    return ratios


def _is_small(used: Array, shifts: Array, bases: Array) -> bool:
    """Do the ratios of these amounts and of all below them stay within int64, on the way to them, too?"""
    whole = used // np.maximum(bases, 1)
    return int(bases.max()) < 1 << (_BITS - 1) and not (whole >> (_BITS - 1 - shifts)).any()
