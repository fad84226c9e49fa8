"""Plan checks: before pods are evicted for an ask with `rmCheck`, its manager says whether the ask would fit (design 1.8).

The round that plans the eviction sends this question to the manager, and does not carry out the plan. Until the answer arrives,
policies do not plan for the asks of this plan. After the answer "it fits", policies plan for these asks again, without waiting
for a new round (P1). If the new plan equals the checked one, it is carried out. If the new plan differs, the core asks the
manager about the new plan. `server.core.events.plan_answers` handles the answers.
"""

from typing import Final, NamedTuple

from server.model.decisions import Decision, PlanCheckEnded, PlanCheckRequested
from server.preemption.policy import Plan
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.plan_checks import Placements, PlanCheck

ANSWER_MS: Final = 10_000
"""The time within which a manager has to answer a plan check."""
TIMER: Final = "plan-check"
"""The kind of the timer that ends a plan check whose answer is overdue."""


def is_needed(partition: Partition, plan: Plan) -> bool:
    """Return whether a manager has to agree before the plan is carried out.

    A manager has to agree if the plan evicts pods for an ask with `rmCheck`.
    """
    if partition.spec.preemption.observe_only or not plan.releases:
        return False
    return any(pledge.ask.spec.rm_check for pledge in plan.pledges)


def waits(partition: Partition, plan: Plan) -> bool:
    """Return whether the plan must wait, because its manager has not agreed to it."""
    if not is_needed(partition, plan):
        return False
    check = _of(partition, plan)
    return check is None or not check.fits


class Asked(NamedTuple):
    """The messages that ask a manager about a plan: first messages that end earlier checks of the same asks, then the question.

    ``overdue_ms`` is the instant at which the answer is overdue.
    """

    decisions: list[Decision]
    overdue_ms: int
    check_id: str


def ask(partition: Partition, plan: Plan, now: int) -> Asked | None:
    """Return the question about a plan that waits. Return None if the question was asked already."""
    checks = partition.decisions.checks
    if _of(partition, plan) is not None:
        return None
    found: list[Decision] = []
    for pledge in plan.pledges:
        other = checks.by_ask.get(pledge.ask.key)
        if other is not None:
            found += end(partition, other, "another plan took its place")
    about = _about(plan)
    asks = tuple(partition.asks[key] for key, _ in about.nodes)
    check = PlanCheck(f"{partition.next_number()}", about, asks, now + ANSWER_MS)
    checks.add(check)
    order = PlanCheckRequested(
        partition.owner, partition.name, check.check_id, about.nodes, about.victims
    )
    return Asked([*found, order], check.overdue_ms, check.check_id)


def decided(partition: Partition, plan: Plan, decision_id: str) -> None:
    """Record that a plan to which its manager agreed is carried out by a decision."""
    check = _of(partition, plan)
    if check is not None:
        check.decision_id = decision_id
        for key in check.keys:
            partition.decisions.checks.refused.pop(key, None)


def _of(partition: Partition, plan: Plan) -> PlanCheck | None:
    """Return the check of exactly this plan, if all asks of the check still wait. Return None if this plan has no such check."""
    check = partition.decisions.checks.by_ask.get(plan.pledges[0].ask.key) if plan.pledges else None
    if check is None or check.about != _about(plan) or not _is_current(partition, check):
        return None
    return check


def _about(plan: Plan) -> Placements:
    return Placements(
        plan.policy,
        tuple((pledge.ask.key, pledge.node_id) for pledge in plan.pledges),
        tuple(release.key for release in plan.releases),
    )


def settle(partition: Partition, *, all_planned: bool) -> list[Decision]:
    """End the checks that have lost their purpose.

    A check has lost its purpose if one of its asks ended or got a node, or if the decision that carries out its plan has ended.

    ``all_planned`` says that the policies have planned for every claim again since the last answer. If so, a check to which the
    manager agreed has also lost its purpose, unless the policies made its plan again.
    """
    checks = partition.decisions.checks
    found: list[Decision] = []
    for check in list(checks.open.values()):
        why = _purpose_lost(partition, check, all_planned=all_planned)
        if why:
            found += end(partition, check, why)
    for key in [key for key in checks.refused if not _waits(partition, key)]:
        del checks.refused[key]
    return found


def _purpose_lost(partition: Partition, check: PlanCheck, *, all_planned: bool) -> str:
    if not _is_current(partition, check):
        return "an ask of it no longer waits"
    if check.decision_id:
        is_open = check.decision_id in partition.decisions.open
        return "" if is_open else f"decision {check.decision_id} has ended"
    return "the plan no longer holds" if check.fits and all_planned else ""


def _is_current(partition: Partition, check: PlanCheck) -> bool:
    """Return whether all asks of the check still wait. A new ask with the key of an ended ask counts as another ask."""
    return len(waiting(partition, check)) == len(check.asks)


def waiting(partition: Partition, check: PlanCheck) -> list[tuple[Ask, str]]:
    """Return the asks of the check that still wait, each with the node that was planned for it."""
    planned = zip(check.asks, check.about.nodes, strict=True)
    return [
        (one, node_id)
        for one, (_, node_id) in planned
        if partition.asks.get(one.key) is one and one.node is None
    ]


def _waits(partition: Partition, key: str) -> bool:
    one = partition.asks.get(key)
    return one is not None and one.node is None


def end(partition: Partition, check: PlanCheck, why: str) -> list[Decision]:
    """End a plan check, and return the message that tells its manager so."""
    partition.decisions.checks.drop(check)
    return [PlanCheckEnded(partition.owner, partition.name, check.check_id, why)]
