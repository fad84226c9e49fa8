"""The reports of a quota run, and rules that hold for all quota runs (Q9 to Q17, invariants 3, 10, 11 and 15)."""

import random

import pytest

from server.kernels.share import largest_remainder
from server.model.records import Level, ShrinkResult
from server.preemption.policy import Plan, Refusal, Rule, ShrinkIntent
from server.preemption.quota import enforcement, run
from server.preemption.quota.tree import shares, turns, use_credit
from server.preemption.rules import gate
from tests.effort import cases
from tests.preemption.quota_oracle import Pod
from tests.preemption.quota_worlds import World, planned, random_world, spared, trial_of, victims

A = "root.a"


def pods(count: int, size: int = 10, leaf: str = A, prefix: str = "x") -> list[Pod]:
    """Equal pods."""
    return [Pod(f"{prefix}{number:03}", leaf, {"memory": size}) for number in range(count)]


def world(*running: Pod, most: dict[str, int], **guaranteed: int) -> World:
    """One leaf with a maximum."""
    floors = {A: guaranteed} if guaranteed else {}
    return World({A: most}, list(running), A, guaranteed=floors)


# Numbers of a run -------------------------------------------------------------------------------------------------


def test_a_complete_run_says_what_it_frees() -> None:
    answer = planned(world(*pods(8), most={"memory": 55, "gpu": 0}))
    assert isinstance(answer, Plan)
    assert answer.shrink is not None
    assert (answer.policy, answer.pledges, answer.replans) == ("quota", (), "")
    assert answer.shrink.queue == A
    assert (answer.shrink.target, answer.shrink.freed) == ({"memory": 25}, {"memory": 30})
    assert (answer.shrink.missing, answer.shrink.result) == ({}, ShrinkResult.COMPLETE)
    assert (answer.shrink.candidates, answer.shrink.blocked_by) == (8, "")
    assert {one.leaf for one in answer.releases} == {A}
    assert {one.because for one in answer.releases} == {"root.a is over its maximum (Q11, Q12)"}


def test_a_run_that_goes_on_says_so() -> None:
    trial = world(*pods(3), most={"memory": 20}).trial()
    answer = enforcement.plan(trial, ShrinkIntent("quota", A, "q-1"))
    assert isinstance(answer, Plan)
    assert answer.replans == "q-1"


def test_within_its_maximum_there_is_nothing_to_plan() -> None:
    answer = planned(world(*pods(2), most={"memory": 20}))
    assert answer == Refusal(Rule.NOT_NEEDED, "queue root.a is within its maximum")


def test_without_a_maximum_there_is_nothing_to_plan() -> None:
    assert victims(planned(World({A: None}, pods(2), A))) == []


def test_the_plans_before_count() -> None:
    trial = world(*pods(8), most={"memory": 50}).trial()
    first = enforcement.plan(trial, ShrinkIntent("quota", A))
    assert isinstance(first, Plan)
    trial.apply(first)
    assert isinstance(enforcement.plan(trial, ShrinkIntent("quota", A)), Refusal)


def test_the_guarantee_that_stood_in_the_way_is_named_with_its_numbers() -> None:
    """Q14: the rule that blocked the skipped ones, and the queue that it protects."""
    answer = planned(world(*pods(3, 20), most={"memory": 30}, memory=30))
    assert answer.shrink is not None
    assert victims(answer) == ["x000"]
    assert (answer.shrink.blocked_by, answer.shrink.blocking_queue) == ("below-guarantee", A)
    assert answer.levels == (Level(A, "blocking", "memory", 30, 30, 60),)
    assert spared(answer) == {"x001": "below-guarantee", "x002": "below-guarantee"}


def test_the_rule_that_protects_every_pod_is_named() -> None:
    daemon = Pod("d", A, {"memory": 30}, bar="required-node")
    answer = planned(world(daemon, most={"memory": 20}))
    assert isinstance(answer, Refusal)
    assert (answer.rule, answer.levels) == (Rule.REQUIRED_NODE, ())
    assert answer.shrink is not None
    assert answer.shrink.result is ShrinkResult.IMPOSSIBLE
    assert (answer.shrink.blocked_by, answer.shrink.candidates) == ("required-node", 0)
    assert (answer.shrink.freed, answer.shrink.missing) == ({}, {"memory": 10})


def test_a_queue_that_abstains_frees_nothing_and_misses_all() -> None:
    """Q14, abstain."""
    stuck = world(*pods(3, 20), most={"memory": 30}, memory=30)
    stuck.shortfall = "abstain"
    answer = planned(stuck)
    assert isinstance(answer, Refusal)
    assert answer.rule is Rule.BELOW_GUARANTEE
    assert "abstains" in answer.because
    assert answer.shrink is not None
    assert answer.shrink.result is ShrinkResult.SHORTFALL
    assert (answer.shrink.freed, answer.shrink.missing) == ({}, {"memory": 30})


def test_spared_candidates_are_counted_and_the_first_twenty_named() -> None:
    answer = planned(world(*pods(100), most={"memory": 900}))
    (kept,) = answer.spared
    assert (kept.rule, kept.leaf, kept.count) == (Rule.NOT_NEEDED, A, 90)
    assert kept.keys == tuple(f"x{number:03}" for number in range(10, 30))


def test_many_equal_runs_are_equal() -> None:
    """Invariant 16: the same view gives the same plan."""
    for seed in range(20):
        some = random_world(random.Random(seed))
        assert planned(some) == planned(some), seed


# Rules over all runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(5_000, 5_300, 100))
def test_no_random_run_breaks_a_rule(start: int) -> None:
    for seed in range(start, start + cases(100)):
        some = random_world(random.Random(seed))
        trial = some.trial()
        plan = enforcement.plan(trial, ShrinkIntent("quota", some.queue))
        if isinstance(plan, Plan):
            assert gate.gate(trial, plan) is None, seed
            check_invariants(some, plan, seed)


def check_invariants(some: World, plan: Plan, seed: int) -> None:
    """Invariants 11 and 15, and that a short run leaves nobody who could go."""
    shrink, oracle = plan.shrink, some.oracle()
    assert shrink is not None
    assert set(shrink.target) <= set(some.maxima[some.queue] or {}), seed
    assert all(
        amount <= shrink.freed.get(kind, 0) + shrink.missing.get(kind, 0)
        for kind, amount in shrink.target.items()
    ), seed
    by_key = {pod.key: pod for pod in some.pods}
    for release in plan.releases:
        size = by_key[release.key].size
        rest = {kind: shrink.freed.get(kind, 0) - size.get(kind, 0) for kind in shrink.target}
        needed = any(size.get(kind) and rest[kind] < shrink.target[kind] for kind in rest)
        assert needed, (seed, release.key)
    if shrink.missing:
        oracle.taken = [by_key[release.key] for release in plan.releases]
        for pod in oracle.candidates:
            helps = any(pod.size.get(kind) for kind in shrink.missing)
            if pod not in oracle.taken and helps and some.overshoot == "last":
                floored = oracle.floored(pod)
                assert floored or some.budgets == "respect", (seed, pod.key)


def test_a_run_with_every_margin_changes_nothing_but_takes_what_it_says() -> None:
    """After the plan the queue is where the plan says it is (Q12: a run ends at E or above)."""
    for seed in range(6_000, 6_100):
        some = random_world(random.Random(seed))
        cluster = some.cluster()
        trial = trial_of(cluster)
        before = trial.eff(some.queue)
        plan = enforcement.plan(trial, ShrinkIntent("quota", some.queue))
        assert trial.eff(some.queue) == before, seed
        if isinstance(plan, Plan) and plan.shrink is not None:
            trial.apply(plan)
            after = dict(zip(trial.snapshot.types, trial.eff(some.queue), strict=True))
            had = dict(zip(trial.snapshot.types, before, strict=True))
            for kind in plan.shrink.target:
                assert had[kind] - after[kind] == plan.shrink.freed.get(kind, 0), seed


def test_a_search_among_sixteen_ends_soon() -> None:
    """Q15: 16 candidates have 65,536 sets; a target that only one of them meets is still found."""
    sizes = [1 << number for number in range(run.SEARCHED_MOST)]
    running = [Pod(f"x{at:02}", A, {"memory": size}) for at, size in enumerate(sizes)]
    exact = world(*running, most={"memory": sum(sizes) - 0b1010_1010_1010_1010})
    exact.overshoot = "none"
    answer = planned(exact)
    assert victims(answer) == [f"x{at:02}" for at in range(1, 16, 2)]


# Shares (Q15) -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "weights", "expected"),
    [
        (40, [30, 0, 20], [24, 0, 16]),
        (60, [30, 0, 20], [30, 0, 20]),
        (24, [20, 10], [16, 8]),
        (10, [5, 5, 5], [4, 3, 3]),
        (10, [0, 0], [0, 0]),
        (7, [1 << 61, 1 << 61], [4, 3]),
    ],
)
def test_shares_by_largest_remainder(amount: int, weights: list[int], expected: list[int]) -> None:
    """Q15: plain floors would give 9 of 10."""
    assert largest_remainder(amount, weights) == expected


def test_each_type_is_shared_by_itself() -> None:
    assert shares([30, 0, 8], [[20, 5, 0], [10, 5, 8]]) == [[20, 0, 0], [10, 0, 8]]


def test_the_turn_is_that_of_the_largest_part_in_any_target_type() -> None:
    assert turns([10, 100], [[5, 0], [0, 60], [5, 0]]) == [1, 0, 2]
    assert turns([10, 0], [[1, 99], [2, 0]]) == [1, 0]


def test_credit_is_used_up() -> None:
    credit = [3, 0, 9]
    assert use_credit([1, 1, 9], credit) == [0, 1, 0]
    assert use_credit([5, 1, 1], credit) == [3, 1, 1]
    assert credit == [0, 0, 0]
