"""Cures that are a number of one queue or limit: by how much a maximum, a guarantee, a user's limit has to change.

Of each the least that helps is looked for, on the planner.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from server.core.unmet.asking import Planner, least
from server.core.unmet.needs import Need
from server.model.phrases import quantities
from server.model.quota import is_below
from server.model.unmet import Change, Cure
from server.preemption.policy import Law, Plan, Refusal
from server.preemption.terms import blocks
from server.preemption.trial import Trial
from server.view import changed
from server.view.view import View

QUEUES_TRIED_MAX: Final = 8
"""Queues that are tried for one kind of change, those with the most candidates first."""
ROUNDS_MAX: Final = 16
"""Steps in which a guarantee is brought to the most that helps."""


def spared_leaves(refusal: Refusal, *laws: Law) -> list[str]:
    """The leaves whose candidates these laws spared, those with the most first."""
    found = sorted((-one.count, one.leaf) for one in refusal.spared if one.law in laws)
    return list(dict.fromkeys(leaf for _, leaf in found))


def user_limit(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """A limit of its user or group: by what it lacks there."""
    if refusal.law is not Law.USER_LIMIT or len(need.limited) != 1:
        return
    (limited,) = need.limited
    if planner.helps(planner.view, need.ask._replace(within_limits=True)):
        text = f"raise the limit of {limited.name} by {quantities(limited.lacks)}"
        yield Cure(Change.RAISE_USER_LIMIT, limited.name, text, limited.lacks)


def maximum(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    """A maximum on its path that has no room for it: by just what is missing there (G9)."""
    view = planner.view
    lacks: dict[str, dict[int, int]] = {}
    for block in blocks(Trial(view), need.ask):
        lacks.setdefault(block.path, {})[block.at] = block.lack
    for path, lack in lacks.items():
        if planner.helps(changed.with_max(view, path, lack), need.ask):
            found = _least_room(planner, need, path, lack)
            amounts = {view.types[index]: more for index, more in found.items() if more}
            text = f"raise the max of queue {path} by {quantities(amounts)}"
            yield Cure(Change.RAISE_MAX, path, text, amounts)


def _least_room(planner: Planner, need: Need, path: str, lack: dict[int, int]) -> dict[int, int]:
    """Less does where victims below the maximum may make some of the room (G9)."""
    found = dict(lack)
    for index, enough in lack.items():

        def helps(more: int, index: int = index) -> bool:
            trying = changed.with_max(planner.view, path, {**found, index: more})
            return planner.helps(trying, need.ask)

        if helps(enough - 1):  # seldom: it is asked first
            found[index] = least(-1, enough - 1, helps)
    return found


def own_guarantee(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
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


def guarantees_of_others(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
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
    leaves = spared_leaves(refusal, Law.NOT_OVER_GUARANTEE, Law.BELOW_GUARANTEE)
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
