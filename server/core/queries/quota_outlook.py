"""The outlook of quota runs whose timers have started: what each run would do to a running allocation if the run began now."""

from collections.abc import Iterator
from dataclasses import dataclass

from server.core.core import Core
from server.core.queries.queue_reports import over_max
from server.model.quota import is_below
from server.model.records import Amounts
from server.preemption.policy import Plan, Refusal, ShrinkIntent
from server.preemption.quota import enforcement
from server.preemption.quota.enforcement import AllocationStanding
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.state import snapshotting
from server.state.applications import Ask
from server.state.partition import Partition


@dataclass(frozen=True, slots=True)
class QuotaOutlook:
    """The effect of one queue's next run on an allocation.

    ``over`` is the queue's usage beyond its maximum, by type. ``due_ms`` is the instant at which the run begins. ``standing``
    is the rank of the allocation among the candidates, or the rule that protects the allocation. ``victims`` is the number of
    pods that the run would evict. If the run would evict no pods, ``refusal`` says why. ``observed`` says that the partition is
    in observe mode, in which no eviction is sent.
    """

    queue: str
    over: Amounts
    due_ms: int
    standing: AllocationStanding
    victims: int
    refusal: str
    observed: bool

    @property
    def evicted(self) -> bool:
        """Return whether the run would evict the allocation."""
        return not (self.refusal or self.standing.rule)


def outlook(core: Core, partition: Partition, ask: Ask, now: int) -> list[QuotaOutlook]:
    """Return the effects of quota runs on an allocation, in the order of the runs, up to the first run that evicts the allocation.

    The result has only the runs of queues on the allocation's path whose timers have started. For each run, the runs before it
    count as finished, and their victims count as gone.
    """
    path = [queue.path for queue in ask.application.leaf.path_up()]
    armed = [queue for queue in path if queue in partition.quota_due]
    if not armed:
        return []
    partition.disruptions = core.state.disruptions(partition)
    trial = Trial(snapshotting.take(partition, now))
    found: list[QuotaOutlook] = []
    for queue in _before(partition, armed):
        told = _run(partition, trial, queue, ask.key)
        if queue in armed and told is not None:
            found.append(told)
            if told.evicted:
                break
    return found


def _before(partition: Partition, armed: list[str]) -> Iterator[str]:
    """Yield the queues whose runs have to be planned, in the order of the runs (Q6).

    The run of an ancestor counts the releases of the runs of all queues below it. Therefore the runs of these lower queues have
    to be planned first, even if they are not on the allocation's path. ``armed`` has the queues on the allocation's path whose
    timers have started. The result ends with the last of these queues.
    """
    due, top = partition.quota_due, armed[-1]
    order = sorted(due, key=lambda path: (due[path], -path.count("."), path))
    last = max(order.index(path) for path in armed)
    return (path for path in order[: last + 1] if is_below(path, top))


def _run(partition: Partition, trial: Trial, queue: str, key: str) -> QuotaOutlook | None:
    """Apply the run of a queue to the trial and return its effect.

    Return None if the run would find the queue within its maximum, or if the allocation is not in or below the queue.
    """
    intent = ShrinkIntent(enforcement.NAME, queue)
    if not is_below(partition.asks[key].application.leaf.path, queue):
        _carry_out(trial, enforcement.plan(trial, intent))
        return None
    found = enforcement.plan_with_standing(trial, intent, key)
    if found is None:
        return None
    answer, standing = found
    refusal = _carry_out(trial, answer)
    return QuotaOutlook(
        queue,
        over_max(partition, partition.queues[queue]),
        partition.quota_due[queue],
        standing,
        victims=len(answer.releases) if isinstance(answer, Plan) and refusal is None else 0,
        refusal="" if refusal is None else refusal.because,
        observed=partition.spec.preemption.observe_only,
    )


def _carry_out(trial: Trial, answer: Plan | Refusal) -> Refusal | None:
    """Apply a plan to the Trial and return None, if ``answer`` is a plan that breaks no rule.

    Otherwise return the refusal, which says why no pod is evicted.
    """
    refusal = answer if isinstance(answer, Refusal) else gate.gate(trial, answer)
    if isinstance(answer, Plan) and refusal is None:
        trial.apply(answer)
    return refusal
