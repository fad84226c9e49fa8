"""The amounts that the queues of all victims can lose, for all leaves at once (G4).

The eligibility of a leaf's allocations for a claim depends on two parts of the leaf's path. The first part is the queues on the
leaf's path that do not contain the preemptor. These are the queues below the *meeting queue*, which is the lowest queue that
contains both the leaf and the preemptor. The second part is the queues from the meeting queue up, which all leaves with this
meeting queue share. `LeafMargins` computes the first part, which is the same for every preemptor.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from server.kernels.fit import Array, Mask
from server.snapshot.columns import AllocationColumns
from server.snapshot.leaf_eligibility import UNLIMITED, EligibilityColumns
from server.snapshot.queue_tables import MISSING, QueueTable
from server.snapshot.queues import FrozenAmounts

PERMYRIAD: Final = 10_000


class Below(NamedTuple):
    """For each leaf and type, the smallest of the amounts that the queues on the leaf's path below a level of the tree can lose.

    ``is_beyond`` says whether each of these queues exceeds its entitlement by more than the dead zone. ``shifts`` marks the
    leaves for which one of these queues changes priorities (G5).
    """

    least: Array
    is_beyond: Mask
    shifts: Mask


class Level(NamedTuple):
    """The eligibility that leaves with one meeting queue have in common.

    ``spared`` is the number of the rule that protects all allocations of these leaves, 0 if there is none. ``takes`` marks the
    types for which allocations of these leaves may be taken. ``ports`` marks the host ports, for which no queue has to be over
    its entitlement. ``most`` is the largest amount that a victim may hold, if only the meeting queue and the queues above it
    are considered. ``priority`` is the highest priority of a victim, as the meeting queue sees it.
    """

    spared: int
    takes: tuple[bool, ...] = ()
    ports: tuple[bool, ...] = ()
    most: tuple[int, ...] = ()
    priority: int = UNLIMITED
    inside: tuple[bool, ...] = ()


class LeafMargins:
    """The amounts that the queues of the leaves in which allocations run can lose, after the plans so far.

    ``entitled`` has the entitlement of each queue, by type. If ``entitled`` is None, queues are entitled to their guarantees.
    With ``only_whole``, queues below their entitlement have no limit (W8).
    """

    def __init__(  # noqa: PLR0913 - all that the margins depend on
        self,
        table: QueueTable,
        allocations: AllocationColumns,
        entitled: Sequence[FrozenAmounts] | None,
        *,
        deadzone_permyriad: int,
        only_whole: bool,
        ports: tuple[bool, ...],
    ) -> None:
        tree, self._eff = table.tree, table.eff
        self._tree = tree
        self.leaves = leaves = table.leaves(allocations)
        """The row of each leaf, MISSING for a leaf that does not exist any more."""
        self.count = int(np.count_nonzero(leaves != MISSING))
        """The number of leaves that exist."""
        floor = tree.guaranteed if entitled is None else np.array(entitled, dtype=np.int64)
        self._floor = floor
        self._ways = np.where((leaves == MISSING)[:, None], MISSING, tree.ways.take(leaves, axis=0))
        self._only_whole = only_whole
        self._ports = np.array(ports, dtype=np.bool_)
        # No usage is as large as UNLIMITED, so that a lower threshold compares alike and cannot overflow.
        whole, part = np.divmod(np.minimum(floor, UNLIMITED - 1), PERMYRIAD)
        beyond = PERMYRIAD + deadzone_permyriad
        self._threshold = whole * beyond + part * beyond // PERMYRIAD
        self._below: dict[int, Below] = {}
        self._is_own_eff = False

    def change(self, path: str, eff: Sequence[int]) -> None:
        """Write the effective usage of a queue that a plan has changed."""
        if not self._is_own_eff:
            self._eff, self._is_own_eff = self._eff.copy(), True
        self._eff[self._tree.rows[path]] = eff
        self._below.clear()

    def levels(self, leaf: str) -> Array:
        """Return, for each leaf, the number of queues on its path that also contain the queue ``leaf``, 0 for a missing leaf."""
        own = self._tree.ways[self._tree.rows[leaf]]
        shared = (self._ways == own) & (own != MISSING)
        found: Array = np.logical_and.accumulate(shared, axis=1).sum(axis=1)
        return found

    def places(self, path: str) -> list[int]:
        """Return the index of a leaf in the columns, as a list with one item.

        The list is empty if no allocation runs in the leaf.
        """
        row = self._tree.rows.get(path)
        found: list[int] = [] if row is None else np.flatnonzero(self.leaves == row).tolist()
        return found

    def disabled(self) -> list[int]:
        """Return the indexes of the leaves from which nothing is evicted (G3)."""
        found: list[int] = np.flatnonzero(
            (self.leaves != MISSING) & self._tree.disabled.take(self.leaves)
        ).tolist()
        return found

    def below(self, level: int) -> Below:
        """Return the values of the queues below the first ``level`` queues of each leaf's path."""
        known = self._below.get(level)
        if known is None:
            known = self._below[level] = self._find_below(level)
        return known

    def _find_below(self, level: int) -> Below:
        leaves, width = len(self.leaves), self._floor.shape[1]
        if level >= self._ways.shape[1]:
            return Below(
                np.full((leaves, width), UNLIMITED, dtype=np.int64),
                np.ones((leaves, width), dtype=np.bool_),
                np.zeros(leaves, dtype=np.bool_),
            )
        after, rows = self.below(level + 1), self._ways[:, level]
        exists = (rows != MISSING)[:, None]
        over = self._eff - self._floor
        if self._only_whole:
            over[over < 0] = UNLIMITED
        beyond = self._eff > self._threshold
        return Below(
            np.where(exists, np.minimum(over.take(rows, axis=0), after.least), after.least),
            np.where(exists, beyond.take(rows, axis=0) & after.is_beyond, after.is_beyond),
            np.where(exists[:, 0], self._tree.shifts.take(rows) | after.shifts, after.shifts),
        )

    def columns(  # noqa: PLR0913 - all that the eligibility depends on
        self,
        levels: Array,
        found: Sequence[Level],
        *,
        gone: int,
        now: int,
        highest: Callable[[int], int],
        crosses: bool,
    ) -> EligibilityColumns:
        """Return the eligibility of all leaves.

        ``levels`` has, for each leaf, the number of queues on its path that are also on the path of the preemptor's leaf.
        ``found`` has the values for the leaves with one such queue, then those for the leaves with two, and so on. ``highest``
        returns the highest priority in the leaf with a given row, if queues on its path change priorities. Leaves that do not
        exist are protected by the rule ``gone``. With ``crosses``, ``most`` has no limit (W8).
        """
        columns = EligibilityColumns.spared_by(gone, len(self.leaves), self._floor.shape[1])
        for level, one in enumerate(found, start=1):
            here = np.flatnonzero(levels == level)
            columns.spared[here] = one.spared
            if one.spared or not len(here):
                continue
            below = self.below(level)
            beyond = below.is_beyond.take(here, axis=0) | np.array(one.ports)
            columns.useful[here] = beyond & np.array(one.takes)
            if not crosses:
                least = np.minimum(below.least.take(here, axis=0), np.array(one.most))
                columns.most[here] = np.where(self._ports, UNLIMITED, least)
            columns.priority[here] = one.priority
            for place in here[below.shifts.take(here)].tolist():
                columns.priority[place] = highest(int(self.leaves[place]))
            columns.inside[here] = one.inside or False
            minimum = self._tree.minimum_ms.take(self.leaves.take(here))
            columns.since_ms[here] = np.where(minimum != 0, now - minimum, UNLIMITED)
        return columns
