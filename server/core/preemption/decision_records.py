"""The records and texts of decisions, for people, logs and explanations."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, repeat
from operator import attrgetter
from typing import Final, cast

from server.model.asks import AskSpec
from server.model.lines import lines
from server.model.phrases import count
from server.model.policies import Shrinks
from server.model.records import Beneficiary, DecisionRecord, DecisionState, Spared, Verdict, Victim
from server.preemption.policy import Plan, Refusal, Release
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from server.state.applications import Ask
from server.state.partition import Partition

_ALIKE: Final = attrgetter("queue", "priority", "because")
_BECAUSE: Final = attrgetter("because")
_KEY: Final = attrgetter("key")
_LEAF: Final = attrgetter("leaf")
_PRIORITY: Final = attrgetter("priority")
_RESOURCE: Final = attrgetter("resource")
_RULE: Final = attrgetter("rule")
"""Attribute getters written in C, so that loops over tens of thousands of objects need no Python call for each object."""


def record(  # noqa: PLR0913, PLR0917 - all that a record is made of
    partition: Partition,
    trial: Trial,
    plan: Plan,
    going: Sequence[Ask],
    decision_id: str,
    gone: tuple[str, ...],
    now: int,
) -> DecisionRecord:
    """Return the record of a plan whose evictions are being ordered.

    The record of a plan that continues an open decision also has the decision's earlier victims. ``going`` are the allocations
    that the plan releases. ``gone`` are the victims of the open decision that have already ended.
    """
    before = partition.decisions.records.get(decision_id)
    earlier, left, kept = ((), (), ()) if before is None else _still(before, plan)
    told = earlier + with_running_times(trial, plan, going, now)
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
        _summary(plan, beneficiaries, len(told) - len({*left, *kept})),
        beneficiaries,
        told,
        spared(plan),
        plan.levels,
        plan.shrink,
        now + partition.spec.preemption.expiry_ms,
        confirmed=gone,
        vetoed=left,
        withdrawn=kept,
    )


def _still(
    before: DecisionRecord, plan: Plan
) -> tuple[tuple[Victim, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the victims that the new plan of an open decision drops, and the keys of the vetoed and withdrawn victims."""
    again = {release.key for release in plan.releases}
    return (
        tuple(one for one in before.victims if one.key not in again),
        tuple(key for key in before.vetoed if key not in again),
        tuple(key for key in before.withdrawn if key not in again),
    )


def spared(answer: Plan | Refusal) -> tuple[Spared, ...]:
    """Return the candidates that the rules protected, in the form that decision records have."""
    # Candidates of one rule follow each other, so that the text of the rule is read once for each run.
    found: list[Spared] = []
    for rule, candidates in groupby(answer.spared, _RULE):
        text = rule.value
        found += [Spared(text, one.leaf, one.count, one.keys) for one in candidates]
    return tuple(found)


def refused(
    snapshot: Snapshot, policy: str, refusal: Refusal, now: int, retry_ms: int = 0
) -> Verdict:
    """Return a refusal in the form of a verdict, which explanations show.

    If ``retry_ms`` is 0, no instant is set for the next attempt.
    """
    return Verdict(
        policy,
        refusal.rule.value,
        refusal.because,
        refusal.node_id,
        {snapshot.types[index]: quantity for index, quantity in refusal.missing},
        now,
        retry_ms,
        spared(refusal),
        refusal.levels,
    )


def victims(trial: Trial, plan: Plan, ran_ms: Iterable[int] | None = None) -> tuple[Victim, ...]:
    """Return the plan's victims in the form that decision records have. Without ``ran_ms``, the running times are 0."""
    columns, releases, rows = trial.snapshot.allocations, plan.releases, plan.rows.tolist()
    found_specs = list(map(columns.specs.__getitem__, rows))
    assert None not in found_specs, "a victim has no spec"
    specs = cast("list[AskSpec]", found_specs)
    templates = dict.fromkeys(specs)
    found = lines(
        Victim,
        map(_KEY, releases),
        map(columns.application_ids.__getitem__, rows),
        map(_LEAF, releases),
        map(trial.snapshot.nodes.ids.__getitem__, columns.nodes_of(plan.rows)),
        map(_RESOURCE, specs),
        map(_PRIORITY, specs),
        map({spec: spec.opted_out for spec in templates}.__getitem__, specs),
        map({spec: spec.leads for spec in templates}.__getitem__, specs),
        map(_BECAUSE, releases),
        repeat(0, len(rows)) if ran_ms is None else ran_ms,
    )
    return tuple(found)


def asks_of(partition: Partition, releases: Sequence[Release]) -> list[Ask]:
    """Return the asks that are named in the releases of a plan."""
    return list(map(partition.asks.__getitem__, map(_KEY, releases)))


def with_running_times(
    trial: Trial, plan: Plan, asks: Sequence[Ask], now: int
) -> tuple[Victim, ...]:
    """Return the plan's victims, each with the milliseconds that it had run. ``asks`` are the victims in the order of the plan.

    The times equal the results of `Ask.ran_until`. The times are computed without a call for each victim, because a decision
    may have tens of thousands of victims.
    """
    since = [ask.placed_ms if ask.started_ms is None else ask.started_ms for ask in asks]
    return victims(trial, plan, [now - one if one < now else 0 for one in since])


def would(plan: Plan, node_id: str) -> str:
    """Return a clause that says what a plan would do."""
    going = len(plan.releases)
    if not going:
        return f"it gets capacity on node {node_id} once the pods that are being evicted have ended"
    return f"{count(going, 'allocation')} would be evicted from node {node_id}"


def would_gang(plan: Plan) -> str:
    """Return a clause that says what a plan for a gang would do: the numbers of members, nodes and victims."""
    nodes = count(len({one.node_id for one in plan.pledges}), "node")
    members = count(len(plan.pledges), "member")
    if not plan.releases:
        return (
            f"its {members} get capacity on {nodes} once the pods that are being evicted have ended"
        )
    return (
        f"its {members} get capacity on {nodes}, and {count(len(plan.releases), 'allocation')} "
        f"would be evicted"
    )


def _summary(plan: Plan, beneficiaries: tuple[Beneficiary, ...], victims: int) -> str:
    who = f"{count(victims, 'allocation', 'are')} evicted"
    if plan.facts.shrinks is Shrinks.PARTITION:
        return f"more is used than the nodes have: {who}"
    if plan.shrink is not None:
        return f"queue {plan.shrink.queue} is over its maximum: {who}"
    first = beneficiaries[0]
    if len(beneficiaries) > 1:
        nodes = len({one.node_id for one in beneficiaries})
        where = f"a gang of queue {first.queue} gets capacity for its {count(len(beneficiaries), 'member')} on {count(nodes, 'node')}"
        return (
            f"{where}: {who}"
            if victims
            else f"{where} once the pods that are being evicted have ended: no further eviction"
        )
    where = f"ask {first.key} of queue {first.queue} gets capacity on node {first.node_id}"
    return (
        f"{where}: {who}"
        if victims
        else f"{where} once the pods that are being evicted have ended: no further eviction"
    )


def moved(
    known: DecisionRecord,
    state: DecisionState,
    at_ms: int,
    reason: str,
    confirmed: tuple[str, ...],
) -> DecisionRecord:
    """Return the record after a change of state. ``confirmed`` are the victims whose end was confirmed at that instant."""
    ended, why = (0, "") if state.is_open else (at_ms, reason)
    return DecisionRecord(  # `replace` takes three times as long, and each decision changes twice
        known.decision_id,
        known.policy,
        known.partition,
        known.at_ms,
        state,
        known.summary,
        known.beneficiaries,
        known.victims,
        known.spared,
        known.levels,
        known.shrink,
        known.expires_ms,
        ended,
        confirmed,
        known.vetoed,
        why,
        known.withdrawn,
    )


def vetoed(known: DecisionRecord, key: str) -> DecisionRecord:
    """Return the record after a victim's eviction was vetoed."""
    return replace(known, vetoed=(*known.vetoed, key))


def withdrawn(known: DecisionRecord, keys: Iterable[str]) -> DecisionRecord:
    """Return the record after the evictions of these victims were withdrawn, because no decision needs them any more."""
    return replace(known, withdrawn=(*known.withdrawn, *keys))


def to_the_owners(known: DecisionRecord, victims: Sequence[Victim]) -> Iterator[str]:
    """Yield, for each victim, the text that tells the victim's owner why the victim is evicted.

    The text names queue, policy, rule, priority and decision, but not the objects of other tenants.
    """
    alike = list(map(_ALIKE, victims))
    by = f"by decision {known.decision_id} (policy {known.policy})"
    told = {
        (queue, priority, because): (
            f"preempted in queue {queue} with priority {priority} {by}: {because}"
        )
        for queue, priority, because in dict.fromkeys(alike)
    }
    return map(told.__getitem__, alike)
