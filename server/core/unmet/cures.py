"""Single changes that may cure an unmet guarantee, the smallest kind first; each is tried on the planner (7.7, 4.1.12).

The order: to wait; a number of one queue; a switch of one queue; a setting of the partition; the ask's own words; a node.
Of numbers the least that helps is looked for.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

from server.core.unmet.asking import Planner
from server.core.unmet.needs import Need
from server.model.asks import PRIORITY_MAX, UNCONSTRAINED
from server.model.phrases import quantities, span
from server.model.quota import PreemptionPolicy, is_below
from server.model.unmet import Change, Cure
from server.preemption import entitlement, guarantee
from server.preemption.policy import Law, Plan, Refusal
from server.preemption.terms import Terms
from server.preemption.trial import Trial
from server.view import changed
from server.view.view import View
from server.view.waiting import WaitingAsk

NEW_NODE: Final = "evenhand.io/what-if"
QUEUES_TRIED_MAX: Final = 8
"""Queues whose guarantee is tried to be lowered, those with the most candidates first."""
NODES_TRIED_MAX: Final = 8
ROUNDS_MAX: Final = 16
"""Steps in which a guarantee is brought to the most that helps."""

Try = Callable[[Planner, Need, Refusal], Iterator[Cure]]


def cure(planner: Planner, need: Need, refusal: Refusal) -> Cure | None:
    """The first single change that helps; None: none of them does. Raises OutOfPlansError."""
    return next((found for one in TRIES for found in one(planner, need, refusal)), None)


def _spared(refusal: Refusal, *laws: Law) -> list[str]:
    """The leaves whose candidates these laws spared, those with the most first."""
    found = sorted((-one.count, one.leaf) for one in refusal.spared if one.law in laws)
    return list(dict.fromkeys(leaf for _, leaf in found))


# To wait ------------------------------------------------------------------------------------------------------------


def _wait(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Candidates grow old enough (7.6), or a freeze ends (7.7)."""
    view = planner.view
    leaves = _spared(refusal, Law.MIN_RUNTIME)
    spans = [view.queues[leaf].spec.properties.preemption_minruntime_ms for leaf in leaves]
    latest = view.now + max(spans, default=0)
    if not leaves or not planner.helps(changed.at(view, latest), need.ask):
        return
    low, high = view.now, latest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if planner.helps(changed.at(view, middle), need.ask) else (middle, high)
        )
    text = f"wait {span(high - view.now)}: candidates will have run for their preemption.minruntime"
    yield Cure(Change.WAIT, leaves[0], text, until_ms=high)


# A number of one queue ----------------------------------------------------------------------------------------------


def _user_limit(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    if refusal.law is not Law.USER_LIMIT or len(need.limited) != 1:
        return
    (limited,) = need.limited
    if planner.helps(planner.view, need.ask._replace(within_limits=True)):
        text = f"raise the limit of {limited.name} by {quantities(limited.lacks)}"
        yield Cure(Change.RAISE_USER_LIMIT, limited.name, text, limited.lacks)


def _maximum(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    """A maximum on its path that has no room for it: by just what is missing there (G9)."""
    view = planner.view
    lacks: dict[str, dict[int, int]] = {}
    for block in Terms(Trial(view), need.ask).blocks(Trial(view)):
        lacks.setdefault(block.path, {})[block.at] = block.lack
    for path, lack in lacks.items():
        if planner.helps(changed.with_max(view, path, lack), need.ask):
            least = _least_room(planner, need, path, lack)
            amounts = {view.types[index]: more for index, more in least.items() if more}
            text = f"raise the max of queue {path} by {quantities(amounts)}"
            yield Cure(Change.RAISE_MAX, path, text, amounts)


def _least_room(planner: Planner, need: Need, path: str, lack: dict[int, int]) -> dict[int, int]:
    """Less does where victims below the maximum may make some of the room (G9)."""
    least = dict(lack)
    for index, enough in lack.items():
        low, high, middle = -1, enough, enough - 1
        while high - low > 1:
            trying = changed.with_max(planner.view, path, {**least, index: middle})
            low, high = (low, middle) if planner.helps(trying, need.ask) else (middle, high)
            middle = (low + high) // 2
        least[index] = high
    return least


def _own_guarantee(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """The lowest queue that guarantees a type has all of it, and stops the claim of those above (rule 4)."""
    if refusal.law is not Law.OVER_GUARANTEE:
        return
    view, wanted = planner.view, dict(need.ask.kind.demand)
    more: dict[str, dict[int, int]] = {}
    for level in refusal.levels:
        at = view.types.index(level.resource_type)
        least = wanted[at] if view.settings.trigger == "after" else 1
        short = level.held + least - level.guaranteed
        if short > 0:
            more.setdefault(level.queue, {})[at] = short
    for path, lack in more.items():
        before = view.queues[path].guaranteed
        raised = tuple(one + lack.get(index, 0) for index, one in enumerate(before))
        if len(more) == 1 and planner.helps(changed.with_guaranteed(view, path, raised), need.ask):
            amounts = {view.types[index]: one for index, one in lack.items()}
            text = f"raise the guarantee of queue {path} by {quantities(amounts)}"
            yield Cure(Change.RAISE_GUARANTEE, path, text, amounts)


def _guarantees_of_others(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """The guarantee of a queue whose candidates it protects, by the least that lets enough of them go (G4)."""
    if refusal.law not in {Law.NO_VICTIMS, Law.SEARCH_BOUND, Law.FROZEN}:
        return
    paths = _protecting(planner.view, need, refusal)
    nobody = planner.view
    for path in paths:
        nobody = changed.with_guaranteed(nobody, path, (0,) * len(nobody.types))
    if not paths or not planner.helps(nobody, need.ask):
        return  # nor would one of them alone
    found = [
        one
        for path in paths[:QUEUES_TRIED_MAX]
        if (one := _lowered(planner, need, path)) is not None
    ]
    yield from sorted(found, key=lambda one: (_size(planner.view, one), one.subject))[:1]


def _protecting(view: View, need: Need, refusal: Refusal) -> list[str]:
    """Queues with a guarantee that do not hold the ask: those that spare most candidates first, then by path."""
    leaves = _spared(refusal, Law.NOT_OVER_GUARANTEE, Law.BELOW_GUARANTEE)
    first = [one.path for leaf in leaves for one in view.path_up(leaf)]
    return [
        path
        for path in dict.fromkeys((*first, *sorted(view.queues)))
        if any(view.queues[path].guaranteed) and not is_below(need.ask.leaf, path)
    ]


def _size(view: View, found: Cure) -> Fraction:
    """How large a change of numbers is: the largest share of the partition."""
    pairs = (
        (amount, view.capacity[view.types.index(kind)]) for kind, amount in found.amounts.items()
    )
    return max((Fraction(amount, max(whole, 1)) for amount, whole in pairs), default=Fraction(0))


def _lowered(planner: Planner, need: Need, path: str) -> Cure | None:
    """Brought to nothing first; then to the most that still lets those go whom the planner takes."""
    view = planner.view
    before = view.queues[path].guaranteed
    nothing = (0,) * len(before)
    answer = planner.then(changed.with_guaranteed(view, path, nothing), need.ask)
    if not isinstance(answer, Plan):
        return None
    kept = _most(planner, need, path, tuple(map(min, before, _left(view, answer, path))))
    if not planner.helps(changed.with_guaranteed(view, path, kept), need.ask):
        return None
    amounts = {
        kind: one - less
        for kind, one, less in zip(view.types, before, kept, strict=True)
        if one > less
    }
    text = f"lower the guarantee of queue {path} by {quantities(amounts)}"
    return Cure(Change.LOWER_GUARANTEE, path, text, amounts)


def _left(view: View, plan: Plan, path: str) -> tuple[int, ...]:
    """What the queue would have of each type after the releases of a plan: a guarantee of that much allows them."""
    trial = Trial(view)
    trial.apply(plan)
    return tuple(max(0, one) for one in trial.eff(path))


def _most(planner: Planner, need: Need, path: str, kept: tuple[int, ...]) -> tuple[int, ...]:
    """One unit more in one type: if that helps too, others can go, and it goes on from what they leave."""
    before = planner.view.queues[path].guaranteed
    for at, most in enumerate(before):
        for _ in range(ROUNDS_MAX):
            if kept[at] >= most:
                break
            more = (*kept[:at], kept[at] + 1, *kept[at + 1 :])
            view = changed.with_guaranteed(planner.view, path, more)
            answer = planner.then(view, need.ask)
            if not isinstance(answer, Plan):
                break
            left = _left(planner.view, answer, path)
            kept = tuple(max(one, min(*two)) for one, *two in zip(more, before, left, strict=True))
    return kept


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
    paths = _spared(refusal, Law.CANDIDATE_DISABLED)[:QUEUES_TRIED_MAX]
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
    if _spared(refusal, Law.BUDGET):
        yield "disruptionbudgets", "prefer", {"disruption_budgets": "prefer"}
    if settings.cross_node != "quota" and refusal.law in {Law.NO_VICTIMS, Law.SEARCH_BOUND}:
        yield "crossnode", "quota", {"cross_node": "quota"}
    if settings.equal_priority == "never" and _spared(refusal, Law.PRIORITY):
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
    if _spared(refusal, Law.PRIORITY):
        yield from _priority(planner, need)


def _says(need: Need, **fields: object) -> WaitingAsk:
    return changed.saying(need.ask, **fields)


def _priority(planner: Planner, need: Need) -> Iterator[Cure]:
    """The lowest priority with which it may take somebody (rule 6)."""
    low, high = need.ask.spec.priority, PRIORITY_MAX
    if low >= high or not planner.helps(planner.view, _says(need, priority=high)):
        return
    while high - low > 1:
        middle = (low + high) // 2
        helps = planner.helps(planner.view, _says(need, priority=middle))
        low, high = (low, middle) if helps else (middle, high)
    yield Cure(
        Change.RAISE_PRIORITY, need.ask.key, f"raise its priority to {high}", {"priority": high}
    )


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
    _user_limit,
    _maximum,
    _own_guarantee,
    _guarantees_of_others,
    _fence,
    _enabled,
    _settings,
    _spec,
    _uncordoned,
    _node,
)
