"""Preemption within a queue compared with brute force on random tiny clusters: equal victims and nodes, nothing missed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from server.core.core import Core
from server.model.decisions import Decision, Noted, Released
from server.model.reasons import Code
from tests.effort import TRIES_ALL, cases
from tests.preemption import claim_oracle, in_queue_oracle
from tests.preemption.claim_clusters import look_again, placed_of, plans_of, slices, tell
from tests.preemption.claim_oracle import Ask, Claim, Cluster, Promise, fits_now, look
from tests.preemption.in_queue_clusters import OwnDice

WORLDS: Final = cases(400)
WORLDS_SOAK: Final = 20_000
CHUNK: Final = 1_000
PODS_MOST: Final = 7
ATTEMPTS: Final = 3
BACK_OFF_MS: Final = 16_000

Best = Callable[[Cluster, Ask], Claim | None]
ORACLES: Final[dict[str, Best]] = {
    "guaranteed": claim_oracle.best,
    "in-queue": in_queue_oracle.best,
}


def check(seed: int) -> str:
    """One cluster until nothing moves: every decision is the best of its policy, and none is missed; how it ended."""
    cluster = OwnDice(seed, PODS_MOST).cluster()
    told = tell(cluster)
    ends: list[str] = []
    found = told.slices
    for _ in range(ATTEMPTS):
        for decisions in found:
            ends += _follow(seed, cluster, decisions)
        found = _wait(told.core, cluster)
    assert not any(map(plans_of, found)), f"seed {seed}: still plans in {cluster}"
    _assert_none_missed(seed, cluster)
    return next(iter(sorted(ends, key="in-queue victims".__ne__)), "waits")


def _wait(core: Core, cluster: Cluster) -> list[list[Decision]]:
    """Return what is decided when the back-off is over."""
    cluster.now += BACK_OFF_MS
    for ask in cluster.asks:
        ask.waited += BACK_OFF_MS
    look_again(core, cluster, cluster.now)
    return slices(core, cluster.now)


def _assert_none_missed(seed: int, cluster: Cluster) -> None:
    """Assert that no ask waits that could evict pods; capacity that becomes free anyway need not be held for it."""
    look(cluster)
    for ask in cluster.asks:
        missed = in_queue_oracle.best(cluster, ask)
        assert missed is None or not missed.victims, (
            f"seed {seed}: nobody plans {missed} for {ask} in {cluster}"
        )


def _follow(seed: int, cluster: Cluster, decisions: list[Decision]) -> list[str]:
    """Apply to the cluster what was placed and planned in one slice, when the rules agree with it."""
    noted = [one for one in decisions if isinstance(one, Noted)]
    broken = [one.message for one in noted if one.code is Code.LAW_BROKEN]
    assert not broken, f"seed {seed}: {broken} in {cluster}"
    for key, node in placed_of(decisions):
        _place(cluster, key, node)
    look(cluster)
    plans = plans_of(decisions)
    for policy, key, node, victims in plans:
        ask = next(one for one in cluster.asks if one.key == key)
        _judge(seed, cluster, ask, policy, Claim(node, victims))
        cluster.pods = [replace(pod, dying=pod.dying or pod.key in victims) for pod in cluster.pods]
        cluster.promises.append(Promise(ask, node))
        cluster.asks.remove(ask)
    released = [one.key for one in decisions if isinstance(one, Released)]
    assert released == [key for *_, going in plans for key in going], f"seed {seed}: {released}"
    return [f"{policy} {'victims' if victims else 'pledge'}" for policy, _, _, victims in plans]


def _place(cluster: Cluster, key: str, node: str) -> None:
    promise = next((one for one in cluster.promises if one.ask.key == key), None)
    if promise is not None:
        cluster.promises.remove(promise)
        ask = promise.ask
    else:
        ask = next(one for one in cluster.asks if one.key == key)
        look(cluster)
        assert fits_now(cluster, ask)
        cluster.asks.remove(ask)
    cluster.pods.append(ask.placed(node))


def _judge(seed: int, cluster: Cluster, ask: Ask, policy: str, found: Claim) -> None:
    """Assert that a plan is that of the rules, and that no earlier policy has one (P3)."""
    where = f"seed {seed}: {policy}, {found} for {ask} in {cluster}"
    if policy != "guaranteed" and "guaranteed" in cluster.policies:
        claim = claim_oracle.best(cluster, ask)
        assert claim is None, f"not the claim {claim}, {where}"
    if policy == "job":
        return  # a job of one; the oracle of jobs looks at such plans
    expected = ORACLES[policy](cluster, ask)
    assert expected is not None, f"not allowed, {where}"
    if policy == "guaranteed" or not found.victims:
        assert bool(found.victims) == bool(expected.victims), f"not {expected}, {where}"
        return
    assert (found.node, sorted(found.victims)) == (expected.node, sorted(expected.victims)), (
        f"not {expected}, {where}"
    )
    assert in_queue_oracle.is_minimal(cluster, ask, found), f"somebody goes for nothing, {where}"


def _run(seeds: range) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in seeds:
        end, cluster = check(seed), OwnDice(seed, PODS_MOST).cluster()
        kinds = ("by weight", cluster.by_weight), ("with classes", cluster.knows_classes)
        ends.update([end, *(f"{end} {word}" for word, holds in kinds if holds)])
    return ends


def test_replacements_are_the_best_that_the_rules_allow() -> None:
    ends = _run(range(WORLDS))
    if TRIES_ALL:
        assert ends["in-queue victims"] >= WORLDS // 6, ends
        assert ends["waits"] >= WORLDS // 6, ends
        assert ends["in-queue victims by weight"] >= WORLDS // 50, ends
        assert ends["in-queue victims with classes"] >= WORLDS // 50, ends


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(WORLDS_SOAK // CHUNK))
def test_replacements_of_very_many_clusters(chunk: int) -> None:
    _run(range(chunk * CHUNK, (chunk + 1) * CHUNK))
