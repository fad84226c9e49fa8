"""Questions to the planner about unmet guarantees, with a limit on their cost.

Each answer of the planner is for the present state, or for a snapshot with one change.
"""

from collections.abc import Callable
from typing import Final

from server.core.queries import group_fit, verdicts
from server.core.queries.unmet import claimants
from server.model.policies import JOB, PolicyFacts, Scope
from server.model.quota import PreemptionSettings
from server.preemption import entitlement
from server.preemption.claims import guarantee
from server.preemption.claims.turn_order import Claimant
from server.preemption.gangs import gang_policy
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Rule
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk, WaitingGang

STEPS_MAX: Final = 150_000
"""The cost limit of one report, in steps.

Each question costs one step, one more step for each queue, and one more step for every ROWS_A_STEP allocations.
"""
ROWS_A_STEP: Final = 64
PLANS_LEAST: Final = 60
"""The number of questions that each report may ask, even if STEPS_MAX allows fewer questions in a large cluster."""
PLANS_A_NEED: Final = 150
"""The largest number of questions that may be asked about one kind of asks."""
MEMBERS_A_PLAN: Final = 16
"""A question about a single ask costs 1. A question about a gang costs 1, plus 1 for each full set of this many members."""

SERVED_MAX: Final = 8
"""The largest number of equal asks for which one change is tried, one ask after another."""

_NOBODY: Final = "no other queue holds more of what it asks for than its guarantee"


class OutOfPlansError(Exception):
    """The error that is raised when the budget of the report, or of one kind of asks, has no question left."""


class Planner:
    """The planner of the report, with a limit on the number of questions. A *question* is one call of the real planner for a claimant.

    ``snapshot`` is the partition in its present state. ``listed`` is the partition as if policy `job` were listed. The search for
    changes may use half of the budget. The other half is kept for questions about the claimants of later queues in the present state.
    """

    def __init__(self, snapshot: Snapshot, listed: Snapshot, most: int = STEPS_MAX) -> None:
        self.snapshot = snapshot
        self.listed = listed
        self.plans = 0
        self._spent = 0
        self._steps = 1 + len(snapshot.queues) + len(snapshot.allocations.keys) // ROWS_A_STEP
        self._plans_max = max(most // self._steps, PLANS_LEAST)
        self._until = 0
        self._now = Trial(snapshot)
        self._over: dict[int, set[str]] | None = None
        self._helped: tuple[Snapshot, Claimant] | None = None

    def begin(self, claimant: Claimant) -> None:
        """Begin the questions about a claimant. Each claimant may use at most PLANS_A_NEED questions of the budget."""
        self._helped = None
        self._until = min(self._spent + PLANS_A_NEED * _cost(claimant), self._plans_max // 2)

    def now(self, claimant: Claimant) -> Plan | Refusal | None:
        """Return the planner's answer for the present state.

        Return None if the claimant fits without evictions. Raise OutOfPlansError if the budget is spent.

        An answer that needs no search for victims uses no budget, and is returned even if the budget is spent.
        """
        if fits(self._now, claimant):
            return None
        refusal = self._refused_at_once(claimant)
        if refusal is not None:
            return refusal
        if self._spent < self._plans_max:
            self._count(claimant)
            return _plan(self._now, claimant)
        if self._no_leaf_exceeds(claimant):
            return Refusal(Rule.NOT_OVER_GUARANTEE, _NOBODY)
        raise OutOfPlansError

    def then(self, snapshot: Snapshot, claimant: Claimant) -> Plan | Refusal | None:
        """Return the planner's answer on `snapshot`, in which the caller made one change.

        Return None if the claimant fits on that snapshot. Raise OutOfPlansError if the budget is spent.
        """
        if self._spent >= self._until:
            raise OutOfPlansError
        self._count(claimant)
        trial = Trial(snapshot)
        trial.brief = True
        return None if fits(trial, claimant) else _plan(trial, claimant)

    def helps(self, snapshot: Snapshot, claimant: Claimant) -> bool:
        """Return whether the claimant fits, or has a plan that frees capacity, on `snapshot`, in which the caller made one change.

        If the result is True, the next call of `served` tries further asks of the same kind on that snapshot. Raise
        OutOfPlansError if the budget is spent.
        """
        found = not isinstance(self.then(snapshot, claimant), Refusal)
        if found:
            self._helped = snapshot, claimant
        return found

    def served(self, number: int) -> tuple[int, Refusal] | None:
        """Return how many equal asks the last helpful change serves, and the refusal of the first ask that it does not serve.

        The last helpful change is the change for which `helps` last returned True.

        Raise OutOfPlansError if the budget is spent.

        At most SERVED_MAX asks are tried, one after another. Return None if the change serves all of these asks, or if the
        change was tried for a gang.
        """
        snapshot, first = self._helped or (self.snapshot, None)
        if not isinstance(first, WaitingAsk):
            return None
        trial = Trial(snapshot)
        trial.brief = True
        for count in range(min(number, SERVED_MAX)):
            if self._spent >= self._until:
                raise OutOfPlansError
            self._count(first)
            ask = first if not count else first._replace(key=f"{first.key}~{count}")
            if _assign(trial, ask):
                continue
            answer = _plan(trial, ask)
            if isinstance(answer, Refusal):
                return count, answer
            trial.apply(answer)
        return None

    def _count(self, claimant: Claimant) -> None:
        self.plans += 1
        self._spent += _cost(claimant)

    def _refused_at_once(self, claimant: Claimant) -> Refusal | None:
        """Return the refusal of a claimant that may not claim at all.

        Return None if the answer requires a search for victims.
        """
        policies = _serving(self.snapshot.settings, claimant)
        if not policies:
            found = _plan(self._now, claimant)
            return found if isinstance(found, Refusal) else None
        if len(policies) != 1 or not policies[0].claims:
            return None
        return _may_have_others_go(self._now, policies[0], claimant)

    def _no_leaf_exceeds(self, ask: Claimant) -> bool:
        """Return whether every other leaf is within its entitlement in the requested types, so that no pod can be evicted (G2).

        Return False for gangs, and for asks that replace pods of their queue. For such claimants, pods of their own queue may
        be evicted, even if every other leaf is within its entitlement.
        """
        serving = [one.scope for one in _serving(self.snapshot.settings, ask)]
        if isinstance(ask, WaitingGang) or serving != [Scope.OTHER_QUEUES]:
            return False
        if self._over is None:
            self._over = _over(self._now)
        return not any(
            self._over.get(index, set()) - {ask.leaf} for index, _ in ask.kind.node_demand
        )


def _over(trial: Trial) -> dict[int, set[str]]:
    """Return the leaves that exceed their entitlement in a type, by type index. For host ports, the result has all leaves."""
    found: dict[int, set[str]] = {}
    for path, queue in trial.snapshot.queues.items():
        pairs = zip(trial.eff(path), entitlement.floor(trial, path), strict=True)
        for index, (eff, owed) in enumerate(pairs):
            if queue.leaf and (eff > owed or trial.snapshot.ports[index]):
                found.setdefault(index, set()).add(path)
    return found


def least(low: int, high: int, helps: Callable[[int], bool]) -> int:
    """Return the smallest number above ``low`` for which ``helps`` returns True, found by bisection.

    ``helps`` must return True for ``high``. If ``helps`` returns True for a number, it must return True for every larger
    number.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if helps(middle) else (middle, high)
    return high


def fits(trial: Trial, claimant: Claimant) -> bool:
    """Return whether placement would take the claimant at once. A gang fits only if all its members fit."""
    if isinstance(claimant, WaitingAsk):
        return group_fit.free_row(trial, claimant) >= 0
    if not (claimant.gathered and claimant.within_limits):
        return False
    mark = trial.mark()
    found = all(_assign(trial, one) for one in claimant.members)
    if trial.mark() > mark:
        trial.rollback(mark)
    return found


def _assign(trial: Trial, ask: WaitingAsk) -> bool:
    """Return whether placement would give the ask a node now.

    If a node takes the ask, the Trial then keeps that node's capacity for the ask.
    """
    row = group_fit.free_row(trial, ask)
    if row >= 0:
        trial.apply(Plan(group_fit.NAME, (PlannedPledge(ask, row, trial.snapshot.nodes.ids[row]),)))
    return row >= 0


def _cost(claimant: Claimant) -> int:
    """Return the cost of one question about the claimant, where a question about a single ask costs 1.

    A gang costs more, because its members are placed one by one.
    """
    return 1 + len(claimants.members(claimant)) // MEMBERS_A_PLAN


def _serving(settings: PreemptionSettings, claimant: Claimant) -> list[PolicyFacts]:
    """Return the policies that may evict pods for the claimant under these settings."""
    if isinstance(claimant, WaitingAsk):
        return verdicts.serving(settings, claimant)
    return [JOB] if settings.enabled and settings.lists(JOB) else []


def _may_have_others_go(trial: Trial, policy: PolicyFacts, claimant: Claimant) -> Refusal | None:
    whole = claimant if isinstance(claimant, WaitingGang) else None
    first = claimants.members(claimant)[0]
    refusal = gate.admit(trial, Intent(policy.name, first, whole))
    if refusal is not None:
        return refusal
    if not policy.gang:
        return guarantee.may_claim(trial, first)
    return gang_policy.may_plan(trial, whole or gang_policy.of_one(first))


def _plan(trial: Trial, claimant: Claimant) -> Plan | Refusal:
    if isinstance(claimant, WaitingGang):
        return verdicts.plan_gang(trial, claimant)
    return verdicts.plan(trial, claimant)
