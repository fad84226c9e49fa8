"""The queues of a snapshot as arrays, one row for each queue, for the victim searches of claims.

Most queues are the same from one snapshot to the next. `QueueTables` therefore keeps the arrays of the last snapshot, and only the
rows of changed queues are written again. A loss of these arrays changes no decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_not
from typing import Final

import numpy as np

from server.kernels.fit import Array, Mask
from server.model.quota import PreemptionPolicy, PriorityPolicy
from server.snapshot.columns import AllocationColumns
from server.snapshot.queues import NO_PATH, QueueFacts

MISSING: Final = -1
"""The value in place of a row if there is no queue: in a line of ``ways`` after the last queue, or for a deleted leaf."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueTree:
    """The facts about queues that follow from their specifications and from the tree.

    ``rows`` has the row of each queue, by path. ``ways`` has one line for each queue: the rows of the queues from the root down
    to the queue itself, then MISSING. ``numbers`` has the numbers of the queues in rising order, and ``ranked`` has the rows of
    the queues in the same order. ``guaranteed`` has the guarantee of each queue. ``minimum_ms`` is the time for which the pods
    of a queue are protected (V4). ``disabled`` marks the queues from which nothing is evicted (G3). ``shifts`` marks the queues
    that change the priorities that their parents see (G5).
    """

    rows: dict[str, int]
    ways: Array
    numbers: Array
    ranked: Array
    guaranteed: Array
    minimum_ms: Array
    disabled: Mask
    shifts: Mask
    measures: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """A cache of the queues at which the distance of a leaf from its guarantee is measured, by leaf (P4)."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueTable:
    """The tree of the queues, and their effective usage when the snapshot was taken (G4), by type."""

    tree: QueueTree
    eff: Array

    def leaves(self, columns: AllocationColumns) -> Array:
        """Return the row of each leaf in which allocations run, MISSING if the leaf does not exist any more."""
        numbers, tree = np.array(columns.leaf_places()[0], dtype=np.int64), self.tree
        at = np.minimum(tree.numbers.searchsorted(numbers), len(tree.numbers) - 1)
        return np.where(tree.numbers[at] == numbers, tree.ranked[at], MISSING)


class QueueTables:
    """The arrays of the last snapshot of a partition."""

    __slots__ = ("_facts", "_table")

    def __init__(self) -> None:
        self._facts: list[QueueFacts] = []
        self._table: QueueTable | None = None

    def of(self, queues: Sequence[QueueFacts]) -> QueueTable:
        """Return the arrays of these queues."""
        before, table = self._facts, self._table
        if table is None or len(queues) != len(before):
            return self._keep(queues, _table(queues))
        changed = [at for at, new in enumerate(map(is_not, before, queues)) if new]
        if not changed:
            return table
        if not all(_is_alike(before[at], queues[at]) for at in changed):
            return self._keep(queues, _table(queues))
        eff = table.eff.copy()
        eff[changed] = _eff([queues[at] for at in changed])
        return self._keep(queues, QueueTable(table.tree, eff))

    def _keep(self, queues: Sequence[QueueFacts], table: QueueTable) -> QueueTable:
        self._facts, self._table = list(queues), table
        return table


def _is_alike(one: QueueFacts, other: QueueFacts) -> bool:
    """Return whether two facts describe the same queue with the same specification, so that only their amounts may differ."""
    return (
        one.path == other.path
        and one.number == other.number
        and one.spec is other.spec
        and one.guaranteed == other.guaranteed
    )


def _table(queues: Sequence[QueueFacts]) -> QueueTable:
    return QueueTable(_tree(queues), _eff(queues))


def _eff(queues: Sequence[QueueFacts]) -> Array:
    usage = np.array([one.usage for one in queues], dtype=np.int64)
    return usage - np.array([one.releasing for one in queues], dtype=np.int64)


def _tree(queues: Sequence[QueueFacts]) -> QueueTree:
    rows = {one.path: row for row, one in enumerate(queues)}
    known: dict[str, list[int]] = {NO_PATH: []}
    facts = {one.path: one for one in queues}
    ways = [_way(one, facts, rows, known) for one in queues]
    width = max(map(len, ways))
    numbers = np.array([one.number for one in queues], dtype=np.int64)
    ranked = numbers.argsort(kind="stable")
    properties = [one.spec.properties for one in queues]
    return QueueTree(
        rows,
        np.array([[*way, *[MISSING] * (width - len(way))] for way in ways], dtype=np.int64),
        numbers[ranked],
        ranked,
        np.array([one.guaranteed for one in queues], dtype=np.int64),
        np.array([one.preemption_minruntime_ms for one in properties], dtype=np.int64),
        np.array([one.preemption_policy is PreemptionPolicy.DISABLED for one in properties]),
        np.array(
            [
                one.priority_offset != 0 or one.priority_policy is PriorityPolicy.FENCE
                for one in properties
            ]
        ),
    )


def _way(
    one: QueueFacts, facts: dict[str, QueueFacts], rows: dict[str, int], known: dict[str, list[int]]
) -> list[int]:
    """Return the rows of the queues from the root down to a queue."""
    found = known.get(one.path)
    if found is None:
        above = _way(facts[one.parent], facts, rows, known) if one.parent else []
        found = known[one.path] = [*above, rows[one.path]]
    return found
