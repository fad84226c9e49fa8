"""Surplus reclaim on random clusters that lost capacity: the victims that a plain loop over the rule gives (W3, W8)."""

from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from server.model.decisions import Decided, Decision, Noted
from server.model.events import NodeUpdated
from server.model.reasons import Code
from server.model.resources import resource
from tests.effort import TRIES_ALL, cases
from tests.preemption.claim_clusters import MANAGER, START, WeightedDice, placed_of, slices, tell
from tests.preemption.claim_oracle import (
    Amounts,
    Cluster,
    Pod,
    entitled,
    is_disabled,
    kinds,
    look,
)
from tests.preemption.paths import is_below, path_up

CLUSTERS: Final = cases(120)
CLUSTERS_SOAK: Final = 10_000
CHUNK: Final = 1_000
PODS_MOST: Final = 7


def cluster_of(seed: int) -> Cluster:
    """Nobody in it claims, so that only a trim can make anybody go."""
    cluster = WeightedDice(seed, PODS_MOST).cluster()
    cluster.asks = [replace(ask, may_preempt=False) for ask in cluster.asks]
    return cluster


def check(seed: int) -> str:
    """Shrink nodes of a cluster; how the trim ended, which is as the plain walk says."""
    dice, cluster = WeightedDice(seed + 1).random, cluster_of(seed)
    told = tell(cluster)
    place(cluster, told.decisions)
    for node in cluster.nodes:
        if dice.random() < 0.7:
            part = dice.choice((0, 1, 2, 3))
            node.capacity = {kind: max(0, all_ - part) for kind, all_ in node.capacity.items()}
            told.core.handle(NodeUpdated(MANAGER, node.name, resource(node.capacity)), START + 1)
    decisions = [one for each in slices(told.core, START + 1) for one in each]
    place(cluster, decisions)
    broken = [one for one in decisions if isinstance(one, Noted) and one.code is Code.LAW_BROKEN]
    assert not broken, f"seed {seed}: {broken}"
    look(cluster)
    expected = walk(cluster)
    records = [one.record for one in decisions if isinstance(one, Decided)]
    found = [victim.key for one in records if one.policy == "trim" for victim in one.victims]
    assert sorted(found) == sorted(pod.key for pod in expected), f"seed {seed}: {found}"
    assert_minimal(seed, cluster, expected)
    if not too_much(cluster):
        return "enough"
    return "trimmed" if expected else "nobody may go"


def place(cluster: Cluster, decisions: list[Decision]) -> None:
    """Asks that got a node run."""
    for key, node in placed_of(decisions):
        ask = next(one for one in cluster.asks if one.key == key)
        cluster.asks.remove(ask)
        cluster.pods.append(replace(ask.placed(node, START), created=START))


def too_much(cluster: Cluster, gone: tuple[Pod, ...] = ()) -> Amounts:
    """Return what is used beyond what all nodes have, drained ones included, without the victims."""
    over = {}
    for kind in kinds(cluster):
        there = sum(node.capacity.get(kind, 0) for node in cluster.nodes)
        over[kind] = uses(cluster, "root", kind, gone) - there
    return {kind: much for kind, much in over.items() if much > 0}


def uses(cluster: Cluster, path: str, kind: str, gone: tuple[Pod, ...] = ()) -> int:
    """Return what a queue uses, without pods that terminate and without the victims."""
    keys = {pod.key for pod in gone}
    stay = [pod for pod in cluster.pods if not pod.dying and pod.key not in keys]
    return sum(pod.size.get(kind, 0) for pod in stay if is_below(pod.queue, path))


def walk(cluster: Cluster) -> tuple[Pod, ...]:
    """Return, least protected first, pods that help and leave all their queues what they keep, without needless ones."""
    target, taken = too_much(cluster), tuple[Pod, ...]()
    for pod in sorted(candidates(cluster), key=lambda one: order(cluster, one)):
        left = too_much(cluster, taken)
        helps = any(
            pod.size.get(kind) and is_overfull(cluster, pod.node, kind, taken)
            for kind in left
            if kind in target
        )
        if helps and keeps(cluster, target, (*taken, pod)):
            taken = (*taken, pod)
    for pod in reversed(taken):
        rest = tuple(one for one in taken if one is not pod)
        before, after = too_much(cluster, taken), too_much(cluster, rest)
        if all(after.get(kind, 0) == 0 for kind in target if pod.size.get(kind)):
            assert {kind: before.get(kind) for kind in target} == {
                kind: after.get(kind) for kind in target
            }
            taken = rest
    return taken


def is_overfull(cluster: Cluster, name: str, kind: str, gone: tuple[Pod, ...]) -> bool:
    """Return whether more of a type is used on a node than it has, without the victims."""
    keys = {pod.key for pod in gone}
    here = [pod for pod in cluster.pods if pod.node == name and not pod.dying]
    used = sum(pod.size.get(kind, 0) for pod in here if pod.key not in keys)
    node = next(one for one in cluster.nodes if one.name == name)
    return used > node.capacity.get(kind, 0)


def candidates(cluster: Cluster) -> list[Pod]:
    """Return the pods that may be evicted for a trim at all (V3)."""
    return [
        pod
        for pod in cluster.pods
        if not (pod.dying or pod.belongs_to_node or pod.protection == 3)
        and not is_disabled(cluster, pod.queue)
        and not (cluster.budgets == "respect" and is_spent(cluster, pod))
    ]


def is_spent(cluster: Cluster, pod: Pod) -> bool:
    """Return whether the pod's disruption group has nothing left."""
    return bool(pod.group) and not cluster.allowed.get(pod.group, 0)


def order(cluster: Cluster, pod: Pod) -> tuple[bool, bool, int, int, str]:
    """Return the order of eviction: opted out last, originators, low priority, short running time, key (W8, V2)."""
    prefers = cluster.budgets == "prefer" and is_spent(cluster, pod)
    opted = pod.opted_out or pod.protection == 1 or prefers
    return opted, pod.originator, pod.priority, -pod.created, pod.key


def keeps(cluster: Cluster, target: Amounts, victims: tuple[Pod, ...]) -> bool:
    """No queue but the root falls below D in what is too much, nor below E in another type that a victim uses (W3)."""
    for path in {path for pod in victims for path in path_up(pod.queue)} - {"root"}:
        own = [pod for pod in victims if is_below(pod.queue, path)]
        for kind in {kind for pod in own for kind in pod.size}:
            share, has = cluster.shares[kind][path], uses(cluster, path, kind)
            least = share.deserved if kind in target else entitled(cluster, path, kind)
            exempt = cluster.is_plain and kind not in target and has < least  # W8
            if uses(cluster, path, kind, victims) < least and not exempt:
                return False
    return True


def assert_minimal(seed: int, cluster: Cluster, victims: tuple[Pod, ...]) -> None:
    """Assert that no victim is needless, and none could be given back (invariants 11 and 15)."""
    target = too_much(cluster)
    assert not victims or keeps(cluster, target, victims)
    for pod in victims:
        rest = tuple(one for one in victims if one is not pod)
        more = too_much(cluster, rest)
        assert any(pod.size.get(kind) and more.get(kind) for kind in target), f"seed {seed}: {pod}"


def test_a_trim_evicts_exactly_the_pods_that_the_rule_names() -> None:
    found = Counter(check(seed) for seed in range(CLUSTERS))
    if TRIES_ALL:
        assert found["trimmed"] >= CLUSTERS // 5, found
        assert found["nobody may go"] >= CLUSTERS // 20, found


@pytest.mark.soak
@pytest.mark.parametrize("start", range(100_000, 100_000 + CLUSTERS_SOAK, CHUNK))
def test_very_many_trims(start: int) -> None:
    for seed in range(start, start + CHUNK):
        check(seed)
