"""The thrashing monitor, which stops pairs of preemptor and victim that alternate without end (docs/rules/invariants.md).

A deficit is the amount by which a queue is below its entitlement. A claim lowers the deficit of the lowest deciding queue
that is below its entitlement, and raises no deficit. Without external events, the deficits thus limit the number of
claims. Three cases show that a rule of preemption is wrong:

- A deficit is larger at a claim than it was after the last claim, although external events took no capacity from the queue and
  its entitlement did not grow.
- A queue claims although it already has its whole entitlement.
- Inside one queue, pods of one template (one request and priority) replace pods of another template that had replaced them
  before.

The preemptor of a pair is one template in a queue. The victim of the pair is another queue as a whole, or a template in the
same queue. Each case is a strike against the pair. After STRIKES_MAX strikes the pair is frozen: for FROZEN_MS, no plan may
evict pods of the pair's victim for asks of the pair's preemptor.

A queue that grows may claim as often as its deficit allows, because each of its claims lowers the deficit. If a queue lost an
amount to external events (pods that end, decisions without effect), its deficit may be larger by that amount without a strike.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from server.core.state import State
from server.kernels.distinct import as_column
from server.model.decisions import Decision, Noted
from server.model.phrases import span
from server.model.policies import Scope
from server.model.quota import is_below
from server.model.reasons import Code
from server.model.records import Level
from server.model.thrashing import FROZEN_MS, STRIKES_MAX, FrozenPair, Pair, TemplateInQueue
from server.preemption import entitlement
from server.preemption.policy import Plan, Refusal, Release, Rule
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk
from server.state import journal
from server.state.partition import Partition
from server.state.thrashing import Deficit, Strikes, keep

DECIDING: Final = "deciding"


# What is frozen -----------------------------------------------------------------------------------------------------


def refusal(frozen: frozenset[Pair], snapshot: Snapshot, plan: Plan) -> Refusal | None:
    """Return a refusal if one of the plan's pairs is frozen now. Return None if the plan may be carried out.

    Claims do not consider victims of frozen pairs at all (`ClaimEligibility`). Plans of other policies may have such victims,
    so they need this check.
    """
    if not plan.facts.may_thrash or not frozen:
        return None
    found = next((pair for pair in _pairs(snapshot, plan) if pair in frozen), None)
    if found is None:
        return None
    because = f"claims of its like from queue {found.victims.queue} repeated without end and are frozen for a while"
    return Refusal(Rule.FROZEN, because)


def configured(state: State, answers: Sequence[Decision]) -> None:
    """If ``answers`` say that a configuration was accepted, end the freezes in all partitions, and clear the recorded deficits.

    The freezes end because entitlements may have changed. Freezes also end at changes of nodes, which this function does not
    handle.
    """
    if any(isinstance(one, Noted) and one.code is Code.CONFIGURATION_APPLIED for one in answers):
        for name, partition in state.partitions.items():
            if name not in state.outdated:
                partition.thrashing.reset()


# What is watched ----------------------------------------------------------------------------------------------------


def watch(partition: Partition, trial: Trial, plan: Plan) -> list[Decision]:
    """Check whether a plan that is about to be applied shows thrashing.

    Return notes about the pairs that are frozen because of the plan.

    Plans that continue a decision after a veto, and plans in a partition that only observes, count no strike.
    """
    snapshot = trial.snapshot
    if plan.facts.scope is Scope.NODE:
        _count_lost(partition, snapshot, plan.releases)
    if not plan.facts.may_thrash or snapshot.settings.observe_only or _goes_on(partition, plan):
        return []
    unexplained = _unexplained(partition, trial, plan)
    if entitlement.may_cross(trial) or entitlement.protects_only_whole(trial):
        _count_crossed(partition, trial, plan)
    struck = [
        pair
        for pair in dict.fromkeys(_pairs(snapshot, plan))
        if _returns(partition, pair, snapshot.now)
        or (unexplained and pair.victims.queue != pair.beneficiary.queue)
    ]
    return [note for pair in struck for note in _strike(partition, plan.policy, pair, snapshot.now)]


def _goes_on(partition: Partition, plan: Plan) -> bool:
    """Return whether the plan continues a decision after a veto."""
    return bool(plan.replans) or any(
        one.ask.key in partition.decisions.suspended for one in plan.pledges
    )


def _count_lost(partition: Partition, snapshot: Snapshot, releases: tuple[Release, ...]) -> None:
    """Count the amounts of victims of required-node preemption as lost, as if pods had ended by themselves.

    The loss may raise deficits, and explains why deficits are larger at later claims (invariant 18).
    """
    for release in releases:
        queue = partition.queues.get(release.leaf)
        if queue is not None:
            journal.lose(queue, snapshot.allocations.demands[release.row])


def _count_crossed(partition: Partition, trial: Trial, plan: Plan) -> None:
    """Count as lost the amount by which the plan's victims bring a queue below its share (W8).

    The loss explains why later deficits are larger.
    """
    for path, freed in _freed(trial, plan).items():
        owed, held = entitlement.floor(trial, path), trial.held(path)
        lost = partition.queues[path].lost
        for index, quantity in freed.items():
            lost[index] += min(quantity, max(0, owed[index] - held[index] + quantity))


def _freed(trial: Trial, plan: Plan) -> dict[str, Counter[int]]:
    """Return, by queue and type index, the amounts that the plan's victims free in the queue or below it."""
    found: dict[str, Counter[int]] = {}
    for leaf, amounts in trial.freed(plan.rows):
        for queue in trial.snapshot.path_up(leaf):
            found.setdefault(queue.path, Counter()).update(dict(amounts))
    return found


def _unexplained(partition: Partition, trial: Trial, plan: Plan) -> bool:
    """Return whether the claim contradicts G2 (invariant 18).

    A claim contradicts G2 if a deficit has grown since the last claim without an external cause, or if the claim lowers no
    deficit. The deficits after this claim are recorded, whatever the result is.
    """
    grown = lowers = False
    for level in plan.levels:
        if level.role == DECIDING and level.queue in partition.queues:
            left = _left(partition, trial, plan, level)
            grown |= _has_grown(partition, level, left)
            lowers |= left < _short(level)
    return grown or (plan.facts.scope is Scope.OTHER_QUEUES and not lowers)


def _short(level: Level) -> int:
    return max(0, level.guaranteed - level.held)


def _left(partition: Partition, trial: Trial, plan: Plan, level: Level) -> int:
    """Return the deficit of a queue in one type (``level``) after the plan.

    Victims inside the queue that were evicted for other types increase the deficit (G2).
    """
    wanted = sum(
        quantity
        for one in plan.pledges
        for kind, quantity in one.ask.spec.resource
        if kind == level.resource_type
    )
    going = [one.row for one in plan.releases if is_below(one.leaf, level.queue)]
    at = partition.types.index[level.resource_type]
    inside = _summed(trial.freed(as_column(going)), at) if going else 0
    return max(0, level.guaranteed - level.held - wanted + inside)


def _summed(freed: Iterable[tuple[str, Iterable[tuple[int, int]]]], at: int) -> int:
    return sum(quantity for _, amounts in freed for index, quantity in amounts if index == at)


def _has_grown(partition: Partition, level: Level, left: int) -> bool:
    lost = _lost(partition, level)
    key = (level.queue, level.resource_type)
    before = partition.thrashing.deficits.get(key)
    keep(partition.thrashing.deficits, key, Deficit(left, level.guaranteed, lost))
    if before is None:
        return False
    more = max(0, level.guaranteed - before.entitled)
    return _short(level) > before.left + more + lost - before.lost


def _lost(partition: Partition, level: Level) -> int:
    return partition.queues[level.queue].lost[partition.types.index[level.resource_type]]


def _returns(partition: Partition, pair: Pair, now: int) -> bool:
    """Return whether the pair reverses an earlier replacement in one queue (I2). Also record the pair."""
    if pair.beneficiary.queue != pair.victims.queue:
        return False
    taken = partition.thrashing.taken
    back = Pair(pair.victims, pair.beneficiary)
    found = back in taken or back == pair
    keep(taken, pair, now)
    return found


def _pairs(snapshot: Snapshot, plan: Plan) -> Iterator[Pair]:
    """Yield the pairs of a plan, one for each release and preemptor."""
    sides = dict.fromkeys(side_of(pledge.ask) for pledge in plan.pledges)
    for release in plan.releases:
        for side in sides:
            yield Pair(side, _victims(snapshot, side, release))


def side_of(ask: WaitingAsk) -> TemplateInQueue:
    """Return the preemptor's part of a pair: the ask's queue, request and priority."""
    return TemplateInQueue(ask.leaf, ask.spec.resource, ask.spec.priority)


def _victims(snapshot: Snapshot, side: TemplateInQueue, release: Release) -> TemplateInQueue:
    if release.leaf != side.queue:
        return TemplateInQueue(release.leaf)
    spec = snapshot.allocations.specs[release.row]
    assert spec is not None
    return TemplateInQueue(release.leaf, spec.resource, spec.priority)


def _strike(partition: Partition, policy: str, pair: Pair, now: int) -> list[Decision]:
    monitor = partition.thrashing
    before = monitor.strikes.get(pair)
    count = 1 if before is None else before.number + 1
    if count < STRIKES_MAX:
        keep(monitor.strikes, pair, Strikes(count, now))
        return []
    monitor.strikes.pop(pair, None)
    keep(monitor.frozen, pair, FrozenPair(pair, policy, now, now + FROZEN_MS))
    monitor.total += 1
    message = (
        f"its claims from queue {pair.victims.queue} repeat without end (policy {policy}): {count} of them are "
        f"explained by nothing that happened outside; no pod is evicted for them for {span(FROZEN_MS)}"
    )
    return [Noted("queue", pair.beneficiary.queue, Code.PREEMPTION_STORM, message, partition.name)]
