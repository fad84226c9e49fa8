"""The facts of one queue in a snapshot. Amounts are tuples by type index."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from server.model.fit import Demand
from server.model.quota import QueueSpec

FrozenAmounts = tuple[int, ...]
Bounds = tuple[int | None, ...]
"""The limits of a queue by type index. The limit of a type is None if the type has no limit."""

NO_PATH: Final = ""
"""The parent of the root."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The limits, usage and open promises of a queue."""

    path: str
    parent: str
    number: int
    """The number of the queue in the columns."""
    leaf: bool
    managed: bool
    stopped: bool
    guaranteed: FrozenAmounts
    """The guarantee. A missing guarantee is 0."""
    max: Bounds
    """The maximum, None for a type without a maximum."""
    deserved: Bounds | None
    """The deserved share of a leaf if the partition has plain shares by weight (W2), and None otherwise."""
    usage: FrozenAmounts
    releasing: FrozenAmounts
    """The part of ``usage`` that ordered releases will free."""
    promised: FrozenAmounts
    """The amounts that open commitments will add (C2)."""
    reserved: FrozenAmounts
    """The part of ``promised`` that gives way to claims, such as reservations."""
    commitments: int
    spec: QueueSpec
    """The specification of the queue, with its weight and its properties."""

    @property
    def is_limited(self) -> bool:
        """Return whether the queue has a limit for any type.

        Most queues have no limits, so rules on maxima skip these queues.
        """
        return self.deserved is not None or self.max.count(None) < len(self.max)

    @property
    def bound(self) -> Bounds:
        """Return the limits of placement.

        The limit of each type is the maximum, or the deserved share of the leaf if that share is smaller (W2).
        """
        if self.deserved is None:
            return self.max
        return tuple(_least(*pair) for pair in zip_longest(self.max, self.deserved))


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def has_headroom(queue: QueueFacts, promised: Sequence[int], demand: Demand) -> bool:
    """Return whether the queue's usage, the ``promised`` amounts and the demand are together within the queue's own bound.

    The ancestors of the queue are not checked.
    """
    bound = queue.bound
    for index, quantity in demand:
        most = bound[index]
        if most is not None and queue.usage[index] + promised[index] + quantity > most:
            return False
    return True
