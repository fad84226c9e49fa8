"""Claims of the core compared with brute force on random tiny clusters: equal victims, equal node, no claim missed."""

from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from server.model.decisions import Decision, Noted
from server.model.reasons import Code
from tests.effort import TRIES_ALL, cases
from tests.preemption.claim_clusters import (
    START,
    AlikeDice,
    Dice,
    LayeredDice,
    WeightedDice,
    look_again,
    placed_of,
    plans_of,
    slices,
    tell,
)
from tests.preemption.claim_oracle import (
    Ask,
    Claim,
    Cluster,
    Pod,
    Promise,
    best,
    cost,
    covers,
    crosses_once,
    fits_now,
    fits_on,
    frees_lacking_type,
    keeps_gangs,
    keeps_guarantees,
    look,
    may_go,
)
from tests.preemption.class_clusters import ClassDice, FullClassDice, WeightedClassDice

CLUSTERS: Final = cases(400)
BY_WEIGHT: Final = cases(120)
ALIKE: Final = cases(40)
LAYERED: Final = cases(240)
CLASSES: Final = cases(150)
CLASSES_SOAK: Final = 10_000
CLUSTERS_SOAK: Final = 20_000
LAYERED_SOAK: Final = 100_000
CHUNK: Final = 1_000
ATTEMPTS: Final = 4
BACK_OFF_MS: Final = 16_000


def judge(seed: int, cluster: Cluster) -> str:
    """Live through one cluster twice; how it ended. The cluster changes as the core's decisions are taken over."""
    told = tell(cluster)
    victims = claims = 0
    for attempt in range(1, ATTEMPTS + 1):
        claims += len(told.plans)
        victims += len(told.released)
        for decisions in told.slices:
            _take_over(seed, cluster, decisions)
        assert told.released == [key for *_, going in told.plans for key in going]
        look_again(told.core, cluster, START + attempt * BACK_OFF_MS)
        told = replace(told, slices=slices(told.core, START + attempt * BACK_OFF_MS))
    assert not told.plans, f"seed {seed}: still claims in {cluster}"
    look(cluster)
    for ask in cluster.asks:
        missed = best(cluster, ask)
        assert missed is None, f"seed {seed}: nobody claims {missed} for {ask} in {cluster}"
    if claims:
        return "victims" if victims else "pledge"
    return "waits" if cluster.asks else "placed"


def _take_over(seed: int, cluster: Cluster, decisions: list[Decision]) -> None:
    noted = [one for one in decisions if isinstance(one, Noted)]
    broken = [one.message for one in noted if one.code is Code.LAW_BROKEN]
    assert not broken, f"seed {seed}: {broken} in {cluster}"
    look(cluster)
    for key, node in placed_of(decisions):
        if _was_promised(seed, cluster, key, node):
            continue
        ask = _waiting(cluster, key)
        assert fits_now(cluster, ask), f"seed {seed}: {ask} was placed in {cluster}"
        cluster.asks.remove(ask)
        cluster.pods.append(ask.placed(node))
    look(cluster)
    for policy, key, node, victims in plans_of(decisions):
        ask = _waiting(cluster, key)
        expected, found = best(cluster, ask), Claim(node, victims)
        if policy == "job":  # a job of one; its plan is looked at by the oracle of jobs
            assert expected is None, f"seed {seed}: {ask} could claim {expected} in {cluster}"
        else:
            assert _agree(cluster, ask, expected, found), (
                f"seed {seed}: {found}, not {expected}, for {ask} in {cluster}"
            )
            _check_minimal(seed, cluster, ask, found)
        cluster.pods = [replace(pod, dying=pod.dying or pod.key in victims) for pod in cluster.pods]
        cluster.promises.append(Promise(ask, node))
        cluster.asks.remove(ask)


def _was_promised(seed: int, cluster: Cluster, key: str, node: str) -> bool:
    """Return whether the ask had a promise, which it must get; what is kept for firm asks is not checked (J4)."""
    promise = next((one for one in cluster.promises if one.ask.key == key), None)
    if promise is None:
        return False
    cluster.promises.remove(promise)
    assert promise.node == node, f"seed {seed}: {key} got {node}, not {promise.node}"
    assert fits_on(cluster, promise.ask, node), f"seed {seed}: {key} was placed in {cluster}"
    cluster.pods.append(promise.ask.placed(node))
    return True


def _waiting(cluster: Cluster, key: str) -> Ask:
    return next(each for each in cluster.asks if each.key == key)


def _agree(cluster: Cluster, ask: Ask, expected: Claim | None, found: Claim) -> bool:
    """Return whether both are on one node at one cost; without victims any node will do that the ask will fit."""
    if expected is None:
        return False
    node = next(each for each in cluster.nodes if each.name == found.node)
    if not found.victims:
        return not expected.victims and node.schedulable and covers(cluster, ask, node, ())
    costs = [cost(cluster, ask, node, _pods(cluster, each)) for each in (expected, found)]
    return found.node == expected.node and costs[0] == costs[1] and _is_legal(cluster, ask, found)


def _is_legal(cluster: Cluster, ask: Ask, claim: Claim) -> bool:
    victims = _pods(cluster, claim)
    node = next(each for each in cluster.nodes if each.name == claim.node)
    legal = keeps_guarantees(cluster, ask, victims) or crosses_once(cluster, ask, node, victims)
    return (
        legal
        and keeps_gangs(cluster, victims)
        and all(
            pod.node == claim.node
            and may_go(cluster, ask, pod)
            and frees_lacking_type(cluster, ask, node, pod)
            for pod in victims
        )
    )


def _pods(cluster: Cluster, claim: Claim) -> tuple[Pod, ...]:
    return tuple(pod for pod in cluster.pods if pod.key in claim.victims)


def _check_minimal(seed: int, cluster: Cluster, ask: Ask, claim: Claim) -> None:
    """No victim can be given back (invariant 11)."""
    node = next(each for each in cluster.nodes if each.name == claim.node)
    victims = _pods(cluster, claim)
    for spared in victims:
        rest = tuple(pod for pod in victims if pod is not spared)
        assert not covers(cluster, ask, node, rest), f"seed {seed}: {spared} goes for nothing"


def _run(seeds: range, pods_most: int, dice: type[Dice] = Dice) -> Counter[str]:
    return Counter(judge(seed, dice(seed, pods_most).cluster()) for seed in seeds)


def test_claims_are_the_best_that_the_rules_allow() -> None:
    ends = _run(range(CLUSTERS), pods_most=7)
    if TRIES_ALL:
        assert ends["victims"] >= CLUSTERS // 10
        assert ends["waits"] >= CLUSTERS // 10


def test_claims_among_many_candidates_are_the_best_that_the_rules_allow() -> None:
    _run(range(1_000_000, 1_000_010), pods_most=11)


def test_claims_where_levels_guarantee_different_types_are_the_best_that_the_rules_allow() -> None:
    ends = _run(range(LAYERED), 7, LayeredDice)
    if TRIES_ALL:
        assert ends["victims"] >= LAYERED // 12
        assert ends["waits"] >= LAYERED // 10


def test_claims_for_a_share_by_weight_are_the_best_that_the_rules_allow() -> None:
    ends = _run(range(BY_WEIGHT), 7, WeightedDice)
    if TRIES_ALL:
        assert ends["victims"] >= BY_WEIGHT // 10
        assert ends["waits"] >= BY_WEIGHT // 10


def test_claims_that_share_a_search_are_the_best_though_those_before_let_others_go() -> None:
    ends = _run(range(ALIKE), 5, AlikeDice)
    if TRIES_ALL:
        assert ends["victims"] >= ALIKE // 5
    for seed in (208, 638, 883):  # W8: what was barred, or legal, when the search began
        assert judge(seed, AlikeDice(seed).cluster()) == "victims"


def test_claims_beside_firm_asks_are_the_best_that_the_rules_allow() -> None:
    ends = _run(range(CLASSES), 7, ClassDice) + _run(range(CLASSES // 3), 7, WeightedClassDice)
    if TRIES_ALL:
        assert ends["victims"] >= CLASSES // 5
        assert ends["waits"] >= CLASSES // 5


def test_claims_by_weight_below_what_firm_asks_are_kept_are_the_best_that_the_rules_allow() -> None:
    ends = _run(range(CLASSES // 3), 7, FullClassDice)
    if TRIES_ALL:
        assert ends["victims"] >= CLASSES // 15
    full = _run(range(551, 552), 7, FullClassDice)
    assert full["victims"]  # the node has free capacity, and a maximum has none


def test_what_is_kept_for_firm_asks_often_matters() -> None:
    changed: Counter[str] = Counter()
    for cluster in (ClassDice(seed, 7).cluster() for seed in range(CLASSES)):
        plain = replace(cluster, policies=("required-node", "guaranteed"))
        for ask in cluster.asks:
            kind = "firm" if ask.firm else "lendable"
            changed[f"{kind} claims"] += best(cluster, ask) != best(plain, ask)
            changed[f"{kind} fits"] += fits_now(cluster, ask) != fits_now(plain, ask)
    if TRIES_ALL:
        assert min(changed["lendable claims"], changed["firm claims"]) >= CLASSES // 30, changed
        assert changed["lendable fits"] >= CLASSES // 30, changed


@pytest.mark.soak
@pytest.mark.parametrize("dice", [ClassDice, WeightedClassDice, FullClassDice])
@pytest.mark.parametrize("chunk", range(CLASSES_SOAK // CHUNK))
def test_claims_beside_firm_asks_of_very_many_clusters(chunk: int, dice: type[Dice]) -> None:
    _run(range(chunk * CHUNK, (chunk + 1) * CHUNK), 7, dice)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(LAYERED_SOAK // CHUNK))
def test_claims_where_levels_guarantee_different_types_of_very_many_clusters(chunk: int) -> None:
    _run(range(chunk * CHUNK, (chunk + 1) * CHUNK), 8, LayeredDice)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_claims_by_weight_of_very_many_clusters(chunk: int) -> None:
    _run(range(chunk * CHUNK, (chunk + 1) * CHUNK), 8, WeightedDice)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_claims_that_share_a_search_of_very_many_clusters(chunk: int) -> None:
    _run(range(chunk * CHUNK, (chunk + 1) * CHUNK), 8, AlikeDice)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_claims_of_very_many_clusters(chunk: int) -> None:
    _run(range(chunk * CHUNK, (chunk + 1) * CHUNK), pods_most=8)


@pytest.mark.soak
def test_claims_among_sixteen_candidates_a_node() -> None:
    _run(range(2_000_000, 2_000_040), pods_most=16)
