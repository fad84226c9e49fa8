"""The timers of quota runs. The timer of a queue that uses more than its max says when a run is due (Q2-Q7, Q17).

A timer belongs to a configured queue with a delay and a max. Three events arm a timer. First, a configuration lowers the max,
sets another delay or turns quota preemption on. Second, a sync ends. Third, a restored or resized allocation raises the usage
over the max. This module decides when a run is due. `preemption.quota` plans which pods are evicted. The open commitments of
the partition say whether a run is open.
"""

import enum
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from server.model.parts import PART, Parts
from server.model.quota import PartitionSpec, QueueSpec
from server.model.resources import Limit
from server.state.partition import Partition
from server.state.queues import Queue, QueueState

KEEP_EARLIEST = "keep-earliest"
"""The value of `quota.preemption.timer` with which a configuration cannot postpone a timer that is already set."""


class Move(enum.StrEnum):
    """The event of a timer that is reported to administrators."""

    ARMED = "armed"
    RESTARTED = "restarted"
    KEPT = "kept"
    """The timer kept its earlier instant, because `keep-earliest` is configured and a change would have postponed the instant."""
    WITHIN = "within"
    """The timer was disarmed, because the queue is within its maximum."""
    RAISED = "raised"
    """A raised maximum disarmed the timer, although the queue still exceeds the maximum.

    No quota run enforces the raised maximum (Q4).
    """
    OFF = "off"
    """The timer was disarmed, because the delay, the maximum, the queue or quota preemption no longer exists."""
    DROPPED = "dropped"
    """The timer became due while a run of the queue was open (Q5)."""


class QuotaNote(NamedTuple):
    """A note to administrators about a queue's timer. ``over`` names the types of which the queue uses more than its max."""

    queue: str
    move: Move
    due_ms: int | None = None
    over: tuple[str, ...] = ()


# One queue ------------------------------------------------------------------------------------------------------


def rearm(
    before: QueueSpec | None,
    after: QueueSpec,
    *,
    over: Collection[str],
    due_ms: int | None,
    now: int,
) -> tuple[int | None, Move | None]:
    """Return a queue's timer after a configuration: the new instant, and the event to report.

    ``over`` names the types of which the queue uses more than the new maximum. ``before`` is None if the queue is newly
    configured.
    """
    delay = after.properties.quota_delay_ms
    new_delay = before is None or before.properties.quota_delay_ms != delay
    most = None if before is None else before.max
    if not new_delay and most == after.max:
        return due_ms, None  # Q4: other changes of the configuration leave the timer as it is
    if not delay or after.max is None:
        return _disarmed(due_ms, Move.OFF)  # Q2, Q3
    if not over:
        return _disarmed(due_ms, Move.WITHIN)  # Q3, Q4
    if not new_delay and not _is_lowered(most, after.max):
        return _disarmed(due_ms, Move.RAISED)  # Q4: a pure increase
    return _armed(after, due_ms, now + delay)  # Q3, Q4: the full delay from now


def _disarmed(due_ms: int | None, move: Move) -> tuple[None, Move | None]:
    return None, None if due_ms is None else move


def _armed(spec: QueueSpec, due_ms: int | None, fresh_ms: int) -> tuple[int, Move]:
    if due_ms is None:
        return fresh_ms, Move.ARMED
    if spec.properties.quota_timer == KEEP_EARLIEST and due_ms <= fresh_ms:
        return due_ms, Move.KEPT  # Q4, 2.2: repeated changes do not postpone the run without end
    return fresh_ms, Move.RESTARTED


def _is_lowered(before: Limit | None, after: Limit) -> bool:
    """Return whether a type has a lower limit than before. A type that the old limit did not name had no limit (Q3)."""
    had = dict(before or ())
    return any(name not in had or most < had[name] for name, most in after)


def over(partition: Partition, queue: Queue, spec: QueueSpec | None = None) -> tuple[str, ...]:
    """Return the types of which the queue uses more than its max. If ``spec`` is given, the max of ``spec`` is used instead of the max in force.

    Releasing victims are not counted (Q3, Q9).
    """
    index = partition.types.index
    found = [
        name
        for name, most in (spec or queue.spec).max or ()
        if name in index and queue.usage[index[name]] - queue.releasing[index[name]] > most
    ]
    return tuple(found)


# What happens ---------------------------------------------------------------------------------------------------


def on_configuration(
    partition: Partition, before: PartitionSpec, now: int
) -> Parts[list[QuotaNote]]:
    """Update all timers, in parts, after a configuration was applied. Return the notes to report.

    ``before`` is the configuration that was in force until now. This function may be called only after the sync (Q7).
    """
    if not partition.spec.preemption.quota_enabled:
        return _disarm_all(partition)  # Q1, Q3
    if not before.preemption.quota_enabled:
        return arm_all(partition, now)  # Q3: turning it on
    known = dict(specs(before))
    yield
    configured = dict(specs(partition.spec))
    gone = [path for path in partition.quota_due if path not in configured]
    notes = [QuotaNote(path, Move.OFF, partition.quota_due.pop(path)) for path in gone]
    for at, (path, spec) in enumerate(configured.items()):
        if not at % PART:
            yield
        notes += _change(partition, known.get(path), spec, path, now)
    return notes


def _change(
    partition: Partition, before: QueueSpec | None, after: QueueSpec, path: str, now: int
) -> Iterator[QuotaNote]:
    due, beyond = partition.quota_due, over(partition, partition.queues[path])
    instant, move = rearm(before, after, over=beyond, due_ms=due.get(path), now=now)
    if instant is None:
        due.pop(path, None)
    else:
        due[path] = instant
    if move is not None:
        yield QuotaNote(path, move, instant, beyond)


def arm_all(partition: Partition, now: int) -> list[QuotaNote]:
    """Arm the timer of each configured queue over its max with the full delay.

    This function is called when the sync is complete, because all pods are known then (Q7). The function is also called when
    quota preemption is turned on (Q3). A new timer replaces a timer that was set before. A queue without a delay gets no timer.
    If quota preemption is off, no queue gets a timer.
    """
    partition.quota_due.clear()
    if not partition.spec.preemption.quota_enabled:
        return []
    configured = [partition.queues[path] for path, _ in specs(partition.spec)]
    return [note for queue in configured for note in _arm(partition, queue, now)]


def on_restart(partition: Partition) -> None:
    """Clear all timers, because the shim registers again. The timers are armed again when the sync of the shim is complete (Q7)."""
    partition.quota_due.clear()


def on_forced(partition: Partition, leaf: Queue, grown: Iterable[int], now: int) -> list[QuotaNote]:
    """Arm timers after a restored or resized allocation raised the usage of these types (Q7).

    Each queue on the path gets a timer if it is over its max in one of these types and has no timer yet. Callers must not call
    this function before the sync is complete.
    """
    names = {partition.types.names[index] for index in grown}
    notes: list[QuotaNote] = []
    for queue in leaf.path_up() if partition.spec.preemption.quota_enabled else ():
        beyond = over(partition, queue)
        if names.intersection(beyond) and queue.path not in partition.quota_due:
            notes += _arm(partition, queue, now)
    return notes


def _arm(partition: Partition, queue: Queue, now: int) -> Iterator[QuotaNote]:
    """Arm the timer of a configured queue with its full delay.

    Do nothing if the usage of the queue is within its max, or if the queue has no delay. Do nothing for dynamic and draining
    queues, which have no timer (Q17).
    """
    delay, beyond = queue.spec.properties.quota_delay_ms, over(partition, queue)
    if queue.managed and queue.state is not QueueState.DRAINING and delay and beyond:
        partition.quota_due[queue.path] = now + delay
        yield QuotaNote(queue.path, Move.ARMED, now + delay, beyond)


def _disarm_all(partition: Partition) -> list[QuotaNote]:
    due = partition.quota_due
    notes = [QuotaNote(path, Move.OFF, instant) for path, instant in due.items()]
    due.clear()
    return notes


def specs(partition: PartitionSpec) -> Iterator[tuple[str, QueueSpec]]:
    """Yield the configured queues by path, parents first."""
    found = [(partition.root.name, partition.root)]
    for path, spec in found:
        yield path, spec
        found += [(f"{path}.{child.name}", child) for child in spec.children]


# What is due ----------------------------------------------------------------------------------------------------


def next_due(partition: Partition) -> int | None:
    """Return the next instant at which a run may be due. Return None if no timer is set."""
    return min(partition.quota_due.values(), default=None)


def is_due(partition: Partition, now: int) -> bool:
    """Return whether the timer of at least one queue is due."""
    instant = next_due(partition)
    return instant is not None and instant <= now


def due(partition: Partition, now: int) -> list[str]:
    """Return the queues whose timer is due, earlier instants first (Q6).

    If several queues have the same instant, the deepest queue comes first.
    """
    instants = partition.quota_due
    found = [path for path, instant in instants.items() if instant <= now]
    return sorted(found, key=lambda path: (instants[path], -path.count("."), path))


def strike(partition: Partition, path: str) -> tuple[bool, list[QuotaNote]]:
    """Remove the timer of a queue whose timer is due. Return whether a run must start, and the events to report (Q5)."""
    instant = partition.quota_due.pop(path)
    beyond = over(partition, partition.queues[path])
    if not beyond:
        return False, []  # Q5: within its maximum, quietly
    if is_running(partition, path):
        return False, [QuotaNote(path, Move.DROPPED, instant, beyond)]  # Q5
    return True, []


def is_running(partition: Partition, path: str) -> bool:
    """Return whether a run of this queue is open. A run lasts until its commitment ends (Q5)."""
    return any(one.queue == path for one in partition.decisions.open.values())


def is_left_to_victims(partition: Partition, queue: Queue, shrinking: Iterable[str] = ()) -> bool:
    """Return whether the evictions that are already ordered bring a queue to its max without a new run (Q5).

    The result is True while a run of the queue is open. Without an open run, the result is True only if the max of the queue is
    enforced, and either the queue has no timer, or ``shrinking`` contains the queue or a queue below it. The evictions that a
    run ordered continue, whatever the timer of the queue does. Configuration changes neither stop nor restart a run.
    ``shrinking`` contains the queues whose usage the runs reduce. After a restart, ``shrinking`` may contain a queue below the
    queue that had the run.
    """
    if is_running(partition, queue.path):
        return True
    below = f"{queue.path}."
    told = any(f"{path}.".startswith(below) for path in shrinking)
    if queue.path in partition.quota_due and not told:
        return False
    enforced = partition.spec.preemption.quota_enabled and queue.spec.properties.quota_delay_ms
    return bool(enforced and queue.managed and queue.state is not QueueState.DRAINING)


class WhyNot(enum.StrEnum):
    """The reason why no quota run enforces the max of a queue whose usage exceeds that max."""

    SWITCHED_OFF = "quotapreemptionenabled is not true in this partition"
    DYNAMIC = "a dynamic queue has no timer of its own"
    NO_DELAY = "the queue has no quota.preemption.delay"
    SPENT = "nothing has lowered its max since it was raised or a run ended"


def why_not(partition: Partition, queue: Queue) -> WhyNot | None:
    """Return why no quota run enforces the max of a queue.

    Return None if the usage is within the max, if a timer is set, or if a run is open.
    """
    if queue.path in partition.quota_due or not over(partition, queue):
        return None
    if partition.decisions.open and is_running(partition, queue.path):
        return None
    if not partition.spec.preemption.quota_enabled:
        return WhyNot.SWITCHED_OFF  # Q1
    if not queue.managed or queue.state is QueueState.DRAINING:
        return WhyNot.DYNAMIC  # Q17
    return WhyNot.SPENT if queue.spec.properties.quota_delay_ms else WhyNot.NO_DELAY  # Q2, Q4, Q5
