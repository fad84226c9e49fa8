"""The laws: what no plan may break, whoever made it. Each plan passes the gate before it is applied (design 1.6).

A law is a function of a Trial and a Plan. It says nothing when it holds, and otherwise why it does not.
"""

from collections.abc import Callable, Iterator
from typing import Final

from server.preemption import reservation
from server.preemption.policy import Law, Plan, Refusal
from server.preemption.trial import Trial

Check = Callable[[Trial, Plan], Refusal | None]


def gate(trial: Trial, plan: Plan) -> Refusal | None:
    """The first law that the plan would break on top of the Trial, None when it may be applied."""
    return next(_broken(trial, plan), None)


def _broken(trial: Trial, plan: Plan) -> Iterator[Refusal]:
    for check in LAWS:
        refusal = check(trial, plan)
        if refusal is not None:
            yield refusal


def one_an_ask(trial: Trial, plan: Plan) -> Refusal | None:
    """Nobody holds room twice."""
    keys = [pledge.ask.key for pledge in plan.pledges]
    if len(set(keys)) == len(keys) and not any(trial.is_served(key) for key in keys):
        return None
    return Refusal(Law.ONE_AN_ASK, "room is held for it already")


def head_room(trial: Trial, plan: Plan) -> Refusal | None:
    """A pledge passes every limit on its ask's path, with all that is promised to others."""
    for pledge in plan.pledges:
        ask = pledge.ask
        if not trial.view.may_place(ask.leaf):
            return Refusal(Law.STOPPED_QUEUE, f"queue {ask.leaf} is stopped")
        if not ask.within_limits or not trial.has_head_room(ask.leaf, ask.kind.demand):
            return Refusal(Law.HEAD_ROOM, f"no head-room is left for it from {ask.leaf} up")
    return None


def reservations_one_a_node(trial: Trial, plan: Plan) -> Refusal | None:
    """A node is reserved for one ask at a time."""
    if plan.policy != reservation.NAME:
        return None
    for pledge in plan.pledges:
        if trial.is_held(pledge.row):
            return Refusal(Law.ONE_A_NODE, f"node {pledge.node_id} is held for another ask")
    return None


def reservations_of_a_leaf(trial: Trial, plan: Plan) -> Refusal | None:
    """A leaf has few reservations, lest it bind nodes that others could use."""
    if plan.policy != reservation.NAME:
        return None
    for pledge in plan.pledges:
        leaf = pledge.ask.leaf
        if trial.open_for(reservation.NAME, leaf) >= reservation.RESERVATIONS_PER_LEAF:
            return Refusal(Law.LEAF_FULL, f"queue {leaf} has all the reservations it may have")
    return None


def reservations_of_the_partition(trial: Trial, plan: Plan) -> Refusal | None:
    """Few nodes of a partition are reserved; when they are, nobody else may have one."""
    if plan.policy != reservation.NAME:
        return None
    most = reservation.most(trial.view.node_count)
    if trial.open_for(reservation.NAME) < most:
        return None
    return Refusal(
        Law.PARTITION_FULL, f"{most} nodes are reserved, the most there may be", final=True
    )


LAWS: Final[tuple[Check, ...]] = (
    one_an_ask,
    reservations_of_the_partition,
    reservations_of_a_leaf,
    reservations_one_a_node,
    head_room,
)
