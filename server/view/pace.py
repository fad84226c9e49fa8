"""What rounds of claims have released so far, as the policies see it (P5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PARTITION: Final = "partition"
QUEUE: Final = "queue"
APPLICATION: Final = "application"
LOSS: Final = "loss"

Taken = Mapping[tuple[str, str, int], int]
"""By what is counted (PARTITION, QUEUE, APPLICATION or LOSS), its name, and type index the sum of its victims' resources.

A LOSS is what a queue gives to others: it, or one below it, has the victim, and it does not hold the asker.
"""

OverUse = Mapping[tuple[str, int], int]
"""By queue and type index what it has over its entitlement; nothing is not listed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """``began_ms`` is when the last round of claims began, None where there was none since the core started.

    ``decided``: that round has taken a decision with victims. ``taken`` is what it released, with the rounds before it
    that began within `pace.window`; a LOSS is that of the last round alone (P9).
    """

    began_ms: int | None = None
    decided: bool = False
    taken: Taken = field(default_factory=dict)


AT_REST: Final = Pace()
"""There was no round."""
