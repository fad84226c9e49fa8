"""The record of the amounts that rounds of claims have released so far, in the form that policies read (P5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PARTITION: Final = "partition"
QUEUE: Final = "queue"
APPLICATION: Final = "application"
LOSS: Final = "loss"

Taken = Mapping[tuple[str, str, int], int]
"""The sums of the victims' resources that count against budgets.

The key is the kind of budget (PARTITION, QUEUE, APPLICATION or LOSS), a name and a type index.

The amount of LOSS for a queue is the sum of the victims that ran in the queue or below it and were evicted for preemptors
outside the queue.
"""

OverUse = Mapping[tuple[str, int], int]
"""The amounts by which queues exceed their entitlements, by queue path and type index. Amounts of zero are left out."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times and the released amounts of rounds of claims.

    ``began_ms`` is the instant at which the last round of claims began. ``began_ms`` is None if no round has begun since the
    core started.

    ``decided`` says whether that round has made a decision with victims. ``taken`` has the amounts that this round and the
    earlier rounds within `pace.window` released. The amounts of the kind LOSS are an exception: ``taken`` has only those of the
    last round (P9).
    """

    began_ms: int | None = None
    decided: bool = False
    taken: Taken = field(default_factory=dict)


AT_REST: Final = Pace()
"""The value of `Pace` before any round has begun."""
