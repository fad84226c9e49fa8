"""The judgement of one kind of asks: the obstacle that the planner's answer shows, and the change that would help.

A *binding* is the obstacle that keeps asks from capacity (see `model.unmet.Binding`). A *cure* is the change that removes this
obstacle.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from server.core.preemption import decision_records
from server.core.queries.fit_text import none_large_enough
from server.core.queries.large_enough import allowing
from server.core.queries.unmet import claimants
from server.core.queries.unmet.asking import OutOfPlansError, Planner
from server.core.queries.unmet.cures import VICTIM_GANG, cure
from server.core.queries.unmet.needs import Need
from server.model.phrases import listed, quantities, span
from server.model.reasons import Code
from server.model.unmet import Binding, Change, Cure, UnmetAsks
from server.preemption import entitlement
from server.preemption.claims.eligibility import blocks
from server.preemption.gangs.eligibility import added
from server.preemption.policy import Plan, Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot import what_if
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts

_NOT_READY: Final[Mapping[Code, str]] = {
    Code.NOT_SYNCED: "its resource manager has not sent its whole state yet",
    Code.QUEUE_STOPPED: "its queue is stopped",
    Code.GANG_GATHERING: "members of its gang are missing",
    Code.GANG_COUNTING: "its gang waits for members: it is complete when none has come for a while",
}
_TRIGGER: Final[Mapping[Rule, Binding]] = {
    Rule.STOPPED_QUEUE: Binding.NOT_READY,
    Rule.ONE_AN_ASK: Binding.SERVED,
    Rule.NEVER_PREEMPTS: Binding.NEVER,
    Rule.NO_TRIGGER: Binding.NEVER,
    Rule.GATHERING: Binding.NOT_READY,
    Rule.RM_CHECK: Binding.RM_CHECK,
    Rule.POLICY_OFF: Binding.POLICY_OFF,
    Rule.DISABLED: Binding.DISABLED,
    Rule.USER_LIMIT: Binding.USER_LIMIT,
    Rule.NO_GUARANTEE: Binding.FENCE,
    Rule.OVER_GUARANTEE: Binding.OWN_GUARANTEE,
    Rule.FIRM_LIMIT: Binding.OWN_GUARANTEE,
    Rule.REQUIRED_NODE: Binding.NAMED_NODE,
    Rule.NO_NODE: Binding.NODE_SHAPE,
    Rule.FROZEN: Binding.FROZEN,
    Rule.SEARCH_BOUND: Binding.SEARCH,
    Rule.NOT_OVER_GUARANTEE: Binding.GUARANTEES,
}
"""The binding for each rule whose refusals do not depend on the candidates."""
_LIFTED: Final[Mapping[Change, Binding]] = {
    Change.WAIT: Binding.MIN_RUNTIME,
    Change.LOWER_GUARANTEE: Binding.GUARANTEES,
    Change.LIFT_FENCE: Binding.FENCE,
    Change.ENABLE_QUEUE: Binding.VICTIMS_DISABLED,
    Change.RAISE_PRIORITY: Binding.PRIORITIES,
    Change.RAISE_GUARANTEE: Binding.OWN_GUARANTEE,
}
"""The binding for each kind of change.

If the possible victims do not suffice for an ask, and a change of this kind helps, this binding was the obstacle.
"""
_SPARED: Final[Mapping[Rule, Binding]] = {
    Rule.FENCE: Binding.FENCE,
    Rule.CANDIDATE_DISABLED: Binding.VICTIMS_DISABLED,
    Rule.PRIORITY: Binding.PRIORITIES,
    Rule.FIRM: Binding.PROTECTED,
    Rule.UNTOUCHABLE: Binding.PROTECTED,
    Rule.REQUIRED_NODE: Binding.PROTECTED,
    Rule.MIN_RUNTIME: Binding.MIN_RUNTIME,
    Rule.BUDGET: Binding.BUDGETS,
    Rule.NOT_OVER_GUARANTEE: Binding.GUARANTEES,
    Rule.BELOW_GUARANTEE: Binding.GUARANTEES,
    Rule.FROZEN: Binding.FROZEN,
}
"""The binding for each rule that protects pods.

If no change helps the asks, the binding is that of the rule that protects the most pods with the missing types.
"""


def judge(planner: Planner, need: Need, over_promised: frozenset[str]) -> UnmetAsks:
    """Return the answer for one kind of asks: the binding, and the change that would help if a change was found.

    ``over_promised`` contains each type for which the sum of all guarantees exceeds the capacity of the nodes. If the planner
    has no questions left, the answer says so.
    """
    planner.begin(need.claimant)
    ready = _before_planning(need)
    if ready is not None:
        return ready
    try:
        answer = planner.now(need.claimant)
    except OutOfPlansError:
        because = "the report reached its limit before this one: ask for this queue alone"
        return replace(_asks(need, Binding.NOT_JUDGED, because), searched=False)
    if answer is None:
        return _asks(need, Binding.SERVED, "it fits now and is placed in the next tick")
    if isinstance(answer, Plan):
        return _planned(planner, need, answer)
    return _refused(planner, need, answer, over_promised)


def _asks(need: Need, binding: Binding, because: str, found: Cure | None = None) -> UnmetAsks:
    ask = need.ask
    return UnmetAsks(
        ask.leaf,
        ask.key,
        need.number,
        _resource(need),
        claimants.priority(need.claimant),
        binding,
        because,
        cure=found,
        gang=need.gang_key,
    )


def _resource(need: Need) -> dict[str, int]:
    """Return the request of an ask. For a gang, return the sum over all members."""
    sums: Counter[str] = Counter()
    for one in claimants.members(need.claimant):
        sums.update(dict(one.spec.resource))
    return dict(sums)


def _before_planning(need: Need) -> UnmetAsks | None:
    if need.decision:
        because = f"decision {need.decision} frees capacity for it on node {need.node_id}"
        return _asks(need, Binding.SERVED, because)
    if need.code in _NOT_READY:
        return _asks(need, Binding.NOT_READY, _NOT_READY[need.code])
    return None


def _planned(planner: Planner, need: Need, plan: Plan) -> UnmetAsks:
    """Return the answer for asks that have a plan. Either these asks only have to wait for some time, or the partition only observes (P8)."""
    snapshot = planner.snapshot
    would = (
        decision_records.would(plan, plan.pledges[0].node_id)
        if need.gang is None
        else decision_records.would_gang(plan)
    )
    if snapshot.settings.observe_only:
        found = Cure(Change.SETTING, "observeonly", "set preemption.observeonly: false")
        because = f"the partition only observes; else {would}"
        return _asks(need, Binding.OBSERVED, because, found)
    due, backs_off = need.waits[plan.policy]
    left = due - snapshot.now
    if left <= 0:
        return _asks(need, Binding.SERVED, f"the next round decides on it: {would}")
    what = "it was refused a moment ago" if backs_off else "the delay of its queue is not over"
    because = f"{what}; then {would}"
    found = Cure(Change.WAIT, need.ask.leaf, f"wait {span(left)}", until_ms=due)
    return _asks(need, Binding.BACK_OFF if backs_off else Binding.DELAY, because, found)


def _refused(
    planner: Planner, need: Need, refusal: Refusal, over_promised: frozenset[str]
) -> UnmetAsks:
    searched = True
    found: Cure | None = None
    try:
        found = cure(planner, need, refusal)
    except OutOfPlansError:
        searched = False
    found = _counted(planner, need, found)
    fragmented = _is_fragmented(planner, need, refusal)
    binding = _binding(planner, need, refusal, found, fragmented=fragmented)
    if binding is Binding.GUARANTEES and over_promised & need.types:
        binding = Binding.OVER_PROMISED
    because = _because(planner, refusal, fragmented=fragmented)
    if binding in {Binding.OWN_MAX, Binding.ANCESTOR_MAX}:
        because = _over_its_max(planner.snapshot, need)
    if binding is Binding.UNDECIDED:
        kinds = listed(_undecided(planner.snapshot, need, found))
        because += f"; no queue from its leaf up to its fence guarantees {kinds}"
    if binding is Binding.NODE_SHAPE and need.excluded:
        because = none_large_enough(need.excluded)
        found = _allowing(need, found)
    return replace(
        _asks(need, binding, because, found),
        law=refusal.rule.value,
        spared=decision_records.spared(refusal),
        fragmented=fragmented,
        searched=searched,
    )


_COUNTED: Final = frozenset(
    {
        Change.RAISE_MAX,
        Change.RAISE_GUARANTEE,
        Change.LIFT_FENCE,
        Change.ENABLE_QUEUE,
        Change.SETTING,
        Change.UNCORDON,
        Change.ADD_NODE,
    }
)
"""The changes for which the report says how many of the equal asks each change serves."""


def _counted(planner: Planner, need: Need, found: Cure | None) -> Cure | None:
    """Return the cure ``found`` with the number of equal asks that it serves, if it does not serve all asks that were tried.

    If the cure serves all these asks, or if ``found`` is None, return ``found`` unchanged.
    """
    if found is None or need.number <= 1 or found.change not in _COUNTED:
        return found
    try:
        served = planner.served(need.number)
    except OutOfPlansError:
        return found
    if served is None or not served[0]:
        return found
    count, refusal = served
    return replace(found, serves=count, then=refusal.because)


def _allowing(need: Need, found: Cure | None) -> Cure | None:
    """Return the cure ``found``, with an alternative in its text if the cure adds a node.

    The alternative is to change the ask so that it may run on existing nodes that are large enough.
    """
    if found is None or found.change is not Change.ADD_NODE:
        return found
    return replace(found, text=", or ".join([*allowing(need.excluded), found.text]))


def _is_fragmented(planner: Planner, need: Need, refusal: Refusal) -> bool:
    """Return whether fragmentation explains the refusal (G12): three conditions must hold.

    The refusal names one of four rules, no maximum blocks the claimant, and the suitable nodes together have enough free
    capacity.
    """
    if refusal.rule not in {Rule.NO_VICTIMS, Rule.FROZEN, Rule.SEARCH_BOUND, Rule.MEMBER}:
        return False
    return not _blocking(planner, need) and all(
        _has_capacity_in_sum(planner.snapshot, need, kind)
        for kind in claimants.kinds(need.claimant)
    )


def _has_capacity_in_sum(snapshot: Snapshot, need: Need, kind: ClassFacts) -> bool:
    """Return whether the nodes that suit a class of members have, as a sum, enough free capacity for all members of that class."""
    free = what_if.free_in_sum(snapshot, kind)
    known = claimants.kinds(need.claimant)
    alike = all((one.allowed == kind.allowed).all() for one in known)
    wanted = added(
        one.kind.node_demand
        for one in claimants.members(need.claimant)
        if alike or one.kind.number == kind.number
    )
    return all(free[index] >= more for index, more in wanted)


def _blocking(planner: Planner, need: Need) -> str:
    """Return the lowest queue on the claimant's path whose maximum has no headroom for the claimant.

    Return "" if every maximum has headroom.
    """
    whole = claimants.whole(need.claimant)
    return next((one.path for one in blocks(Trial(planner.snapshot), whole)), "")


def _over_its_max(snapshot: Snapshot, need: Need) -> str:
    """Return a sentence about the lowest queue whose maximum has no headroom, with the amounts that this maximum lacks."""
    first, *others = blocks(Trial(snapshot), claimants.whole(need.claimant))
    lacks = [first, *(one for one in others if one.path == first.path)]
    missing = quantities({snapshot.types[one.at]: one.lack for one in lacks})
    whom = "it" if need.gang is None else "the whole gang"
    return (
        f"the max of queue {first.path} has no headroom for {whom}: {missing} more would be needed"
    )


def _binding(
    planner: Planner, need: Need, refusal: Refusal, found: Cure | None, *, fragmented: bool
) -> Binding:
    if refusal.rule in _TRIGGER:
        closed = refusal.rule is Rule.OVER_GUARANTEE and refusal.node_id
        return Binding.CLOSED if closed else _TRIGGER[refusal.rule]
    path = _binding_max(planner, need, refusal, found)
    if path:
        return Binding.OWN_MAX if path == need.ask.leaf else Binding.ANCESTOR_MAX
    lifted = _of_the_cure(planner.snapshot, need, refusal, found)
    if fragmented and lifted not in _OF_ITS_SIDE:
        return Binding.FRAGMENTATION
    return lifted or _of_the_spared(refusal)


_OF_ITS_SIDE: Final = frozenset({Binding.UNDECIDED, Binding.OWN_SIDE, Binding.FENCE})
"""The bindings that decide which pods may be victims at all.

If such a binding and fragmentation both explain a refusal, the report names the binding.
"""


def _of_the_cure(
    snapshot: Snapshot, need: Need, refusal: Refusal, found: Cure | None
) -> Binding | None:
    """Return the binding that the cure ``found`` removes. Return None if the binding does not follow from the cure."""
    nobody = Binding.FENCE if refusal.rule is Rule.MEMBER and not refusal.levels else None  # J7, G2
    if found is None:
        return nobody
    if _undecided(snapshot, need, found):
        return Binding.UNDECIDED
    if found.change is Change.RAISE_GUARANTEE and refusal.rule is Rule.NO_VICTIMS:
        return Binding.OWN_SIDE  # Pods inside the deciding queue hold the missing type (G2).
    if found.subject == VICTIM_GANG:
        return Binding.PROTECTED
    return _LIFTED.get(found.change, nobody)


def _undecided(snapshot: Snapshot, need: Need, found: Cure | None) -> list[str]:
    """Return the types that no queue from the leaf up to its fence guarantees now, and that the cure ``found`` would guarantee.

    Return [] for a cure that raises no guarantee.
    """
    if found is None or found.change is not Change.RAISE_GUARANTEE:
        return []
    queues = list(entitlement.scope(snapshot, need.ask.leaf))
    return [
        name
        for name in found.amounts
        if not any(queue.guaranteed[snapshot.types.index(name)] for queue in queues)
    ]


def _binding_max(planner: Planner, need: Need, refusal: Refusal, found: Cure | None) -> str:
    """Return the queue whose maximum keeps the claimant waiting, or "" if no maximum does.

    For a gang, a maximum counts as an obstacle only if raising it helps. Otherwise the gang can get headroom by evicting pods
    of its own queue (J8).
    """
    raised = found is not None and found.change is Change.RAISE_MAX
    if refusal.rule is Rule.MEMBER and not raised:
        return ""
    return _blocking(planner, need)


def _of_the_spared(refusal: Refusal) -> Binding:
    """Return the binding of the rule that protects the most pods that hold the missing types."""
    known = [one for one in refusal.spared if one.rule in _SPARED]
    most = max(known, key=lambda one: (one.count, one.rule.value), default=None)
    if most is None:
        return Binding.OWN_SIDE if refusal.spared else Binding.FOREIGN
    return _SPARED[most.rule]


def _because(planner: Planner, refusal: Refusal, *, fragmented: bool) -> str:
    """Return the planner's text for the refusal, followed by the name of the node that lacks least."""
    types = planner.snapshot.types
    missing = {types[index]: quantity for index, quantity in refusal.missing}
    named = refusal.rule is Rule.MEMBER  # The refusal's text ends with the node.
    near = f"; {refusal.node_id} comes nearest" if refusal.node_id and not named else ""
    how = f"; {refusal.node_id}" if named else " and"
    lacks = f"{how} lacks {quantities(missing)}" if refusal.node_id and missing else ""
    pieces = (
        "; the nodes have enough free capacity together, but no node has it alone"
        if fragmented
        else ""
    )
    if named:
        return f"{refusal.because}{lacks}{pieces}"
    return f"{refusal.because}{pieces}{near}{lacks}"
