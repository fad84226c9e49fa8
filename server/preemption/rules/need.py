"""The rules on whether any pod has to be evicted: which asks may claim, on which node, and for what.

Part of the gate (see `gate`). The planners keep these rules, too; a planner that does not is stopped here.
"""

from collections import Counter
from itertools import takewhile
from typing import Final

from server.model.policies import PolicyFacts, Scope, Shrinks
from server.preemption import admission, pace
from server.preemption.claims import guarantee
from server.preemption.entitlement import floor, meeting
from server.preemption.nodes import required_node
from server.preemption.policy import Plan, Pledge, Refusal, Release, Rule
from server.preemption.trial import Trial
from server.snapshot.columns import GROUPED
from server.snapshot.waiting import WaitingAsk

_OF_SINGLE_ASKS: Final = frozenset({Scope.OTHER_QUEUES, Scope.OWN_QUEUE})
"""The scopes of policies that need no victims for an ask that fits on some node."""


def entitled(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan whose ask may not claim (G1, G2, G3, G9, invariant 4), or may not require its node."""
    for pledge in plan.pledges:
        refusal = None
        if plan.facts.scope is Scope.OTHER_QUEUES:
            refusal = guarantee.may_claim(trial, pledge.ask)
        elif plan.facts.scope is Scope.NODE:
            refusal = required_node.may_require(pledge.ask)
        if refusal is not None:
            return Refusal(refusal.rule, refusal.because)
    return None


def suitable_node(trial: Trial, policy: PolicyFacts, pledge: Pledge) -> Refusal | None:
    """Refuse a node that does not take the ask: it must be open and allowed (G8), or the one that the ask requires (G11)."""
    kind = pledge.ask.kind
    if policy.scope is Scope.NODE:
        required = pledge.ask.spec.constraints.required_node
        suits = required == pledge.node_id and trial.may_require(kind, pledge.row)
    else:
        suits = policy.reserves or (trial.is_open(pledge.row) and bool(kind.allowed[pledge.row]))
    return None if suits else Refusal(Rule.NO_NODE, f"node {pledge.node_id} does not take the ask")


def nobody_for_nothing(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse victims for an ask that fits on some node once what was ordered is gone (G8, invariant 12)."""
    if plan.facts.scope not in _OF_SINGLE_ASKS or not plan.releases:
        return None
    for pledge in plan.pledges:
        blocked = _is_blocked(trial, pledge.ask, claiming=plan.facts.claims)
        row = -1 if blocked else trial.fits_claim(pledge.ask.kind)
        if row >= 0:
            return Refusal(
                Rule.NOT_MINIMAL, f"{pledge.ask.key} fits on {trial.snapshot.nodes.ids[row]}"
            )
    return None


def _is_blocked(trial: Trial, ask: WaitingAsk, *, claiming: bool) -> bool:
    """Return whether a queue on the ask's path has no headroom for it, so that victims are needed there (G9, I4)."""
    for queue in trial.snapshot.path_up(ask.leaf):
        if not queue.is_limited:
            continue
        held = trial.held(queue.path)
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind, claiming=claiming)
            if most is not None and held[index] + wanted > most:
                return True
    return False


def important_stay(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of higher priority for a required node (G11, invariant 7)."""
    if plan.facts.scope is not Scope.NODE:
        return None
    priorities = trial.snapshot.allocations.priorities
    for pledge in plan.pledges:
        for release in plan.releases:
            if int(priorities[release.row]) > pledge.ask.spec.priority:
                return Refusal(Rule.PRIORITY, f"{release.key} has a higher priority")
    return None


def budgets_respected(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan that takes more of a disruption group than it allows, where budgets are respected (7.6).

    Plans for required nodes only prefer other victims (G11).
    """
    columns, respects = (
        trial.snapshot.allocations,
        trial.snapshot.settings.disruption_budgets == "respect",
    )
    if not respects or not plan.facts.keeps_disruption_budgets:
        return None
    rows = plan.rows
    if not columns.any_flagged(rows, GROUPED):
        return None
    taken = Counter(
        group
        for spec in map(columns.specs.__getitem__, rows.tolist())
        if spec is not None
        for group in spec.disruption_groups
    )
    for group, count in taken.items():
        if count > trial.disruptions_left(group):
            return Refusal(Rule.BUDGET, f"{group} allows no disruption more")
    return None


def of_the_target(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of a quota run or surplus reclaim that frees nothing of the target (15), or is not needed (11)."""
    if plan.facts.shrinks is Shrinks.NOTHING or plan.shrink is None:
        return None
    columns, names = trial.snapshot.allocations, trial.snapshot.types
    wanted = [names.index(name) for name in plan.shrink.target if name in names]
    held = columns.held_by(plan.rows, wanted)
    if not held.all_useful:
        return Refusal(Rule.TARGET_TYPES, "a victim uses none of the types to be freed")
    target = [plan.shrink.target[names[index]] for index in wanted]
    if held.any_spare([freed - much for freed, much in zip(held.total, target, strict=True)]):
        return Refusal(Rule.NOT_MINIMAL, "a victim could be given back")
    return None


def beyond_the_dead_zone(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of another queue that is not over its entitlement by more than the dead zone (P9).

    The leaf has to be, and every queue above it that does not hold the preemptor, in a type that is asked for and that the
    victim holds. The members of a gang ask together. Ports belong to no entitlement.
    """
    asks = [pledge.ask for pledge in plan.pledges if plan.facts.budgeted]
    if not trial.snapshot.settings.deadzone_permyriad or any(ask.kind.ports for ask in asks):
        return None
    wanted = {index for ask in asks for index, _ in ask.kind.demand}
    for ask in asks:
        for release in plan.releases:
            if release.leaf != ask.leaf and not _may_give(trial, ask, release, wanted):
                because = (
                    f"the queue of {release.key} does not exceed its entitlement by the dead zone"
                )
                return Refusal(Rule.NOT_OVER_GUARANTEE, because)
    return None


def _may_give(trial: Trial, ask: WaitingAsk, release: Release, wanted: set[int]) -> bool:
    top = meeting(trial.snapshot, ask.leaf, release.leaf)
    own = list(takewhile(lambda one: one.path != top, trial.snapshot.path_up(release.leaf)))
    held = [
        index for index, _ in trial.snapshot.allocations.demands[release.row] if index in wanted
    ]
    return not held or any(
        all(
            pace.is_beyond(
                trial.eff(one.path)[index], floor(trial, one.path)[index], trial.snapshot.settings
            )
            for one in own
        )
        for index in held
    )
