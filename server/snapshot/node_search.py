"""The search for a node by comparing all nodes.

Snapshots use this search for every hypothetical placement, and tests use it to check the heaps of the live state.

``free`` is a separate argument, because the free amounts of a Trial differ from those of its snapshot.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from server.kernels import scan
from server.kernels.fit import Array, Mask
from server.snapshot.columns import NodeColumns
from server.snapshot.waiting import ClassFacts

Weights = tuple[tuple[int, int], ...]


class NodeRanking(NamedTuple):
    """The ranking of nodes: weights by type index, and whether the fullest node comes first."""

    weights: Weights
    packing: bool


def fitting(nodes: NodeColumns, free: Array, kind: ClassFacts) -> Mask:
    """Return a mask of the nodes that can take one ask of the class now."""
    return nodes.open & kind.allowed & scan.holding(free, kind.node_demand)


def best(nodes: NodeColumns, free: Array, kind: ClassFacts, sort: NodeRanking) -> int:
    """Return the row of the best-ranked node that can take the ask now, or -1 if no node can (design 6.3)."""
    rows = np.flatnonzero(fitting(nodes, free, kind))
    if not len(rows):
        return -1
    ranks = scan.fullness(free.take(rows, axis=0), nodes.capacity.take(rows, axis=0), sort.weights)
    return scan.first(rows, -ranks if sort.packing else ranks, nodes.numbers)


def able_when_empty(nodes: NodeColumns, free: Array, kind: ClassFacts) -> Mask:
    """Return a mask of the nodes that could take the ask if no pod ran on them, and on which the ask's ports are free now."""
    large = scan.holding(nodes.capacity, kind.demand)
    return nodes.open & kind.allowed & large & scan.holding(free, kind.ports)


def lacking(
    nodes: NodeColumns,
    free: Array,
    kind: ClassFacts,
    least: Iterable[tuple[int, int]] = (),
    closed: Iterable[int] = (),
) -> tuple[Mask, Array]:
    """Return a mask of the nodes that could take the ask if no pod ran on them, and the amounts that each node lacks.

    The amounts are parts of the request, with one line for each node row. For a type in ``least``, a node counts as lacking at
    least the amount given there, even if the type is free on the node. A node that lacks an amount of a ``closed`` type is not
    in the mask.
    """
    need = np.zeros_like(free)
    for index, quantity in kind.node_demand:
        need[:, index] = np.maximum(quantity - free[:, index], 0)
    for index, quantity in least:
        need[:, index] = np.maximum(need[:, index], quantity)
    found = nodes.open & kind.allowed & scan.holding(nodes.capacity, kind.node_demand)
    for index in closed:
        found &= need[:, index] == 0
    return found, need


def overfull(left: Array, types: Sequence[int]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return the rows of nodes whose ``left`` capacity is negative in some of these types.

    Each row comes with (type index, excess) pairs.
    """
    short = left[:, types] < 0
    return [
        (row, [(index, -int(left[row, index])) for index in types if left[row, index] < 0])
        for row in np.flatnonzero(short.any(axis=1)).tolist()
    ]


def least_short(nodes: NodeColumns, free: Array, kind: ClassFacts, candidates: Mask) -> int:
    """Return the row of the candidate node that lacks least for the ask (design 6.6).

    If several nodes lack equally little, return the node that arrived first. Return -1 if there is no candidate.
    """
    rows = np.flatnonzero(candidates)
    if not len(rows):
        return -1
    ranks = scan.lacking(free.take(rows, axis=0), nodes.capacity.take(rows, axis=0), kind.demand)
    return scan.first(rows, ranks, nodes.numbers)


def may_require(nodes: NodeColumns, kind: ClassFacts, row: int) -> bool:
    """Return whether an ask of the class that requires this node by name may be placed on the node.

    The ask may be placed there if the node's pods are known, the constraints of the class hold, and the node is large enough.
    """
    large = all(nodes.capacity[row, index] >= quantity for index, quantity in kind.node_demand)
    return bool(nodes.opened[row]) and bool(kind.allowed[row]) and large
