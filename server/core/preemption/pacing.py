"""The pace of rounds: when the next round of claims may begin, and how much capacity the rounds have released so far (P1, P5).

The record of released amounts starts when the core starts. After a restart the first round may therefore begin at once, with
its whole budget. Claims, gangs, in-queue preemption and surplus reclaim wait for a round. Required nodes, quota runs and
reservations do not wait for a round. A decision for which a new plan is sought after a veto, or after its manager agreed to a
plan, does not wait for a round either. The amounts that the new plan releases count as releases of the round that made the
decision.
"""

from collections import Counter
from collections.abc import Sequence

from server.core.preemption import due_claims
from server.model.policies import Shrinks, facts
from server.preemption import pace
from server.preemption.policy import Plan
from server.preemption.trial import Trial
from server.snapshot.pace import OverUse
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.rounds import RoundReleases


def earliest_ms(partition: Partition) -> int:
    """Return the earliest instant at which the next round may begin (P1), or 0 if it may begin at once."""
    state, interval = partition.round, partition.spec.preemption.rounds_interval_ms
    return 0 if state.began_ms is None or not interval else state.began_ms + interval


def is_between(partition: Partition, now: int) -> bool:
    """Return whether claims wait for the next round."""
    return not partition.round.goes_on and now < earliest_ms(partition)


def due_ms(partition: Partition) -> int | None:
    """Return the next instant at which a claim may be planned without an event.

    Return None if a claim can be planned only after an event.
    """
    instant = partition.round.claims_ms
    if instant is None or partition.round.goes_on:
        return instant
    return max(instant, earliest_ms(partition))


def admitted(partition: Partition, asks: Sequence[Ask], now: int) -> list[Ask]:
    """Return those of the given asks for which the pace lets policies plan now. The remaining asks wait for the next round."""
    return [ask for ask in asks if admits(partition, ask, now)]


def admits(partition: Partition, ask: Ask, now: int) -> bool:
    """Return whether policies may now plan for the ask, or for its gang.

    If policies may not plan now, schedule the next round.
    """
    if is_between(partition, now):
        decisions = partition.decisions
        found = ask.key in decisions.suspended or decisions.checks.is_granted(ask.key)
    else:
        last = last_served(partition)
        found = last is None or ask.arrival <= last
    if not found:
        due_claims.call_again(partition, now)
    return found


def last_served(partition: Partition) -> int | None:
    """Return the arrival number of the last ask for which policies may plan in this round.

    Return None if policies may plan for all asks. In a round that takes several ticks, policies plan only for asks that already
    waited when the round began. If policies also planned for newer asks, the round might never end.
    """
    state = partition.round
    bounded = state.goes_on and partition.spec.preemption.rounds_interval_ms
    return state.arrivals if bounded else None


def keep_waiting(partition: Partition, policy: str, now: int) -> None:
    """If the policy waits for rounds, schedule the next round, because a budget of this round put off an ask (P5)."""
    if facts(policy).waits_for_rounds and earliest_ms(partition) > now:
        due_claims.call_again(partition, now)


def may_trim(partition: Partition, now: int) -> bool:
    """Return whether surplus may be reclaimed now. If surplus may not be reclaimed now, schedule the next round (P1)."""
    known = partition.decisions.suspended.values()
    if not is_between(partition, now) or any(
        one.facts.shrinks is Shrinks.PARTITION for one in known
    ):
        return True
    due_claims.call_again(partition, now)
    return False


def begin(partition: Partition, now: int) -> None:
    """Begin a round of claims (P1).

    Do nothing if a round is being continued, or if the next round may not begin yet.

    If a plan is made before the next round may begin, its releases count as releases of the last round.
    """
    state, window = partition.round, partition.spec.preemption.pace_window_ms
    if state.goes_on or is_between(partition, now):
        return
    state.began_ms = now
    state.arrivals = partition.arrivals
    state.released = [one for one in state.released if one.began_ms + window > now]
    state.released.append(RoundReleases(now, Counter()))


def over_use(partition: Partition, trial: Trial) -> OverUse:
    """Return the amounts by which queues exceeded their entitlements when the round began (P9).

    The caller must call this function before the round decides anything.

    If the step budget ended a round early, its continuation keeps the amounts from the start of the round.
    """
    if not pace.is_natural(partition.spec.preemption):
        return {}
    if not partition.round.released:
        return pace.over_use(trial)
    last = partition.round.released[-1]
    if last.over is None:
        last.over = pace.over_use(trial)
    return last.over


def record(partition: Partition, trial: Trial, plan: Plan, now: int) -> None:
    """Add the releases of a plan to the latest round, if the pace limits the releases of the plan's policy (P5)."""
    if not plan.facts.budgeted or not pace.is_bounded(partition.spec.preemption):
        return
    state = partition.round
    if not state.released:
        state.released.append(RoundReleases(now, Counter()))
    state.released[-1].taken.update(pace.amounts(trial.snapshot, plan))
