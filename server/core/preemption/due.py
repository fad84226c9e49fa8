"""The asks that are due for a round.

Due asks are found in the live state, so that a snapshot is taken only when there is work.

The checks in this module take little time, because they test only necessary conditions. Policies and rules decide later whether
pods are evicted. For reservations, one check is made for each group of equal asks.
"""

from collections.abc import Sequence

from server.core.preemption import due_claims, due_gangs, pacing
from server.core.preemption.deficits import Shortage
from server.state import quota_timers, sharing, snapshotting
from server.state.applications import Group
from server.state.partition import Partition

Counters = tuple[int, int]


def counters(partition: Partition) -> Counters:
    """Return counters that change with each event that may make a decision possible.

    The counters count changes of capacity, limits and nodes, and decisions that ended.
    """
    return partition.relief, len(partition.index.nodes)


def changes_beside_asks(partition: Partition) -> tuple[int, ...]:
    """Return the counters of `changes` without the counters that new asks change."""
    return *counters(partition), partition.index.entered, partition.round.pledges_ended


def changes(partition: Partition) -> tuple[int, ...]:
    """Return counters that change with each event after which the round may plan for more asks.

    The passing of time does not change them.
    """
    return *changes_beside_asks(partition), partition.classes.joined


def marks(partition: Partition) -> tuple[int, ...]:
    """Return counters that change with each event after which more asks may claim.

    The passing of time does not change them.
    """
    return *changes(partition), partition.placements, partition.decisions.checks.answers


def is_called_for(partition: Partition, now: int) -> bool:
    """Return whether a round is open, or a change since the last round may make a decision possible."""
    state = partition.round
    return (
        state.open
        or bool(partition.untold)
        or state.seen != counters(partition)
        or bool(partition.decisions.suspended)
        or quota_timers.is_due(partition, now)
        or any(instant is not None and instant <= now for instant in instants(partition))
    )


def instants(partition: Partition) -> tuple[int | None, int | None]:
    """Return the next instant at which an ask may reserve, and the next instant at which an ask may claim, if no event comes before.

    An instant is None if no ask is expected to reserve or to claim.
    """
    return partition.round.due_ms, pacing.due_ms(partition)


def begin(partition: Partition) -> None:
    """Begin a round.

    A round records the asks that it refused, and does not try them again (`Round.masked`). This record is cleared if no round
    is open, or if the state has changed since the open round began.
    """
    state, now = partition.round, counters(partition)
    state.claims_ms = None
    if not state.open or state.seen != now:
        state.seen = now
        state.masked.clear()


def claimants(
    partition: Partition, shortage: Shortage, groups: Sequence[Group], now: int
) -> snapshotting.Due:
    """Return the asks and gangs for which policies may plan now, limited by the pace of rounds (P1).

    ``groups`` are the waiting groups that `beside_claims` examines.
    """
    claiming = pacing.admitted(partition, due_claims.claiming(partition, shortage, now), now)
    return beside_claims(partition, groups, now)._replace(claiming=claiming)


def beside_claims(partition: Partition, groups: Sequence[Group], now: int) -> snapshotting.Due:
    """Return the asks and gangs for which policies may plan now, without single asks that claim.

    The result has asks that require a node by name, gangs, and asks that replace pods of their queue.

    ``groups`` are the waiting groups whose asks count as gangs or may replace pods of their queue (see `beside_claims.Part`).
    """
    return snapshotting.Due(
        requiring=due_claims.requiring(partition, now),
        gangs=due_gangs.admitted(partition, due_gangs.waiting(partition, groups, now), now),
        replacing=pacing.admitted(partition, due_gangs.replacing(partition, groups, now), now),
    )


def may_trim(partition: Partition, now: int) -> bool:
    """Return whether surplus may be reclaimed now (P1): shares in the partition follow weights, and usage exceeds capacity (W3).

    If only the pace of rounds forbids the reclaim now, schedule the next round.
    """
    settings = partition.spec.preemption
    shared_out = settings.enabled and sharing.is_shared_out(partition)
    is_due = shared_out and sharing.is_too_much_used(partition)
    return is_due and pacing.may_trim(partition, now)
