"""The rules on claims: for which asks, on which node, and for which types pods may be evicted.

A victim is evicted only for a type that the ask lacks, and of which the victim's queues use more than their shares (G2). With
guarantees, the test that no queue falls below its guarantee (G4) already implies the condition on the victim's queues. With
plain shares by weight, a queue that is below its share may lose more. With `overshoot: last`, one victim may bring its queues
below their shares. With shares, these rules therefore also test whether the victim's queues use more than their shares (W8,
W9).

These rules are part of the gate (see `gate`). The planners follow these rules, too. If a plan nevertheless breaks a rule, the
gate refuses the plan.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final

from server.model.policies import PolicyFacts, Scope
from server.model.quota import is_below
from server.preemption import admission, pace
from server.preemption.claims import guarantee
from server.preemption.entitlement import Deciding, floor, meeting, openness
from server.preemption.nodes import required_node
from server.preemption.policy import Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.trial import Trial
from server.snapshot.columns import GROUPED
from server.snapshot.queues import QueueFacts
from server.snapshot.waiting import WaitingAsk

_OF_SINGLE_ASKS: Final = frozenset({Scope.OTHER_QUEUES, Scope.OWN_QUEUE})
"""The scopes of policies for single asks. These policies take no victims for an ask that fits on some node."""


def entitled(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan whose ask may not claim (G1, G2, G3, G9, invariant 4).

    A plan for a required node is refused as well if no pods may be evicted for its ask.
    """
    for pledge in plan.pledges:
        refusal = None
        if plan.facts.scope is Scope.OTHER_QUEUES:
            refusal = guarantee.may_claim(trial, pledge.ask)
        elif plan.facts.scope is Scope.NODE:
            refusal = required_node.may_require(pledge.ask)
        if refusal is not None:
            return Refusal(refusal.rule, refusal.because)
    return None


def suitable_node(trial: Trial, policy: PolicyFacts, pledge: PlannedPledge) -> Refusal | None:
    """Refuse a node that cannot take the ask. The node must be open and allowed (G8), or must be the node that the ask requires (G11)."""
    kind = pledge.ask.kind
    if policy.scope is Scope.NODE:
        required = pledge.ask.spec.constraints.required_node
        suits = required == pledge.node_id and trial.may_require(kind, pledge.row)
    else:
        suits = policy.reserves or (trial.is_open(pledge.row) and bool(kind.allowed[pledge.row]))
    return None if suits else Refusal(Rule.NO_NODE, f"node {pledge.node_id} does not take the ask")


def needs_victims(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse victims for an ask that fits on some node once all terminating pods have ended (G8, invariant 12)."""
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
    """Return whether a queue on the ask's path lacks headroom for the ask, so that victims are needed there (G9, I4)."""
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
    """Refuse a plan for a required node if a victim has a higher priority than the ask (G11, invariant 7)."""
    if plan.facts.scope is not Scope.NODE:
        return None
    priorities = trial.snapshot.allocations.priorities
    for pledge in plan.pledges:
        for release in plan.releases:
            if int(priorities[release.row]) > pledge.ask.spec.priority:
                return Refusal(Rule.PRIORITY, f"{release.key} has a higher priority")
    return None


def budgets_respected(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan that evicts more pods of a disruption group than the group allows, if the partition respects disruption budgets (V5).

    Plans for required nodes are exempt, because required-node preemption also evicts pods whose budget is used up, after the
    other pods (G11).
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


def beyond_the_dead_zone(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of another queue if that queue exceeds its entitlement by at most the dead zone (P9).

    The victim has to hold a requested type in which its queues exceed their entitlements by more than the dead zone. These
    queues are the victim's leaf and every queue above it that does not contain the preemptor. For a gang, the types that any
    member requests are considered. Asks with host ports are exempt, because entitlements do not cover ports.
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


Freed = Mapping[str, Mapping[int, int]]
"""The amounts that releases free, by queue and type index."""


def types(trial: Trial, ask: WaitingAsk, release: Release) -> list[int]:
    """Return the types, among those that the ask requests, for which the victim may be evicted when they are lacking (G2, W6).

    The result has the types that are not closed and whose deciding queue does not contain the victim.
    """
    found = openness(trial, ask.leaf, ask.kind.demand)
    closed, (outside, lowest) = found.closed_types, found.outside
    return [
        index
        for index, _ in ask.kind.node_demand
        if index not in closed and not is_below(release.leaf, outside.get(index, lowest))
    ]


def lacking_closed(trial: Trial, pledge: PlannedPledge) -> Deciding | None:
    """Return a closed type that the ask lacks, with the queue that decides for the type (G2). Return None if the ask lacks no closed type.

    A type is closed if its deciding queue already has its share. The ask may lack the type on its node, or below a maximum on
    its path.
    """
    ask = pledge.ask
    closed = openness(trial, ask.leaf, ask.kind.demand).closed
    if not closed:
        return None
    path = trial.snapshot.path_up(ask.leaf)
    lacking = {*_lacking_on_node(trial, pledge), *_lacking_below_maxima(trial, ask, path)}
    return next((one for one in closed if one.at in lacking), None)


def frees_lacking_type(trial: Trial, pledge: PlannedPledge, release: Release, freed: Freed) -> bool:
    """Return whether the victim may be evicted for a lacking type that it holds.

    Even after the other releases (``freed``), the victim's queues that do not contain the preemptor must use more of the type
    than their shares.
    """
    return _helps(trial, pledge, release, types(trial, pledge.ask, release), freed)


def frees_no_lacking_type(trial: Trial, pledge: PlannedPledge, release: Release) -> bool:
    """Return whether the victim may be evicted for at least one type, but its eviction helps with none of these types.

    An eviction helps with a type under three conditions: the ask lacks the type, the victim holds it, and the victim's queues
    use more of it than their shares.
    """
    kinds = types(trial, pledge.ask, release)
    return bool(kinds) and not _helps(trial, pledge, release, kinds, {})


def _helps(
    trial: Trial, pledge: PlannedPledge, release: Release, kinds: Sequence[int], freed: Freed
) -> bool:
    held = trial.snapshot.allocations.resources[release.row]
    lacking = set(_lacking(trial, pledge, release))
    return any(
        index in lacking and int(held[index]) > 0 and _is_over(trial, pledge, release, index, freed)
        for index in kinds
    )


def _lacking(trial: Trial, pledge: PlannedPledge, release: Release) -> Iterator[int]:
    """Yield the types that the ask lacks and that the victim could free: on its node, and below maxima on its path (G9)."""
    if int(trial.snapshot.allocations.nodes[release.row]) == pledge.row:
        yield from _lacking_on_node(trial, pledge)
    path = trial.snapshot.path_up(pledge.ask.leaf)
    above = [queue for queue in path if is_below(release.leaf, queue.path)]
    yield from _lacking_below_maxima(trial, pledge.ask, above)


def _lacking_on_node(trial: Trial, pledge: PlannedPledge) -> Iterator[int]:
    free = trial.free_for_claim(pledge.row)
    yield from (index for index, wanted in pledge.ask.kind.node_demand if wanted > free[index])


def _lacking_below_maxima(
    trial: Trial, ask: WaitingAsk, queues: Iterable[QueueFacts]
) -> Iterator[int]:
    """Yield the types in which these queues' maxima are too small for the ask.

    A lendable ask must also leave the capacity that is kept for firm asks (J4).
    """
    for queue in queues:
        if not queue.is_limited:
            continue
        held = trial.held(queue.path)
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind, claiming=True)
            if most is not None and held[index] + wanted > most:
                yield index


def _is_over(
    trial: Trial, pledge: PlannedPledge, release: Release, index: int, freed: Freed
) -> bool:
    if trial.snapshot.ports[index] or not trial.snapshot.is_shared_out:
        return True  # queues have no amounts of ports, and with guarantees G4 already tests this
    return all(
        trial.eff(queue.path)[index] - freed.get(queue.path, {}).get(index, 0)
        > floor(trial, queue.path)[index]
        for queue in trial.snapshot.path_up(release.leaf)
        if not is_below(pledge.ask.leaf, queue.path)
    )
