"""Claims (policy `guaranteed`): a queue below its guarantee gets capacity back from queues that are above their guarantees.

An ask may claim when two conditions hold. The ask has waited long enough (G1). At least one type that the ask requests is
*open*. A type is open if the queue that decides for the type is below its guarantee of the type (G2). A type is *closed* when
its deciding queue already has its guarantee. A node is excluded if the ask lacks a closed type there. Each victim is chosen
because of a type that the ask lacks on the node, and runs outside the queue that decides for this type. Once a victim is
chosen, all amounts that its eviction frees count. Victims run within the ask's fence, in queues above their guarantees. Their
eviction leaves those queues at or above their guarantees (G3, G4). The victims' priority is at most that of the ask (G5). All
victims of a claim run on one node. The victims include as few opted-out pods as possible (G7). Each victim is needed (G8). The
node is pledged before any pod is evicted (G10). If a claim gets no plan, its refusal names the rule that prevented the plan
(G12).
"""

from collections.abc import Hashable, Iterator
from typing import Final

from server.model.phrases import count, noun, quantity
from server.model.policies import GUARANTEED, JOB
from server.model.records import Level
from server.preemption import admission, entitlement
from server.preemption.claims.preconditions import of_the_ask
from server.preemption.claims.search import ChosenNode, Claim, Nearest
from server.preemption.claims.turn_order import Claimants
from server.preemption.entitlement import (
    Deciding,
    Openness,
    may_improve,
    openness,
    protects_only_whole,
)
from server.preemption.policy import (
    Intent,
    Plan,
    PlannedPledge,
    ProtectedCandidates,
    Refusal,
    Release,
    Rule,
)
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk, WaitingGang

NAME: Final = GUARANTEED.name

REFUSED: Final = ""
"""The last part of the key under which a Trial stores a refusal that concerns a class of asks in all applications.

If the refusal concerns only one application, the last part is the application's id instead.
"""

BECAUSE: Final = (
    "its queue is over its guarantee and stays at or above it (G4), "
    "and its priority is not higher (G5)"
)
BECAUSE_IN_PROPORTION: Final = (
    "its queue has more than its share and keeps it (W6), and its priority is not higher (G5)"
)


# The intents --------------------------------------------------------------------------------------------------------


def intents(trial: Trial) -> Iterator[Intent]:
    """Yield the asks and gangs that may claim. The queue that is furthest below its entitlement comes first (P3, P4)."""
    for claimant in Claimants(trial, (*trial.snapshot.claims, *trial.snapshot.gangs)).in_turn():
        if isinstance(claimant, WaitingGang):
            yield Intent(JOB.name, claimant.members[0], claimant)
        elif may_claim(trial, claimant) is None and not _is_hopeless(trial, claimant):
            yield Intent(NAME, claimant)


def _is_hopeless(trial: Trial, ask: WaitingAsk) -> bool:
    """Return whether an equal ask of the same application was already refused on this Trial.

    An ask that is equal to a refused ask would be refused as well.

    The refusal of the first ask names the rule. All equal asks of the application then wait for the back-off (G1, G12).
    """
    return (NAME, _class_of(trial, ask), ask.application_id, _validity(trial)) in trial.kept


def _validity(trial: Trial) -> int:
    """Return a number that changes when the refusals of a Trial become invalid.

    Normally, a plan makes no further pod evictable for later asks. Refusals then stay valid, and the result is 0. If plans may
    make further pods evictable (W8), the result is the number of nodes that plans have touched.
    """
    return len(trial.touched) if may_improve(trial) else 0


def _class_of(trial: Trial, ask: WaitingAsk) -> Hashable:
    """Return the key of the asks that share a search.

    A plan changes the key if it closes a type or changes which queue decides (G2, W6).
    """
    return ask.leaf, ask.kind.number, ask.spec.priority, _types(trial, ask).key


def _types(trial: Trial, ask: WaitingAsk) -> Openness:
    """Return which types of the ask are open and which are closed, after the plans so far."""
    return openness(trial, ask.leaf, ask.kind.demand)


# The trigger --------------------------------------------------------------------------------------------------------


def may_claim(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return the first rule that forbids the ask to claim. Victims are not considered. Return None if the ask may claim."""
    return (
        of_the_ask(trial, ask)
        or _of_its_guarantee(trial, ask)
        or _of_its_maximum(trial, ask)
        or _of_its_share(trial, ask)
    )


def _of_its_guarantee(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return a refusal if no type of the ask is open (G2).

    Return None otherwise.

    An ask with an open and a closed type is not refused here, because some nodes may have enough of the closed type.

    With plain shares by weight, an ask with any closed type is refused. With these shares, the leaf is the deciding queue of
    every type, and may not use more than its deserved share of any type (W2).
    """
    types = _types(trial, ask)
    if types.open and not (types.closed and protects_only_whole(trial)):
        return None
    if not types.closed:
        return Refusal(Rule.NO_GUARANTEE, _nothing_owed(trial))
    because = _enough(trial, types.closed[0])
    return Refusal(Rule.OVER_GUARANTEE, because, levels=_closed_levels(trial, types.closed))


def _nothing_owed(trial: Trial) -> str:
    if trial.snapshot.is_shared_out:
        return "no other queue waits for what it asks for, and no queue from its leaf up to its fence is below its guarantee"
    return "no queue from its leaf up to its fence guarantees what it asks for"


def _enough(trial: Trial, one: Deciding) -> str:
    held = trial.held(one.queue.path)[one.at]
    has, owed = (quantity(trial.snapshot.types[one.at], most) for most in (held, one.entitled))
    with_it = ", and would hold more with this pod" if held < one.entitled else ""
    what = "share" if trial.snapshot.is_shared_out else "guarantee"
    return f"queue {one.queue.path} holds {has}, its {what} is {owed}{with_it}"


def _of_its_maximum(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return a refusal if a queue on the ask's path is over its maximum in a requested type (G9). Otherwise return None.

    Quota enforcement has to bring such a queue within its maximum first.
    """
    for queue in trial.snapshot.path_up(ask.leaf):
        if not queue.is_limited:
            continue
        held = trial.held(queue.path)
        for index, _ in ask.kind.demand:
            most = queue.max[index]
            if most is not None and held[index] > most:
                name = noun(trial.snapshot.types[index])
                because = f"queue {queue.path} is over its maximum in {name}"
                return Refusal(Rule.OVER_MAX, because)
    return None


def _of_its_share(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return a refusal if a plain share by weight has no headroom for the ask (W2). Otherwise return None.

    The capacity that waiting firm asks need is subtracted from the headroom (J4). An eviction cannot help, because an eviction
    does not change the share of the ask's queue.
    """
    for queue in trial.snapshot.path_up(ask.leaf) if protects_only_whole(trial) else ():
        held = trial.held(queue.path)
        for index, wanted in ask.kind.demand:
            most = admission.most(trial, queue, index, ask.kind)
            if most is None or queue.bound[index] == queue.max[index]:
                continue
            if held[index] + wanted > most:
                kind = noun(trial.snapshot.types[index])
                because = f"queue {queue.path} keeps what it deserves of {kind} for firm asks"
                return Refusal(Rule.HEAD_ROOM, because)
    return None


def levels(trial: Trial, ask: WaitingAsk) -> tuple[Level, ...]:
    """Return the queues that are below their guarantee and let the ask claim, with their amounts in the open types."""
    return entitlement.levels(trial, _types(trial, ask).open)


def _closed_levels(trial: Trial, closed: tuple[Deciding, ...]) -> tuple[Level, ...]:
    """Return the queues that already have their entitlement to the closed types, with their amounts."""
    return entitlement.levels(trial, (), closed)


# The plan -----------------------------------------------------------------------------------------------------------


def plan(trial: Trial, intent: Intent) -> Plan | Refusal:
    """Return a plan with the best victims on the best node (G8), or the reason why there is no plan (G12)."""
    ask = intent.ask
    refusal = may_claim(trial, ask)
    if refusal is not None:
        return refusal
    alike, validity = _class_of(trial, ask), _validity(trial)
    known = trial.kept.get((NAME, alike, REFUSED, validity))
    if known is None:
        claim = _search_of(trial, ask, alike)
        choice = _choice(trial, claim)
        if choice is None and claim.is_stale(trial):
            claim = Claim(trial, ask)  # a refusal must also hold after the other plans (G12)
            choice = _choice(trial, claim)
        if choice is not None:
            return _plan(trial, ask, claim, choice)
        known = trial.kept[NAME, alike, REFUSED, validity] = _refusal(trial, ask, claim)
    assert isinstance(known, Refusal)
    trial.kept[NAME, alike, ask.application_id, validity] = True
    return known


def _choice(trial: Trial, claim: Claim) -> ChosenNode | None:
    found = claim.best(trial)
    if found is None and trial.snapshot.settings.cross_node == "quota":
        found = claim.across(trial)
    return found


def _plan(trial: Trial, ask: WaitingAsk, claim: Claim, choice: ChosenNode) -> Plan:
    snapshot = trial.snapshot
    columns = snapshot.allocations
    because = BECAUSE_IN_PROPORTION if snapshot.is_shared_out else BECAUSE
    releases = tuple(
        Release(row, columns.keys[row], snapshot.leaf_paths[int(columns.leaves[row])], because)
        for row in choice.rows
    )
    pledge = PlannedPledge(ask, choice.node, snapshot.nodes.ids[choice.node])
    if not releases:
        return Plan(NAME, (pledge,), levels=levels(trial, ask))
    return Plan(
        NAME,
        (pledge,),
        releases,
        claim.spared,
        levels(trial, ask),
        ranking=claim.ranking(trial, choice),
    )


def _search_of(trial: Trial, ask: WaitingAsk, alike: Hashable) -> Claim:
    """Return the one search on a Trial for all asks with the key ``alike``. The first of these asks creates the search."""
    key = (NAME, alike)
    found = trial.kept.get(key)
    if found is None:
        found = trial.kept[key] = Claim(trial, ask)
    assert isinstance(found, Claim)
    return found


def _refusal(trial: Trial, ask: WaitingAsk, claim: Claim) -> Refusal:
    """Return the rule that prevents a plan, and the nearest node with the amounts that it lacks (G12)."""
    nearest = claim.nearest(trial)
    spared = () if trial.brief else claim.spared
    if nearest.node < 0:
        because = "no node can hold it, even when empty"
        return Refusal(Rule.NO_NODE, because, spared=spared, levels=levels(trial, ask))
    closed = _closed_in_the_way(trial, ask, claim, nearest)
    rule = _rule_of(claim, nearest, spared)
    missing = tuple((index, lack) for index, lack in enumerate(nearest.lacks) if lack)
    return Refusal(
        rule,
        _because(trial, claim, rule, closed, nearest),
        node_id=trial.snapshot.nodes.ids[nearest.node],
        missing=missing,
        spared=spared,
        levels=(*levels(trial, ask), *_closed_levels(trial, closed)),
    )


def _closed_in_the_way(
    trial: Trial, ask: WaitingAsk, claim: Claim, nearest: Nearest
) -> tuple[Deciding, ...]:
    """Return the closed types that prevent a plan, with the queues that decide for these types.

    In these types, a maximum has too little headroom or the nearest nodes have too little capacity.
    """
    lacking = nearest.closed | {one.at for one in claim.closed_blocks()}
    return tuple(one for one in _types(trial, ask).closed if one.at in lacking)


def _rule_of(claim: Claim, nearest: Nearest, spared: tuple[ProtectedCandidates, ...]) -> Rule:
    """Return the rule that explains why there are no victims.

    If the thrashing monitor protects a candidate (invariant 18), the rule is `FROZEN` rather than `NO_VICTIMS`.
    """
    if claim.closed_blocks() or nearest.is_barred:
        return Rule.OVER_GUARANTEE
    if any(one.rule is Rule.FROZEN for one in spared):
        return Rule.FROZEN
    return Rule.SEARCH_BOUND if claim.cut else Rule.NO_VICTIMS


def _because(
    trial: Trial, claim: Claim, rule: Rule, closed: tuple[Deciding, ...], nearest: Nearest
) -> str:
    if rule is Rule.OVER_GUARANTEE:
        kinds = " and ".join(noun(trial.snapshot.types[one.at]) for one in closed)
        blocks = claim.closed_blocks()
        where = f"below the max of queue {blocks[0].path}" if blocks else "on any suitable node"
        reached = "; ".join(_enough(trial, one) for one in closed)
        return f"not enough {kinds} is free {where}, and no pod is evicted for {kinds}: {reached}"
    if rule is Rule.FROZEN:
        return "claims like this one repeated without end and are stopped for a while; other queues have too few eligible pods"
    if rule is Rule.SEARCH_BOUND:
        return "the search for victims was cut off: a node has too many eligible pods, and the first of them do not suffice"
    because = "no node has enough free capacity, even if every eligible pod is evicted"
    if not nearest.barred:
        return because
    number = count(nearest.barred, "other node")
    kinds = " or ".join(noun(trial.snapshot.types[one.at]) for one in closed)
    return f"{because}; {number} would also have to free {kinds}, of which its queue has its share"
