"""The rules that no plan may break, whichever policy made it (design 1.6).

Rules that concern only the ask are checked before planning, so that no time is spent on a forbidden plan. Before a plan is
applied, it has to pass the gate, which checks all rules for all pledges of the plan. The function of a rule returns None if the
plan keeps the rule, and otherwise a refusal with the reason.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from server.kernels.distinct import all_differ
from server.model.fit import fits
from server.model.phrases import noun
from server.model.policies import PolicyFacts, Scope, Shrinks, facts
from server.model.quota import PreemptionPolicy, is_below
from server.preemption import admission
from server.preemption.entitlement import (
    floor,
    may_cross,
    meeting,
    protects_only_whole,
    scope_root,
    seen_at,
)
from server.preemption.nodes import reservation
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.quota import reclaim
from server.preemption.rules import claims, gangs
from server.preemption.trial import Trial
from server.snapshot.columns import REPLACED, REQUIRED_NODE, UNTOUCHABLE, VETOED
from server.snapshot.queues import FrozenAmounts
from server.snapshot.waiting import WaitingAsk

AskRule = Callable[[Trial, PolicyFacts, WaitingAsk], Refusal | None]
"""A rule on an ask, given a Trial and the facts of the policy that plans for the ask."""
PledgeRule = Callable[[Trial, PolicyFacts, PlannedPledge], Refusal | None]
PlanRule = Callable[[Trial, Plan], Refusal | None]


def admit(trial: Trial, intent: Intent) -> Refusal | None:
    """Return the refusal of the first rule that forbids every plan of the policy for this ask.

    Return None if there is no such rule.
    """
    policy = facts(intent.policy)
    for rule in ASK_RULES:
        refusal = rule(trial, policy, intent.ask)
        if refusal is not None:
            return refusal
    return None


def gate(trial: Trial, plan: Plan) -> Refusal | None:
    """Return the refusal of the first rule that the plan would break if it were applied after the plans on the Trial.

    Return None if the plan may be applied.
    """
    for pledge in plan.pledges:
        refusal = _of_pledge(trial, plan.facts, pledge)
        if refusal is not None:
            return refusal
    for rule in PLAN_RULES:
        refusal = rule(trial, plan)
        if refusal is not None:
            return refusal
    return None


def _of_pledge(trial: Trial, policy: PolicyFacts, pledge: PlannedPledge) -> Refusal | None:
    for ask_rule in ASK_RULES:
        refusal = ask_rule(trial, policy, pledge.ask)
        if refusal is not None:
            return refusal
    for pledge_rule in PLEDGE_RULES:
        refusal = pledge_rule(trial, policy, pledge)
        if refusal is not None:
            return refusal
    return None


# Rules on an ask ------------------------------------------------------------------------------------------------


def one_an_ask(trial: Trial, policy: PolicyFacts, ask: WaitingAsk) -> Refusal | None:
    """Refuse an ask for which a decision or a plan already holds capacity (C7).

    A second reservation for an ask is refused as well.
    """
    if not trial.is_served(ask.key) and not (policy.reserves and trial.is_reserved(ask.key)):
        return None
    return Refusal(Rule.ONE_AN_ASK, "capacity is held for it already")


def reservations_of_the_partition(
    trial: Trial, policy: PolicyFacts, ask: WaitingAsk
) -> Refusal | None:
    """Refuse a reservation if the partition already has as many reservations as it may have."""
    del ask
    most = reservation.most(trial.snapshot.node_count)
    if not policy.reserves or trial.open_for(policy.name) < most:
        return None
    return Refusal(
        Rule.PARTITION_FULL, f"{most} nodes are reserved, the most there may be", final=True
    )


def reservations_of_a_leaf(trial: Trial, policy: PolicyFacts, ask: WaitingAsk) -> Refusal | None:
    """Refuse a reservation if the leaf already has as many reservations as it may have.

    More reservations would block nodes that other queues could use.
    """
    most = reservation.RESERVATIONS_PER_LEAF
    if not policy.reserves or trial.open_for(policy.name, ask.leaf) < most:
        return None
    return Refusal(
        Rule.LEAF_FULL, f"queue {ask.leaf} has {most} reservations, the most it may have"
    )


def open_queue(trial: Trial, policy: PolicyFacts, ask: WaitingAsk) -> Refusal | None:
    """Refuse an ask of a queue that is stopped, or below a stopped queue."""
    del policy
    if trial.snapshot.may_place(ask.leaf):
        return None
    return Refusal(Rule.STOPPED_QUEUE, f"queue {ask.leaf} is stopped")


def headroom(trial: Trial, policy: PolicyFacts, ask: WaitingAsk) -> Refusal | None:
    """Refuse an ask that a limit of its user or group forbids.

    A reservation is also refused if the ask has no headroom in its queues.

    Promised capacity counts as used. A policy that may evict pods needs no headroom in the queues before planning, because the
    evictions may give headroom.
    """
    if not ask.within_limits and not policy.reserves:
        return Refusal(Rule.USER_LIMIT, "a limit of its user or group has no headroom for it")
    if ask.within_limits and (not policy.reserves or trial.has_headroom(ask.leaf, ask.kind.demand)):
        return None
    return Refusal(Rule.HEAD_ROOM, f"no headroom is left for it from {ask.leaf} up")


# Rules on a pledge and on a plan --------------------------------------------------------------------------------


def reservations_one_a_node(
    trial: Trial, policy: PolicyFacts, pledge: PlannedPledge
) -> Refusal | None:
    """Refuse to reserve a node if capacity on it is already held for an ask (C7)."""
    if not policy.reserves or not trial.is_held(pledge.row):
        return None
    return Refusal(Rule.ONE_A_NODE, f"node {pledge.node_id} is held for another ask")


def each_ask_once(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan that gives an ask capacity twice."""
    del trial
    keys = {pledge.ask.key for pledge in plan.pledges}
    if len(keys) == len(plan.pledges):
        return None
    return Refusal(Rule.ONE_AN_ASK, "the plan serves an ask twice")


def each_victim_once(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim that does not run, that the plan lists twice, or that another decision already evicts (invariant 10)."""
    if all_differ(plan.rows) and trial.all_stand(plan.rows):
        return None
    return Refusal(Rule.VICTIM_TWICE, "a victim is evicted by another decision already")


def untouchables(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse victims that no policy may evict (G6, Q10, V3).

    These victims are pods of DaemonSets, untouchable, firm and vetoed pods, and placeholders that a real pod is about to
    replace. With `firmbreak: true`, a required node may evict firm pods (G11).
    """
    breaks_firm = plan.facts.breaks_firm and trial.snapshot.settings.firm_break
    firm = 0 if breaks_firm else trial.snapshot.firm_flags
    barred = REQUIRED_NODE | UNTOUCHABLE | VETOED | REPLACED | firm
    if not trial.snapshot.allocations.any_flagged(plan.rows, barred):
        return None
    return Refusal(Rule.UNTOUCHABLE, "a victim may not be released by anybody")


def one_node(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim that does not run on the pledged node (G8, invariant 8).

    Plans for gangs are excepted, because a gang uses several nodes (J7). With `crossnode: quota`, a victim of a claim may run on
    another node if its leaf is, or lies below, a queue on the ask's path that has a maximum (G9).
    """
    if not plan.pledges or plan.facts.gang:
        return None
    rows = {pledge.row for pledge in plan.pledges}
    nodes = trial.snapshot.allocations.nodes
    away = [one for one in plan.releases if int(nodes[one.row]) not in rows]
    if not away:
        return None
    if trial.snapshot.settings.cross_node == "quota" and _is_claim(plan):
        tops = [
            queue.path
            for pledge in plan.pledges
            for queue in trial.snapshot.path_up(pledge.ask.leaf)
            if any(most is not None for most in queue.max)
        ]
        if all(any(is_below(one.leaf, top) for top in tops) for one in away):
            return None
    return Refusal(Rule.SEVERAL_NODES, "a victim does not run on the node that is pledged")


def capacity_freed(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan after which the ask does not fit, or that has a victim that is not needed (invariants 11 and 12)."""
    if plan.facts.reserves or plan.facts.gang or not plan.pledges:  # see `gangs`
        return None
    if not _is_enough(trial, plan, plan.releases):
        return Refusal(Rule.NO_ROOM_MADE, "the ask would not fit after the releases")
    for release in plan.releases:
        if _is_enough(trial, plan, _without(plan, release)):
            return Refusal(Rule.NOT_MINIMAL, f"{release.key} could be given back")
    return None


def _is_enough(trial: Trial, plan: Plan, releases: tuple[Release, ...]) -> bool:
    """Return whether the preemptors of the plan fit on their nodes and in their queues once these victims are gone."""
    return all(
        _is_enough_on_node(trial, pledge, releases)
        and _is_enough_in_queues(trial, pledge, releases)
        for pledge in plan.pledges
    )


def _is_enough_on_node(trial: Trial, pledge: PlannedPledge, releases: tuple[Release, ...]) -> bool:
    """Return whether the ask fits on its node after the releases. Each release counts for all types that it frees (G2, W6)."""
    nodes, resources = trial.snapshot.allocations.nodes, trial.snapshot.allocations.resources
    free = trial.free_for_claim(pledge.row)
    for release in releases:
        if int(nodes[release.row]) == pledge.row:
            for index, freed in enumerate(resources[release.row].tolist()):
                free[index] += freed
    return fits(pledge.ask.kind.node_demand, free)


def _is_enough_in_queues(
    trial: Trial, pledge: PlannedPledge, releases: tuple[Release, ...]
) -> bool:
    resources = trial.snapshot.allocations.resources
    for queue in trial.snapshot.path_up(pledge.ask.leaf):
        if not queue.is_limited:
            continue
        held = trial.held(queue.path)
        below = [one.row for one in releases if is_below(one.leaf, queue.path)]
        for index, wanted in pledge.ask.kind.demand:
            most = admission.most(trial, queue, index, pledge.ask.kind)
            freed = sum(int(resources[row, index]) for row in below)
            if most is not None and held[index] - freed + wanted > most:
                return False
    return True


# Rules of claims (G2 to G5) -----------------------------------------------------------------------------------


def within_the_fence(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of a claim that runs outside the ask's fence, in the ask's leaf, or below the deciding queues (G2, G3).

    Pods of a queue with `preemption.policy: disabled` are refused as well.
    """
    for ask, release in _claims(plan):
        snapshot = trial.snapshot
        if release.leaf == ask.leaf:
            return Refusal(Rule.OWN_QUEUE, f"{release.key} runs in the preemptor's queue")
        if not is_below(release.leaf, scope_root(snapshot, ask.leaf).path):
            return Refusal(Rule.FENCE, f"{release.key} runs outside the preemptor's fence")
        if not claims.types(trial, ask, release):
            return Refusal(Rule.DECIDING_QUEUE, f"{release.key} runs below a queue that claims")
        policy = snapshot.queues[release.leaf].spec.properties.preemption_policy
        if policy is PreemptionPolicy.DISABLED:
            return Refusal(Rule.CANDIDATE_DISABLED, f"preemption is disabled for {release.leaf}")
    return None


def no_closed_type_lacking(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a claim if a closed type is lacking on its node or below a maximum (G2, invariant 4).

    A type is closed when the queue that decides for the type already has its share.
    """
    for pledge in plan.pledges if _is_claim(plan) else ():
        found = claims.lacking_closed(trial, pledge)
        if found is not None:
            kind = noun(trial.snapshot.types[found.at])
            because = (
                f"queue {found.queue.path} has its share of {kind}, which {pledge.ask.key} lacks"
            )
            return Refusal(Rule.OVER_GUARANTEE, because)
    return None


def taken_for_a_lacking_type(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of a claim that helps with no type that the ask lacks (G2).

    A victim helps with a type that it holds under two conditions (W9). First, it runs outside the queue that decides for the
    type. Second, the victim's own queues use more of the type than their shares. A victim that may be evicted for no type at
    all is refused by `within_the_fence`.
    """
    for release in plan.releases if _is_claim(plan) else ():
        if all(claims.frees_no_lacking_type(trial, one, release) for one in plan.pledges):
            because = f"{release.key} holds nothing that is lacking and its queues have too much of"
            return Refusal(Rule.NOT_OVER_GUARANTEE, because)
    return None


def lower_priority(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of a claim that has a higher priority than the preemptor, as seen by the lowest queue above both (G5)."""
    rule = trial.snapshot.settings.equal_priority
    for ask, release in _claims(plan) if rule != "ignore" else ():
        top = meeting(trial.snapshot, ask.leaf, release.leaf)
        own = seen_at(trial.snapshot, ask.leaf, top, ask.spec.priority)
        priority = int(trial.snapshot.allocations.priorities[release.row])
        if seen_at(trial.snapshot, release.leaf, top, priority) > own - (rule == "never"):
            return Refusal(Rule.PRIORITY, f"{release.key} has a higher priority")
    return None


def keeps_entitlements(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a plan that leaves a victim's queue below its entitlement (E) in a type that the victim uses.

    The rule covers G4, Q12 and invariant 3. In a queue that contains both the victim and the preemptor, the ask's amounts are
    added, so that only a net loss is refused. With `overshoot: last`, one victim of a claim may bring its queues below their
    shares (W8).
    """
    if not plan.facts.keeps_guarantees:
        return None
    found = _below_the_floor(trial, plan)
    if found is None or not _is_claim(plan) or not may_cross(trial):
        return found
    return None if any(_is_boundary(trial, plan, one) for one in plan.releases) else found


def _without(plan: Plan, victim: Release) -> tuple[Release, ...]:
    return tuple(one for one in plan.releases if one is not victim)


def _is_boundary(trial: Trial, plan: Plan, victim: Release) -> bool:
    """Return whether a victim is the single victim of a claim that may bring its queues below their shares (W8).

    Without this victim, the plan must leave every queue at or above its share. The victim must free a type that the ask still
    lacks. Until the victim is evicted, each of its queues must have at least its share.
    """
    less = replace(plan, releases=_without(plan, victim))
    if _below_the_floor(trial, less) is not None:
        return False
    freed, before = _freed(trial, plan), _freed(trial, less)
    if not any(claims.frees_lacking_type(trial, one, victim, before) for one in plan.pledges):
        return False
    return all(
        _had_its_share(trial, path, index, before.get(path, {}).get(index, 0))
        for path, amounts in freed.items()
        if not _added_below(plan, path)
        for index, amount in amounts.items()
        if amount > before.get(path, {}).get(index, 0)
    )


def _had_its_share(trial: Trial, path: str, index: int, before: int) -> bool:
    """Return whether a queue still has its share of a type after the releases of the other victims (``before``).

    With plain shares by weight, the result is also True if the queue is already below its share (W8).
    """
    has, entitled = trial.eff(path)[index], floor(trial, path)[index]
    return has - before >= entitled or (has < entitled and protects_only_whole(trial))


def _below_the_floor(trial: Trial, plan: Plan) -> Refusal | None:
    freed_below, whole = _freed(trial, plan), protects_only_whole(trial)
    for path in sorted(freed_below):
        before = trial.eff(path)
        entitled = _least(trial, plan, path)
        added = _added_below(plan, path)
        for index, freed in freed_below[path].items():
            after = before[index] - freed + added.get(index, 0)
            fell = after < before[index] or not added
            crosses = before[index] >= entitled[index] or not whole  # W8
            if fell and after < entitled[index] and crosses:
                kind = noun(trial.snapshot.types[index])
                return Refusal(
                    Rule.BELOW_GUARANTEE, f"queue {path} would be below its guarantee in {kind}"
                )
    return None


def _least(trial: Trial, plan: Plan, path: str) -> FrozenAmounts:
    """Return the amounts that the plan must leave to a queue (W3).

    In a surplus reclaim, a queue keeps its deserved share of each type of the target. In all other cases, the queue keeps its
    entitlement (E).
    """
    if plan.facts.shrinks is not Shrinks.PARTITION:
        return floor(trial, path)
    target = () if plan.shrink is None else plan.shrink.target
    return reclaim.least(trial, path, [trial.snapshot.types.index(name) for name in target])


def _freed(trial: Trial, plan: Plan) -> dict[str, dict[int, int]]:
    """Return, by queue and type, the amounts that the plan frees in each queue that contains a victim."""
    freed: dict[str, dict[int, int]] = {}
    for leaf, amounts in trial.freed(plan.rows):
        for queue in trial.snapshot.path_up(leaf):
            _add(freed.setdefault(queue.path, {}), amounts)
    return freed


def _added_below(plan: Plan, path: str) -> dict[int, int]:
    added: dict[int, int] = {}
    for pledge in plan.pledges:
        if is_below(pledge.ask.leaf, path):
            _add(added, pledge.ask.kind.demand)
    return added


def _add(line: dict[int, int], amounts: Iterable[tuple[int, int]]) -> None:
    for index, quantity in amounts:
        line[index] = line.get(index, 0) + quantity


def of_the_target(trial: Trial, plan: Plan) -> Refusal | None:
    """Refuse a victim of a quota run or surplus reclaim that frees nothing of the target, or that is not needed (invariants 11, 15)."""
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


def _is_claim(plan: Plan) -> bool:
    """Return whether the plan takes capacity from other queues for a single ask."""
    return plan.facts.scope is Scope.OTHER_QUEUES


def _claims(plan: Plan) -> Iterator[tuple[WaitingAsk, Release]]:
    """Yield each victim of a claim with the ask for which it is evicted."""
    if _is_claim(plan):
        for pledge in plan.pledges:
            for release in plan.releases:
                yield pledge.ask, release


ASK_RULES: Final[tuple[AskRule, ...]] = (
    one_an_ask,
    reservations_of_the_partition,
    reservations_of_a_leaf,
    open_queue,
    headroom,
    admission.admitted,
)
PLEDGE_RULES: Final[tuple[PledgeRule, ...]] = (reservations_one_a_node, claims.suitable_node)
PLAN_RULES: Final[tuple[PlanRule, ...]] = (
    each_ask_once,
    each_victim_once,
    untouchables,
    one_node,
    claims.entitled,
    no_closed_type_lacking,
    within_the_fence,
    lower_priority,
    keeps_entitlements,
    capacity_freed,
    claims.important_stay,
    claims.budgets_respected,
    claims.beyond_the_dead_zone,
    of_the_target,
    claims.needs_victims,
    taken_for_a_lacking_type,
    *gangs.PLAN_RULES,
)
