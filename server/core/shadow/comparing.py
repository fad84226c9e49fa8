"""The comparison of the live side's decisions with the shadow's decisions, ask by ask.

If only one of the two sides made a decision for an ask, the comparison has the reason why the other side made no decision for
the ask.
"""

from collections.abc import Iterator
from typing import NamedTuple

from server.core.preemption import decision_records, due_claims, pacing
from server.core.preemption.deficits import Shortage
from server.model.policies import Retry, Scope, Shrinks, facts
from server.model.records import Verdict, lost_of
from server.model.shadow import Choice, Sum
from server.preemption.policy import Plan, Rule
from server.preemption.trial import Trial
from server.state.applications import Ask, Gang, Group
from server.state.partition import Partition


class Why(NamedTuple):
    """The reason why one side (live or shadow) made no decision for a subject, that is, for an ask or a queue: the name of a rule, and a sentence."""

    rule: str = ""
    because: str = ""


def subjects(plan: Plan) -> tuple[str, ...]:
    """Return the asks for which a plan was made, or the queue whose surplus the plan reclaims.

    The result is empty for plans that are not compared. Plans of quota runs are not compared, because only the live side has
    quota runs. Reservations are not compared, because they have no victims.
    """
    if not plan.facts.compared:
        return ()
    if plan.shrink is not None:
        return (plan.shrink.queue,)
    return tuple(one.ask.key for one in plan.pledges)


def choices(
    partition: Partition, trial: Trial, plan: Plan, now: int
) -> Iterator[tuple[str, Choice]]:
    """Yield each subject of a plan (an ask or a queue) with its choice: the policy, the node of the ask, and the victims."""
    names = subjects(plan)
    if not names:
        return
    asks = decision_records.asks_of(partition, plan.releases)
    victims = decision_records.with_running_times(trial, plan, asks, now)
    nodes = {one.ask.key: one.node_id for one in plan.pledges}
    for name in names:
        yield name, Choice(plan.policy, nodes.get(name, ""), victims)


def added(known: Sum, choice: Choice) -> Sum:
    """Return the totals of decisions and of lost work with one more decision added."""
    return Sum(known.decisions + 1, known.lost.plus(lost_of(choice.victims)))


def is_alike(one: Choice | None, other: Choice | None) -> bool:
    """Return whether the decisions of the two sides are equal. Running times of victims are not compared."""
    if one is None or other is None:
        return one is other
    return _content(one) == _content(other)


def _content(one: Choice) -> tuple[object, ...]:
    victims = tuple(sorted(victim.key for victim in one.victims))
    return one.policy, one.node_id, one.decision_id, victims


# Reasons for no decision --------------------------------------------------------------------------------------------


def why_nothing(side: Partition, shortage: Shortage, key: str, policy: str, now: int) -> Why:
    """Return why ``side`` made no decision for a subject, although the other side made one under this policy.

    ``side`` is the live partition, or the shadow's copy of the partition. ``key`` is the key of an ask, or for surplus reclaim
    the path of a queue.
    """
    settings = side.spec.preemption
    if facts(policy).shrinks is Shrinks.PARTITION:
        return Why("", "no pod has to be evicted")
    if not settings.enabled or policy not in settings.policies:
        return Why(Rule.POLICY_OFF.value, f"policy {policy} is not on")
    ask = side.asks[key]
    found = _refused(side, ask, now)
    if found is not None:
        return Why(found.law, found.because)
    return _not_due(side, shortage, ask, policy, now)


def _refused(side: Partition, ask: Ask, now: int) -> Verdict | None:
    """Return the last refusal of the ask.

    Return None if there was no refusal, or if the refusal was made before ``now`` and its back-off has ended.
    """
    group, tries = ask.group, side.round.tries
    if not isinstance(group, Group | Gang):
        return None
    found = tries.verdict(group)
    again = tries.refused_ms(group) + due_claims.backoff_of(side, ask)
    fresh = found is not None and (found.at_ms == now or again > now)
    return found if fresh else None


def _not_due(side: Partition, shortage: Shortage, ask: Ask, policy: str, now: int) -> Why:
    leaf = ask.application.leaf
    known = facts(policy)
    if known.retry is Retry.NODE:
        return Why("", "its node has not changed since it was refused there")
    if pacing.is_between(side, now):
        return Why(Rule.ROUND.value, "the next round of claims has not begun")
    if ask.pending_since + due_claims.delay_ms(side, leaf, policy) > now:
        return Why(Rule.DELAY.value, "it has not waited for the delay of its queue")
    if known.scope is not Scope.OTHER_QUEUES:
        return Why("", "its turn has not come")
    if not shortage.may_be(leaf):
        return Why(Rule.NO_GUARANTEE.value, "nothing on its path is guaranteed to it")
    if not shortage.lacking(leaf, ask.ask_class.demand):
        return Why(Rule.OVER_GUARANTEE.value, "no queue on its path is short of anything for it")
    return Why("", "its turn has not come")
