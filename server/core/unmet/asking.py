"""Asking the planner what it would do: now, and on a View in which one thing is different. Nothing is ever guessed."""

from collections.abc import Callable
from typing import Final

from server.core import simulated, verdicts
from server.preemption import entitlement, guarantee, laws
from server.preemption.policy import Intent, Law, Plan, Refusal
from server.preemption.trial import Trial
from server.view.view import View
from server.view.waiting import WaitingAsk

STEPS_MAX: Final = 150_000
"""What one report may cost: each question counts a step a queue, and one for each ROWS_A_STEP allocations."""
ROWS_A_STEP: Final = 64
PLANS_LEAST: Final = 60
"""Questions that every report may ask, however large the cluster is."""
PLANS_A_NEED: Final = 150
"""Questions on account of one kind of asks."""


_NOBODY: Final = "no other queue is over its guarantee in what it asks for"


class OutOfPlansError(Exception):
    """The report's budget is spent."""


class Planner:
    """Counts what it is asked, and stops at a bound. ``view`` is the partition as it is.

    Changes may take half of the budget: the rest is for saying what binds the queues that come after.
    """

    def __init__(self, view: View, most: int = STEPS_MAX) -> None:
        self.view = view
        self.plans = 0
        self._steps = 1 + len(view.queues) + len(view.allocations.keys) // ROWS_A_STEP
        self._plans_max = max(most // self._steps, PLANS_LEAST)
        self._until = 0
        self._now = Trial(view)
        self._over: dict[int, set[str]] | None = None

    def begin(self) -> None:
        """Another kind of asks: it has its own share of the budget."""
        self._until = min(self.plans + PLANS_A_NEED, self._plans_max // 2)

    def now(self, ask: WaitingAsk) -> Plan | Refusal | None:
        """What the planner answers as things are; None: the ask fits without any plan. Asked once a kind.

        Raises OutOfPlansError where only a search could tell, and the budget is spent.
        """
        refusal = self._refused_at_once(ask)
        if refusal is not None:
            return refusal
        if self.plans < self._plans_max:
            self.plans += 1
            return _answer(self._now, ask)
        if self._nobody_is_over(ask):
            return Refusal(Law.NOT_OVER_GUARANTEE, _NOBODY)
        raise OutOfPlansError

    def then(self, view: View, ask: WaitingAsk) -> Plan | Refusal | None:
        """The same where one thing is different. Raises OutOfPlansError."""
        if self.plans >= self._until:
            raise OutOfPlansError
        self.plans += 1
        trial = Trial(view)
        trial.brief = True
        return _answer(trial, ask)

    def helps(self, view: View, ask: WaitingAsk) -> bool:
        """Does the ask get its place, or would somebody go for it, where one thing is different?"""
        return not isinstance(self.then(view, ask), Refusal)

    def _refused_at_once(self, ask: WaitingAsk) -> Refusal | None:
        """What can be told without a search for victims: that it may not claim at all."""
        settings = self.view.settings
        daemon = bool(ask.spec.constraints.required_node)
        on = settings.enabled and guarantee.NAME in settings.policies
        if daemon or ask.gang or not on or fits(self._now, ask):
            return None
        intent = Intent(guarantee.NAME, ask)
        return laws.admit(self._now, intent) or guarantee.may_claim(self._now, ask)

    def _nobody_is_over(self, ask: WaitingAsk) -> bool:
        """Is no leaf but its own over its entitlement in a type that it asks for? Then nobody may go (rule 5)."""
        if self._over is None:
            self._over = _over(self._now)
        return not any(
            self._over.get(index, set()) - {ask.leaf} for index, _ in ask.kind.node_demand
        )


def _over(trial: Trial) -> dict[int, set[str]]:
    """By type the leaves that are over their entitlement in it."""
    found: dict[int, set[str]] = {}
    for path, queue in trial.view.queues.items():
        pairs = zip(trial.eff(path), entitlement.floor(trial, path), strict=True)
        for index, (eff, owed) in enumerate(pairs):
            if queue.leaf and (eff > owed or trial.view.ports[index]):
                found.setdefault(index, set()).add(path)
    return found


def least(low: int, high: int, helps: Callable[[int], bool]) -> int:
    """The least number above ``low`` that helps, where ``high`` does and whatever is larger than one that helps."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if helps(middle) else (middle, high)
    return high


def fits(trial: Trial, ask: WaitingAsk) -> bool:
    """Would placement take it at once?"""
    return simulated.free_row(trial, ask) >= 0


def _answer(trial: Trial, ask: WaitingAsk) -> Plan | Refusal | None:
    if not ask.gang and fits(trial, ask):
        return None
    return verdicts.plan(trial, ask)
