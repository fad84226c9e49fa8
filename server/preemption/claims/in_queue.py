"""Replacement within a queue (I1 to I5): an ask replaces less important pods of its own queue.

- I1. The policy is off unless it is listed.
- I2. Victims run in the preemptor's leaf, have strictly lower priorities, and belong to other applications than the preemptor.
- I3. All victims run on one node, which is pledged first. The rules on victims of claims apply as well (G6 to G8, G10). If the
  ask fits once all terminating pods have ended, the ask gets their capacity without a victim, even if its queue has candidates
  (G8).
- I4. After the replacement the leaf, and every queue above it, holds no more than its maximum.
- I5. The ask has waited for the `preemption.delay` of its leaf, like an ask that claims (G1). The delay applies even if claims
  have no delay (W6).
"""

from collections.abc import Iterator
from typing import Final

from server.model.policies import IN_QUEUE
from server.preemption.claims.eligibility import InQueueEligibility, blocks
from server.preemption.claims.preconditions import of_the_ask
from server.preemption.claims.search import Claim
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.trial import Trial
from server.snapshot import gangs
from server.snapshot.waiting import WaitingAsk

NAME: Final = IN_QUEUE.name

BECAUSE: Final = (
    "its priority is lower than that of an ask of its queue, in whose place it runs (I2)"
)
REFUSED: Final = "refused"


def intents(trial: Trial) -> Iterator[Intent]:
    """Yield the asks that may replace pods of their queues, in the order in which the asks wait (P3)."""
    asks = trial.snapshot.replacing if trial.snapshot.settings.lists(IN_QUEUE) else ()
    for ask in sorted(asks, key=_order):
        hopeless = (NAME, _class_of(ask), REFUSED) in trial.kept
        if not trial.is_served(ask.key) and not hopeless and of_the_ask(trial, ask) is None:
            yield Intent(NAME, ask)


def _order(ask: WaitingAsk) -> tuple[int, int, int]:
    return ask.order


def _class_of(ask: WaitingAsk) -> tuple[str, str, int, int]:
    return ask.leaf, ask.application_id, ask.kind.number, ask.spec.priority


def plan(trial: Trial, intent: Intent) -> Plan | Refusal:
    """Return a plan with the best victims on the best node, all from the ask's own leaf (I2, I3).

    If there is no plan, return the reason (G12).
    """
    ask = intent.ask
    refusal = of_the_ask(trial, ask)
    if refusal is not None:
        return refusal
    row = -1 if blocks(trial, ask, claiming=False) else trial.fits_coming(ask)
    if row >= 0:
        return Plan(NAME, (PlannedPledge(ask, row, trial.snapshot.nodes.ids[row]),))  # G8
    key = (NAME, _class_of(ask))
    search = trial.kept.get(key)
    if search is None:
        search = trial.kept[key] = Claim(trial, ask, eligibility=InQueueEligibility(ask))
    assert isinstance(search, Claim)
    choice = search.best(trial)
    if choice is None or not (choice.rows or _has_others(trial, ask)):
        trial.kept[NAME, _class_of(ask), REFUSED] = True
        return _refusal(trial, search)
    columns = trial.snapshot.allocations
    releases = tuple(Release(row, columns.keys[row], ask.leaf, BECAUSE) for row in choice.rows)
    pledge = PlannedPledge(ask, choice.node, trial.snapshot.nodes.ids[choice.node])
    if not releases:
        return Plan(NAME, (pledge,))
    return Plan(NAME, (pledge,), releases, search.spared, ranking=search.ranking(trial, choice))


def _has_others(trial: Trial, ask: WaitingAsk) -> bool:
    """Return whether pods of other applications run in the ask's leaf.

    If there are no such pods, the ask can replace no pod, and gets no plan. If unreserved capacity were enough, the ask
    would have been placed. A plan without victims could thus only take capacity that is reserved for another ask.
    """
    columns, number = trial.snapshot.allocations, trial.snapshot.queues[ask.leaf].number
    own = gangs.of_application(columns, number, ask.application_id)
    return bool(((columns.leaves == number) & ~own).any())


def _refusal(trial: Trial, search: Claim) -> Refusal:
    """Return the rule that prevents a plan, and the nearest node with the amounts that it lacks (G12)."""
    row, lacks, *_ = search.nearest(trial)
    spared = search.spared
    if row < 0:
        because = "no node can hold it, even when empty"
        return Refusal(Rule.NO_NODE, because, spared=spared)
    rule = Rule.SEARCH_BOUND if search.cut else Rule.NO_VICTIMS
    because = (
        "no node has enough free capacity, even if every less important pod of its queue is evicted"
    )
    missing = tuple((index, lack) for index, lack in enumerate(lacks) if lack)
    return Refusal(
        rule, because, node_id=trial.snapshot.nodes.ids[row], missing=missing, spared=spared
    )
