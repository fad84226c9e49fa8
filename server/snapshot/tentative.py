"""A tentative assignment of asks to nodes: the asks that fit now, and the amounts that nodes lack for the asks that do not fit."""

from collections.abc import Iterable

import numpy as np

from server.kernels import scan
from server.kernels.fit import Array
from server.snapshot import node_search
from server.snapshot.columns import NodeColumns
from server.snapshot.node_search import NodeRanking
from server.snapshot.waiting import ClassFacts


class Tentative:
    """The free capacity of nodes under a tentative assignment. The snapshot and the Trial on which the assignment is based never change.

    An ask that is placed uses free capacity of its node. If an ask fits on no node, the method `owe` subtracts its request from
    the free capacity of the node that lacks least for the ask: the ask is *charged* to this node. The evictions of the Trial's
    plans (``evicted``) count as done. The free capacity of a node thus becomes negative if asks that do not fit were charged to
    it. The amount below zero is the amount that the node lacks for all asks that are charged to it, after the evictions of the
    plans.
    """

    def __init__(
        self, nodes: NodeColumns, free: Array, sort: NodeRanking, evicted: Array | None = None
    ) -> None:
        self._nodes = nodes
        self._sort = sort
        self._free = free.copy()
        self._after = self._free if evicted is None else free + evicted
        self._taken = np.zeros_like(free)

    def place(self, kind: ClassFacts) -> int:
        """Assign an ask to the best-ranked node that can take it now. Return the node's row, or -1 if no node can take the ask."""
        row = node_search.best(self._nodes, self._free, kind, self._sort)
        if row >= 0:
            self._charge(row, kind)
        return row

    def owe(self, kind: ClassFacts) -> int:
        """Charge an ask to the node that lacks least for it.

        Return the node's row, or -1 if no node can be considered.

        A node is considered if the ask may run on it, and if the empty node could hold the ask together with the asks that were
        assigned or charged to the node so far.
        """
        left = self._nodes.capacity - self._taken
        suits = self._nodes.open & kind.allowed & scan.holding(left, kind.demand)
        rows = np.flatnonzero(suits & scan.holding(self._after, kind.ports))
        if not len(rows):
            return -1
        ranks = scan.lacking(
            self._after.take(rows, axis=0), self._nodes.capacity.take(rows, axis=0), kind.demand
        )
        row = scan.first(rows, ranks, self._nodes.numbers)
        self._charge(row, kind)
        return row

    def lacks(self, row: int, kinds: Iterable[int]) -> dict[int, int]:
        """Return the amounts that a node lacks of the types that ``kinds`` names, by type index."""
        return {at: -int(self._after[row, at]) for at in kinds if self._after[row, at] < 0}

    def _charge(self, row: int, kind: ClassFacts) -> None:
        for index, quantity in kind.node_demand:
            self._free[row, index] -= quantity
            if self._after is not self._free:
                self._after[row, index] -= quantity
            self._taken[row, index] += quantity
