"""The single changes that may meet an unmet guarantee, in the order in which they are tried.

A *cure* is a change that helps: after the change, the claimant fits or the planner has a plan for it.

These kinds of changes are tried in this order: waiting, an amount of one queue, an on/off setting of one queue, a setting of
the partition, a field of the ask, an additional node. If a cure changes an amount, it is the smallest change of this amount
that helps.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from server.core.queries import verdicts
from server.core.queries.unmet import claimants, numbers
from server.core.queries.unmet.asking import Planner, least
from server.core.queries.unmet.listing import classed
from server.core.queries.unmet.needs import Need
from server.core.queries.unmet.numbers import QUEUES_TRIED_MAX, spared_leaves
from server.model.asks import PRIORITY_MAX, UNCONSTRAINED
from server.model.phrases import quantities, span
from server.model.policies import JOB
from server.model.quota import PreemptionPolicy
from server.model.unmet import Change, Cure
from server.preemption import entitlement
from server.preemption.claims.turn_order import Claimant
from server.preemption.gangs.eligibility import added
from server.preemption.policy import Plan, Refusal, Rule
from server.snapshot import what_if
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk

NEW_NODE: Final = "~evenhand.io/what-if"
"""The name of the node that a cure adds.

In a sort by name, this name comes after all others. If an existing node and the new node rank equally, the existing node is
therefore chosen.
"""
NODES_TRIED_MAX: Final = 8
VICTIM_GANG: Final = "job.victimgang"

Try = Callable[[Planner, Need, Refusal], Iterator[Cure]]


def cure(planner: Planner, need: Need, refusal: Refusal) -> Cure | None:
    """Return the first single change that helps, or None if no single change helps.

    Raise OutOfPlansError if the budget is too small.
    """
    return next((found for one in TRIES for found in one(planner, need, refusal)), None)


# Waiting ------------------------------------------------------------------------------------------------------------


def _wait(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to wait until candidates have run for their `preemption.minruntime` (V3)."""
    snapshot = planner.snapshot
    leaves = spared_leaves(refusal, Rule.MIN_RUNTIME)
    spans = [snapshot.queues[leaf].spec.properties.preemption_minruntime_ms for leaf in leaves]
    latest = snapshot.now + max(spans, default=0)
    if not leaves or not planner.helps(what_if.at(snapshot, latest), need.claimant):
        return
    until = least(
        snapshot.now,
        latest,
        lambda instant: planner.helps(what_if.at(snapshot, instant), need.claimant),
    )
    text = f"wait {span(until - snapshot.now)}: candidates will have run for their preemption.minruntime"
    yield Cure(Change.WAIT, leaves[0], text, until_ms=until)


# A switch of one queue ----------------------------------------------------------------------------------------------


def _fence(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to remove a fence.

    Because of the fence, pods outside the fence cannot be victims, and guarantees of queues above the fence do not count (G2,
    G3).
    """
    snapshot = planner.snapshot
    root = entitlement.scope_root(snapshot, need.ask.leaf)
    if not root.parent:
        return
    lifted = what_if.with_properties(
        snapshot, root.path, preemption_policy=PreemptionPolicy.DEFAULT
    )
    if planner.helps(lifted, need.claimant):
        text = f"lift the fence of queue {root.path} (preemption.policy: default)"
        yield Cure(Change.LIFT_FENCE, root.path, text)


def _enabled(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield cures that remove `preemption.policy: disabled` from the claimant's own queue, or from a queue with candidates (G3)."""
    paths = spared_leaves(refusal, Rule.CANDIDATE_DISABLED)[:QUEUES_TRIED_MAX]
    paths = [need.ask.leaf] if refusal.rule is Rule.DISABLED else paths
    for path in paths:
        snapshot = what_if.with_properties(
            planner.snapshot, path, preemption_policy=PreemptionPolicy.DEFAULT
        )
        if planner.helps(snapshot, need.claimant):
            text = f"enable preemption for queue {path} (preemption.policy: default)"
            yield Cure(Change.ENABLE_QUEUE, path, text)


# A setting of the partition -----------------------------------------------------------------------------------------


def _policies(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to list the policy that would serve the claimant. If policy `job` is listed, asks get their gang classes, too (J4)."""
    snapshot, policy = planner.snapshot, JOB if need.gang else verdicts.main(need.ask)
    if refusal.rule is not Rule.POLICY_OFF or snapshot.settings.lists(policy):
        return
    policies = (*snapshot.settings.policies, policy.name)
    listed, claimant = what_if.with_settings(snapshot, policies=policies), need.claimant
    if policy.gang:
        listed, claimant = planner.listed, classed(claimant, planner.listed.settings)
    if planner.helps(listed, claimant):
        text = f"set preemption.policies: [{', '.join(policies)}]"
        yield Cure(Change.SETTING, "policies", text)


def _settings(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    for name, value, fields in _candidates(planner.snapshot, refusal):
        if planner.helps(what_if.with_settings(planner.snapshot, **fields), need.claimant):
            yield Cure(Change.SETTING, name, f"set preemption.{name}: {value}")


def _candidates(
    snapshot: Snapshot, refusal: Refusal
) -> Iterator[tuple[str, str, dict[str, object]]]:
    settings = snapshot.settings
    if refusal.rule is Rule.POLICY_OFF and not settings.enabled:
        yield "enabled", "true", {"enabled": True}
    if spared_leaves(refusal, Rule.BUDGET):
        yield "disruptionbudgets", "prefer", {"disruption_budgets": "prefer"}
    if settings.cross_node != "quota" and refusal.rule in {Rule.NO_VICTIMS, Rule.SEARCH_BOUND}:
        yield "crossnode", "quota", {"cross_node": "quota"}
    if settings.equal_priority == "never" and spared_leaves(refusal, Rule.PRIORITY):
        yield "equalpriority", "allow", {"equal_priority": "allow"}
    if settings.job_victim_gang == "avoid" and refusal.rule in {Rule.MEMBER, Rule.MAX}:
        yield VICTIM_GANG, "whole", {"job_victim_gang": "whole"}


# Fields of the ask --------------------------------------------------------------------------------------------------


def _spec(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield cures that change the PriorityClass or the pod template of the ask. For a gang, these cures change all members."""
    for rule, fields, change, text in _WORDS:
        if refusal.rule is rule and planner.helps(
            planner.snapshot, claimants.saying(need.claimant, **fields)
        ):
            yield Cure(change, need.ask.key, text)
    if spared_leaves(refusal, Rule.PRIORITY):
        yield from _priority(planner, need)


_WORDS: Final[tuple[tuple[Rule, Mapping[str, bool], Change, str], ...]] = (
    (
        Rule.NEVER_PREEMPTS,
        {"allow_preempt_other": True},
        Change.ALLOW_PREEMPTION,
        "use a PriorityClass without preemptionPolicy: Never",
    ),
    (
        Rule.NO_TRIGGER,
        {"may_trigger": True},
        Change.ALLOW_PREEMPTION,
        "use a pod template with the label can-preempt: true",
    ),
    (
        Rule.RM_CHECK,
        {"rm_check": False},
        Change.DROP_CHECK,
        "use a pod template that the core can judge: without volumes, pod affinity or topology spread",
    ),
)


def _priority(planner: Planner, need: Need) -> Iterator[Cure]:
    """Yield the cure to raise the claimant's priority (G5).

    The new priority is the lowest priority with which the planner finds victims outside the claimant's leaf. A plan whose
    victims are all in the claimant's own leaf does not count, because it would not give the leaf more capacity.
    """
    own = claimants.priority(need.claimant)

    def helps(priority: int) -> bool:
        answer = planner.then(planner.snapshot, claimants.at_least(need.claimant, priority))
        return answer is None or (isinstance(answer, Plan) and _gains(answer, need))

    if own < PRIORITY_MAX and helps(PRIORITY_MAX):
        found = least(own, PRIORITY_MAX, helps)
        whose = "its priority" if need.gang is None else "the priority of its members"
        text = f"raise {whose} to {found}"
        yield Cure(Change.RAISE_PRIORITY, need.ask.key, text, {"priority": found})


def _gains(plan: Plan, need: Need) -> bool:
    return not plan.releases or any(one.leaf != need.ask.leaf for one in plan.releases)


# A node -------------------------------------------------------------------------------------------------------------


def _uncordoned(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    snapshot = planner.snapshot
    closed = [
        row
        for kind in claimants.kinds(need.claimant)
        for row in what_if.closed_nodes(snapshot, kind)[:NODES_TRIED_MAX]
    ]
    for row in list(dict.fromkeys(closed))[:NODES_TRIED_MAX]:
        if planner.helps(what_if.with_open_node(snapshot, row), need.claimant):
            name = snapshot.nodes.ids[row]
            yield Cure(Change.UNCORDON, name, f"uncordon node {name}")


def _node(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to add a node with exactly the capacity that the ask requests.

    For a gang, the node has capacity for as few members as possible: for the members with the largest requests, and only as
    many as have to run there.
    """
    largest = _by_size(planner.snapshot, need)

    def helps(number: int) -> bool:
        return planner.helps(*_with_node(planner.snapshot, need, largest[:number]))

    if not helps(len(largest)):
        return
    number = least(0, len(largest), helps)
    sums: Counter[str] = Counter()
    for one in largest[:number]:
        sums.update(dict(one.spec.resource))
    amounts = dict(sums)
    bound = any(one.spec.constraints != UNCONSTRAINED for one in largest)
    where = " that its constraints allow" if bound else ""
    text = f"add a node{where} with {quantities(amounts)} free"
    yield Cure(Change.ADD_NODE, "", text, amounts)


def _by_size(snapshot: Snapshot, need: Need) -> list[WaitingAsk]:
    """Return the asks that need a node, the largest first. The size of an ask is its dominant share of the partition's capacity."""

    def share(ask: WaitingAsk) -> Fraction:
        parts = (Fraction(more, max(snapshot.capacity[at], 1)) for at, more in ask.kind.demand)
        return max(parts, default=Fraction(0))

    return sorted(
        claimants.members(need.claimant), key=lambda one: (-share(one), one.order, one.key)
    )


def _with_node(
    snapshot: Snapshot, need: Need, some: Sequence[WaitingAsk]
) -> tuple[Snapshot, Claimant]:
    """Return the snapshot with a new node for some of the members.

    The node has capacity for these members, and the claimant may use it.

    On the new node, each requested host port is free.
    """
    shape = {
        at: 1 if snapshot.ports[at] else more
        for at, more in added(one.kind.node_demand for one in some)
    }
    kinds = claimants.kinds(need.claimant)
    suited = {one.number: what_if.suited(one) for one in kinds}
    added_to = what_if.with_node(snapshot, shape, NEW_NODE)
    return added_to, claimants.each(
        need.claimant, lambda one: one._replace(kind=suited[one.kind.number])
    )


TRIES: Final[tuple[Try, ...]] = (
    _wait,
    numbers.user_limit,
    numbers.maximum,
    numbers.own_guarantee,
    numbers.leaf_guarantee,
    numbers.guarantees_of_others,
    _fence,
    _enabled,
    _policies,
    _settings,
    _spec,
    _uncordoned,
    _node,
)
