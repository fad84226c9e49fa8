"""What rounds of claims have released so far, as the policies see it (P5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PARTITION: Final = "partition"
QUEUE: Final = "queue"
APPLICATION: Final = "application"

Taken = Mapping[tuple[str, str, int], int]
"""By what is counted (PARTITION, QUEUE or APPLICATION), its name, and type index the sum of its victims' resources."""


@dataclass(frozen=True, slots=True)
class Pace:
    """``began_ms`` is when the last round of claims began, None where there was none since the core started.

    ``decided``: that round has taken a decision with victims. ``taken`` is what it released, with the rounds before it
    that began within `pace.window`.
    """

    began_ms: int | None = None
    decided: bool = False
    taken: Taken = field(default_factory=dict)


AT_REST: Final = Pace()
"""There was no round."""
