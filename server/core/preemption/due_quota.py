"""The quota runs in the core: the timers of the runs, the runs that are due, and notes for administrators (Q1-Q17)."""

from collections.abc import Collection, Iterable, Iterator

from server.core.state import State
from server.model.decisions import Decision, Noted
from server.model.fit import Demand
from server.model.parts import PART, Parts
from server.model.phrases import count, quantities, span
from server.model.policies import QUOTA, Shrinks
from server.model.quota import PartitionSpec
from server.model.reasons import Code
from server.model.records import Shrink
from server.preemption.policy import Plan, Refusal, ShrinkIntent
from server.state import quota_timers
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.quota_timers import Move, QuotaNote

_CODES = {
    Move.ARMED: Code.QUOTA_ARMED,
    Move.RESTARTED: Code.QUOTA_ARMED,
    Move.KEPT: Code.QUOTA_ARMED,
    Move.WITHIN: Code.QUOTA_DISARMED,
    Move.RAISED: Code.QUOTA_NOT_ENFORCED,
    Move.OFF: Code.QUOTA_DISARMED,
    Move.DROPPED: Code.QUOTA_DROPPED,
}
_WORDS = {
    Move.ARMED: "its maximum will be enforced",
    Move.RESTARTED: "its maximum will be enforced, the delay starts again",
    Move.KEPT: "its maximum will be enforced, at the instant that was set before",
    Move.WITHIN: "it is within its maximum: nothing will be enforced",
    Move.RAISED: "its maximum was raised, and nothing brings it down to that",
    Move.OFF: "its maximum is not enforced any more",
    Move.DROPPED: "its instant came while a run was going on: dropped",
}

# What moves timers --------------------------------------------------------------------------------------------------


def configured(
    state: State, partition: Partition, before: PartitionSpec, now: int
) -> Parts[list[Decision]]:
    """Update the timers, in parts, after a configuration was applied, and return notes.

    Before the sync is complete, no timer changes, unless the timers go on during the sync (Q7).
    """
    resumption = partition.resumption
    if not state.reported(partition) and (resumption is None or not resumption.keeps_quota):
        return []
    notes = yield from quota_timers.on_configuration(partition, before, now)
    told = {one.queue for one in notes}
    not_enforced = yield from _not_enforced(partition, told)
    return [*_told(partition, notes, now), *not_enforced]


def synced(partition: Partition, now: int) -> list[Decision]:
    """Start the timers of queues over their maximum, with their full delay, because the sync is now complete (Q7).

    Return notes about these queues.
    """
    return _told(partition, quota_timers.arm_all(partition, now), now)


def forced(
    state: State, partition: Partition, ask: Ask, before: Demand, now: int
) -> list[Decision]:
    """Update the timers after an allocation was added or grew without a check of the maximum (Q7). Return notes.

    An allocation that was sent again unchanged starts no timer. In a sync in which known objects are compared with new reports,
    the update is made at the end of the sync, because pods that are still counted may have ended.
    """
    if partition.resumption is not None:
        partition.resumption.grown.setdefault(ask.key, (ask, before))
        return []
    if not partition.spec.preemption.quota_enabled or not state.reported(partition):
        return []
    had = dict(before)
    grown = [index for index, amount in ask.ask_class.demand if amount > had.get(index, 0)]
    notes = quota_timers.on_forced(partition, ask.application.leaf, grown, now)
    return _told(partition, notes, now)


def _told(partition: Partition, notes: Iterable[QuotaNote], now: int) -> list[Decision]:
    return [_note(partition, one, now) for one in notes]


def _note(partition: Partition, note: QuotaNote, now: int) -> Noted:
    over = f" (over it in {', '.join(note.over)})" if note.over else ""
    when = f" in {span(note.due_ms - now)}" if note.due_ms is not None and note.due_ms > now else ""
    message = f"queue {note.queue}: {_WORDS[note.move]}{when}{over}"
    return _noted(partition, note.queue, _CODES[note.move], message)


def _noted(partition: Partition, queue: str, code: Code, message: str) -> Noted:
    return Noted("queue", queue, code, message, partition.name, partition.owner)


def _not_enforced(partition: Partition, told: Collection[str]) -> Parts[list[Noted]]:
    """Return notes about queues whose usage exceeds a maximum that is not enforced (Q4). Queues in ``told`` have a note already and are left out."""
    notes: list[Noted] = []
    for at, (path, queue) in enumerate(partition.queues.items()):
        if not at % PART:
            yield
        limiter = queue.limiter
        # Usage and promises within the limit are within the maximum, too. The root has a maximum, but no limit.
        if queue.parent is not None and (limiter is None or min(limiter.headroom, default=0) >= 0):
            continue
        why = quota_timers.why_not(partition, queue)
        if why is not None and path not in told:
            message = f"queue {path} is over its maximum, and nothing brings it down: {why}"
            notes.append(_noted(partition, path, Code.QUOTA_NOT_ENFORCED, message))
    return notes


# Runs ---------------------------------------------------------------------------------------------------------------


def is_due(partition: Partition, now: int) -> bool:
    """Return whether a quota run has to start, or has to continue after a veto."""
    return quota_timers.is_due(partition, now) or any(
        one.facts.shrinks is Shrinks.QUEUE for one in partition.decisions.suspended.values()
    )


def runs(partition: Partition, now: int, told: list[Decision]) -> Iterator[ShrinkIntent]:
    """Yield the quota runs that continue, then the quota runs that start now (Q6).

    If several runs start at the same instant, the run of the deepest queue comes first.

    Notes about runs that do not start are added to ``told``.
    """
    for one in list(partition.decisions.suspended.values()):
        if one.queue in partition.queues and one.facts.shrinks is Shrinks.QUEUE:
            yield ShrinkIntent(QUOTA.name, one.queue, one.commitment_id)
    for path in quota_timers.due(partition, now):
        start, notes = quota_timers.strike(partition, path)
        told += _told(partition, notes, now)
        if start:
            yield ShrinkIntent(QUOTA.name, path)


def result(partition: Partition, intent: ShrinkIntent, answer: Plan | Refusal) -> list[Decision]:
    """Return notes for administrators that say by how much a quota run reduces its queue's usage (Q14)."""
    shrink = answer.shrink
    if shrink is None:
        return []
    message = _summary(shrink, observed=partition.spec.preemption.observe_only)
    return [_noted(partition, intent.queue, Code.QUOTA_RUN, message)]


def _summary(shrink: Shrink, *, observed: bool) -> str:
    freed = "would be freed, the partition only observes" if observed else "freed"
    parts = [
        f"quota run of queue {shrink.queue}: {shrink.result.value}",
        f"{quantities(shrink.target)} too much",
        f"{quantities(shrink.freed) or 'nothing'} {freed}",
    ]
    if shrink.missing:
        parts.append(f"{quantities(shrink.missing)} missing")
    parts.append(count(shrink.candidates, "candidate"))
    if shrink.blocked_by:
        where = f" of queue {shrink.blocking_queue}" if shrink.blocking_queue else ""
        parts.append(f"the rest is protected by {shrink.blocked_by}{where}")
    return ", ".join(parts)


def ended(partition: Partition, queue: str) -> list[Decision]:
    """Return a note after a quota run if its queue stays over its maximum and no further run will reduce the usage (Q5, Q14)."""
    known = partition.queues.get(queue)
    why = quota_timers.why_not(partition, known) if known is not None else None
    if why is None:
        return []
    message = (
        f"queue {queue} is still over its maximum after its run, and nothing brings it down: {why}"
    )
    return [_noted(partition, queue, Code.QUOTA_NOT_ENFORCED, message)]
