"""Refused preemption attempts (G1, G12): when the next attempt is made, and a note if a refusal differs from the previous refusal."""

from server.core.preemption import decision_records, due_claims, pacing
from server.model.decisions import Decision, Noted
from server.model.policies import Retry, facts
from server.model.reasons import Code
from server.preemption.policy import Intent, Plan, Refusal, Rule
from server.preemption.trial import Trial
from server.state.applications import Ask, Gang, Group
from server.state.partition import Partition


def remember(
    partition: Partition, trial: Trial, intent: Intent, refusal: Refusal, now: int
) -> list[Decision]:
    """Record why no pod is evicted for the ask or gang for which a policy had to make a plan (the ``intent``).

    Return a note if the rule or the node of the refusal differs from the rule or the node of the group's previous refusal.

    All due asks of the group then wait until the back-off ends. If a budget put the ask off, these asks wait for the next round
    (P5). If the refused ask requires a node by name, it waits for a change of that node (G11).
    """
    ask = partition.asks.get(intent.ask.key)
    group = ask.group if ask is not None else None
    if ask is None or group is None:
        return []
    tries, policy = partition.round.tries, facts(intent.policy)
    told = isinstance(group, Group) and tries.refused_ms(group) == now
    if told and not policy.reported_after_others:
        return []  # an earlier refusal of this round is reported already
    at_its_node = policy.retry is Retry.NODE
    if at_its_node and refusal.rule is not Rule.HEAD_ROOM:
        _tried(partition, ask)
    elif not at_its_node:
        _wait(partition, ask, group, refusal, now)
    before = tries.verdict(group)
    retry_ms = 0 if at_its_node else _retry_ms(partition, ask, refusal, now)
    tries.judge(
        group, decision_records.refused(trial.snapshot, intent.policy, refusal, now, retry_ms)
    )
    if before is not None and (before.law, before.node_id) == (refusal.rule, refusal.node_id):
        return []
    how = "is put off" if refusal.rule is Rule.PACE else "does not help"
    message = f"preemption {how} ({refusal.rule}): {refusal.because}"
    code = Code.PREEMPTION_REFUSED
    return [Noted("ask", ask.key, code, message, partition.name, ask.rm_id)]


def _wait(partition: Partition, ask: Ask, group: Group | Gang, refusal: Refusal, now: int) -> None:
    """Set the instant of the next attempt: after the back-off (G1), or in the next round if a budget put the ask off (P5)."""
    if not _in_the_next_round(partition, refusal):
        partition.round.tries.refuse(group, now)
    due_claims.call_again(partition, _retry_ms(partition, ask, refusal, now))


def _retry_ms(partition: Partition, ask: Ask, refusal: Refusal, now: int) -> int:
    if _in_the_next_round(partition, refusal):
        return max(now, pacing.earliest_ms(partition))
    return now + due_claims.backoff_of(partition, ask)


def _in_the_next_round(partition: Partition, refusal: Refusal) -> bool:
    return refusal.rule is Rule.PACE and partition.spec.preemption.rounds_interval_ms > 0


def stamp(partition: Partition, plan: Plan, now: int) -> None:
    """Treat the asks of a plan as refused, because the partition only observes.

    Policies plan for these asks again after the back-off (P8).
    """
    for pledge in plan.pledges:
        ask = partition.asks.get(pledge.ask.key)
        if ask is None or ask.group is None:
            continue
        if plan.facts.retry is Retry.NODE:
            _tried(partition, ask)
        else:
            partition.round.tries.refuse(ask.group, now)
            due_claims.call_again(partition, now + due_claims.backoff_of(partition, ask))


def _tried(partition: Partition, ask: Ask) -> None:
    """Record the change counter of the ask's node, so that the ask is tried again only when the node changes (G11)."""
    node = partition.index.nodes.get(ask.spec.constraints.required_node)
    partition.round.tries.see_node(ask, -1 if node is None else node.changes)
