"""The amounts that rounds of claims have released so far, as the policies see them (P5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PARTITION: Final = "partition"
QUEUE: Final = "queue"
APPLICATION: Final = "application"
LOSS: Final = "loss"

Taken = Mapping[tuple[str, str, int], int]
"""The sum of victims' resources. The key is the kind of budget (PARTITION, QUEUE, APPLICATION or LOSS), a name and a type index.

A LOSS of a queue is the amount that it gives to other queues. Its victims run in the queue or below it, and the preemptor does
not wait there.
"""

OverUse = Mapping[tuple[str, int], int]
"""The amount by which a queue is over its entitlement, by queue and type index. Zeros are not listed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The record of rounds.

    ``began_ms`` is the instant at which the last round of claims began. ``began_ms`` is None if no round has begun since the
    core started.

    ``decided`` says whether that round has made a decision with victims. ``taken`` has the amounts that this round and the
    earlier rounds within `pace.window` released. For a LOSS, only the last round is included (P9).
    """

    began_ms: int | None = None
    decided: bool = False
    taken: Taken = field(default_factory=dict)


AT_REST: Final = Pace()
"""The record before any round."""
