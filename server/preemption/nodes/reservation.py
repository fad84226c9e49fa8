"""Reservations (C7, design 6.6): a node is kept for an ask that is too large for the capacity that is free now.

1. Nothing is reserved for an ask that has waited less than 2 s, or that its manager has to check first (design 1.8). Members of
   gangs get no reservation, because a gang is planned as a whole.
2. All limits of the ask must have headroom, and no queue on its path may be stopped. Thus the only thing that the ask lacks is a
   node.
3. The asks of the whole partition have one order: higher priority first, as seen by the lowest queue above both asks, then longer
   wait, then earlier arrival (`server.scheduling.outranking`). The snapshot has the asks in this order.
4. An ask gets the node that lacks least of the ask's request. The node must be schedulable, allowed by the ask's constraints and
   large enough. Its ports must be free, and no capacity of the node may be held for another ask. If several nodes lack equally
   little, the ask gets the node that arrived first.
5. An ask has at most one reservation, a node has at most one, and the asks of a leaf together have at most RESERVATIONS_PER_LEAF.
   A partition may have one reservation for each NODES_PER_RESERVATION nodes, and always at least one.

The planner applies rule 4. The gate checks rules 2 and 5 again, with all earlier plans counted.
"""

from collections.abc import Iterator
from typing import Final

from server.model.policies import RESERVATION
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk

NAME: Final = RESERVATION.name

RESERVE_AFTER_MS: Final = 2_000
RESERVATIONS_PER_LEAF: Final = 5
NODES_PER_RESERVATION: Final = 10


def intents(trial: Trial) -> Iterator[Intent]:
    """Yield an intent for each due ask that has waited RESERVE_AFTER_MS for a node, in the order of reservations."""
    snapshot = trial.snapshot
    for ask in snapshot.waiting_without_node():  # rules 2 and 3
        if _may_reserve(ask) and ask.pending_ms(snapshot.now) >= RESERVE_AFTER_MS:  # rule 1
            yield Intent(NAME, ask)


def _may_reserve(ask: WaitingAsk) -> bool:
    return not (ask.reserved or ask.gang or ask.spec.rm_check)


def plan(trial: Trial, intent: Intent) -> Plan | Refusal:
    """Return a plan that keeps a node for the ask until enough running pods have ended, or the reason why there is no plan.

    The plan has no victims.
    """
    ask = intent.ask
    row = trial.least_short(ask.kind)
    if row < 0:
        return Refusal(
            Rule.NO_NODE, "no node without a reservation could hold it, even if it were empty"
        )
    return Plan(intent.policy, (PlannedPledge(ask, row, trial.snapshot.nodes.ids[row]),))


def most(nodes: int) -> int:
    """Return how many reservations a partition with this number of nodes may have."""
    return max(1, nodes // NODES_PER_RESERVATION)
