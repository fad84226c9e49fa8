"""The books as a shadow sees them: the same objects under other settings, with a round of its own.

Whatever plans reads settings and rounds from the partition that it is given. So a shadow gives it another partition,
which shares everything with the true one but these: who is due, the Views and the laws are the same code for both.
"""

import copy
from dataclasses import replace

from server.books import sharing, snapshot
from server.books.partition import Partition
from server.books.shadow import Shadow
from server.books.storms import Storms
from server.core import due, proportions
from server.core.shortage import Shortage
from server.model.shadow import is_on, settings_of
from server.view.queues import FrozenAmounts
from server.view.view import View


def memory(partition: Partition, now: int) -> Shadow | None:
    """What the partition's shadow remembers; None without one. Another configuration begins another shadow."""
    known, spec = partition.shadow, partition.spec
    if known is not None and known.live is spec:
        return known
    partition.shadow = None
    if is_on(spec.preemption):
        other = replace(spec, preemption=settings_of(spec.preemption))
        partition.shadow = Shadow(spec, other, partition.round, now)
    return partition.shadow


def next_due(partition: Partition, now: int) -> int | None:
    """The next instant after ``now`` at which time alone may let the shadow decide something."""
    known = partition.shadow
    if known is None or known.live is not partition.spec:
        return None
    found = [one for one in due.instants(seen(partition, known)) if one is not None and one > now]
    return min(found, default=None)


def seen(partition: Partition, known: Shadow) -> Partition:
    """The partition with the shadow's settings and round. What is frozen now stays so, whatever the live side does."""
    other = copy.copy(partition)
    other.spec, other.round = known.spec, known.round
    other.round.cycles = partition.round.cycles
    other.storms = Storms()
    other.storms.frozen = dict(partition.storms.frozen)
    return other


def view(other: Partition, now: int, asks: snapshot.Due, shortage: Shortage) -> View:
    """A View of the books as the shadow sees them; what the live side keeps of its queues stays as it is."""
    columns = other.columns
    kept = columns.queues
    other.deserved = _bounds(other, shortage)
    found = snapshot.take(other, now, due=asks)
    columns.queues = kept
    return found


def _bounds(other: Partition, shortage: Shortage) -> dict[str, FrozenAmounts]:
    """By leaf what it deserves, where the shadow shares by plain weights (W2)."""
    if not sharing.is_shared_out(other) or other.spec.preemption.demand_cap:
        return {}
    fresh = proportions.deserved(other, shortage.shares)
    return other.deserved if fresh == other.deserved else fresh
