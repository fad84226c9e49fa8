"""The frozen columns of a snapshot: int64 arrays with one row for each node or running allocation.

The arrays are never written to.

A node or allocation keeps its row number while it exists. Between the rows that are in use, other rows may be empty. No sort
order depends on row numbers: the last sort key is always the arrival number of the node or the key of the allocation.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from server.kernels.distinct import FEW, numbered
from server.kernels.fit import Array, Mask
from server.model.asks import AskSpec, Protection
from server.model.fit import Demand

OPTED_OUT: Final = 1
"""The flag of a pod that opted out of preemption (V3, level 1).

The pod, or its class, has `allow-preemption: "false"` or prefer-not.
"""
ORIGINATOR: Final = 2
REQUIRED_NODE: Final = 4
PLACEHOLDER: Final = 8
RELEASING: Final = 16
"""The flag of an allocation whose release was ordered and is not confirmed yet."""
FIRM: Final = 32
UNTOUCHABLE: Final = 64
GANG: Final = 128
"""The flag of a member of a gang of several members."""
REPLACED: Final = 256
"""The flag of a placeholder that a real pod is about to replace."""
VETOED: Final = 512
"""The flag of an allocation whose eviction was vetoed less than a back-off ago (V3, C6)."""
GROUPED: Final = 1024
"""The flag of a pod that belongs to a disruption budget."""
UNSAID: Final = 2048
"""The flag of a pod that declares no class, so that the partition's setting decides whether the pod is firm (J2)."""

NOT_STARTED: Final = -1
"""The ``started_ms`` of an allocation that does not run yet."""


def flags_of(spec: AskSpec) -> int:
    """Return the flags of an allocation that follow from its spec."""
    flags = ORIGINATOR if spec.leads else 0
    flags |= PLACEHOLDER if spec.placeholder else 0
    flags |= REQUIRED_NODE if spec.constraints.required_node else 0
    flags |= GROUPED if spec.disruption_groups else 0
    flags |= GANG if spec.gang_key and spec.min_members > 1 else 0
    if spec.opted_out:
        flags |= OPTED_OUT
    if spec.protection is Protection.FIRM or spec.lendable is False:
        flags |= FIRM
    if spec.protection is not Protection.FIRM and spec.lendable is None:
        flags |= UNSAID
    if spec.protection is Protection.UNTOUCHABLE:
        flags |= UNTOUCHABLE
    return flags


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """The columns of nodes, with one row for each node."""

    ids: tuple[str, ...]
    numbers: Array
    """The arrival number of each node."""
    capacity: Array
    free: Array
    """The capacity minus usage, foreign pods and pledges. The free amount may be negative."""
    releasing: Array
    """The amounts that ordered releases will free."""
    reserved: Array
    """The amounts of the pledges that give way to claims."""
    open: Mask
    """A mask of the nodes that take placements."""
    opened: Mask
    """A mask of the nodes whose pods are all known, so that asks that require such a node by name can be placed there."""
    held: Mask
    """A mask of the nodes on which a commitment has a pledge."""
    names: Array
    """The rank of each node's id among all ids."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldAmounts:
    """The amounts that some allocations hold of some types: one line for each allocation, one column for each type."""

    amounts: Array

    @property
    def total(self) -> list[int]:
        """Return the sum over all allocations, by type."""
        found: list[int] = self.amounts.sum(axis=0).tolist()
        return found

    @property
    def all_useful(self) -> bool:
        """Return whether each allocation holds a positive amount of at least one type."""
        return bool((self.amounts > 0).any(axis=1).all())

    def any_spare(self, beyond: list[int]) -> bool:
        """Return whether at least one allocation is not needed.

        ``beyond`` has, for each type, the amount by which the total exceeds the need. An allocation is not needed if it holds
        at most that amount of each type.
        """
        return bool(((self.amounts <= beyond) | (self.amounts == 0)).all(axis=1).any())


@dataclass(frozen=True, slots=True, eq=False)
class AllocationColumns:
    """The columns of running allocations, with one row for each allocation. Foreign pods have no row."""

    keys: tuple[str, ...]
    application_ids: tuple[str, ...]
    specs: tuple[AskSpec | None, ...]
    demands: tuple[Demand, ...]
    """The amounts that are charged to the allocation's queues."""
    alive: Mask
    standing: Mask
    """A mask of rows that run and whose release is not ordered."""
    nodes: Array
    """The row of the node on which the allocation runs."""
    leaves: Array
    """The number of the queue of each allocation."""
    applications: Array
    """The number of the application of each allocation."""
    priorities: Array
    flags: Array
    created_ms: Array
    started_ms: Array
    gangs: Array
    """The number of the gang of each allocation, 0 without a gang."""
    resources: Array
    """The amounts that the allocation uses on its node, ports included, by type index."""
    sorted: dict[str, Any] = field(default_factory=dict)
    """The cache of results that were computed once. Only this class writes to it."""

    def groups(self, row: int) -> tuple[str, ...]:
        """Return the disruption budgets to which an allocation belongs."""
        spec = self.specs[row]
        return spec.disruption_groups if spec is not None else ()

    def grouped(self) -> list[int]:
        """Return the rows that belong to a disruption budget."""
        if "grouped" not in self.sorted:
            self.sorted["grouped"] = np.flatnonzero(self.flags & GROUPED).tolist()
        found: list[int] = self.sorted["grouped"]
        return found

    def by_node(self) -> Array:
        """Return the rows that are in use, sorted by node."""
        if "by_node" not in self.sorted:
            rows = np.flatnonzero(self.alive)
            self.sorted["by_node"] = rows[np.argsort(self.nodes[rows], kind="stable")]
        found: Array = self.sorted["by_node"]
        return found

    def rows_on(self, node: int) -> list[int]:
        """Return the rows that are in use on one node, in row order."""
        found: list[int] = self.on_node(node).tolist()
        return found

    def on_node(self, node: int) -> Array:
        """Return the rows that are in use on one node, as an array."""
        order = self.by_node()
        sorted_nodes = self.sorted.get("sorted_nodes")
        if sorted_nodes is None:
            sorted_nodes = self.sorted["sorted_nodes"] = self.nodes.take(order)
        first = sorted_nodes.searchsorted(node)
        last = sorted_nodes.searchsorted(node, side="right")
        return order[first:last]

    def nodes_of(self, rows: Array) -> list[int]:
        """Return the rows of the nodes on which these allocations run."""
        found: list[int] = self.nodes[rows].tolist()
        return found

    def rows_holding(self, standing: Mask, types: list[int], barred: int) -> list[int]:
        """Return the standing rows that hold an amount of any of the types and have none of the flags in ``barred``."""
        holding = (self.resources[:, types] > 0).any(axis=1)
        found: list[int] = np.flatnonzero(standing & holding & (self.flags & barred == 0)).tolist()
        return found

    def any_flagged(self, rows: Array, flags: int) -> bool:
        """Return whether any of these allocations has any of these flags."""
        if len(rows) <= FEW:
            own = self.flags.item
            return any(own(row) & flags for row in rows.tolist())
        return bool((self.flags[rows] & flags).any())

    def held_by(self, rows: Array, types: list[int]) -> "HeldAmounts":
        """Return the amounts of some types that these allocations hold."""
        return HeldAmounts(self.resources.take(rows, axis=0)[:, types])

    def gangs_without(self, standing: Mask) -> frozenset[tuple[int, str]]:
        """Return the gangs that have a member that is not standing, as (application number, gang key) pairs."""
        rows = np.flatnonzero(self.alive & ~standing & (self.flags & GANG > 0)).tolist()
        pairs = ((int(self.applications[row]), self.specs[row]) for row in rows)
        return frozenset((number, spec.gang_key) for number, spec in pairs if spec is not None)

    def leaf_places(self) -> tuple[tuple[int, ...], Array]:
        """Return the numbers of the leaves that have allocations, and, for each row, the index of its leaf among these numbers."""
        if "leaves" not in self.sorted:
            numbers, places = numbered(self.leaves)
            self.sorted["leaves"] = (tuple(numbers), places)
        found: tuple[tuple[int, ...], Array] = self.sorted["leaves"]
        return found

    def leaves_among(self, places: Mask) -> list[int]:
        """Return the numbers of the leaves that a mask over `leaf_places` marks."""
        numbers = self.leaf_places()[0]
        return [numbers[place] for place in np.flatnonzero(places).tolist()]
