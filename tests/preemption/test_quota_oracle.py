"""The planner of quota runs gives the result that the rules require, on random clusters (Q9 to Q15)."""

import random

import pytest

from server.kernels import order
from server.preemption.policy import Plan, Refusal
from server.preemption.quota import run
from server.snapshot import victims_in_order
from tests.effort import cases
from tests.preemption.quota_worlds import World, planned, random_world, victims


def check(world: World, seed: int) -> None:
    """Planner and oracle agree on who goes, who stays and why, and on the numbers."""
    oracle, answer = world.oracle(), planned(world)
    assert sorted(victims(answer)) == sorted(pod.key for pod in oracle.taken), seed
    if not oracle.target:
        assert isinstance(answer, Refusal), seed
        assert answer.shrink is None, seed
        return
    check_spared(world, answer, oracle.spared(), seed)
    shrink = answer.shrink
    assert shrink is not None, seed
    assert shrink.target == oracle.target, seed
    assert shrink.result == oracle.result(world.miss_permyriad), seed
    missing = {kind: left for kind, left in oracle.rest().items() if left > 0}
    assert shrink.missing == missing, seed
    assert shrink.candidates == len(oracle.candidates), seed
    if isinstance(answer, Plan):
        freed = {kind: amount - oracle.rest()[kind] for kind, amount in oracle.target.items()}
        assert shrink.freed == {kind: amount for kind, amount in freed.items() if amount}, seed


def check_spared(world: World, answer: Plan | Refusal, rules: dict[str, str], seed: int) -> None:
    """Each pod not evicted is counted once, under the right rule and leaf; the keys are the first in Q11's order."""
    pods = sorted(world.pods, key=world.oracle().order_of_all)
    groups: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if pod.key in rules:
            groups.setdefault((rules[pod.key], pod.leaf), []).append(pod.key)
    found = {(one.rule.value, one.leaf): (one.count, list(one.keys)) for one in answer.spared}
    assert found == {at: (len(keys), keys[:20]) for at, keys in groups.items()}, seed
    assert len(found) == len(answer.spared), seed


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_random_worlds(start: int) -> None:
    for seed in range(start, start + cases(100)):
        check(random_world(random.Random(seed)), seed)


@pytest.mark.parametrize("start", range(1_000, 1_400, 100))
def test_random_worlds_in_small_strides(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates count as many: those evicted together, and those looked at one by one."""
    monkeypatch.setattr(run, "STRIDE", 2)
    monkeypatch.setattr(run, "STRIDE_MOST", 5)
    monkeypatch.setattr(run, "WORTHWHILE", 1)
    monkeypatch.setattr(victims_in_order, "CHUNK", 3)
    monkeypatch.setattr(order, "FEW", 1)
    for seed in range(start, start + cases(100)):
        check(random_world(random.Random(seed)), seed)
