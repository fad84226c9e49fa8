"""The nodes on which a member of a gang could be placed, each with a bound on the cost of its victims (J9, design 6.7)."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from server.kernels import cover
from server.kernels.cover import Rows
from server.kernels.distinct import distinct
from server.kernels.fit import Array, Mask
from server.snapshot.columns import ORIGINATOR, AllocationColumns
from server.snapshot.eligibility_filter import FilteredRows
from server.snapshot.leaf_eligibility import PASSED

BLOCK: Final = 256
"""The number of nodes in a block. Only the rows of one block are read at a time, because most searches end after few nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class MemberNodes:
    """The nodes for one class of gang members, with a bound on the cost of the victims on each node."""

    order: list[int]
    """The rows of the nodes: first the nodes that need no victims, then the other nodes, the lowest bound first."""
    free_nodes: int
    """The number of nodes that need no victims."""
    priorities: list[int]
    """For each node that needs victims, a lower bound on the priority of its most important victim, in the order of ``order``."""
    gangs: list[int]
    """For each node that needs victims, a lower bound on the number of evicted gangs, in the order of ``order``."""
    numbers: list[int]
    """For each node that needs victims, a lower bound on the number of victims, in the order of ``order``."""
    allowed: Mask
    """A mask of all nodes that could hold a member if no pod ran on them."""
    rows: Array
    """The rows of the allocations that may be evicted, sorted by node."""
    groups: cover.Groups
    """The division of ``rows`` into one group for each node."""
    found: Array
    """For each node that needs victims, the index of its group in ``groups``, in the order of ``order``."""
    need: Array
    """For each group in ``groups``, the amounts that must be freed on the group's node."""

    def bound(self, place: int) -> tuple[int, int, int] | None:
        """Return the lower bounds (highest victim priority, gangs, victims) of the node at this index of ``order``.

        Return None if the node needs no victims.
        """
        at = place - self.free_nodes
        return None if at < 0 else (self.priorities[at], self.gangs[at], self.numbers[at])

    def block(self, at: int) -> list[int]:
        """Return the rows that may be evicted on the block of nodes that begins at index ``at`` of ``found``."""
        chosen = self.found[at : at + BLOCK]
        ends = self.groups.ends
        return [
            row for group in chosen for row in self.rows[ends[group] : ends[group + 1]].tolist()
        ]

    def in_order(
        self, columns: AllocationColumns, at: int, tail: list[int], rank: Array, odd: Mask
    ) -> list[int]:
        """Return, for each node of the block that begins at ``at``, a lower bound on the number of its victims.

        The rows in ``tail`` are evicted in the order of ``rank``.

        Rows of equal rank are evicted in the order of ``tail``. A row that ``odd`` marks may be left out of a plan. A node with
        such a row therefore gets its lower bound from ``numbers``.
        """
        chosen = self.found[at : at + BLOCK]
        by_node = np.argsort(chosen)
        rows = np.array(tail, dtype=np.int64)
        rows = rows[np.lexsort((rank[rows], columns.nodes[rows]))]
        groups = cover.grouped(columns.nodes[rows])
        fewest = cover.in_order(
            columns.resources.take(rows, axis=0), groups, self.need.take(chosen[by_node], axis=0)
        )
        orderly = ~np.logical_or.reduceat(odd[rows], groups.starts)
        found = np.array(self.numbers[at : at + BLOCK], dtype=np.int64)
        found[by_node] = np.maximum(found[by_node], np.where(orderly, fewest, 0))
        numbers: list[int] = found.tolist()
        return numbers

    def takes(self, node: int) -> bool:
        """Return whether the node could hold a member if no pod ran on it."""
        return bool(self.allowed[node])


def field(
    columns: AllocationColumns, may: Mask, nodes: Mask, need: Array, names: Array
) -> MemberNodes:
    """Return the nodes for the members of one class, with their bounds.

    ``nodes`` marks the nodes that could hold a member if no pod ran on them. ``need`` has, for each node, the amounts that must
    be freed for a member. ``may`` marks the rows that may be evicted. ``names`` has, for each node, the rank of its name.
    """
    short = need.any(axis=1)
    free = free_nodes(nodes, need, names)
    order = columns.by_node()
    rows = order[may[order]]
    rows = rows[(nodes & short)[columns.nodes[rows]]]
    if not len(rows):
        none = cover.Groups(rows, rows, rows)
        return MemberNodes(free, len(free), [], [], [], nodes, rows, none, rows, need[:0])
    groups = cover.grouped(columns.nodes[rows])
    places = groups.places
    ranked, gangs = _bounds(columns, rows, groups, need.take(places, axis=0))
    found = np.array(cover.order(ranked, names[places]), dtype=np.int64)
    return MemberNodes(
        [*free, *places[found].tolist()],
        len(free),
        cover.priorities(ranked)[found].tolist(),
        gangs[found].tolist(),
        ranked.fewest[found].tolist(),
        nodes,
        rows,
        groups,
        found,
        need.take(places, axis=0),
    )


def free_nodes(nodes: Mask, need: Array, names: Array) -> list[int]:
    """Return the nodes on which nothing has to be freed, sorted by name."""
    free = np.flatnonzero(nodes & ~need.any(axis=1))
    found: list[int] = free[np.argsort(names[free])].tolist()
    return found


def _bounds(
    columns: AllocationColumns, rows: Array, groups: cover.Groups, need: Array
) -> tuple[cover.Bounds, Array]:
    """Return, for each node, the bounds on its victims, and a lower bound on the number of gangs that must be evicted.

    Originators are treated like other pods, because J9 does not consider them. On a node where no gang member may be evicted,
    each victim counts as a separate gang. On any other node the bound is one gang, because all victims may be members of it.
    """
    plain = np.zeros(len(rows), dtype=np.bool_)
    given = Rows(columns.resources.take(rows, axis=0), plain, plain, columns.priorities[rows])
    weights = [0] * need.shape[1]
    ranked = cover.bounds(given, groups, need, weights)
    plain_node = np.add.reduceat(columns.gangs[rows] > 0, groups.starts, dtype=np.int64) == 0
    return ranked, np.where(plain_node, ranked.fewest, 1)


def ranks(columns: AllocationColumns, reluctant: Mask) -> Array:
    """Return, for each row, a number by which victims are sorted (V2).

    Rows in ``reluctant`` come last. Among the other rows, lower priorities come first. At equal priorities, originators come
    last.
    """
    protection = reluctant.astype(np.int64) << 34
    originator = (columns.flags & ORIGINATOR != 0).astype(np.int64)
    found: Array = protection + (columns.priorities + cover.PRIORITY_BASE << 1) + originator
    return found


def leaves(columns: AllocationColumns, rows: Mask) -> list[int]:
    """Return the numbers of the leaf queues to which these rows belong."""
    return distinct(columns.leaves[rows])


def of_leaves(columns: AllocationColumns, numbers: list[int]) -> Mask:
    """Return a mask of the rows that belong to these leaf queues."""
    found: Mask = np.isin(columns.leaves, numbers)
    return found


def most_on_a_node(columns: AllocationColumns, filtered: FilteredRows) -> list[int]:
    """Return, for each type, the largest sum of amounts that rows that passed the filter hold on a single node."""
    order = columns.by_node()
    rows = order[filtered.codes[order] == PASSED]
    if not len(rows):
        return [0] * columns.resources.shape[1]
    starts = cover.grouped(columns.nodes[rows]).starts
    found: list[int] = (
        np.add.reduceat(columns.resources.take(rows, axis=0), starts, axis=0).max(axis=0).tolist()
    )
    return found


def passed(
    columns: AllocationColumns, filtered: FilteredRows, leaf: int | None = None
) -> list[int]:
    """Return the rows that passed the eligibility filter. With ``leaf``, return only the rows of the leaf with this number."""
    found = filtered.codes == PASSED
    if leaf is not None:
        found = found & (columns.leaves == leaf)
    rows: list[int] = np.flatnonzero(found).tolist()
    return rows


def marked(mask: Mask | None) -> list[int]:
    """Return the rows that a mask marks. Return no rows if there is no mask."""
    rows: list[int] = [] if mask is None else np.flatnonzero(mask).tolist()
    return rows


def held(columns: AllocationColumns, rows: list[int]) -> list[int]:
    """Return, by type, the sum of the amounts that these allocations hold."""
    total: list[int] = columns.resources.take(rows, axis=0).sum(axis=0).tolist()
    return total
