"""The move of a partition from one group of cores to another one, while both run (design 7.9)."""

import enum
from typing import Final, NamedTuple

CHANGES_MAX: Final = 16
"""The largest number of moves that a core stores to report them to shims with an older table. The oldest move is dropped first."""


class MoveStep(enum.StrEnum):
    """A step of a move.

    The former owner gets `leave`, then `left` or `stay`. The new owner gets `part` for each part, then `arrived`.
    """

    LEAVE = "leave"
    """The core decides nothing for the partition until the move is completed or given up."""
    STAY = "stay"
    """The move is given up: the former owner decides for the partition again, and the new owner forgets the copy."""
    LEFT = "left"
    """The other group owns the partition. The core removes its copy of the partition."""
    PART = "part"
    """A part of the copy of the partition. The part with number 0 begins the copy."""
    ARRIVED = "arrived"
    """The copy is complete.

    The core uses the copy from the moment at which a shim registers with a table that names this group as the owner.
    """


class TableChange(NamedTuple):
    """A completed move of a partition, as a core of one of the two groups stores it."""

    revision: int
    """The revision of the core's own group since the move."""
    partition: str
    group: str
    """The group that owns the partition since the move."""
    group_revision: int
    """The revision of the owning group since the move."""
