"""The verdicts of preemption on waiting asks.

A verdict has the plan that a policy would make if the ask were tried now (a node and victims), or the rule that forbids a plan (G12).
"""

from collections.abc import Callable
from dataclasses import replace

from server.core.core import Core
from server.core.preemption import decision_records, due_gangs, pacing, thrash_guard
from server.core.preemption.rounds import PLANNERS
from server.model.phrases import count, span
from server.model.policies import (
    GUARANTEED,
    JOB,
    REPLACING,
    REQUIRED_NODE,
    PolicyFacts,
    Retry,
    facts,
)
from server.model.quota import PreemptionSettings
from server.model.records import Verdict
from server.preemption.policy import Intent, Plan, Refusal, Rule
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk, WaitingGang
from server.state import snapshotting
from server.state.applications import Ask, Gang, Group
from server.state.partition import Partition
from server.state.placeholders import Hold
from server.state.plan_checks import PlanCheck


def verdict(core: Core, key: str, now: int) -> Verdict | None:
    """Return the verdict on a waiting ask. Return None if no ask with this key waits, or if the ask waits for a placeholder."""
    for partition in core.state.partitions.values():
        ask = partition.asks.get(key)
        if ask is not None and ask.node is None:
            partition.disruptions = core.state.disruptions(partition)
            return of_ask(partition, ask, now)
    return None


Lay = Callable[[Trial], object]
"""A callback that applies other decisions to a Trial before the verdict is made."""


def of_ask(
    partition: Partition, ask: Ask, now: int, lay: Lay = lambda _trial: None
) -> Verdict | None:
    """Return the verdict on one waiting ask, after ``lay`` has applied other decisions.

    Return None for an ask that waits for a placeholder.

    If a decision frees capacity for the ask already, the verdict names that decision. If the ask's manager was asked about a plan
    and has not answered, the verdict says so.
    """
    held = ask.pledge
    if isinstance(ask.group, Hold):
        return None
    if held is not None and not held.reserves:
        return _decided(held.commitment.policy, held.commitment.commitment_id, held.node.node_id)
    if ask.key in partition.decisions.checks.by_ask:
        return _checked(partition.decisions.checks.by_ask[ask.key], ask.key)
    if isinstance(ask.group, Gang):
        return _of_gang(partition, ask.group, now, lay)
    daemon = bool(ask.spec.constraints.required_node)
    due = snapshotting.Due(requiring=[ask]) if daemon else snapshotting.Due(claiming=[ask])
    snapshot = snapshotting.take(partition, now, due=due)
    waiting = (snapshot.daemons if daemon else snapshot.claims)[0]
    trial = Trial(snapshot)
    lay(trial)
    answer = plan(trial, waiting)
    found = of_answer(snapshot, waiting, answer, now)
    return _when(partition, ask, found, now)


def _of_gang(partition: Partition, gang: Gang, now: int, lay: Lay) -> Verdict:
    """Return the verdict on a gang, which holds for each of its members (J8). If a member gets no node, the verdict names that member."""
    snapshot = snapshotting.take(partition, now, due=snapshotting.Due(gangs=[due_gangs.due(gang)]))
    waiting = snapshot.gangs[0]
    trial = Trial(snapshot)
    lay(trial)
    answer = plan_gang(trial, waiting)
    if isinstance(answer, Plan):
        found = of_plan(JOB.name, answer, answer.pledges[0].node_id, now)
    else:
        found = decision_records.refused(snapshot, JOB.name, answer, now)
    return _when(partition, gang.members[0], found, now)


def _backs_off(partition: Partition, ask: Ask, found: Verdict, now: int) -> Verdict | None:
    """Return the verdict with the end of the back-off after a refusal (G1). Return None if no back-off is running."""
    retry, backs_off = due_gangs.awaits(partition, ask, found.policy)
    if not backs_off or retry <= now:
        return None
    return replace(found, law=found.law or Rule.BACK_OFF.value, retry_ms=retry)


def of_plan(policy: str, plan: Plan, node_id: str, now: int) -> Verdict:
    """Return the verdict on one member of a gang, made from the plan for the gang."""
    because, told = decision_records.would_gang(plan), (decision_records.spared(plan), plan.levels)
    return Verdict(policy, "", because, node_id, {}, now, 0, *told)


def plan_gang(trial: Trial, gang: WaitingGang) -> Plan | Refusal:
    """Return the plan or the refusal of policy `job` for a gang. If the policy is off, return a refusal that says so."""
    settings = trial.snapshot.settings
    if not settings.enabled or not settings.lists(JOB):
        because = f"it belongs to a gang, and {_switched_off(settings, JOB)}"
        return Refusal(Rule.POLICY_OFF, because)
    intent = Intent(JOB.name, gang.members[0], gang)
    return _planned(trial, intent)


def _decided(policy: str, decision_id: str, node_id: str) -> Verdict:
    because = f"decision {decision_id} frees capacity for it on node {node_id}"
    return Verdict(policy, "", because, node_id)


def _checked(check: PlanCheck, key: str) -> Verdict:
    node_id = dict(check.about.nodes)[key]
    victims = count(len(check.about.victims), "pod")
    because = f"its manager was asked whether it would fit on node {node_id} without {victims}"
    return Verdict(check.about.policy, Rule.PLAN_CHECK.value, because, node_id)


def plan(trial: Trial, ask: WaitingAsk) -> Plan | Refusal:
    """Return the first plan that a policy finds for the ask.

    If no policy finds a plan, return the refusal of the first policy that may serve the ask (P3).
    """
    first = None
    for policy in serving(trial.snapshot.settings, ask):
        answer = _planned(trial, Intent(policy.name, ask))
        if isinstance(answer, Plan):
            return answer
        first = first or answer
    return first or Refusal(Rule.POLICY_OFF, _switched_off(trial.snapshot.settings, main(ask)))


def _switched_off(settings: PreemptionSettings, policy: PolicyFacts) -> str:
    """Return a clause that names the setting that switches a policy off. The policy must be off."""
    if not settings.enabled:
        return "preemption.enabled is false in this partition"
    return f"preemption.policies of this partition does not list {policy.name}"


def main(ask: WaitingAsk) -> PolicyFacts:
    """Return the first policy that may serve an ask such as this one, whether the policy is on or off."""
    return REQUIRED_NODE if ask.spec.constraints.required_node else GUARANTEED


def serving(settings: PreemptionSettings, ask: WaitingAsk) -> list[PolicyFacts]:
    """Return the policies that are on and may serve a single ask, in the order in which a round tries them.

    If policy `guaranteed` is not listed but policy `job` is, policy `job` claims for single asks (J4).
    """
    if ask.spec.constraints.required_node:
        found = [REQUIRED_NODE]
    else:
        claim = GUARANTEED if settings.lists(GUARANTEED) else JOB
        found = [claim, *REPLACING]
    return [one for one in found if settings.enabled and settings.lists(one)]


def _planned(trial: Trial, intent: Intent) -> Plan | Refusal:
    """Return the plan or the refusal of the intent's policy.

    If a rule or the thrashing monitor (invariant 18) forbids the plan, return a refusal that says so.
    """
    refusal = gate.admit(trial, intent)
    answer = refusal if refusal is not None else PLANNERS[intent.policy].plan(trial, intent)
    if isinstance(answer, Plan):
        return thrash_guard.refusal(trial.snapshot.frozen, trial.snapshot, answer) or answer
    return answer


def of_answer(snapshot: Snapshot, ask: WaitingAsk, answer: Plan | Refusal, now: int) -> Verdict:
    """Return the plan or the refusal for an ask as a verdict."""
    policy = next(iter(serving(snapshot.settings, ask)), main(ask)).name
    if isinstance(answer, Plan):
        policy = answer.policy
        pledge = answer.pledges[0]
        because = decision_records.would(answer, pledge.node_id)
        return Verdict(
            policy,
            "",
            because,
            pledge.node_id,
            {},
            now,
            0,
            decision_records.spared(answer),
            answer.levels,
        )
    return decision_records.refused(snapshot, policy, answer, now)


def _when(partition: Partition, ask: Ask, found: Verdict, now: int) -> Verdict:
    """Return the verdict with the instant of the next attempt (G1, P1, P5).

    That instant depends on the queue's delay, the back-off and the pace.

    For a DaemonSet pod, only a change of its node leads to another attempt (G11). The verdict on a DaemonSet pod therefore has
    no instant.
    """
    if facts(found.policy).retry is Retry.NODE:
        return found
    due, backs_off = due_gangs.awaits(partition, ask, found.policy)
    if due > now and not backs_off:
        because = _after_the_delay(found, due - now)
        rule = found.law or Rule.DELAY.value
        return replace(found, law=rule, because=because, retry_ms=due)
    group = ask.group
    if group is not None and _is_put_off(partition, group, now):
        return _next_round(partition, found, partition.round.tries.verdict(group), now)
    again = _backs_off(partition, ask, found, now)
    return again or _next_round(partition, found, None, now)


def _after_the_delay(found: Verdict, left_ms: int) -> str:
    """Return the text of the verdict. If the verdict has a plan, the text says, too, how much time is left of the queue's preemption delay (G1)."""
    if found.law:
        return found.because  # The verdict already has the instant of the next attempt.
    return f"{found.because}, once the preemption.delay of its queue is over in {span(left_ms)}"


def _is_put_off(partition: Partition, group: Group | Gang, now: int) -> bool:
    """Return whether a budget put a plan for the group off until the next round, which is still to come (P5)."""
    known = partition.round.tries.verdict(group)
    if known is None or known.law != Rule.PACE:
        return False
    return known.retry_ms > now or pacing.is_between(partition, now)


def _next_round(partition: Partition, found: Verdict, put_off: Verdict | None, now: int) -> Verdict:
    """Return the verdict with the instant of the next round that may act (P1, P5).

    Return the verdict unchanged if a rule already forbids the plan, or if a round may act now.
    """
    retry = put_off.retry_ms if put_off is not None else 0
    if pacing.is_between(partition, now):
        retry = pacing.earliest_ms(partition)
    if found.law or retry <= now:
        return found
    rule = Rule.ROUND.value if put_off is None else put_off.law
    but = "the next round of claims has not begun" if put_off is None else put_off.because
    because = f"{found.because}, but {but}"
    return replace(found, law=rule, because=because, retry_ms=retry)
