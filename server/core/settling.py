"""When nothing more happens by itself: what a forecast waits for, and when it may stop.

A core to which nothing comes acts only when time lets it. Its instants are of two kinds. *Dues* happen once: timers
(expiry of decisions and asks, vetoes, placeholders), quota runs, jobs that gather, asks that come of age to reserve.
*Retries* of claims never end: an ask that was refused is tried again after its back-off, for as long as it waits.

A retry that meets the same state as the one before is refused again, unless time itself opened something in between:
a delay or a pause of an ask ended, a candidate has run for its `preemption.minruntime`, a window of the pace passed, or a freeze of
the storm monitor ended. So a core is settled when no due is left, and every waiting ask was tried once more after the
last change and after the last of those instants: the longest back-off, and one interval of rounds, after both.
"""

from collections.abc import Iterator

from server.books import quota_timers
from server.books.partition import Partition
from server.core import gathering, pacing
from server.core.core import Core
from server.core.state import State, Timer

_EXPIRY = "decision"


def next_instant(core: Core, now: int, changed_ms: int) -> int | None:
    """The next instant at which something could happen, after a tick at ``now``; None: the core is settled.

    ``changed_ms`` is when something was placed, ended or decided last.
    """
    known = [one for one in core.state.partitions.values() if _ticks(core.state, one)]
    due = min((one for one in _dues(core.state, known) if one > now), default=None)
    claims = [one for one in map(pacing.due_ms, known) if one is not None and one > now]
    retry = min(claims, default=None)
    if retry is None or (due is None and now >= _settled_ms(known, changed_ms)):
        return due
    return retry if due is None else min(due, retry)


def _settled_ms(known: list[Partition], changed_ms: int) -> int:
    """From when retries find nothing that they have not found before."""
    return max((_tried_ms(one, changed_ms) for one in known), default=changed_ms)


def _tried_ms(partition: Partition, changed_ms: int) -> int:
    settings = partition.spec.preemption
    waiting = [ask for ask in partition.asks.values() if ask.node is None]
    longest = max([settings.backoff_ms, *(ask.wait_ms for ask in waiting)])
    last = max([changed_ms, *_openings(partition)])
    return last + longest + settings.rounds_interval_ms


def _openings(partition: Partition) -> Iterator[int]:
    """When time alone opens something for claims: delays and pauses of asks, minimum running times, pace, freezes."""
    settings = partition.spec.preemption
    for ask in partition.asks.values():
        properties = ask.application.leaf.spec.properties
        if ask.node is None:
            yield max(ask.pending_since + properties.preemption_delay_ms, ask.tried_ms)
        elif properties.preemption_minruntime_ms:
            yield max(ask.placed_ms, ask.started_ms or 0) + properties.preemption_minruntime_ms
    yield from (one.until_ms for one in partition.storms.frozen.values())
    released = (one for one in partition.round.released if one.taken)
    yield from (one.began_ms + settings.pace_window_ms for one in released)


def _ticks(state: State, partition: Partition) -> bool:
    return not partition.retired and state.synced(partition)


def _dues(state: State, known: list[Partition]) -> Iterator[int]:
    names = {one.name for one in known}
    yield from (timer[0] for timer in state.timers if timer[3] in names and _means(state, timer))
    for partition in known:
        found = (
            partition.round.due_ms,
            quota_timers.next_due(partition),
            gathering.next_due(partition),
        )
        yield from (one for one in found if one is not None)


def _means(state: State, timer: Timer) -> bool:
    """Does the timer mean something still? The expiry of a decision that ended does not."""
    _, _, kind, name, subject = timer
    return kind != _EXPIRY or subject in state.partitions[name].commitments
