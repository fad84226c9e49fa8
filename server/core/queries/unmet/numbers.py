"""The cures that change an amount of one queue or limit.

A cure is a change after which the claimant fits, or after which the planner has a plan for it. Each of these cures changes a maximum, a
guarantee or a user's limit by the smallest amount that helps. The planner is used to find this amount.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from server.core.queries.unmet import claimants, hierarchy
from server.core.queries.unmet.asking import Planner, least
from server.core.queries.unmet.needs import Need
from server.model.phrases import ONE_CORE, quantities
from server.model.quota import is_below
from server.model.unmet import Change, Cure
from server.preemption.claims.eligibility import blocks
from server.preemption.policy import Plan, Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot import what_if
from server.snapshot.queues import FrozenAmounts
from server.snapshot.snapshot import Snapshot

QUEUES_TRIED_MAX: Final = 8
"""The largest number of queues that are tried for one kind of change. The queues with the most candidates are tried first."""
ROUNDS_MAX: Final = 16
"""The largest number of steps of the search for the largest guarantee that still helps."""

UNITS: Final[Mapping[str, int]] = {
    "vcore": ONE_CORE,
    "memory": 1 << 30,
    "ephemeral-storage": 1 << 30,
}
"""The units to which amounts of these types are rounded up, if the partition has at least one unit of the type."""

Lacks = dict[str, dict[int, int]]
"""The amounts by which guarantees are too small, by queue and type index."""


def spared_leaves(refusal: Refusal, *rules: Rule) -> list[str]:
    """Return the leaves whose candidates the rules of the refusal protected, the leaf with the most candidates first."""
    found = sorted((-one.count, one.leaf) for one in refusal.spared if one.rule in rules)
    return list(dict.fromkeys(leaf for _, leaf in found))


def user_limit(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to raise a limit of the claimant's user or group by the amount that the limit lacks."""
    if refusal.rule is not Rule.USER_LIMIT or len(need.limited) != 1:
        return
    (limited,) = need.limited
    if planner.helps(planner.snapshot, claimants.limitless(need.claimant)):
        text = f"raise the limit of {limited.name} by {quantities(limited.lacks)}"
        yield Cure(Change.RAISE_USER_LIMIT, limited.name, text, limited.lacks)


def maximum(planner: Planner, need: Need, _refusal: Refusal) -> Iterator[Cure]:
    """Yield a cure for each maximum on the claimant's path without headroom (G9): to raise this maximum by the smallest amount that helps."""
    snapshot = planner.snapshot
    lacks: dict[str, dict[int, int]] = {}
    for block in blocks(Trial(snapshot), claimants.whole(need.claimant)):
        lacks.setdefault(block.path, {})[block.at] = block.lack
    for path, lack in lacks.items():
        if _helps_with_max(planner, need, path, lack):
            found = _least_headroom(planner, need, path, lack)
            amounts = {snapshot.types[index]: more for index, more in found.items() if more}
            text = f"raise the max of queue {path} by {quantities(amounts)}"
            yield Cure(Change.RAISE_MAX, path, text, amounts)


def _helps_with_max(planner: Planner, need: Need, path: str, more: Mapping[int, int]) -> bool:
    raised = what_if.with_max(planner.snapshot, path, more)
    return hierarchy.allows_max(raised, path) and planner.helps(raised, need.claimant)


def _least_headroom(
    planner: Planner, need: Need, path: str, lack: dict[int, int]
) -> dict[int, int]:
    """Return the smallest raise of the maximum of ``path`` that helps.

    The raise is less than ``lack`` if evictions in the queue or below it free a part of ``lack`` (G9).
    """

    def helps(more: dict[int, int]) -> bool:
        return _helps_with_max(planner, need, path, more)

    return _rounded(planner.snapshot, _least_of_each(lack, helps), helps)


def _least_of_each(
    enough: dict[int, int], helps: Callable[[dict[int, int]], bool]
) -> dict[int, int]:
    """Return the smallest amounts by type for which ``helps`` returns True: a smaller amount of any one type would not help.

    ``helps`` must return True for ``enough``.
    """
    found = dict(enough)
    for index, most in enough.items():

        def one(more: int, index: int = index) -> bool:
            return helps({**found, index: more})

        if one(most - 1):  # rarely true, so tested first
            found[index] = least(-1, most - 1, one)
    return found


def _rounded(
    snapshot: Snapshot, amounts: dict[int, int], helps: Callable[[dict[int, int]], bool]
) -> dict[int, int]:
    """Return the amounts rounded up to whole cores and GiB if the rounded amounts also help, else the exact amounts."""
    found = dict(amounts)
    for at, amount in amounts.items():
        unit = UNITS.get(snapshot.types[at], 1)
        if snapshot.capacity[at] >= unit:
            found[at] = -(-amount // unit) * unit
    return found if found == amounts or helps(found) else amounts


def own_guarantee(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield a cure that raises the guarantee of one queue on the claimant's path.

    There is such a cure only if this guarantee alone keeps the claimant from a plan.
    """
    short = _SHORT.get(refusal.rule)
    more = {} if short is None else short(planner.snapshot, need, refusal)
    if len(more) == 1:
        ((path, lack),) = more.items()
        yield from _raised(planner, need, path, lack, least_of=refusal.rule is Rule.MEMBER)


def leaf_guarantee(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to raise the leaf's guarantee (G2).

    With a larger guarantee, the leaf itself decides whether its asks may claim a type.

    This change can help in three cases: the queue that decides for the type at present has its whole guarantee, no queue
    decides for the type at present, or pods inside the deciding queue hold the type.
    """
    if refusal.rule not in {Rule.OVER_GUARANTEE, Rule.NO_VICTIMS, Rule.SEARCH_BOUND, Rule.MEMBER}:
        return
    snapshot, leaf = planner.snapshot, need.ask.leaf
    held, owed = Trial(snapshot).held(leaf), snapshot.queues[leaf].guaranteed
    whole = need.gang is not None or snapshot.settings.trigger == "after"
    wanted = claimants.whole(need.claimant).kind.demand
    lacks = {
        at: held[at] + (more if whole else 1) - owed[at]
        for at, more in wanted
        if not snapshot.ports[at]
    }
    missing = {at for at, _ in refusal.missing}
    others_first = sorted(lacks, key=lambda at: at in missing)  # these are lowered first
    lack = {at: lacks[at] for at in others_first if lacks[at] > 0}
    if lack:
        yield from _raised(planner, need, leaf, lack, least_of=True)


def _raised(
    planner: Planner, need: Need, path: str, lack: dict[int, int], *, least_of: bool
) -> Iterator[Cure]:
    """Yield the cure to raise the guarantee of ``path`` by the amounts ``lack``, if the change helps and can be applied.

    With ``least_of``, the guarantee is raised by the smallest amounts that help.
    """
    snapshot = planner.snapshot

    def helps(amounts: dict[int, int]) -> bool:
        guaranteed = _more(snapshot, path, amounts)
        return hierarchy.allows(snapshot, path, guaranteed) and planner.helps(
            what_if.with_guaranteed(snapshot, path, guaranteed), need.claimant
        )

    if least_of:
        lack = _within(snapshot, path, lack)
    if lack and helps(lack):
        found = _rounded(snapshot, _least_of_each(lack, helps) if least_of else lack, helps)
        amounts = {snapshot.types[index]: one for index, one in found.items() if one}
        text = f"raise the guarantee of queue {path} by {quantities(amounts)}"
        yield Cure(Change.RAISE_GUARANTEE, path, text, amounts)


def _within(snapshot: Snapshot, path: str, lack: dict[int, int]) -> dict[int, int]:
    """Return ``lack`` without the types in which the raised guarantee would be invalid."""
    return {
        at: more
        for at, more in lack.items()
        if hierarchy.allows(snapshot, path, _more(snapshot, path, {at: more}))
    }


def _more(snapshot: Snapshot, path: str, more: Mapping[int, int]) -> FrozenAmounts:
    before = snapshot.queues[path].guaranteed
    return tuple(one + more.get(index, 0) for index, one in enumerate(before))


def _met(snapshot: Snapshot, need: Need, refusal: Refusal) -> Lacks:
    """Return, for each queue with a met guarantee, by how much the guarantee must rise before the queue may claim again (G2).

    If the queue that decides for a type has its whole guarantee of this type, the asks of this queue may not claim the type.
    This is so even if an ancestor of the queue is below the ancestor's guarantee.
    """
    wanted = dict(need.ask.kind.demand)
    more: Lacks = {}
    for level in refusal.levels:
        at = snapshot.types.index(level.resource_type)
        enough = wanted[at] if snapshot.settings.trigger == "after" else 1
        short = level.held + enough - level.guaranteed
        if short > 0:
            more.setdefault(level.queue, {})[at] = short
    return more


def _used_up(snapshot: Snapshot, need: Need, _refusal: Refusal) -> Lacks:
    """Return, for each queue on the path, the amounts by which the queue's guarantee must be raised to cover the claimant's firm pods.

    Firm pods may use only guaranteed amounts (J4).
    """
    trial, more = Trial(snapshot), Lacks()
    for queue in snapshot.path_up(need.ask.leaf):
        held = trial.firm_held(queue.path)
        for at, wanted in claimants.whole(need.claimant).kind.demand:
            short = held[at] + wanted - queue.guaranteed[at]
            if queue.guaranteed[at] and short > 0:
                more.setdefault(queue.path, {})[at] = short
    return more


def _owed_too_little(snapshot: Snapshot, need: Need, refusal: Refusal) -> Lacks:
    """Return the amounts by which the guarantee of a gang's queue is too small.

    Return {} unless exactly one queue decides for the gang. Pods of other queues are evicted for a gang only until the gang's
    queue has its guarantee (J7). If the whole gang does not fit into the guarantee, the gang therefore gets no plan.
    """
    paths = {level.queue for level in refusal.levels}
    if len(paths) != 1:
        return {}
    (path,) = paths
    held, owed = Trial(snapshot).held(path), snapshot.queues[path].guaranteed
    wanted = claimants.whole(need.claimant).kind.demand
    lacks = {at: held[at] + more - owed[at] for at, more in wanted}
    short = {at: lack for at, lack in lacks.items() if lack > 0}
    return {path: short} if short else {}


_SHORT: Final[Mapping[Rule, Callable[[Snapshot, Need, Refusal], Lacks]]] = {
    Rule.OVER_GUARANTEE: _met,
    Rule.FIRM_LIMIT: _used_up,
    Rule.MEMBER: _owed_too_little,
}


def guarantees_of_others(planner: Planner, need: Need, refusal: Refusal) -> Iterator[Cure]:
    """Yield the cure to lower a guarantee that protects candidates, by the smallest amount that helps (G4)."""
    if refusal.rule not in {Rule.NO_VICTIMS, Rule.SEARCH_BOUND, Rule.FROZEN, Rule.MEMBER}:
        return
    if planner.snapshot.is_shared_out:
        return  # all shares depend on the guarantees, so the shares of this snapshot would change
    paths = _protecting(planner.snapshot, need, refusal)
    if refusal.rule is not Rule.MEMBER and not _helps_without(planner, need, paths):
        # No lower guarantee helps. (Gangs are exempt: with each change their members may get other nodes, J8.)
        return
    found = [
        one
        for path in paths[:QUEUES_TRIED_MAX]
        if (one := _lowered(planner, need, path)) is not None
    ]
    yield from sorted(found, key=lambda one: (_size(planner.snapshot, one), one.subject))[:1]


def _helps_without(planner: Planner, need: Need, paths: list[str]) -> bool:
    """Return whether the claimant would get capacity if none of these queues had a guarantee."""
    nobody = planner.snapshot
    for path in paths:
        nobody = what_if.with_guaranteed(nobody, path, (0,) * len(nobody.types))
    return bool(paths) and planner.helps(nobody, need.claimant)


def _protecting(snapshot: Snapshot, need: Need, refusal: Refusal) -> list[str]:
    """Return the queues that have a guarantee and do not contain the ask.

    The queues that protect the most candidates come first. The other queues follow in the order of their paths.
    """
    leaves = spared_leaves(refusal, Rule.NOT_OVER_GUARANTEE, Rule.BELOW_GUARANTEE)
    first = [one.path for leaf in leaves for one in snapshot.path_up(leaf)]
    return [
        path
        for path in dict.fromkeys((*first, *sorted(snapshot.queues)))
        if any(snapshot.queues[path].guaranteed) and not is_below(need.ask.leaf, path)
    ]


def _size(snapshot: Snapshot, found: Cure) -> Fraction:
    """Return the size of a cure that changes amounts.

    Each changed amount is divided by the partition's capacity of its type. The size is the largest of these quotients.
    """
    pairs = (
        (amount, snapshot.capacity[snapshot.types.index(kind)])
        for kind, amount in found.amounts.items()
    )
    return max((Fraction(amount, max(whole, 1)) for amount, whole in pairs), default=Fraction(0))


def _lowered(planner: Planner, need: Need, path: str) -> Cure | None:
    """Return the cure to lower the guarantee of a queue by the smallest amount that helps, as far as the search finds this amount.

    Return None if even a guarantee of zero does not help, or if no guarantee that helps is valid in the configuration. If the
    planner has a plan with a guarantee of zero, the search begins with the largest guarantee that still allows the eviction of
    that plan's victims.
    """
    snapshot = planner.snapshot
    before = snapshot.queues[path].guaranteed
    nothing = (0,) * len(before)
    answer = planner.then(what_if.with_guaranteed(snapshot, path, nothing), need.claimant)
    if not isinstance(answer, Plan):
        return None
    kept = _most(planner, need, path, tuple(map(min, before, _left(snapshot, answer, path))))
    if not planner.helps(what_if.with_guaranteed(snapshot, path, kept), need.claimant):
        kept = _kept_for_a_gang(planner, need, path)
    kept = _rounded_down(planner, need, path, kept)
    if not hierarchy.allows(snapshot, path, kept):
        kept = _without_refused(snapshot, path, kept)
        if not planner.helps(what_if.with_guaranteed(snapshot, path, kept), need.claimant):
            return None
    amounts = {
        kind: one - less
        for kind, one, less in zip(snapshot.types, before, kept, strict=True)
        if one > less
    }
    text = f"lower the guarantee of queue {path} by {quantities(amounts)}"
    return Cure(Change.LOWER_GUARANTEE, path, text, amounts)


def _without_refused(snapshot: Snapshot, path: str, kept: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lowered guarantee ``kept``. In each type in which the lowered amount would be invalid, the result has 0.

    A parent's guarantee of a type must be 0 (none), or at least the sum of its children's guarantees.
    """
    before = snapshot.queues[path].guaranteed
    return tuple(
        left if hierarchy.allows(snapshot, path, (*before[:at], left, *before[at + 1 :])) else 0
        for at, left in enumerate(kept)
    )


def _rounded_down(
    planner: Planner, need: Need, path: str, kept: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the lowered guarantee.

    If lowering by whole cores and GiB helps, too, the guarantee is lowered by whole cores and GiB. Otherwise it is lowered by
    the exact amounts.
    """
    snapshot, before = planner.snapshot, planner.snapshot.queues[path].guaranteed

    def left(less: dict[int, int]) -> tuple[int, ...]:
        return tuple(max(0, one - less.get(at, 0)) for at, one in enumerate(before))

    def helps(less: dict[int, int]) -> bool:
        return planner.helps(what_if.with_guaranteed(snapshot, path, left(less)), need.claimant)

    less = {at: one - kept[at] for at, one in enumerate(before) if one > kept[at]}
    return left(_rounded(snapshot, less, helps))


def _kept_for_a_gang(planner: Planner, need: Need, path: str) -> tuple[int, ...]:
    """Return the largest guarantee with which the gang still gets capacity.

    Call this function only if the gang gets capacity with a guarantee of zero. The result is found by trying guarantees. It
    cannot be computed from the victims of one plan, because with each guarantee the members may get other nodes, and a plan may
    have no victims in the queue.
    """
    before = planner.snapshot.queues[path].guaranteed

    def kept(less: dict[int, int]) -> tuple[int, ...]:
        return tuple(one - less.get(at, 0) for at, one in enumerate(before))

    def helps(less: dict[int, int]) -> bool:
        return planner.helps(
            what_if.with_guaranteed(planner.snapshot, path, kept(less)), need.claimant
        )

    return kept(_least_of_each({at: one for at, one in enumerate(before) if one}, helps))


def _left(snapshot: Snapshot, plan: Plan, path: str) -> tuple[int, ...]:
    """Return, by type, the amount that the queue has after the releases of a plan.

    With a guarantee of this amount, the queue is not below its guarantee after these releases.
    """
    trial = Trial(snapshot)
    trial.apply(plan)
    return tuple(max(0, one) for one in trial.eff(path))


def _most(planner: Planner, need: Need, path: str, kept: tuple[int, ...]) -> tuple[int, ...]:
    """Return the largest guarantee found with which the planner has a plan.

    The search begins with the guarantee ``kept``. Each step tries, for one type, a guarantee that is one unit larger. If the
    planner has a plan with that guarantee, the next step begins with the amount that this plan leaves to the queue, because a
    guarantee of this amount allows the same plan. The result is never above the present guarantee.
    """
    before = planner.snapshot.queues[path].guaranteed
    for at, most in enumerate(before):
        for _ in range(ROUNDS_MAX):
            if kept[at] >= most:
                break
            more = (*kept[:at], kept[at] + 1, *kept[at + 1 :])
            snapshot = what_if.with_guaranteed(planner.snapshot, path, more)
            answer = planner.then(snapshot, need.claimant)
            if not isinstance(answer, Plan):
                break
            left = _left(planner.snapshot, answer, path)
            kept = tuple(max(one, min(*two)) for one, *two in zip(more, before, left, strict=True))
    return kept
