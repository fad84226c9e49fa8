"""Single changes that may cure an unmet guarantee, the smallest kind first; each is tried on the planner (7.7, 4.1.12).

The order: to wait; a number of one queue; a switch of one queue; a setting of the partition; the ask's own words; a node.
Of numbers the least that helps is looked for.
"""

from collections.abc import Callable, Iterator
from typing import Final

from server.core.unmet import numbers
from server.core.unmet.asking import Planner, least
from server.core.unmet.needs import Need
from server.core.unmet.numbers import QUEUES_TRIED_MAX, spared_leaves
from server.model.asks import PRIORITY_MAX, UNCONSTRAINED
from server.model.phrases import quantities, span
from server.model.quota import PreemptionPolicy
from server.model.unmet import Change, Cure
from server.preemption import entitlement, guarantee
from server.preemption.policy import Law, Refusal
from server.view import changed
from server.view.view import View
from server.view.waiting import WaitingAsk

NEW_NODE: Final = "evenhand.io/what-if"
NODES_TRIED_MAX: Final = 8

Try = Callable[[Planner, Need, Refusal], Iterator[Cure]]


def cure(planner: Planner, need: Need, refusal: Refusal) -> Cure | None:
    """The first single change that helps; None: none of them does. Raises OutOfPlansError."""
    return next((found for one in TRIES for found in one(planner, need, refusal)), None)


# To wait ------------------------------------------------------------------------------------------------------------


def _wait(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Candidates grow old enough (7.6), or a freeze ends (7.7)."""
    view = planner.view
    leaves = spared_leaves(refusal, Law.MIN_RUNTIME)
    spans = [view.queues[leaf].spec.properties.preemption_minruntime_ms for leaf in leaves]
    latest = view.now + max(spans, default=0)
    if not leaves or not planner.helps(changed.at(view, latest), need.ask):
        return
    until = least(
        view.now, latest, lambda instant: planner.helps(changed.at(view, instant), need.ask)
    )
    text = (
        f"wait {span(until - view.now)}: candidates will have run for their preemption.minruntime"
    )
    yield Cure(Change.WAIT, leaves[0], text, until_ms=until)


# A switch of one queue ----------------------------------------------------------------------------------------------


def _fence(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    """Its fence keeps the queues outside from it, and their guarantees from counting (G2, G3)."""
    view = planner.view
    root = entitlement.scope_root(view, need.ask.leaf)
    if not root.parent:
        return
    lifted = changed.with_properties(view, root.path, preemption_policy=PreemptionPolicy.DEFAULT)
    if planner.helps(lifted, need.ask):
        text = f"lift the fence of queue {root.path} (preemption.policy: default)"
        yield Cure(Change.LIFT_FENCE, root.path, text)


def _enabled(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """`preemption.policy: disabled`: on its own queue, or on one whose candidates it protects (G3)."""
    paths = spared_leaves(refusal, Law.CANDIDATE_DISABLED)[:QUEUES_TRIED_MAX]
    paths = [need.ask.leaf] if refusal.law is Law.DISABLED else paths
    for path in paths:
        view = changed.with_properties(
            planner.view, path, preemption_policy=PreemptionPolicy.DEFAULT
        )
        if planner.helps(view, need.ask):
            text = f"enable preemption for queue {path} (preemption.policy: default)"
            yield Cure(Change.ENABLE_QUEUE, path, text)


# A setting of the partition -----------------------------------------------------------------------------------------


def _settings(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    for name, value, fields in _candidates(planner.view, refusal):
        if planner.helps(changed.with_settings(planner.view, **fields), need.ask):
            yield Cure(Change.SETTING, name, f"set preemption.{name}: {value}")


def _candidates(view: View, refusal: Refusal) -> Iterator[tuple[str, str, dict[str, object]]]:
    settings = view.settings
    if refusal.law is Law.POLICY_OFF and not settings.enabled:
        yield "enabled", "true", {"enabled": True}
    if refusal.law is Law.POLICY_OFF and guarantee.NAME not in settings.policies:
        policies = (*settings.policies, guarantee.NAME)
        yield "policies", f"[{', '.join(policies)}]", {"policies": policies}
    if spared_leaves(refusal, Law.BUDGET):
        yield "disruptionbudgets", "prefer", {"disruption_budgets": "prefer"}
    if settings.cross_node != "quota" and refusal.law in {Law.NO_VICTIMS, Law.SEARCH_BOUND}:
        yield "crossnode", "quota", {"cross_node": "quota"}
    if settings.equal_priority == "never" and spared_leaves(refusal, Law.PRIORITY):
        yield "equalpriority", "allow", {"equal_priority": "allow"}


# The ask's own words ------------------------------------------------------------------------------------------------


def _spec(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """What its PriorityClass or its pod template says."""
    ask = need.ask
    if refusal.law is Law.NEVER_PREEMPTS and planner.helps(
        planner.view, _says(need, allow_preempt_other=True)
    ):
        text = "use a PriorityClass without preemptionPolicy: Never"
        yield Cure(Change.ALLOW_PREEMPTION, ask.key, text)
    if refusal.law is Law.RM_CHECK and planner.helps(planner.view, _says(need, rm_check=False)):
        text = "use a pod template that the core can judge: without volumes, pod affinity or topology spread"
        yield Cure(Change.DROP_CHECK, ask.key, text)
    if spared_leaves(refusal, Law.PRIORITY):
        yield from _priority(planner, need)


def _says(need: Need, **fields: object) -> WaitingAsk:
    return changed.saying(need.ask, **fields)


def _priority(planner: Planner, need: Need) -> Iterator[Cure]:
    """The lowest priority with which it may take somebody (rule 6)."""
    own = need.ask.spec.priority

    def helps(priority: int) -> bool:
        return planner.helps(planner.view, _says(need, priority=priority))

    if own < PRIORITY_MAX and helps(PRIORITY_MAX):
        found = least(own, PRIORITY_MAX, helps)
        text = f"raise its priority to {found}"
        yield Cure(Change.RAISE_PRIORITY, need.ask.key, text, {"priority": found})


# A node -------------------------------------------------------------------------------------------------------------


def _uncordoned(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    view = planner.view
    for row in changed.closed_nodes(view, need.ask.kind)[:NODES_TRIED_MAX]:
        if planner.helps(changed.with_open_node(view, row), need.ask):
            name = view.nodes.ids[row]
            yield Cure(Change.UNCORDON, name, f"uncordon node {name}")


def _node(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    view, ask = changed.with_node(planner.view, need.ask, NEW_NODE)
    if planner.helps(view, ask):
        amounts = dict(need.ask.spec.resource)
        where = " that its constraints allow" if need.ask.spec.constraints != UNCONSTRAINED else ""
        yield Cure(
            Change.ADD_NODE, "", f"add a node{where} with {quantities(amounts)} free", amounts
        )


TRIES: Final[tuple[Try, ...]] = (
    _wait,
    numbers.user_limit,
    numbers.maximum,
    numbers.own_guarantee,
    numbers.guarantees_of_others,
    _fence,
    _enabled,
    _settings,
    _spec,
    _uncordoned,
    _node,
)
