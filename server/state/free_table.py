"""The free capacity of all nodes as an array. One comparison finds all nodes with enough capacity for a demand."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from server.model.fit import Demand

if TYPE_CHECKING:
    from server.state.nodes import Node


class FreeTable:
    """One row for each slot that ever had a node. `catch_up` writes the rows of nodes that changed."""

    __slots__ = ("_free", "_nodes", "_open")

    def __init__(self) -> None:
        self._nodes: list[Node | None] = []
        self._open = np.zeros(0, dtype=np.bool_)
        self._free = np.zeros((0, 0), dtype=np.int64)

    def catch_up(self, changed: Mapping[int, "Node"]) -> None:
        """Write the rows of nodes that changed, by slot."""
        if not changed:
            return
        rows, width = max(changed) + 1, max(len(node.free) for node in changed.values())
        if rows > len(self._nodes):
            self._nodes += [None] * (max(rows, 2 * len(self._nodes)) - len(self._nodes))
        for slot, node in changed.items():
            self._nodes[slot] = node
        if len(self._nodes) > len(self._free) or width > self._free.shape[1]:
            self._make(width)
        else:
            self._write(changed)

    def with_capacity_for(self, demand: Demand) -> "list[Node]":
        """Return the nodes that take placements and have free capacity for the demand, sorted by slot."""
        width = max((index for index, _ in demand), default=-1) + 1
        if width > self._free.shape[1]:
            self._make(width)
        fitting = self._open.copy()
        for index, quantity in demand:
            fitting &= self._free[:, index] >= quantity
        found = (self._nodes[slot] for slot in np.flatnonzero(fitting).tolist())
        return [node for node in found if node is not None]

    def _make(self, width: int) -> None:
        """Rebuild all rows, to cover more slots or more resource types."""
        known = {slot: node for slot, node in enumerate(self._nodes) if node is not None}
        width = max([width, *(len(node.free) for node in known.values())])
        self._open = np.zeros(len(self._nodes), dtype=np.bool_)
        self._free = np.zeros((len(self._nodes), width), dtype=np.int64)
        self._write(known)

    def _write(self, nodes: Mapping[int, "Node"]) -> None:
        """Write the rows of nodes. A node without an entry, such as a removed node, counts as closed, with amounts of zero."""
        if not nodes:
            return
        slots = list(nodes)
        nothing = [0] * self._free.shape[1]
        self._open[slots] = [node.entry is not None for node in nodes.values()]
        self._free[slots] = [
            node.free if node.entry is not None else nothing for node in nodes.values()
        ]
