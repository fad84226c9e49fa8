"""The answers to simulated asks, which are computed one after another on one Trial, with sentences for users (design 6.12)."""

from typing import Final, NamedTuple

from server.core.preemption import decision_records
from server.core.queries import verdicts
from server.core.queries.fit_text import lack_text, none_large_enough_counted
from server.core.queries.group_fit import Members, PersonLimit, free_row, group_fit
from server.model.asks import AskSpec
from server.model.records import AskSimulation, Verdict, Victim
from server.model.reports import Excluded, GroupFit
from server.preemption.policy import Plan, PlannedPledge, Refusal
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk

NAME: Final = "simulation"
PLACED, PREEMPTS, WAITS, REFUSED = "placed", "preempts", "waits", "refused"


class SimulatedAsk(NamedTuple):
    """An ask that was not submitted.

    If the ask names a known application, the limits of that application's user and group apply.
    """

    queue: str
    application_id: str
    spec: AskSpec
    key: str = ""
    """The name of the ask as users see it. If the name is empty, the simulation gives the ask a name with a number."""


def answer(
    trial: Trial,
    ask: SimulatedAsk,
    waiting: WaitingAsk | str,
    people: tuple[PersonLimit, ...] = (),
    excluded: tuple[Excluded, ...] = (),
) -> AskSimulation:
    """Return the answer to one ask, computed after the answers to the asks before it.

    On the Trial, the capacity for the ask stays in use while later answers are computed.
    """
    if isinstance(waiting, str):
        return refused(ask, waiting)
    now, row = trial.snapshot.now, free_row(trial, waiting)
    if row >= 0:
        return placed(trial, ask, waiting, row)
    found = verdicts.plan(trial, waiting)
    if isinstance(found, Refusal):
        alone = Members(waiting.key, (waiting,), people=people, gang=False, excluded=excluded)
        fit = group_fit(trial, alone)
        verdict = verdicts.of_answer(trial.snapshot, waiting, found, now)
        return waiting_for(ask, fit, lack_text(fit), found, verdict)
    trial.apply(found)
    return preempts(trial, ask, waiting, found, now)


def refused(ask: SimulatedAsk, why: str) -> AskSimulation:
    """Return the answer to an ask that would not be accepted."""
    return AskSimulation(REFUSED, ask.queue, resource=ask.spec.resource, lines=(f"{why}.",))


def placed(trial: Trial, ask: SimulatedAsk, waiting: WaitingAsk, row: int) -> AskSimulation:
    """Return the answer to an ask that gets a node at once, and assign the ask to that node on the Trial."""
    node_id = trial.snapshot.nodes.ids[row]
    trial.apply(Plan(NAME, (PlannedPledge(waiting, row, node_id),)))
    line = f"It would be placed on node {node_id} at once."
    return AskSimulation(PLACED, ask.queue, node_id, ask.spec.resource, lines=(line,))


def preempts(
    trial: Trial, ask: SimulatedAsk, waiting: WaitingAsk, plan: Plan, now: int
) -> AskSimulation:
    """Return the answer to an ask for which preemption found a plan."""
    verdict = verdicts.of_answer(trial.snapshot, waiting, plan, now)
    node_id = plan.pledges[0].node_id
    return AskSimulation(
        PREEMPTS,
        ask.queue,
        node_id,
        ask.spec.resource,
        victims(trial, plan),
        decision_records.spared(plan),
        plan.levels,
        verdict,
        (f"After the delay of its queue: {decision_records.would(plan, node_id)}.",),
    )


def waiting_for(
    ask: SimulatedAsk, fit: GroupFit, lacks: str, refusal: Refusal, verdict: Verdict
) -> AskSimulation:
    """Return the answer to a waiting ask: first the amounts that the ask lacks, then why preemption frees no capacity for it."""
    first = f"It would wait: {lacks}." if lacks else "It would wait."
    second = f"Preemption frees no capacity for it (`{refusal.rule}`): {refusal.because}."
    return AskSimulation(
        WAITS,
        ask.queue,
        resource=ask.spec.resource,
        spared=decision_records.spared(refusal),
        levels=refusal.levels,
        verdict=verdict,
        lines=(first, second),
        brief="" if fit.limits else none_large_enough_counted(fit.excluded),
    )


def victims(trial: Trial, plan: Plan) -> tuple[Victim, ...]:
    """Return the victims of a plan that is not carried out, without running times."""
    return decision_records.victims(trial, plan)
