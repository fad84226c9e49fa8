"""The round loop: after placement the policies plan for what is left; what passes the laws is written (design 1.5).

A round is held only when something may have become possible since the last one: a counter of the books moved,
an ask joined, or an instant came; and a View is taken only when somebody is due then. A round that its budget cuts
off goes on in the next tick on a fresh View, with those masked whom it has refused (design 6.2); when the books
moved in between it begins anew, lest somebody be masked who has a chance now.
"""

from dataclasses import dataclass, field
from typing import Final

from server.books import journal, snapshot
from server.books.commitments import Commitment
from server.books.commitments import Pledge as Held
from server.books.nodes import Node
from server.books.partition import Partition
from server.core import due
from server.model.decisions import Decision, Noted
from server.model.fit import fits
from server.model.reasons import Code
from server.model.records import DecisionState
from server.preemption import laws, reservation
from server.preemption.policy import Intent, Law, Plan, Pledge, Policy, Refusal
from server.preemption.trial import Trial

POLICIES: Final[tuple[Policy, ...]] = (reservation,)

ROWS_PER_STEP: Final = 256
"""Nodes that a plan may look at for one step of the budget: about the time of one placement."""


@dataclass(slots=True)
class RoundResult:
    """What a round did: what the shell should hear, steps spent, and whether there is more to do at once.

    ``refused`` counts intents by the law that stood in their way.
    """

    notes: list[Decision] = field(default_factory=list)
    spent: int = 0
    more: bool = False
    refused: dict[Law, int] = field(default_factory=dict)


def next_due(partition: Partition, now: int) -> int | None:
    """The next instant after ``now`` at which time alone may let a policy act."""
    instant = partition.round.due_ms
    return instant if instant is not None and instant > now else None


def run(partition: Partition, now: int, budget: int) -> RoundResult:
    """One round, or its continuation, of up to ``budget`` steps. Call it when nothing more is placeable."""
    result = RoundResult()
    if not due.is_called_for(partition, now):
        return result
    due.begin(partition)
    asks = due.reserving(partition, now)
    if asks:
        trial = Trial(snapshot.take(partition, now, asks))
        _plan(partition, trial, budget, result)
        for plan in trial.plans:
            _write(partition, plan, now, result.notes)
    partition.round.open = result.more
    return result


def _plan(partition: Partition, trial: Trial, budget: int, result: RoundResult) -> None:
    """Each policy's intents in order, on top of what was planned before them."""
    masked = partition.round.masked
    for policy in POLICIES:
        for intent in policy.intents(trial):
            if intent.ask.key in masked or intent.ask.kind.number in partition.round.hopeless:
                continue
            if result.spent >= budget:
                result.more = True
                return
            refusal = _attempt(trial, policy, intent, result)
            if refusal is None:
                continue
            result.refused[refusal.law] = result.refused.get(refusal.law, 0) + 1
            _mask(partition, intent, refusal)
            if refusal.final:
                break


def _attempt(trial: Trial, policy: Policy, intent: Intent, result: RoundResult) -> Refusal | None:
    """Plan, gate, and on success count the plan as carried out."""
    result.spent += 1
    refusal = laws.admit(trial, intent)
    if refusal is not None:
        return refusal
    result.spent += len(trial.view.nodes.ids) // ROWS_PER_STEP
    plan = policy.plan(trial, intent)
    if isinstance(plan, Refusal):
        return plan
    refusal = laws.gate(trial, plan)
    if refusal is None:
        trial.apply(plan)
    return refusal


def _mask(partition: Partition, intent: Intent, refusal: Refusal) -> None:
    """Do not ask again: the ask in this round, a class that no node could hold until a node or pledge changes.

    Ports come and go with every pod, so that a class with ports is looked at in each round.
    """
    partition.round.masked.add(intent.ask.key)
    if refusal.law is Law.NO_NODE and not intent.ask.kind.ports:
        partition.round.hopeless.add(intent.ask.kind.number)


# Writing --------------------------------------------------------------------------------------------------------


def _write(partition: Partition, plan: Plan, now: int, notes: list[Decision]) -> None:
    """A plan's pledges reach the books, in the order of the plans."""
    notes += [_pledge(partition, plan.policy, pledge, now) for pledge in plan.pledges]


def _pledge(partition: Partition, policy: str, pledge: Pledge, now: int) -> Noted:
    ask, node = partition.asks[pledge.ask.key], partition.slots[pledge.row]
    assert node is not None, "a plan pledges room on a node that is gone"
    assert node.node_id == pledge.node_id, "a plan pledges room on a node that another replaced"
    assert ask.node is None, f"a plan pledges room to {ask.key}, which runs"
    assert ask.pledge is None, f"a plan pledges room to {ask.key}, which has some"
    kind = pledge.ask.kind
    commitment_id = f"r{partition.next_number()}"
    commitment = Commitment(commitment_id, policy, now)
    journal.pledge(partition, Held(commitment, ask, node, kind.demand, kind.node_demand))
    message = f"node {node.node_id} is kept for it until it fits there or elsewhere"
    return Noted("ask", ask.key, Code.RESERVED, message, partition.name, ask.rm_id)


def drop_unfit(partition: Partition, node: Node) -> list[Decision]:
    """A node changed: give up what was pledged on it to asks that it could not even take when empty any more."""
    notes: list[Decision] = []
    for held in list(node.pledges.values()):
        ask = held.ask
        large = fits(held.demand, node.capacity)
        if not node.schedulable or not large or not ask.ask_class.mask.allows(node):
            message = f"node {node.node_id} cannot hold it any more: the reservation is dropped"
            journal.close(partition, held.commitment, DecisionState.ABORTED, message)
            code = Code.RESERVATION_DROPPED
            notes.append(Noted("ask", ask.key, code, message, partition.name, ask.rm_id))
    return notes
