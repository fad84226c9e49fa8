"""The partition as its shadow sees it: the live objects with the shadow's settings and the shadow's round.

Planning code reads settings and rounds from the partition that it is given. The shadow's turn passes a copy of the partition
that has the shadow's settings and rounds. All other objects are shared by the copy and the live partition. Therefore the same
code finds due asks, takes snapshots and checks rules for the live side and for the shadow.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from server.core.preemption import due, shares
from server.core.preemption.deficits import Shortage
from server.model.shadow import is_on, settings_of
from server.snapshot.queues import Bounds
from server.state import sharing
from server.state.partition import Partition
from server.state.shadow import Shadow
from server.state.thrashing import ThrashingTables


def memory(partition: Partition, now: int) -> Shadow | None:
    """Return what the partition's shadow has recorded: its decisions, its refusals and its totals.

    Return None if the partition has no shadow. If the configuration has changed since the last call, begin an empty record.
    """
    known, spec = partition.shadow, partition.spec
    if known is not None and known.live is spec:
        return known
    partition.shadow = None
    if is_on(spec.preemption):
        other = replace(spec, preemption=settings_of(spec.preemption))
        partition.shadow = Shadow(spec, other, partition.round, now)
    return partition.shadow


def next_due(partition: Partition, now: int) -> int | None:
    """Return the next instant after ``now`` at which the shadow may decide something without any event.

    Return None if the shadow cannot decide without an event, or if the shadow has not begun under the present configuration.
    """
    known = partition.shadow
    if known is None or known.live is not partition.spec:
        return None
    found = [one for one in due.instants(seen(partition, known)) if one is not None and one > now]
    return min(found, default=None)


def seen(partition: Partition, known: Shadow) -> Partition:
    """Return a shallow copy of the partition with the shadow's settings and round, and with a copy of the thrashing monitor's frozen pairs.

    All other objects are shared with the live partition and must not be changed.
    """
    other = copy.copy(partition)
    other.spec, other.round = known.spec, known.round
    other.round.cycles = partition.round.cycles
    other.thrashing = ThrashingTables()
    other.thrashing.frozen = dict(partition.thrashing.frozen)
    return other


@contextmanager
def settled(other: Partition) -> Iterator[Shortage]:
    """Limit leaves to the shares that the shadow gives them (W2), in the shadow's copy of the partition.

    Yield the deficits of queues in that copy. The shadow's snapshots must be taken inside this context. Each of these snapshots
    replaces the columns of queues, which the copy shares with the live partition. When the context ends, the live side's
    columns of queues are restored.
    """
    columns, shortage = other.columns, Shortage(other)
    kept = columns.queues
    other.deserved = _bounds(other, shortage)
    try:
        yield shortage
    finally:
        columns.queues = kept


def _bounds(other: Partition, shortage: Shortage) -> dict[str, Bounds]:
    """Return the deserved share of each leaf, if the shadow uses plain shares (W2)."""
    if not sharing.is_shared_out(other) or other.spec.preemption.demand_cap:
        return {}
    fresh = shares.deserved(other, shortage.shares)
    return other.deserved if fresh == other.deserved else fresh
