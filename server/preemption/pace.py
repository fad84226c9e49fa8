"""Paced rounds: how much the claims of a round may evict, and how far queues exceed their entitlement (P5, P9).

A round is everything that the core plans on one snapshot, and on the snapshots of its continuations. A budget is a share of the
partition's capacity, by type. A budget limits the sum of the amounts that the victims of a round hold. A budget covers all
victims, the victims in one queue, or the victims of one application (P5). A decision that would exceed a budget is postponed to
a later round. The first decision with victims in a round is always carried out. Without this exception, a large gang could never
run. Required-node preemption and quota runs have no budget, and their victims use up no budget.

A natural termination factor is a percentage. The factor limits the loss of a queue in a round to this percentage of the queue's
over-use (P9). The *over-use* of a queue is the amount by which it was above its entitlement when the round began. If the budget
of a round is smaller than the over-use, the factor applies to that budget instead. The limit applies to the leaf of each victim
and to every queue above it that does not contain the preemptor, whether or not the queue has a guarantee. A queue that only
replaces its own pods loses nothing. In a type without over-use, the factor does not limit the loss of a queue. G4 then decides
whether the queue may lose any amount of that type.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from server.model.phrases import quantity
from server.model.quota import PreemptionSettings, is_below
from server.preemption.entitlement import floor
from server.preemption.policy import Plan, Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot.pace import APPLICATION, LOSS, PARTITION, QUEUE, OverUse, Taken
from server.snapshot.snapshot import Snapshot

PERMYRIAD: Final = 10_000

_WORDS: Final = {
    PARTITION: "perround",
    QUEUE: "perqueue",
    APPLICATION: "perapplication",
    LOSS: "naturaltermination",
}
_NOUNS: Final = {QUEUE: QUEUE, APPLICATION: APPLICATION, LOSS: QUEUE}


def is_beyond(eff: int, entitled: int, settings: PreemptionSettings) -> bool:
    """Return whether a queue exceeds its entitlement in a type by more than the dead zone (P9). Only then may its pods be evicted."""
    return eff * PERMYRIAD > entitled * (PERMYRIAD + settings.deadzone_permyriad)


def is_bounded(settings: PreemptionSettings) -> bool:
    """Return whether any budget is set, or a natural termination factor limits a round."""
    return any(_shares(settings).values()) or is_natural(settings)


def is_natural(settings: PreemptionSettings) -> bool:
    """Return whether a round may free only a part of the over-use (P9). A factor of 0 % or of 100 % sets no limit."""
    return 0 < settings.natural_permyriad < PERMYRIAD


def over_use(trial: Trial) -> OverUse:
    """Return the amount by which each queue is above its entitlement, by queue and type index (P9).

    The plans so far count as applied.

    Zeros are left out.
    """
    return {
        (path, index): eff - entitled
        for path in trial.snapshot.queues
        for index, (eff, entitled) in enumerate(
            zip(trial.eff(path), floor(trial, path), strict=True)
        )
        if eff > entitled
    }


def _shares(settings: PreemptionSettings) -> dict[str, int]:
    return {
        PARTITION: settings.pace_permyriad,
        QUEUE: settings.pace_queue_permyriad,
        APPLICATION: settings.pace_application_permyriad,
    }


def amounts(snapshot: Snapshot, plan: Plan) -> Counter[tuple[str, str, int]]:
    """Return the amounts that the plan's victims take from each budget, by kind, name and resource type.

    A victim takes from three budgets: that of the partition, that of the victim's leaf, and that of the victim's application.

    If the partition has a natural termination factor, the result also has, for each queue, the amounts that the queue loses to
    other queues.
    """
    columns, losers = snapshot.allocations, _losers(snapshot, plan)
    found: Counter[tuple[str, str, int]] = Counter()
    for release in plan.releases:
        application = columns.application_ids[release.row]
        for index, amount in columns.demands[release.row]:
            found[PARTITION, "", index] += amount
            found[QUEUE, release.leaf, index] += amount
            found[APPLICATION, application, index] += amount
            for path in losers.get(release.leaf, ()):
                found[LOSS, path, index] += amount
    return found


def _losers(snapshot: Snapshot, plan: Plan) -> dict[str, list[str]]:
    """Return, for each leaf of a victim, the queues from the leaf up to the root that do not contain the preemptor."""
    if not is_natural(snapshot.settings):
        return {}
    askers = {pledge.ask.leaf for pledge in plan.pledges}
    return {
        leaf: [
            queue.path
            for queue in snapshot.path_up(leaf)
            if not any(is_below(asker, queue.path) for asker in askers)
        ]
        for leaf in {release.leaf for release in plan.releases}
    }


class Account:
    """The budgets of a round, with the amounts that its earlier decisions used up. ``over`` is the over-use when the round began.

    The caller calls `refusal` for each plan, and `count` for each plan that is carried out.
    """

    def __init__(self, snapshot: Snapshot, over: OverUse) -> None:
        self._view = snapshot
        self._over = over
        self._bounded = is_bounded(snapshot.settings)
        self._shares = {kind: share for kind, share in _shares(snapshot.settings).items() if share}
        self._taken = Counter(dict(snapshot.pace.taken))
        self._decided = snapshot.pace.decided

    def refusal(self, plan: Plan) -> Refusal | None:
        """Return a refusal if a plan would exceed a budget.

        Return None if the plan may be carried out now. The first plan with victims may always be carried out.
        """
        if not self._bounded or not plan.facts.budgeted or not self._decided:
            return None
        passed = next(self._passed(amounts(self._view, plan)), None)
        return None if passed is None else Refusal(Rule.PACE, passed)

    def _passed(self, more: Taken) -> Iterator[str]:
        for what, amount in more.items():
            most = self._most(what)
            if most is None:
                continue
            used = self._taken[what]
            if used + amount > most:
                yield self._sentence(what, used, amount, most)

    def _most(self, what: tuple[str, str, int]) -> int | None:
        """Return the largest amount that a round may release under a budget.

        ``what`` is the budget's kind, its name and a type index.

        Return None if there is no limit.
        """
        kind, path, index = what
        if kind != LOSS:
            return self._share(kind, index)
        over, allowed = self._over.get((path, index)), self._share(PARTITION, index)
        if over is None:
            return None
        least = over if allowed is None else min(over, allowed)
        return least * self._view.settings.natural_permyriad // PERMYRIAD

    def _share(self, kind: str, index: int) -> int | None:
        """Return the budget of a kind as an amount, computed from its share of the partition's capacity.

        Return None if there is no limit.
        """
        share = self._shares.get(kind)
        return None if share is None else self._view.capacity[index] * share // PERMYRIAD

    def _sentence(self, what: tuple[str, str, int], used: int, amount: int, most: int) -> str:
        kind, name, index = what
        word = self._view.types[index]
        has, would, may = (quantity(word, one) for one in (used, amount, most))
        whose = f" of {_NOUNS[kind]} {name}" if name else ""
        return (
            f"it would release {would}{whose}, and of the {may} that pace.{_WORDS[kind]} "
            f"allows {has} went already"
        )

    def count(self, plan: Plan) -> None:
        """Subtract the amounts of a plan's victims from the budgets, because the plan is carried out.

        A plan without victims uses up nothing.
        """
        if self._bounded and plan.facts.budgeted and plan.releases:
            self._taken += amounts(self._view, plan)
            self._decided = True
