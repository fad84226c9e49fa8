"""Decisions in words and numbers: records for people, logs and explanations."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from server.books.partition import Partition
from server.model.phrases import count
from server.model.records import Beneficiary, DecisionRecord, DecisionState, Spared, Verdict, Victim
from server.preemption import trim
from server.preemption.policy import Plan, Refusal, Release
from server.preemption.trial import Trial
from server.view.view import View


def record(  # noqa: PLR0913, PLR0917 - all that a record is made of
    partition: Partition,
    trial: Trial,
    plan: Plan,
    decision_id: str,
    gone: tuple[str, ...],
    now: int,
) -> DecisionRecord:
    """The record of a plan as it is ordered. One that goes on with an open decision keeps who went for it before.

    ``gone`` are the victims of that decision that are gone already.
    """
    before = partition.decisions.get(decision_id)
    again = {release.key for release in plan.releases}
    known = () if before is None else before.victims
    earlier = tuple(one for one in known if one.key not in again)
    left = () if before is None else tuple(key for key in before.vetoed if key not in again)
    kept = () if before is None else tuple(key for key in before.withdrawn if key not in again)
    going = (*earlier, *counted(partition, trial, plan.releases, now))
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
        _summary(plan, beneficiaries, len(going) - len({*left, *kept})),
        beneficiaries,
        going,
        spared(plan),
        plan.levels,
        plan.shrink,
        now + partition.spec.preemption.expiry_ms,
        confirmed=gone,
        vetoed=left,
        withdrawn=kept,
    )


def spared(answer: Plan | Refusal) -> tuple[Spared, ...]:
    """Whom the laws spared, as people are shown it."""
    return tuple(Spared(one.law.value, one.leaf, one.count, one.keys) for one in answer.spared)


def refused(view: View, policy: str, refusal: Refusal, now: int, retry_ms: int = 0) -> Verdict:
    """A refusal as people are shown it."""
    return Verdict(
        policy,
        refusal.law.value,
        refusal.because,
        refusal.node_id,
        {view.types[index]: quantity for index, quantity in refusal.missing},
        now,
        retry_ms,
        spared(refusal),
        refusal.levels,
    )


def victims(trial: Trial, releases: Sequence[Release]) -> Iterator[Victim]:
    """Those who go, as people are shown them."""
    columns, ids = trial.view.allocations, trial.view.nodes.ids
    for release, node in zip(
        releases, columns.nodes_of([one.row for one in releases]), strict=True
    ):
        spec = columns.specs[release.row]
        assert spec is not None
        yield Victim(
            release.key,
            columns.application_ids[release.row],
            release.leaf,
            ids[node],
            spec.resource,
            spec.priority,
            spec.opted_out,
            spec.leads,
            release.because,
        )


def counted(
    partition: Partition, trial: Trial, releases: Sequence[Release], now: int
) -> Iterator[Victim]:
    """The same with what each had run."""
    for one in victims(trial, releases):
        yield one._replace(ran_ms=partition.asks[one.key].ran_until(now))


def would(plan: Plan, node_id: str) -> str:
    """What a plan would do, in one clause."""
    going = len(plan.releases)
    if not going:
        return f"it gets room on node {node_id} once what was ordered is gone"
    return f"{count(going, 'allocation')} would go from node {node_id}"


def would_job(plan: Plan) -> str:
    """The same for a job: its members' nodes, and how many go."""
    nodes = count(len({one.node_id for one in plan.pledges}), "node")
    members = count(len(plan.pledges), "member")
    if not plan.releases:
        return f"its {members} get room on {nodes} once what was ordered is gone"
    return (
        f"its {members} get room on {nodes}, and {count(len(plan.releases), 'allocation')} would go"
    )


def _summary(plan: Plan, beneficiaries: tuple[Beneficiary, ...], victims: int) -> str:
    who = f"{count(victims, 'allocation')} {'goes' if victims == 1 else 'go'}"
    if plan.policy == trim.NAME:
        return f"more is used than the nodes have: {who}"
    if plan.shrink is not None:
        return f"queue {plan.shrink.queue} is over its maximum: {who}"
    first = beneficiaries[0]
    if len(beneficiaries) > 1:
        nodes = len({one.node_id for one in beneficiaries})
        where = f"a job of queue {first.queue} gets room for its {len(beneficiaries)} members on {count(nodes, 'node')}"
        return (
            f"{where}: {who}" if victims else f"{where} once what was ordered is gone: nobody goes"
        )
    where = f"ask {first.key} of queue {first.queue} gets room on node {first.node_id}"
    return f"{where}: {who}" if victims else f"{where} once what was ordered is gone: nobody goes"


def moved(known: DecisionRecord, state: DecisionState, at_ms: int, reason: str) -> DecisionRecord:
    """The record after a change of state."""
    ended = 0 if state.is_open else at_ms
    return replace(known, state=state, ended_ms=ended, end_reason="" if state.is_open else reason)


def vetoed(known: DecisionRecord, key: str) -> DecisionRecord:
    """The record once a victim could not go."""
    return replace(known, vetoed=(*known.vetoed, key))


def withdrawn(known: DecisionRecord, keys: Iterable[str]) -> DecisionRecord:
    """The record once nobody needs these victims gone any more."""
    return replace(known, withdrawn=(*known.withdrawn, *keys))


def to_the_owner(known: DecisionRecord, victim: Victim) -> str:
    """Why it goes, as its owner may read it: queue, policy, rule, priority, decision; nobody else's names."""
    return (
        f"preempted in queue {victim.queue} with priority {victim.priority} by decision {known.decision_id} "
        f"(policy {known.policy}): {victim.because}"
    )
