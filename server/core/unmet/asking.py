"""Asking the planner what it would do: now, and on a View in which one thing is different. Nothing is ever guessed."""

from typing import Final

from server.core import verdicts
from server.preemption.policy import Plan, Refusal
from server.preemption.trial import Trial
from server.view.view import View
from server.view.waiting import WaitingAsk

PLANS_MAX: Final = 20_000
"""Questions to the planner in one report; what is left then is told without a cure."""
PLANS_A_NEED: Final = 120
"""Questions on account of one kind of asks."""


class OutOfPlansError(Exception):
    """The report's budget is spent."""


class Planner:
    """Counts what it is asked, and stops at a bound. ``view`` is the partition as it is."""

    def __init__(self, view: View, most: int = PLANS_MAX) -> None:
        self.view = view
        self.plans = 0
        self._most = most
        self._until = 0
        self._now = Trial(view)

    def begin(self) -> None:
        """Another kind of asks: it has its own share of the budget."""
        self._until = min(self.plans + PLANS_A_NEED, self._most)

    def now(self, ask: WaitingAsk) -> Plan | Refusal | None:
        """What the planner answers as things are; None: the ask fits without any plan. Asked once a kind."""
        self.plans += 1
        return _answer(self._now, ask)

    def then(self, view: View, ask: WaitingAsk) -> Plan | Refusal | None:
        """The same where one thing is different. Raises OutOfPlansError."""
        if self.plans >= self._until:
            raise OutOfPlansError
        self.plans += 1
        return _answer(Trial(view), ask)

    def helps(self, view: View, ask: WaitingAsk) -> bool:
        """Does the ask get its place, or would somebody go for it, where one thing is different?"""
        return not isinstance(self.then(view, ask), Refusal)


def fits(trial: Trial, ask: WaitingAsk) -> bool:
    """Would placement take it at once?"""
    free = ask.within_limits and trial.view.may_place(ask.leaf)
    room = free and trial.has_head_room(ask.leaf, ask.kind.demand)
    return room and trial.best(ask.kind) >= 0


def _answer(trial: Trial, ask: WaitingAsk) -> Plan | Refusal | None:
    if not ask.gang and fits(trial, ask):
        return None
    return verdicts.plan(trial, ask)
