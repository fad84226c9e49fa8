"""The laws: what no plan may break, whoever made it (design 1.6).

Some look at the ask alone: they are asked before anything is planned, because planning costs a look at every node.
Each plan then passes the gate, which asks all of them of all its pledges, before it is applied. A law says nothing when it
holds, and otherwise why it does not.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from server.preemption import reservation
from server.preemption.policy import Intent, Law, Plan, Pledge, Refusal
from server.preemption.trial import Trial
from server.view.waiting import WaitingAsk

AskLaw = Callable[[Trial, str, WaitingAsk], Refusal | None]
"""Of a Trial, the policy's name and the ask that shall have room."""
PledgeLaw = Callable[[Trial, str, Pledge], Refusal | None]
PlanLaw = Callable[[Trial, Plan], Refusal | None]


def admit(trial: Trial, intent: Intent) -> Refusal | None:
    """The first law on account of which no plan for this ask could pass; None: it is worth planning."""
    return _first(law(trial, intent.policy, intent.ask) for law in ASK_LAWS)


def gate(trial: Trial, plan: Plan) -> Refusal | None:
    """The first law that the plan would break on top of the Trial; None: it may be applied."""
    return _first(_verdicts(trial, plan))


def _verdicts(trial: Trial, plan: Plan) -> Iterator[Refusal | None]:
    for pledge in plan.pledges:
        yield from (law(trial, plan.policy, pledge.ask) for law in ASK_LAWS)
        yield from (law(trial, plan.policy, pledge) for law in PLEDGE_LAWS)
    yield from (law(trial, plan) for law in PLAN_LAWS)


def _first(verdicts: Iterable[Refusal | None]) -> Refusal | None:
    return next((one for one in verdicts if one is not None), None)


# Laws on an ask -------------------------------------------------------------------------------------------------


def one_an_ask(trial: Trial, policy: str, ask: WaitingAsk) -> Refusal | None:
    """Nobody holds room twice."""
    if not trial.is_served(ask.key) and not (
        policy == reservation.NAME and trial.is_reserved(ask.key)
    ):
        return None
    return Refusal(Law.ONE_AN_ASK, "room is held for it already")


def reservations_of_the_partition(trial: Trial, policy: str, ask: WaitingAsk) -> Refusal | None:
    """Few nodes of a partition are reserved; when they are, nobody else may have one."""
    del ask
    most = reservation.most(trial.view.node_count)
    if policy != reservation.NAME or trial.open_for(reservation.NAME) < most:
        return None
    return Refusal(
        Law.PARTITION_FULL, f"{most} nodes are reserved, the most there may be", final=True
    )


def reservations_of_a_leaf(trial: Trial, policy: str, ask: WaitingAsk) -> Refusal | None:
    """A leaf has few reservations, lest it bind nodes that others could use."""
    most = reservation.RESERVATIONS_PER_LEAF
    if policy != reservation.NAME or trial.open_for(reservation.NAME, ask.leaf) < most:
        return None
    return Refusal(Law.LEAF_FULL, f"queue {ask.leaf} has {most} reservations, the most it may have")


def open_queue(trial: Trial, policy: str, ask: WaitingAsk) -> Refusal | None:
    """A stopped queue gets no room."""
    del policy
    if trial.view.may_place(ask.leaf):
        return None
    return Refusal(Law.STOPPED_QUEUE, f"queue {ask.leaf} is stopped")


def head_room(trial: Trial, policy: str, ask: WaitingAsk) -> Refusal | None:
    """Every limit of the ask has room, with all that is promised to others."""
    del policy
    if ask.within_limits and trial.has_head_room(ask.leaf, ask.kind.demand):
        return None
    return Refusal(Law.HEAD_ROOM, f"no head-room is left for it from {ask.leaf} up")


# Laws on a pledge and on a plan ---------------------------------------------------------------------------------


def reservations_one_a_node(trial: Trial, policy: str, pledge: Pledge) -> Refusal | None:
    """A node is reserved for one ask at a time."""
    if policy != reservation.NAME or not trial.is_held(pledge.row):
        return None
    return Refusal(Law.ONE_A_NODE, f"node {pledge.node_id} is held for another ask")


def each_ask_once(trial: Trial, plan: Plan) -> Refusal | None:
    """Nor does one plan give the same ask room twice."""
    del trial
    keys = {pledge.ask.key for pledge in plan.pledges}
    if len(keys) == len(plan.pledges):
        return None
    return Refusal(Law.ONE_AN_ASK, "the plan gives an ask room twice")


ASK_LAWS: Final[tuple[AskLaw, ...]] = (
    one_an_ask,
    reservations_of_the_partition,
    reservations_of_a_leaf,
    open_queue,
    head_room,
)
PLEDGE_LAWS: Final[tuple[PledgeLaw, ...]] = (reservations_one_a_node,)
PLAN_LAWS: Final[tuple[PlanLaw, ...]] = (each_ask_once,)
