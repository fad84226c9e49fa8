"""Quota enforcement: a queue over a lowered maximum gives back the amount above it (Q1 to Q17).

1. The target is the amount that the queue uses beyond its maximum, in the types that the maximum names (Q9).
2. A candidate holds a type of the target. DaemonSet pods, foreign pods and terminating pods are no candidates (Q10). Firm and
   untouchable pods are no candidates either. With `disruptionbudgets: respect`, a pod whose disruption group has no disruption
   left is no candidate (V5).
3. Non-originators come before originators, low priority before high, preemptible before opted out, and young before old (Q11). A
   partition may replace age by other keys (`preemption.order`, V2).
4. Every queue from the victim's leaf to the root keeps its guarantee in each type that the victim uses. A candidate whose
   eviction would bring a queue below its guarantee is skipped, and the next candidate is tried. At the end, victims that are
   not needed are left out (Q12).
5. `quota.preemption.overshoot` says whether the last victim may be larger than the part of the target that is still to be freed
   (Q13).
6. A parent's target is divided among its children, level by level (Q15). The parts are in proportion to the children's usage
   above their guarantees.
7. The rest of the target is then taken from any candidates below the queue. If a run with few candidates still misses the target,
   it searches for a set that meets the target (Q15).
8. A run frees as much of the target as it can. With `quota.preemption.shortfall: abstain`, a run frees nothing if it would miss
   more than the share `miss` of the target. A run reports the freed amount, and the rule that prevented it from freeing more
   (Q14).

Fences, preemption delays, priority policies and offsets have no effect here (Q16). Dynamic leaves are treated like configured
leaves (Q17).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from server.model.policies import QUOTA
from server.model.ranking import Rank, Ranking
from server.model.records import ShrinkResult
from server.preemption import victim_order
from server.preemption.entitlement import numbers
from server.preemption.policy import Plan, Refusal, Rule, ShrinkIntent
from server.preemption.quota.outcome import BARS, RunOutcome
from server.preemption.quota.run import SEARCHED_MOST, Budgets, RunInProgress
from server.preemption.quota.tree import Tree
from server.preemption.trial import Trial
from server.preemption.victim_order import Comparator
from server.snapshot.columns import FIRM
from server.snapshot.victims_in_order import Running, VictimQuery, running

NAME: Final = QUOTA.name


class AllocationStanding(NamedTuple):
    """The standing of an allocation in a quota run: its rank among the candidates, counted from 1, and the rule that protects it."""

    place: int
    """The rank of the allocation among the candidates, or 0 for an allocation that is not a candidate."""
    total: int
    """The number of candidates."""
    rule: str
    """The rule that protects the allocation, "" for a victim of the run."""


def plan(trial: Trial, intent: ShrinkIntent) -> Plan | Refusal:
    """Return a plan with the victims that bring the queue's usage towards its maximum, or a refusal."""
    outcome = _run(trial, intent.queue)
    if outcome is None:
        return Refusal(Rule.NOT_NEEDED, f"queue {intent.queue} is within its maximum")  # Q5
    return _answer(trial, intent, outcome)


def plan_with_standing(
    trial: Trial, intent: ShrinkIntent, key: str
) -> tuple[Plan | Refusal, AllocationStanding] | None:
    """Return the plan or refusal, and the standing of one allocation in that run. Return None if the queue is within its maximum."""
    outcome = _run(trial, intent.queue)
    if outcome is None:
        return None
    return _answer(trial, intent, outcome), AllocationStanding(*outcome.standing(key))


def _run(trial: Trial, path: str) -> RunOutcome | None:
    """Return the outcome of a run. Return None if there is nothing to free (Q5)."""
    target = _target(trial, path)
    if not target:
        return None
    tree = Tree(trial, path, target)
    run = _begin(trial, path, tree, list(target.values()))
    _free(run, tree, path)
    return RunOutcome(trial.snapshot, path, run, list(target.values()), tree.types)


def _target(trial: Trial, path: str) -> dict[int, int]:
    """Return the amounts that the queue uses beyond its maximum, by type index (Q9). A type without a maximum is unlimited."""
    bounds = trial.snapshot.queues[path].max
    return {
        index: used - most
        for index, (used, most) in enumerate(zip(trial.eff(path), bounds, strict=True))
        if most is not None and used > most
    }


def _begin(trial: Trial, path: str, tree: Tree, target: list[int]) -> RunInProgress:
    bars = tuple(trial.snapshot.firm_flags if flag == FIRM else flag for flag in BARS)
    asked = VictimQuery(
        tree.leaves, tree.types, len(target), bars, _further(trial, tree, len(target))
    )
    found = running(trial.snapshot, trial.standing, asked)
    overshoot = trial.snapshot.queues[path].spec.properties.quota_overshoot
    return RunInProgress(found, target, tree.margins(), overshoot, _budgets(trial, found))


def _further(trial: Trial, tree: Tree, wanted: int) -> Callable[[int], tuple[Rank, ...]] | None:
    """Return a function that computes the later sort keys of a victim: the keys after originator, priority and protection (V2).

    Return None if victims are compared by age.
    """
    keys = victim_order.tail(trial.snapshot.settings, QUOTA.order.name)
    if keys == QUOTA.order.usual:
        return None
    ranked, types = Comparator(trial, keys), tuple(tree.types[:wanted])
    return lambda row: ranked.read(row, types)


def _budgets(trial: Trial, found: Running) -> Budgets:
    mode = trial.snapshot.settings.disruption_budgets
    if mode == "ignore":
        return Budgets()
    groups = found.disruption_groups()
    names = sorted({name for own in groups.values() for name in own})
    return Budgets(mode, groups, {name: trial.disruptions_left(name) for name in names})


def _free(run: RunInProgress, tree: Tree, path: str) -> None:
    """Take victims in three steps (Q15): first each child's share from that child, then from all candidates, then by a search.

    After each step, victims that are not needed are left out.
    """
    tree.free(run, run.running.lots(), path, list(run.rest))
    run.give_back()
    while run.is_short and run.walk_all(f"{path} was over its maximum still (Q15, Q12)"):
        run.give_back()
    if run.is_short and len(run.running.candidates) <= SEARCHED_MOST:
        run.search(f"of the sets that bring {path} to its maximum this comes first (Q15)")
        run.give_back()


def _answer(trial: Trial, intent: ShrinkIntent, outcome: RunOutcome) -> Plan | Refusal:
    shrink, spared, levels = outcome.shrink(), outcome.spared(), outcome.levels()
    if shrink.result is ShrinkResult.IMPOSSIBLE:
        because = f"queue {intent.queue} is over its maximum, and rules protect all of its pods"
    elif shrink.result is ShrinkResult.SHORTFALL and outcome.abstains:
        because = f"queue {intent.queue} abstains: it would come only part of the way"
        shrink = replace(shrink, freed={}, missing=shrink.target)
    else:
        releases = outcome.releases()
        ranking = _ranking(trial, outcome)
        return Plan(NAME, (), releases, spared, levels, shrink, intent.replans, ranking)
    rule = Rule(shrink.blocked_by) if shrink.blocked_by else Rule.NO_VICTIMS
    return Refusal(rule, because, spared=spared, levels=levels, shrink=shrink)


def _ranking(trial: Trial, outcome: RunOutcome) -> Ranking:
    """Return an excerpt of the order of the queue's candidates: the candidates before and after the run's last victim (Q11)."""
    run, words = outcome.run, victim_order.order(trial.snapshot.settings, QUOTA.order.name)
    found, wanted = run.running, tuple(outcome.types[: len(outcome.target)])
    total, start, places = found.excerpt(max(run.taken, default=0))
    ranked, keys = Comparator(trial, words), trial.snapshot.allocations.keys
    rows = found.rows[places].tolist()
    order = tuple((*ranked.read(row, wanted), keys[row]) for row in rows)
    protected = tuple(
        (keys[row], run.spared[place].value)
        for place, row in zip(places, rows, strict=True)
        if place in run.spared and place not in run.taken
    )
    queues = [found.leaf(place) for place in places]
    return Ranking(
        words,
        order,
        queues,
        total,
        start,
        queue=outcome.queue,
        protected=protected,
        types=trial.snapshot.types,
        numbers=numbers(trial, found.leaves_of(run.taken)),
    )
