"""The recovery of decisions that were open when the core ended, from the annotations (marks) on the victims of these decisions (C8).

A mark names the decision, the preemptor and the node. Until the decision is reopened, its victims count as releasing, but no
capacity is kept for the preemptor. The decision is reopened at the end of the sync, when all pods are known. If the manager declares
no sync, the decision is reopened when the preemptor has arrived.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from server.core.events import placeholders
from server.core.preemption import apply_plan, due_gangs
from server.core.preemption.due_gangs import Assignment
from server.core.preemption.open_decisions import drop_unfit
from server.model.asks import ReleaseMark
from server.model.decisions import Decision
from server.model.events import AllocationAdded
from server.model.fit import fits
from server.model.policies import PolicyFacts, Scope, Shrinks
from server.model.records import Beneficiary, DecisionRecord, DecisionState, Victim
from server.state import journal
from server.state.applications import Ask, Gang, Group
from server.state.commitments import Commitment, Pledge
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.placeholders import Hold

BECAUSE: Final = "its eviction was ordered before the core was restarted"


def note_facts(partition: Partition, ask: Ask, event: AllocationAdded) -> None:
    """Store when an existing allocation started, and the release mark in its report, if there is one."""
    journal.set_started(partition, ask, event.started_ms)
    if event.releasing is not None:
        note(partition, ask, event.releasing)


def note(partition: Partition, ask: Ask, mark: ReleaseMark) -> None:
    """Set an existing allocation to releasing, and store the release mark that its report has.

    Three kinds of reports change nothing. First, a repeated report of an allocation that is already releasing, because the
    decision may have ended since the first report. Second, a report of a placeholder that is being replaced. Third, a report
    with the mark of a decision, if the eviction that the decision ordered was just vetoed. A mark in a report of the third kind
    is older than the veto.
    """
    if ask.releasing or ask.is_replaced or (ask.vetoed and mark.decision_id):
        return
    journal.set_releasing(partition, ask, releasing=True)
    if mark.decision_id:
        partition.decisions.marks.setdefault(mark.decision_id, {})[ask.key] = mark


def rebuild(
    partition: Partition, now: int, *, all_known: bool
) -> tuple[list[Decision], list[tuple[int, str]]]:
    """Reopen each decision whose preemptor now waits, and each decision without a preemptor, such as that of a quota run.

    A gang's decision is reopened once enough members have arrived (J10).

    When all pods are known, the remaining decisions are reported as aborted. Return two lists: the decisions to report, and the
    expiry of each reopened decision. An expiry is a pair: the instant at which the decision expires, and the decision's id.
    """
    decisions: list[Decision] = []
    expiring: list[tuple[int, str]] = []
    for decision_id, marks in list(partition.decisions.marks.items()):
        mark = next(iter(marks.values()))
        victims = [partition.asks[key] for key in marks if _goes(partition, key)]
        if not victims:
            del partition.decisions.marks[decision_id]
            continue
        ask = partition.asks.get(mark.released_for)
        waits = ask is not None and ask.pledge is None and _is_complete(ask)
        replaces = decision_id.startswith(f"{placeholders.LETTER}-")
        waits = waits or (replaces and ask is not None and isinstance(ask.group, Hold))
        if not (waits or all_known or not mark.released_for):
            continue
        if replaces:
            del partition.decisions.marks[decision_id]
            if waits and ask is not None and decision_id not in partition.decisions.open:
                where = (ask, victims[0], mark.node_id)
                expiring += placeholders.reopen(partition, decision_id, *where, now)
            continue
        del partition.decisions.marks[decision_id]
        if decision_id not in partition.decisions.open:
            mark = _mark_with_capacity(partition, marks, ask)
            assignments = (
                _assignments(partition, ask, marks, mark) if waits and ask is not None else []
            )
            record = _reopen(partition, decision_id, assignments, victims, marks, now)
            decisions.append(record)
            decisions += _drop_unfit(partition, mark, now, all_known=all_known)
            expiring.append((now + partition.spec.preemption.expiry_ms, decision_id))
    return decisions, expiring


def _is_complete(ask: Ask) -> bool:
    """Return whether policies can plan for the ask.

    Policies can plan for a single ask, and for a gang member once the members that the gang needs have arrived.
    """
    return isinstance(ask.group, Group) or (isinstance(ask.group, Gang) and ask.group.gathered)


def _mark_with_capacity(
    partition: Partition, marks: Mapping[str, ReleaseMark], ask: Ask | None
) -> ReleaseMark:
    """Return the first release mark whose node will have capacity for the ask once the decision's victims are gone.

    ``marks`` has the release marks that the decision's victims carry, by victim. If no node has capacity for the ask, return
    the first mark. If a decision was planned again after a veto, its marks may name several nodes: the mark of a victim that
    was already being evicted still names the earlier node.
    """
    found = list(marks.values())
    for mark in found:
        node = partition.index.nodes.get(mark.node_id)
        if ask is not None and node is not None and _free_enough(node, marks, ask):
            return mark
    return found[0]


def _free_enough(node: Node, marks: Iterable[str], ask: Ask) -> bool:
    free = node.free_without(node.allocations[key] for key in marks if key in node.allocations)
    return fits(ask.ask_class.node_demand, free)


def _assignments(
    partition: Partition, ask: Ask, marks: Mapping[str, ReleaseMark], mark: ReleaseMark
) -> list[Assignment]:
    """Return an assignment of the ask to the node that ``mark`` names, or one assignment for each member of the ask's gang (J10).

    Return [] if a member gets no node.
    """
    if isinstance(ask.group, Gang):
        return due_gangs.reassign(partition, ask.group, marks.values())
    node = partition.index.nodes.get(mark.node_id)
    return [(ask, mark.node_id, node)]


def _drop_unfit(
    partition: Partition, mark: ReleaseMark, now: int, *, all_known: bool
) -> list[Decision]:
    """Drop pledges that no longer fit on the node that ``mark`` names, because the node may have changed during the restart (G10).

    Pledges are checked only after the node was enabled or drained, or when all pods are known.
    """
    node = partition.index.nodes.get(mark.node_id)
    if node is None or not (all_known or node.opened):
        return []
    return drop_unfit(partition, node, now)


def _goes(partition: Partition, key: str) -> bool:
    ask = partition.asks.get(key)
    return ask is not None and ask.releasing and ask.released_by is None


def _shrinking(partition: Partition, policy: PolicyFacts, victims: list[Ask]) -> str:
    """Return the queue whose usage the decision reduces. Return "" if the decision frees capacity for an ask."""
    if policy.shrinks is Shrinks.PARTITION:
        return partition.root.path
    return _shared_queue(victims) if policy.shrinks is Shrinks.QUEUE else ""


def _reopen(  # noqa: PLR0913, PLR0917 - what the marks tell
    partition: Partition,
    decision_id: str,
    assignments: list[Assignment],
    victims: list[Ask],
    marks: Mapping[str, ReleaseMark],
    now: int,
) -> Decision:
    policy = apply_plan.policy_of(decision_id)
    expires = now + partition.spec.preemption.expiry_ms
    queue = _shrinking(partition, policy, victims)
    assignments = [] if queue else assignments  # a quota run frees capacity for no ask
    commitment = Commitment(decision_id, policy.name, now, expires, queue)
    record = _record(partition, commitment, assignments, victims)
    for ask, _, node in assignments:
        if node is None:
            continue
        demands = (ask.ask_class.demand, ask.ask_class.node_demand)
        requires = ask.spec.constraints.required_node == node.node_id
        exclusive = policy.scope is Scope.NODE and requires
        journal.pledge(partition, Pledge(commitment, ask, node, *demands, exclusive))
    for how in sorted({marks[one.key].delivery for one in victims}):
        same = [one for one in victims if marks[one.key].delivery == how]
        journal.order(partition, commitment, same, now, delivery=how)
    commitment.record = record
    decided = apply_plan.keep(partition, record)
    if not commitment.pledges and not queue:
        reason = "its ask or its node no longer exists: found when the core was restarted"
        journal.close(partition, commitment, DecisionState.ABORTED, reason)
    return decided


def _shared_queue(victims: list[Ask]) -> str:
    """Return the lowest queue that contains all victims: the queue of the quota run, or a queue below that queue."""
    paths = [[one.path for one in ask.application.leaf.path_up()] for ask in victims]
    return next(path for path in paths[0] if all(path in other for other in paths))


def _record(
    partition: Partition,
    commitment: Commitment,
    assignments: list[Assignment],
    victims: list[Ask],
) -> DecisionRecord:
    beneficiaries = tuple(
        Beneficiary(
            ask.key,
            ask.application.application_id,
            ask.application.leaf.path,
            node_id,
            ask.spec.resource,
            ask.spec.priority,
        )
        for ask, node_id, _ in assignments
    )
    return DecisionRecord(
        commitment.commitment_id,
        commitment.policy,
        partition.name,
        commitment.created_ms,
        DecisionState.ORDERED,
        "rebuilt from the marks on its victims after a restart",
        beneficiaries,
        tuple(_victim(one, commitment.created_ms) for one in victims),
        expires_ms=commitment.expires_ms,
    )


def _victim(ask: Ask, now: int) -> Victim:
    node = ask.node
    assert node is not None
    return Victim(
        ask.key,
        ask.application.application_id,
        ask.application.leaf.path,
        node.node_id,
        ask.spec.resource,
        ask.spec.priority,
        ask.spec.opted_out,
        ask.spec.leads,
        BECAUSE,
        ask.ran_until(now),
    )
