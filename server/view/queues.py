"""One queue as a View holds it. Amounts are tuples by type index."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from server.model.fit import Demand
from server.model.quota import QueueSpec

FrozenAmounts = tuple[int, ...]
Bounds = tuple[int | None, ...]
"""A limit by type index; None where nothing is limited."""

NO_PATH: Final = ""
"""The parent of the root."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue's limits, usage and open promises; ``number`` is what allocations call it.

    ``releasing`` is the part of ``usage`` that ordered releases will give back, ``promised`` what open commitments
    will add (specification section 0), ``reserved`` the part of it that reservations hold and that gives way to
    claims. A missing guarantee is 0, a missing maximum None. ``bound`` is what placement goes by: the maximum, or what
    is ``deserved`` where a leaf may have no more than that (W2, plain weights). ``spec`` has the weight and the properties.
    """

    path: str
    parent: str
    number: int
    leaf: bool
    managed: bool
    stopped: bool
    guaranteed: FrozenAmounts
    max: Bounds
    bound: Bounds
    deserved: FrozenAmounts | None
    usage: FrozenAmounts
    releasing: FrozenAmounts
    promised: FrozenAmounts
    reserved: FrozenAmounts
    commitments: int
    spec: QueueSpec


def has_room(queue: QueueFacts, promised: Sequence[int], demand: Demand) -> bool:
    """Does the queue itself take one more of this demand: usage + promised + demand within its bound?"""
    for index, quantity in demand:
        most = queue.bound[index]
        if most is not None and queue.usage[index] + promised[index] + quantity > most:
            return False
    return True
