"""The eligibility of victims by leaf, as one value for each leaf and as columns for all leaves.

`LeafEligibility` is the readable form. `EligibilityColumns` has the same values in arrays, so that thousands of leaves cost a claim
a few array operations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from server.kernels.fit import Array, Mask

UNLIMITED: Final = 1 << 62
PASSED: Final = 0


@dataclass(frozen=True, slots=True)
class LeafEligibility:
    """The eligibility of all allocations of one leaf as victims for one class of asks.

    ``spared`` is the number of a rule that protects all allocations of the leaf, 0 if there is none. ``most`` is the largest
    amount that one victim may hold, by type. ``useful`` marks the types for which an eviction helps (G4). ``priority`` is the
    highest priority that a victim may have (G5). ``since_ms`` is the latest instant at which a victim may have started (V4).
    ``inside`` marks the types whose deciding queue contains the leaf (G2). ``inside`` is empty if there are no such types.
    """

    spared: int = 0
    most: tuple[int, ...] = ()
    useful: tuple[bool, ...] = ()
    priority: int = UNLIMITED
    since_ms: int = UNLIMITED
    inside: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class EligibilityColumns:
    """The eligibility of all leaves, one row for each leaf in the order of `AllocationColumns.leaf_places`.

    The columns have the values of `LeafEligibility`. Where a `LeafEligibility` has an empty tuple, the columns have neutral
    values: no limit, no useful type, no type inside.
    """

    spared: Array
    most: Array
    useful: Mask
    priority: Array
    since_ms: Array
    inside: Mask

    @classmethod
    def spared_by(cls, code: int, leaves: int, width: int) -> "EligibilityColumns":
        """Return the eligibility of leaves whose allocations are all protected by the rule with the number ``code``."""
        return cls(
            np.full(leaves, code, dtype=np.int64),
            np.full((leaves, width), UNLIMITED, dtype=np.int64),
            np.zeros((leaves, width), dtype=np.bool_),
            np.full(leaves, UNLIMITED, dtype=np.int64),
            np.full(leaves, UNLIMITED, dtype=np.int64),
            np.zeros((leaves, width), dtype=np.bool_),
        )

    @classmethod
    def of(
        cls, leaves: Sequence[int], by_leaf: Mapping[int, LeafEligibility], width: int, gone: int
    ) -> "EligibilityColumns":
        """Return the values of ``by_leaf`` as columns. Leaves without a value are protected by the rule ``gone``."""
        found = cls.spared_by(gone, len(leaves), width)
        for place, number in enumerate(leaves):
            one = by_leaf.get(number)
            if one is not None:
                found.put(place, one)
        return found

    def put(self, place: int, one: LeafEligibility) -> None:
        """Write the values of one leaf. Call this method only before the columns are shared."""
        self.spared[place] = one.spared
        self.most[place] = one.most or UNLIMITED
        self.useful[place] = one.useful or False
        self.priority[place] = one.priority
        self.since_ms[place] = one.since_ms
        self.inside[place] = one.inside or False

    def protect(self, places: Mask | Array) -> None:
        """Write the neutral values for these leaves, because a rule protects all of their allocations.

        Call this method only before the columns are shared.
        """
        self.most[places] = self.priority[places] = self.since_ms[places] = UNLIMITED
        self.useful[places] = self.inside[places] = False

    @property
    def is_open(self) -> Mask:
        """Return a mask of the leaves in which a victim may be found: no rule protects the leaf, and some type is useful."""
        found: Mask = (self.spared == PASSED) & self.useful.any(axis=1)
        return found

    def allows(self, narrow: "EligibilityColumns") -> bool:
        """Return whether every victim that ``narrow`` allows is allowed here, too."""
        needed = narrow.is_open
        if not needed.any():
            return True
        fits = self.is_open & (self.useful | ~narrow.useful).all(axis=1)
        fits &= (self.priority >= narrow.priority) & (self.since_ms >= narrow.since_ms)
        fits &= (self.most >= narrow.most).all(axis=1)
        return bool(fits[needed].all())

    def differs(self, other: "EligibilityColumns") -> Mask:
        """Return a mask of the leaves with different values here and in ``other``.

        The values of ``most``, the largest amounts that one victim may hold, are not compared.

        These amounts are checked again for each victim.
        """
        found: Mask = (self.spared != other.spared) | (self.useful != other.useful).any(axis=1)
        found |= (self.priority != other.priority) | (self.since_ms != other.since_ms)
        found |= (self.inside != other.inside).any(axis=1)
        return found
