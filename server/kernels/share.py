"""The division of an amount down a tree of rows.

Every row gets a part of the amount of the row above it, and divides this part by weight among the rows below it.

Rows come level by level. The rows below one row are a *family*, and are adjacent. The first level consists of the top row
alone. Each column is divided independently. Amounts are under 2^62. A sum of 2^62 or more counts as UNLIMITED.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from server.kernels.distinct import as_column
from server.kernels.fit import Array, Mask
from server.kernels.water import Items, pour

UNLIMITED: Final = 1 << 62
_HALF: Final = 31
_LOW: Final = (1 << _HALF) - 1
Lines = Sequence[Sequence[int]]


class Rows(NamedTuple):
    """The rows of a tree, each with its lines of amounts.

    A leaf, that is a row without rows below it, wants the amount ``wanted`` + ``more``. For all other rows, ``wanted`` and
    ``more`` are not used. ``least`` and ``most`` bound the part of a row. A ``most`` of None is UNLIMITED. ``endless`` marks rows
    that count as wanting an unlimited amount. An empty ``endless`` marks no row.
    """

    weights: Sequence[int]
    wanted: Lines
    more: Lines
    least: Lines
    most: Sequence[Sequence[int | None]]
    endless: Sequence[bool] = ()


class Divided(NamedTuple):
    """The result of a division, by row and column: the amount wanted, the cap, the floor, and the part.

    ``tight`` says whether the rows of a family together wanted more than the amount that the family shares.
    """

    wanted: Array
    caps: Array
    floors: Array
    parts: Array
    tight: Mask


class Level(NamedTuple):
    """The rows of one level.

    ``rows`` is the slice of their row numbers. ``starts`` has, for each family, the index in this slice at which the family
    starts. ``above`` has the row above each family, or -1 if there is none.

    ``family`` has, for each row of the level, the index of its family.
    """

    rows: slice
    starts: Array
    above: Array
    family: Array


def divide(
    levels: Sequence[Sequence[tuple[int, int]]], rows: Rows, amount: Sequence[int]
) -> Divided:
    """Return the division of the amounts among the rows, which come level by level. Each column is divided independently.

    A level lists its families as pairs: the row above the family, and the number of siblings in the family. No family is empty.
    """
    tree, width = list(_levels(levels)), len(amount)
    wanted, caps = _wishes(tree, rows, width)
    floors = _floors(tree, _table(rows.least, width), caps)
    weights = np.array(rows.weights, dtype=np.int64)
    share = np.array([amount], dtype=np.int64)
    parts, tight = np.empty_like(caps), np.empty(caps.shape, dtype=np.bool_)
    for level in tree:
        if level.rows.start:
            share = parts[level.above]
        items = Items(weights[level.rows], floors[level.rows], caps[level.rows])
        parts[level.rows], tight[level.rows] = _split(level, share, items)
    return Divided(wanted, caps, floors, parts, tight)


def _wishes(tree: Sequence[Level], rows: Rows, width: int) -> tuple[Array, Array]:
    bounds = [[UNLIMITED if one is None else one for one in line] for line in rows.most]
    most = _table(bounds, width)
    wanted, caps = _capped(tree, _table(rows.wanted, width) + _table(rows.more, width), most)
    if rows.endless:
        endless = np.array(rows.endless, dtype=np.bool_)[:, np.newaxis]
        _, caps = _capped(tree, np.where(endless, UNLIMITED, np.zeros_like(most)), most)
    return wanted, caps


def _table(lines: Lines, width: int) -> Array:
    return as_column(chain.from_iterable(lines)).reshape(len(lines), width)


def _levels(levels: Sequence[Sequence[tuple[int, int]]]) -> Iterator[Level]:
    first = 0
    for families in levels:
        above, sizes = np.array(families, dtype=np.int64).T
        last = first + int(sizes.sum())
        family = np.repeat(np.arange(len(sizes)), sizes)
        yield Level(slice(first, last), sizes.cumsum() - sizes, above, family)
        first = last


def _capped(tree: Sequence[Level], wanted: Array, most: Array) -> tuple[Array, Array]:
    """Return, for each row, the wanted amount, and the cap, which is the wanted amount limited by ``most``.

    A parent wants the sum of its children's caps.
    """
    wanted, caps = wanted.copy(), np.empty_like(most)
    for level in reversed(tree):
        caps[level.rows] = np.minimum(wanted[level.rows], most[level.rows])
        if level.rows.start:
            wanted[level.above] = _sums(caps[level.rows], level.starts)
    return wanted, caps


def _floors(tree: Sequence[Level], least: Array, caps: Array) -> Array:
    """Return the floor of each row, limited by its cap.

    The floor is the row's ``least`` amount, or the sum of the floors of the rows below if that sum is larger.
    """
    floors = least.copy()
    for level in reversed(tree):
        floors[level.rows] = np.minimum(floors[level.rows], caps[level.rows])
        if level.rows.start:
            below = _sums(floors[level.rows], level.starts)
            floors[level.above] = np.maximum(floors[level.above], below)
    return floors


def _split(level: Level, share: Array, items: Items) -> tuple[Array, Mask]:
    """Return the parts of one level.

    Also return a mask of the rows in families whose caps together exceed the family's amount in ``share``.
    """
    weights, least, most = items
    tight = _sums(most, level.starts) > share
    short = _sums(least, level.starts) > share
    parts = most.copy()
    bounds = [*level.starts.tolist(), len(parts)]
    for family, column in np.argwhere(short).tolist():
        own = slice(bounds[family], bounds[family + 1])
        scaled = largest_remainder(int(share[family, column]), least[own, column].tolist())
        parts[own, column] = scaled
    columns, rows = np.nonzero((tight & ~short).T[:, level.family])
    if len(rows):
        families = level.family[rows]
        chosen = Items(weights[rows], least[rows, columns], most[rows, columns])
        group = columns * len(share) + families
        parts[rows, columns] = pour(share[families, columns], group, chosen)
    return parts, tight[level.family]


def _sums(values: Array, starts: Array) -> Array:
    """Return the sum of each column over the rows of each family."""
    low = np.add.reduceat(values & _LOW, starts, axis=0)
    high = np.add.reduceat(values >> _HALF, starts, axis=0) + (low >> _HALF)
    return np.where(high > _LOW, UNLIMITED, (high << _HALF) | (low & _LOW))


def largest_remainder(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide the amount into whole parts in proportion to the weights, and return the parts.

    Units that are left after rounding down go to the parts with the largest remainders. If remainders are equal, the part with
    the lower index comes first.

    No part is above its weight. If the amount is at least the sum of the weights, the parts are the weights themselves.
    """
    total = sum(weights)
    if not total or amount <= 0:
        return [0] * len(weights)
    if amount >= total:
        return list(weights)
    products = [amount * weight for weight in weights]
    parts = [product // total for product in products]
    over = amount - sum(parts)
    if over:
        rests = [total * part - product for part, product in zip(parts, products, strict=True)]
        for at in sorted(range(len(rests)), key=rests.__getitem__)[:over]:
            parts[at] += 1
    return parts
