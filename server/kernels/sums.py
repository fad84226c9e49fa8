"""Sums over many rows at once: what goes when rows are released."""

from typing import NamedTuple

import numpy as np

from server.kernels.fit import Array, Mask


class Released(NamedTuple):
    """The nodes that change, and what each leaf loses: (column, quantity) pairs without zeros."""

    nodes: list[int]
    by_leaf: list[tuple[int, list[tuple[int, int]]]]


def release(  # noqa: PLR0913, PLR0917 - arrays in, arrays out
    standing: Mask,
    coming: Array,
    nodes: Array,
    leaves: Array,
    resources: Array,
    rows: list[int],
    sign: int,
) -> Released:
    """Rows are released (sign 1) or stand again (sign -1): written to ``standing`` and, by node, to ``coming``."""
    standing[rows] = sign < 0
    if len(rows) == 1:
        row = rows[0]
        node = int(nodes[row])
        coming[node] += sign * resources[row]
        return Released([node], [(int(leaves[row]), _sparse(resources[row].tolist()))])
    lines = resources[rows]
    at = nodes[rows]
    np.add.at(coming, at, sign * lines)
    numbers, places = np.unique(leaves[rows], return_inverse=True)
    totals = np.zeros((len(numbers), lines.shape[1]), dtype=np.int64)
    np.add.at(totals, places, lines)
    by_leaf = zip(numbers.tolist(), map(_sparse, totals.tolist()), strict=True)
    return Released(np.unique(at).tolist(), list(by_leaf))


def _sparse(line: list[int]) -> list[tuple[int, int]]:
    return [(column, quantity) for column, quantity in enumerate(line) if quantity]
