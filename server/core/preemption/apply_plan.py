"""The application of plans to the state (design 1.6).

Pledges are made before releases are ordered, so that no other ask takes the capacity (G10).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from typing import Final, NamedTuple

from server.core.preemption import decision_records, refusals
from server.model.decisions import Decided, Decision, Noted, Released, Termination
from server.model.lines import lines
from server.model.phrases import span
from server.model.policies import RESERVATION, PolicyFacts, of_letter
from server.model.ranking import Ranking
from server.model.reasons import Code
from server.model.records import DecisionRecord, DecisionState, Victim
from server.preemption.policy import Plan, PlannedPledge
from server.preemption.trial import Trial
from server.state import journal
from server.state.applications import Ask
from server.state.commitments import Commitment, Pledge
from server.state.lost_work import SOFT
from server.state.nodes import Node
from server.state.partition import Partition

KEPT_MAX: Final = 1_000
"""The largest number of records of ended decisions that a partition keeps."""


_APPLICATION: Final = attrgetter("application_id")
_GENERATION: Final = attrgetter("generation")
_KEY: Final = attrgetter("key")
_MANAGER: Final = attrgetter("rm_id")
"""Attribute getters written in C, so that loops over tens of thousands of objects need no Python call for each object."""


class Written(NamedTuple):
    """The result of applying a plan."""

    decisions: list[Decision]
    """The decisions to report, each followed by the releases of its victims."""
    expiring: list[tuple[int, str]]
    """A pair for each decision that expires: the instant of its expiry and its id."""


def write(partition: Partition, trial: Trial, plan: Plan, now: int) -> Written:
    """Write one plan into the state as a new decision, or as the continuation of the suspended decision for which the plan was made.

    Return the decisions to report, among them the record of the new decision.

    In a partition that only observes, the decision is recorded and has no effect. A decision that was shown before is not
    recorded again (P8).
    """
    if plan.facts.reserves:
        return _reserve(partition, plan, now)
    settings = partition.spec.preemption
    resumed = _resumed(partition, plan)
    decision_id = (
        resumed.commitment_id
        if resumed is not None
        else partition.decision_id(plan.facts.letter, now)
    )
    gone = () if resumed is None else tuple(resumed.gone)
    going = decision_records.asks_of(partition, plan.releases)
    record = decision_records.record(partition, trial, plan, going, decision_id, gone, now)
    if settings.observe_only:
        refusals.stamp(partition, plan, now)
        if is_shown(partition, plan):
            return Written([], [])
        show(partition, plan)
        return Written([keep(partition, _observed(record), plan.ranking)], [])
    partition.round.observed.clear()
    if resumed is not None:
        journal.resume(partition, resumed)
        for held in list(resumed.pledges.values()):
            journal.unpledge(partition, held)
    notes = [note for pledge in plan.pledges for note in _make_way(partition, pledge)]
    commitment = resumed or _commitment(plan, record, now)
    commitment.expires_ms = record.expires_ms
    for pledge in plan.pledges:
        journal.pledge(partition, _pledge(partition, commitment, pledge))
    how = delivery(partition, plan.facts)
    journal.order(partition, commitment, going, now, delivery=how)
    commitment.record = record
    decisions = [
        keep(partition, record, plan.ranking),
        *notes,
        *_released(partition, record, going, how),
    ]
    return Written(decisions, [(record.expires_ms, decision_id)])


def is_shown(partition: Partition, plan: Plan) -> bool:
    """Return whether a partition in observe mode has already shown this decision (P8). Decisions have no effect in observe mode."""
    if not partition.spec.preemption.observe_only or plan.facts.reserves:
        return False
    return partition.round.observed.get(_subject(plan)) == _content(plan)


def show(partition: Partition, plan: Plan) -> None:
    """Record that a decision was shown. If there are too many such records, the records of asks that no longer wait are dropped."""
    shown = partition.round.observed
    if len(shown) > 2 * (partition.ask_count + len(partition.queues)):
        for key in [key for key in shown if not _waits(partition, key)]:
            del shown[key]
    shown[_subject(plan)] = _content(plan)


def _waits(partition: Partition, subject: str) -> bool:
    ask = partition.asks.get(subject)
    return subject in partition.queues or (ask is not None and ask.node is None)


def _subject(plan: Plan) -> str:
    """Return the key of the first preemptor, or the path of the queue whose usage the plan reduces."""
    return plan.shrink.queue if plan.shrink is not None else plan.pledges[0].ask.key


def _content(plan: Plan) -> tuple[str, ...]:
    """Return the policy, the node of each preemptor, and the victims.

    These values identify the plan when it is compared with a plan that was shown before.
    """
    places = (f"{pledge.ask.key} on {pledge.node_id}" for pledge in plan.pledges)
    return (plan.policy, *places, *(release.key for release in plan.releases))


def _resumed(partition: Partition, plan: Plan) -> Commitment | None:
    """Return the suspended decision that the plan continues.

    A decision is suspended if one of its victims was vetoed (C6). Return None if the plan makes a new decision.
    """
    keys = [pledge.ask.key for pledge in plan.pledges]
    keys += [plan.shrink.queue] if plan.shrink is not None else []
    found = [
        partition.decisions.suspended[key] for key in keys if key in partition.decisions.suspended
    ]
    return found[0] if found else None


def end_suspended(partition: Partition) -> None:
    """Abort suspended decisions for which no new plan was found.

    A decision that reduces the usage of a queue stays open while it has victims that were not vetoed.
    """
    checks = partition.decisions.checks.by_ask
    for commitment in list(dict.fromkeys(partition.decisions.suspended.values())):
        if any(key in checks and not checks[key].decision_id for key in commitment.pledges):
            continue  # its new plan waits for the answer of its manager
        journal.resume(partition, commitment)
        if commitment.pledges or not commitment.victims:
            reason = "a victim could not be evicted, and no other pod may be"
            journal.close(partition, commitment, DecisionState.ABORTED, reason)


def policy_of(decision_id: str) -> PolicyFacts:
    """Return the facts of a decision's policy, read from its id."""
    return of_letter(decision_id.partition("-")[0])


def _observed(record: DecisionRecord) -> DecisionRecord:
    why = "the partition only observes"
    return decision_records.moved(
        record, DecisionState.OBSERVED, record.at_ms, why, record.confirmed
    )


def _commitment(plan: Plan, record: DecisionRecord, now: int) -> Commitment:
    queue = plan.shrink.queue if plan.shrink is not None else ""
    return Commitment(record.decision_id, plan.policy, now, record.expires_ms, queue)


def _pledge(partition: Partition, commitment: Commitment, pledge: PlannedPledge) -> Pledge:
    ask, node = partition.asks[pledge.ask.key], _node(partition, pledge)
    assert ask.node is None, f"a plan pledges capacity to {ask.key}, which runs"
    assert ask.pledge is None, f"a plan pledges capacity to {ask.key}, which has some"
    kind = pledge.ask.kind
    return Pledge(commitment, ask, node, kind.demand, kind.node_demand, pledge.exclusive)


def _node(partition: Partition, pledge: PlannedPledge) -> Node:
    node = partition.node_slots.nodes[pledge.row]
    assert node is not None, "a plan pledges capacity on a node that is gone"
    assert node.node_id == pledge.node_id, "a plan pledges capacity on a node that another replaced"
    return node


def _make_way(partition: Partition, pledge: PlannedPledge) -> list[Decision]:
    """Drop the reservation of the pledge's ask, and the reservations of other asks on the pledge's node.

    Return notes about the reservations of the other asks (design 6.6).
    """
    own = partition.asks[pledge.ask.key].pledge
    known = _node(partition, pledge).pledges.values()
    held = [one for one in known if one.reserves and not one.commitment.suspended]
    notes: list[Decision] = []
    for one in dict.fromkeys([*held, *([own] if own is not None else [])]):
        reason = f"capacity on node {one.node.node_id} is needed for a queue that is entitled to it"
        if one is not own:
            message = f"{reason}: the reservation is dropped"
            notes.append(
                Noted(
                    "ask",
                    one.ask.key,
                    Code.RESERVATION_DROPPED,
                    message,
                    partition.name,
                    one.ask.rm_id,
                )
            )
        journal.close(partition, one.commitment, DecisionState.ABORTED, reason)
    return notes


def _released(
    partition: Partition, record: DecisionRecord, going: Sequence[Ask], how: str
) -> Iterable[Decision]:
    """Yield the order to release each victim. The text of the order names neither the preemptor nor the preemptor's queue (design 1.14)."""
    if not going:
        return ()
    fresh, many = record.victims[-len(going) :], len(going)
    return lines(
        Released,
        map(_MANAGER, going),
        repeat(partition.name, many),
        map(_KEY, fresh),
        map(_APPLICATION, fresh),
        repeat(Termination.PREEMPTED_BY_SCHEDULER, many),
        decision_records.to_the_owners(record, fresh),
        repeat(record.decision_id, many),
        *_beneficiaries(record, fresh),
        map(_GENERATION, going),
        repeat(how, many),
    )


def order_again(partition: Partition, ask: Ask) -> Released:
    """Return once more the order to release a victim, because its manager may have lost the first order.

    For an open decision, the repeated order equals the first order. If the decision has ended, the order names no preemptor.
    The manager then carries the order out without looking for a preemptor.
    """
    record, going = partition.decisions.records.get(ask.leaves_by), ask.going
    assert going is not None, f"{ask.key} is no victim"
    victims = () if record is None else record.victims
    found = [one for one in victims if one.key == ask.key][-1:]
    how = going.delivery or "delete"
    if record is None or not found:
        message = f"its release was ordered by decision {ask.leaves_by}"
        why, decision_id = Termination.PREEMPTED_BY_SCHEDULER, ask.leaves_by
        where = (ask.rm_id, partition.name, ask.key, ask.application.application_id)
        return Released(*where, why, message, decision_id, generation=ask.generation, delivery=how)
    beneficiaries = record.beneficiaries if ask.released_by is not None else ()
    record = replace(record, victims=tuple(found), beneficiaries=beneficiaries)
    (order,) = _released(partition, record, (ask,), how)
    assert isinstance(order, Released), f"{ask.key} is ordered again"
    return order


def _beneficiaries(
    record: DecisionRecord, victims: Sequence[Victim]
) -> tuple[Iterable[str], Iterable[tuple[str, ...]]]:
    """Return two sequences with an item for each victim: the key of its preemptor, and the node of that preemptor.

    The preemptor of a victim is the first preemptor that gets capacity on the victim's node, or else the first preemptor of the
    decision. The items are empty if the decision has no preemptor.
    """
    if not record.beneficiaries:
        return repeat("", len(victims)), repeat((), len(victims))
    first = record.beneficiaries[0]
    there = {one.node_id: one for one in reversed(record.beneficiaries)}
    found = [there.get(one.node_id, first) for one in victims]
    return [one.key for one in found], [(one.node_id,) for one in found]


def delivery(partition: Partition, policy: PolicyFacts) -> str:
    """Return how victims of a policy are evicted: as the setting `delivery` says.

    For gangs, the setting `podShouldBeDeletedWhenPreempted` replaces `delivery` if it is set (J11).
    """
    settings = partition.spec.preemption
    if not policy.gang or settings.job_delete is None:
        return settings.delivery
    return "delete" if settings.job_delete else SOFT


def keep(partition: Partition, record: DecisionRecord, ranking: Ranking | None = None) -> Decided:
    """Store the record of a decision, and the ranking in which its victims were chosen.

    Return the record to report.

    If more than KEPT_MAX records are stored, the oldest records of ended decisions are dropped.
    """
    known = partition.decisions.records
    known[record.decision_id] = record
    if ranking is not None:
        partition.decisions.rankings[record.decision_id] = ranking
    excess = len(known) - len(partition.decisions.open) - KEPT_MAX
    if excess > 0:
        ended = [key for key, one in known.items() if not one.state.is_open]
        for key in ended[:excess]:
            del known[key]
            partition.decisions.rankings.pop(key, None)
    return Decided(partition.owner, record)


def _reserve(partition: Partition, plan: Plan, now: int) -> Written:
    """Reserve the node of each pledge for the pledge's ask."""
    written = Written([], [])
    for pledge in plan.pledges:
        made = reserve(partition, partition.asks[pledge.ask.key], _node(partition, pledge), now)
        written.decisions.extend(made.decisions)
        written.expiring.extend(made.expiring)
    return written


def reserve(partition: Partition, ask: Ask, node: Node, now: int) -> Written:
    """Reserve the node for the ask, for the time `reservations.timeout`, or without a time limit if that setting is 0.

    Return the decisions to report.

    The ask must be waiting and have no pledge.
    """
    assert ask.node is None, f"a node is reserved for {ask.key}, which runs"
    assert ask.pledge is None, f"a node is reserved for {ask.key}, which has some"
    timeout = partition.spec.reservations.timeout_ms
    expires = now + timeout if timeout else 0
    commitment = Commitment(f"r{partition.next_number()}", RESERVATION.name, now, expires)
    demand, node_demand = ask.ask_class.demand, ask.ask_class.node_demand
    journal.pledge(partition, Pledge(commitment, ask, node, demand, node_demand))
    lasts = f", for {span(timeout)} at the most" if timeout else ""
    message = f"node {node.node_id} is kept for it until it fits there or elsewhere{lasts}"
    decisions: list[Decision] = [
        Noted("ask", ask.key, Code.RESERVED, message, partition.name, ask.rm_id)
    ]
    return Written(decisions, [(expires, commitment.commitment_id)] if timeout else [])
