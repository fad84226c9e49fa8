"""The nodes on which a member of a job could get its place, each with a bound on what that costs (J9, design 6.7)."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from server.kernels import cover
from server.kernels.cover import Rows
from server.kernels.distinct import distinct
from server.kernels.fit import Array, Mask
from server.model.asks import PRIORITY_MIN
from server.view.columns import ORIGINATOR, AllocationColumns
from server.view.screen import PASSED, Screen

BLOCK: Final = 256
"""Nodes that are looked at closely at once: most searches need few."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """``order`` has the rows of the nodes, best bound first; those with room come before all others.

    ``priorities``, ``jobs`` and ``numbers`` say by place how important the most important victim is at the least, and
    how many jobs and allocations go at the least; the first ``roomy`` nodes need nobody. ``allowed`` are all nodes that
    could hold it when empty. ``rows`` are those who may go, by the ``groups`` of their nodes; ``found`` is the group of
    each place that is not roomy, ``need`` by group what has to be freed.
    """

    order: list[int]
    roomy: int
    priorities: list[int]
    jobs: list[int]
    numbers: list[int]
    allowed: Mask
    rows: Array
    groups: cover.Groups
    found: Array
    need: Array

    def bound(self, place: int) -> tuple[int, int, int] | None:
        """(highest victim priority, jobs, victims) of the node at this place; None: nobody has to go."""
        at = place - self.roomy
        return None if at < 0 else (self.priorities[at], self.jobs[at], self.numbers[at])

    def block(self, at: int) -> list[int]:
        """Who may go from the next BLOCK nodes behind the first ``at`` that need victims."""
        chosen = self.found[at : at + BLOCK]
        ends = self.groups.ends
        return [
            row for group in chosen for row in self.rows[ends[group] : ends[group + 1]].tolist()
        ]

    def in_order(
        self, columns: AllocationColumns, at: int, tail: list[int], rank: Array, odd: Mask
    ) -> list[int]:
        """By node of a block how many go at the least when they go by rank and then as in ``tail``.

        Where somebody is ``odd``, so that he may be passed over, the bound of the node.
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
        """Could the node hold it at all?"""
        return bool(self.allowed[node])


def field(columns: AllocationColumns, may: Mask, nodes: Mask, need: Array, names: Array) -> Field:
    """The field of one class: ``nodes`` could hold it when empty, ``need`` is by node what has to be freed there.

    ``may`` marks the rows that may go.
    """
    short = need.any(axis=1)
    free = roomy(nodes, need, names)
    order = columns.by_node()
    rows = order[may[order]]
    rows = rows[(nodes & short)[columns.nodes[rows]]]
    if not len(rows):
        none = cover.Groups(rows, rows, rows)
        return Field(free, len(free), [], [], [], nodes, rows, none, rows, need[:0])
    groups = cover.grouped(columns.nodes[rows])
    places = groups.places
    ranked, jobs = _bounds(columns, rows, groups, need.take(places, axis=0))
    found = np.array(cover.order(ranked, names[places]), dtype=np.int64)
    return Field(
        [*free, *places[found].tolist()],
        len(free),
        cover.priorities(ranked)[found].tolist(),
        jobs[found].tolist(),
        ranked.fewest[found].tolist(),
        nodes,
        rows,
        groups,
        found,
        need.take(places, axis=0),
    )


def roomy(nodes: Mask, need: Array, names: Array) -> list[int]:
    """Those of the nodes on which nothing has to be freed, by name."""
    free = np.flatnonzero(nodes & ~need.any(axis=1))
    found: list[int] = free[np.argsort(names[free])].tolist()
    return found


def _bounds(
    columns: AllocationColumns, rows: Array, groups: cover.Groups, need: Array
) -> tuple[cover.Bounds, Array]:
    """By node the bounds of its rows, whoever leads its application: J9 does not ask; and how many jobs go at the least.

    Where no member of a gang stands every victim is a job of its own.
    """
    plain = np.zeros(len(rows), dtype=np.bool_)
    given = Rows(columns.resources.take(rows, axis=0), plain, plain, columns.priorities[rows])
    weights = [0] * need.shape[1]
    ranked = cover.bounds(given, groups, need, weights)
    plain_node = np.add.reduceat(columns.jobs[rows] > 0, groups.starts, dtype=np.int64) == 0
    return ranked, np.where(plain_node, ranked.fewest, 1)


def ranks(columns: AllocationColumns, reluctant: Mask) -> Array:
    """By row willing before reluctant, then the lower priority, then who leads no application: in one number (7.5)."""
    protection = reluctant.astype(np.int64) << 34
    originator = (columns.flags & ORIGINATOR != 0).astype(np.int64)
    found: Array = protection + (columns.priorities - PRIORITY_MIN << 1) + originator
    return found


def leaves(columns: AllocationColumns, rows: Mask) -> list[int]:
    """The numbers of the leaves in which these are."""
    return distinct(columns.leaves[rows])


def of_leaves(columns: AllocationColumns, numbers: list[int]) -> Mask:
    """The rows of these leaves."""
    found: Mask = np.isin(columns.leaves, numbers)
    return found


def most_on_a_node(columns: AllocationColumns, screened: Screen) -> list[int]:
    """By type the most that those who passed hold together on any one node."""
    order = columns.by_node()
    rows = order[screened.codes[order] == PASSED]
    if not len(rows):
        return [0] * columns.resources.shape[1]
    starts = cover.grouped(columns.nodes[rows]).starts
    found: list[int] = (
        np.add.reduceat(columns.resources.take(rows, axis=0), starts, axis=0).max(axis=0).tolist()
    )
    return found


def passed(columns: AllocationColumns, screened: Screen, leaf: int | None = None) -> list[int]:
    """The rows that passed, all or those of one leaf."""
    found = screened.codes == PASSED
    if leaf is not None:
        found = found & (columns.leaves == leaf)
    rows: list[int] = np.flatnonzero(found).tolist()
    return rows


def marked(mask: Mask | None) -> list[int]:
    """The rows that are marked."""
    rows: list[int] = [] if mask is None else np.flatnonzero(mask).tolist()
    return rows


def held(columns: AllocationColumns, rows: list[int]) -> list[int]:
    """What some allocations hold together, by type."""
    total: list[int] = columns.resources.take(rows, axis=0).sum(axis=0).tolist()
    return total
