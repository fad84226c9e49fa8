"""The instant from which the core makes no more new decisions without events.

A forecast ends at this instant.

A core that gets no events acts only at instants of two kinds. *Dues* happen once: timers (of decisions, asks, vetoes and
placeholders), quota runs, and the instants at which gangs stop waiting for further members. *Repeats* never end: a refused ask
is tried again after each back-off while it waits. Reservations, which evict nothing, end after `reservations.timeout` and are
made again after that time.

A repeat has the same result as the repeat before it if the state is unchanged and no *opening* came between the two. An opening
is an instant at which time alone changes something: the end of an ask's delay or pause, of a candidate's
`preemption.minruntime`, of a window of the pace, or of a freeze of the thrashing monitor. Therefore a core makes no more new
decisions when no due is left, and one whole period has passed since the last change and the last opening. The core is then
*settled*. The period is the sum of the longest back-off and one interval of rounds. If an ask reserves, twice
`reservations.timeout` is added.
"""

from collections.abc import Iterator

from server.core.core import Core
from server.core.events import gang_size
from server.core.preemption import pacing
from server.core.state import State
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from server.state import quota_timers
from server.state.partition import Partition

_EXPIRY = "decision"


def next_instant(core: Core, now: int, changed_ms: int) -> int | None:
    """Return the next instant at which something could happen, after a tick at ``now``. Return None if the core is settled.

    ``changed_ms`` is the instant of the last placement, the last decision or the last end of a pod.
    """
    known = [one for one in core.state.partitions.values() if _ticks(core.state, one)]
    due = min((one for one in _dues(core.state, known) if one > now), default=None)
    repeat = min((one for one in _repeats(core.state, known) if one > now), default=None)
    if repeat is None or (due is None and now >= _settled_ms(known, changed_ms)):
        return due
    return repeat if due is None else min(due, repeat)


def _settled_ms(known: list[Partition], changed_ms: int) -> int:
    """Return the instant from which on all retries have the same results as before."""
    return max((_tried_ms(one, changed_ms) for one in known), default=changed_ms)


def _tried_ms(partition: Partition, changed_ms: int) -> int:
    settings = partition.spec.preemption
    waiting = [ask for ask in partition.asks.values() if ask.node is None]
    longest = max([settings.backoff_ms, *(ask.wait_ms for ask in waiting)])
    last = max([changed_ms, *_openings(partition)])
    return last + longest + settings.rounds_interval_ms + _reserved_ms(partition)


def _reserved_ms(partition: Partition) -> int:
    """Return the time from one reservation of an ask to its next one. Return 0 if no ask of the partition reserves."""
    return 2 * partition.spec.reservations.timeout_ms if _reserves(partition) else 0


def reserves_in_turns(partition: Partition) -> bool:
    """Return whether reservations of a partition repeatedly end and are made again."""
    return bool(partition.spec.reservations.timeout_ms) and _reserves(partition)


def _reserves(partition: Partition) -> bool:
    """Return whether an ask of the partition has a reservation, or will be able to reserve again."""
    return partition.round.due_ms is not None or any(
        one.commitment.facts.reserves for one in partition.decisions.pledges.values()
    )


def _openings(partition: Partition) -> Iterator[int]:
    """Yield the instants at which claims become possible without an event: the ends of delays, pauses, runtimes, windows and freezes."""
    settings = partition.spec.preemption
    for ask in partition.asks.values():
        properties = ask.application.leaf.spec.properties
        if ask.node is None:
            waits = max(properties.preemption_delay_ms, RESERVE_AFTER_MS)
            yield max(ask.pending_since + waits, ask.tried_ms)
        elif properties.preemption_minruntime_ms:
            yield max(ask.placed_ms, ask.started_ms or 0) + properties.preemption_minruntime_ms
    yield from (one.until_ms for one in partition.thrashing.frozen.values())
    released = (one for one in partition.round.released if one.taken)
    yield from (one.began_ms + settings.pace_window_ms for one in released)


def _ticks(state: State, partition: Partition) -> bool:
    return not partition.retired and state.synced(partition)


def _dues(state: State, known: list[Partition]) -> Iterator[int]:
    """Yield the instants of dues. Timers of partitions without ticks, such as unsynced partitions, are included."""
    for due, _, kind, name, subject in state.timers:
        partition = state.partitions.get(name)
        if partition is not None and (kind != _EXPIRY or _expires(partition, subject)):
            yield due
    for partition in known:
        found = (quota_timers.next_due(partition), gang_size.next_due(partition))
        yield from (one for one in found if one is not None)


def _expires(partition: Partition, decision_id: str) -> bool:
    """Return whether the decision is still open and is not just a reservation."""
    known = partition.decisions.open.get(decision_id)
    return known is not None and not known.facts.reserves


def _repeats(state: State, known: list[Partition]) -> Iterator[int]:
    """Yield the instants at which claims are tried again, and at which reservations end or are made."""
    names = {one.name for one in known}
    for due, _, kind, name, subject in state.timers:
        if kind == _EXPIRY and name in names and subject in state.partitions[name].decisions.open:
            yield due
    for partition in known:
        found = (pacing.due_ms(partition), partition.round.due_ms)
        yield from (one for one in found if one is not None)
