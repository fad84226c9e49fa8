"""The amounts that rounds of claims have released so far, as the policies see them (P5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PARTITION: Final = "partition"
QUEUE: Final = "queue"
APPLICATION: Final = "application"
LOSS: Final = "loss"

Taken = Mapping[tuple[str, str, int], int]
"""The sum of victims' resources by what is counted (PARTITION, QUEUE, APPLICATION or LOSS), its name, and type index.

A LOSS is what a queue gives to others: the victim runs in it or below it, and it does not hold the preemptor.
"""

OverUse = Mapping[tuple[str, int], int]
"""The amount by which a queue is over its entitlement, by queue and type index; zeros are not listed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The record of rounds. ``began_ms`` is when the last round of claims began, None where there was none since the start.

    ``decided``: that round has taken a decision with victims. ``taken`` is what it released, with the rounds before it that
    began within `pace.window`; a LOSS is that of the last round alone (P9).
    """

    began_ms: int | None = None
    decided: bool = False
    taken: Taken = field(default_factory=dict)


AT_REST: Final = Pace()
"""The record before any round."""
