"""Paced rounds (seed 002): how much the claims of a round may release, and who is over its entitlement at all.

A round is what the core plans on one View and its continuations. Budgets are shares of the partition's total, by type,
of what a round's victims hold: of all of them, of those of one queue, of those of one application (P5). A decision that
would pass a budget is put off to a later round; the first one of a round that has victims never is, or a large gang
could never run. Required nodes and quota runs have no budget, and take none of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from server.model.phrases import quantity
from server.model.quota import PreemptionSettings
from server.preemption.policy import Law, Plan, Refusal, Release
from server.view.pace import APPLICATION, PARTITION, QUEUE, Taken
from server.view.view import View

BOUND: Final = ("guaranteed", "job", "in-queue")
"""Policies whose decisions have a budget (P5)."""
PERMYRIAD: Final = 10_000

_WORDS: Final = {PARTITION: "perround", QUEUE: "perqueue", APPLICATION: "perapplication"}


def is_beyond(eff: int, entitled: int, settings: PreemptionSettings) -> bool:
    """Is a queue over its entitlement in a type by more than the dead zone, so that it may give of it (P9)?"""
    return eff * PERMYRIAD > entitled * (PERMYRIAD + settings.deadzone_permyriad)


def is_bounded(settings: PreemptionSettings) -> bool:
    """Is there any budget?"""
    return any(_shares(settings).values())


def _shares(settings: PreemptionSettings) -> dict[str, int]:
    return {
        PARTITION: settings.pace_permyriad,
        QUEUE: settings.pace_queue_permyriad,
        APPLICATION: settings.pace_application_permyriad,
    }


def amounts(view: View, releases: Iterable[Release]) -> Counter[tuple[str, str, int]]:
    """What the releases count for: the partition, the victim's leaf and its application, type by type."""
    columns = view.allocations
    found: Counter[tuple[str, str, int]] = Counter()
    for release in releases:
        application = columns.application_ids[release.row]
        for index, amount in columns.demands[release.row]:
            found[PARTITION, "", index] += amount
            found[QUEUE, release.leaf, index] += amount
            found[APPLICATION, application, index] += amount
    return found


class Account:
    """What the round may still release, on top of a View and the plans since."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shares = {kind: share for kind, share in _shares(view.settings).items() if share}
        self._taken = Counter(dict(view.pace.taken))
        self._decided = view.pace.decided

    def refusal(self, plan: Plan) -> Refusal | None:
        """The budget that the plan would pass; None: it may be decided now."""
        if not self._shares or plan.policy not in BOUND or not self._decided:
            return None
        passed = next(self._passed(amounts(self._view, plan.releases)), None)
        return None if passed is None else Refusal(Law.PACE, passed)

    def _passed(self, more: Taken) -> Iterator[str]:
        for (kind, name, index), amount in more.items():
            if kind not in self._shares:
                continue
            most = self._view.capacity[index] * self._shares[kind] // PERMYRIAD
            used = self._taken[kind, name, index]
            if used + amount > most:
                yield self._sentence((kind, name, index), used, amount, most)

    def _sentence(self, what: tuple[str, str, int], used: int, amount: int, most: int) -> str:
        kind, name, index = what
        word = self._view.types[index]
        has, would, may = (quantity(word, one) for one in (used, amount, most))
        whose = f" of {kind} {name}" if name else ""
        return (
            f"it would release {would}{whose}, and of the {may} that pace.{_WORDS[kind]} "
            f"allows {has} went already"
        )

    def count(self, plan: Plan) -> None:
        """The plan is decided."""
        if self._shares and plan.policy in BOUND and plan.releases:
            self._taken += amounts(self._view, plan.releases)
            self._decided = True
