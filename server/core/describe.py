"""Decisions in words and numbers: records for people, logs and explanations."""

from dataclasses import replace

from server.books.partition import Partition
from server.core.phrases import count
from server.model.records import Beneficiary, DecisionRecord, DecisionState, Spared, Victim
from server.preemption.policy import Plan, Release
from server.preemption.trial import Trial
from server.view.columns import OPTED_OUT


def record(
    partition: Partition, trial: Trial, plan: Plan, decision_id: str, now: int
) -> DecisionRecord:
    """The record of a plan as it is ordered. One that goes on with an open decision keeps who went for it before."""
    before = partition.decisions.get(decision_id)
    earlier = before.victims if before is not None else ()
    victims = (*earlier, *(_victim(trial, release) for release in plan.releases))
    beneficiaries = tuple(
        Beneficiary(
            pledge.ask.key,
            pledge.ask.application_id,
            pledge.ask.leaf,
            pledge.node_id,
            pledge.ask.spec.resource,
            pledge.ask.spec.priority,
        )
        for pledge in plan.pledges
    )
    return DecisionRecord(
        decision_id,
        plan.policy,
        partition.name,
        now if before is None else before.at_ms,
        DecisionState.ORDERED,
        _summary(plan, beneficiaries, len(victims)),
        beneficiaries,
        victims,
        tuple(Spared(one.law.value, one.leaf, one.count, one.keys) for one in plan.spared),
        plan.levels,
        plan.shrink,
        now + partition.spec.preemption.expiry_ms,
        confirmed=before.confirmed if before is not None else (),
        vetoed=before.vetoed if before is not None else (),
    )


def _victim(trial: Trial, release: Release) -> Victim:
    columns, row = trial.view.allocations, release.row
    spec = columns.specs[row]
    assert spec is not None
    return Victim(
        release.key,
        columns.application_ids[row],
        release.leaf,
        trial.view.nodes.ids[columns.nodes[row]],
        spec.resource,
        spec.priority,
        bool(columns.flags[row] & OPTED_OUT),
        spec.originator,
        release.because,
    )


def _summary(plan: Plan, beneficiaries: tuple[Beneficiary, ...], victims: int) -> str:
    who = f"{count(victims, 'allocation')} {'goes' if victims == 1 else 'go'}"
    if plan.shrink is not None:
        return f"queue {plan.shrink.queue} is over its maximum: {who}"
    first = beneficiaries[0]
    where = f"ask {first.key} of queue {first.queue} gets room on node {first.node_id}"
    return f"{where}: {who}" if victims else f"{where} once what was ordered is gone: nobody goes"


def moved(known: DecisionRecord, state: DecisionState, at_ms: int, reason: str) -> DecisionRecord:
    """The record after a change of state."""
    ended = 0 if state.is_open else at_ms
    return replace(known, state=state, ended_ms=ended, end_reason="" if state.is_open else reason)


def vetoed(known: DecisionRecord, key: str) -> DecisionRecord:
    """The record once a victim could not go."""
    return replace(known, vetoed=(*known.vetoed, key))


def to_the_owner(known: DecisionRecord, victim: Victim) -> str:
    """Why it goes, as its owner may read it: queue, policy, rule, priority, decision; nobody else's names."""
    return (
        f"preempted in queue {victim.queue} with priority {victim.priority} by decision {known.decision_id} "
        f"(policy {known.policy}): {victim.because}"
    )
