"""The queues whose usage exceeds their maxima under another configuration (Q2-Q6, Q14).

The answer for each queue says when its quota run would start, and how far the run would reduce its usage.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from server.model.quota import Configuration, QueueSpec
from server.model.records import DecisionRecord, QueueSimulation, Shrink
from server.state import quota_timers
from server.state.partition import Partition
from server.state.quota_timers import WhyNot

WITHIN_BY_THEN: Final = "it is within its max by then"


def over(partition: Partition, configuration: Configuration, now: int) -> list[QueueSimulation]:
    """Return the queues that would be over their new maxima, in the order in which their runs would start (Q6).

    Queues without a run come last.

    The caller must call this function before the configuration is applied.
    """
    spec = configuration.partition(partition.name)
    if spec is None:
        return []
    enabled = spec.preemption.quota_enabled
    queues = [
        _timer(partition, path, one, now, enabled=enabled) for path, one in quota_timers.specs(spec)
    ]
    over = [one for one in queues if one is not None]
    return sorted(over, key=lambda one: (one.due_ms or 1 << 62, -one.queue.count("."), one.queue))


def _timer(
    partition: Partition, path: str, after: QueueSpec, now: int, *, enabled: bool
) -> QueueSimulation | None:
    """Return when the queue's run would start, or why no run would start. Return None if the queue is not over its maximum."""
    queue = partition.queues.get(path)
    over = quota_timers.over(partition, queue, after) if queue is not None else ()
    if queue is None or not over:
        return None
    index, most = partition.types.index, dict(after.max or ())
    target = {
        name: queue.usage[index[name]] - queue.releasing[index[name]] - most[name] for name in over
    }
    delay = after.properties.quota_delay_ms
    known = QueueSimulation(path, target, delay, 0)
    if not enabled:
        return replace(known, why_not=WhyNot.SWITCHED_OFF.value)
    if not delay:
        return replace(known, why_not=WhyNot.NO_DELAY.value)
    due = _due(partition, path, after, over, now)
    return replace(known, due_ms=due) if due else replace(known, why_not=WhyNot.SPENT.value)


def _due(partition: Partition, path: str, after: QueueSpec, over: tuple[str, ...], now: int) -> int:
    if not partition.spec.preemption.quota_enabled:
        return now + after.properties.quota_delay_ms  # Q3: turning enforcement on starts all timers
    before = partition.queues[path]
    due, _ = quota_timers.rearm(
        before.spec if before.managed else None,
        after,
        over=over,
        due_ms=partition.quota_due.get(path),
        now=now,
    )
    return due or 0


def with_run(
    one: QueueSimulation, run: DecisionRecord | None, shrinks: Mapping[str, Shrink | None]
) -> QueueSimulation:
    """Return the simulated queue with the outcome of its quota run: the victims, or a text that says that the run will not be needed.

    Without a ``run`` and without an entry in ``shrinks``, the queue is returned unchanged.
    """
    if run is not None:
        return replace(one, victims=run.victims, shrink=run.shrink)
    if one.queue not in shrinks:
        return one
    shrink = shrinks[one.queue]
    return replace(one, shrink=shrink, why_not="" if shrink else WITHIN_BY_THEN)
