"""The amounts that rounds of claims have released so far, in the form that policies read (P5).

A round releases the amounts of the victims that it evicts.
"""

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

The amount of LOSS for a queue is the sum over the victims that ran in the queue or below it and were evicted for preemptors
outside the queue.
"""

OverUse = Mapping[tuple[str, int], int]
"""The amounts by which queues exceed their entitlements, by queue path and type index. Amounts of zero are left out."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times and the released amounts of rounds of claims."""

    began_ms: int | None = None
    """The instant at which the last round of claims began, None if no round has begun since the core started."""
    decided: bool = False
    """Whether the last round of claims has made a decision with victims."""
    taken: Taken = field(default_factory=dict)
    """The amounts that the last round and the earlier rounds within `pace.window` released.

    Of the kind LOSS, only the amounts of the last round are included (P9).
    """


AT_REST: Final = Pace()
"""The value of `Pace` before any round has begun."""
