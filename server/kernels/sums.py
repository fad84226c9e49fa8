"""Sums over many rows at once: what goes when rows are released."""

from typing import NamedTuple

import numpy as np

from server.kernels.fit import Array, Mask

Sparse = list[tuple[int, int]]


class Released(NamedTuple):
    """The nodes that change, and what each leaf loses: (column, quantity) pairs without zeros."""

    nodes: list[int]
    by_leaf: list[tuple[int, Sparse]]


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
    at = nodes[rows]
    np.add.at(coming, at, sign * resources[rows])
    return Released(np.unique(at).tolist(), by_leaf(leaves, resources, rows))


def by_leaf(leaves: Array, resources: Array, rows: list[int]) -> list[tuple[int, Sparse]]:
    """By number of the leaf what these rows hold together."""
    numbers, places = np.unique(leaves[rows], return_inverse=True)
    totals = np.zeros((len(numbers), resources.shape[1]), dtype=np.int64)
    np.add.at(totals, places, resources[rows])
    return list(zip(numbers.tolist(), map(_sparse, totals.tolist()), strict=True))


def _sparse(line: list[int]) -> Sparse:
    return [(column, quantity) for column, quantity in enumerate(line) if quantity]
