"""PodDisruptionBudgets of the embedded cluster: what they count, and how the eviction API uses that."""

from typing import Any

import pytest

from shim_client.cluster import Bind, BudgetError, EvictPod, MissingError, ObjectRef, PatchPod
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.kept import events_of
from tests.shim.objects import Item, node, pod

NOW = 1_767_225_600_000
TEMPLATE: Item = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"schedulerName": "evenhand", "containers": [{"name": "c"}]},
}


@pytest.fixture
def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(lambda: NOW, stop_ms=1000)
    made.create(node("n1"))
    return made


def budget(name: str = "web", app: str = "web", **spec: Any) -> Item:
    selector = {"selector": {"matchLabels": {"app": app}}}
    metadata = {"name": name, "namespace": "work", "generation": 3}
    return {"kind": "PodDisruptionBudget", "metadata": metadata, "spec": {**selector, **spec}}


def status(cluster: EmbeddedCluster, name: str = "web") -> dict[str, int]:
    cluster.step()
    found = cluster.store.get("PodDisruptionBudget", ("work", name))
    assert found is not None
    counted: dict[str, int] = found["status"]
    return counted


def ref(name: str, uid: str = "") -> ObjectRef:
    return ObjectRef("Pod", "work", name, uid)


async def runs(cluster: EmbeddedCluster, *names: str) -> None:
    for name in names:
        if cluster.store.get("Pod", ("work", name)) is None:
            cluster.create(pod(name, labels={"app": "web"}))
        await cluster.bind(Bind(ref(name), "n1"))
    cluster.step()


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": 5}, 0),
        ({"minAvailable": "50%"}, 1),
        ({"minAvailable": "0%"}, 3),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "40%"}, 2),
        ({}, 2),
    ],
)
async def test_what_may_go_is_what_is_healthy_beyond_what_must_stay(
    cluster: EmbeddedCluster, spec: Item, allowed: int
) -> None:
    cluster.create(budget(**spec))
    assert status(cluster)["disruptionsAllowed"] == 0
    await runs(cluster, "a", "b", "c")
    found = status(cluster)
    assert (found["currentHealthy"], found["expectedPods"]) == (3, 3)
    assert (found["disruptionsAllowed"], found["observedGeneration"]) == (allowed, 3)


async def test_pods_that_a_replica_set_still_owes_count_as_unavailable(
    cluster: EmbeddedCluster,
) -> None:
    cluster.create(budget(maxUnavailable=2))
    metadata = {"name": "web", "namespace": "work"}
    spec = {"replicas": 4, "template": TEMPLATE}
    cluster.create({"kind": "ReplicaSet", "metadata": metadata, "spec": spec})
    cluster.step()
    names = [item["metadata"]["name"] for item in cluster.pods()]
    await runs(cluster, *names[:3])
    found = status(cluster)
    assert (found["expectedPods"], found["desiredHealthy"]) == (4, 2)
    assert found["disruptionsAllowed"] == 1


async def test_an_eviction_takes_the_allowance_and_the_next_one_is_refused(
    cluster: EmbeddedCluster,
) -> None:
    cluster.create(budget(minAvailable=2))
    await runs(cluster, "a", "b", "c")
    await cluster.evict_pod(EvictPod(ref("a", "uid-a")))
    going = cluster.store.get("Pod", ("work", "a"))
    assert going is not None
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    with pytest.raises(BudgetError, match="violate"):
        await cluster.evict_pod(EvictPod(ref("b")))
    assert status(cluster)["disruptionsAllowed"] == 0
    await cluster.evict_pod(EvictPod(ref("a")))


async def test_pods_that_nobody_counts_or_that_do_not_run_may_always_be_evicted(
    cluster: EmbeddedCluster,
) -> None:
    cluster.create(budget(minAvailable=9))
    cluster.create(pod("other", node="n1"))
    cluster.create(pod("waits", labels={"app": "web"}))
    for name in ("other", "waits"):
        await cluster.evict_pod(EvictPod(ref(name)))
    with pytest.raises(MissingError):
        await cluster.evict_pod(EvictPod(ref("waits")))


async def test_two_budgets_for_one_pod_are_one_too_many(cluster: EmbeddedCluster) -> None:
    cluster.create(budget(minAvailable=0))
    cluster.create(budget("more", minAvailable=0))
    await runs(cluster, "a")
    with pytest.raises(BudgetError, match="more than one"):
        await cluster.evict_pod(EvictPod(ref("a")))


@pytest.mark.parametrize("bad", ["many", "1000%", -1, [1]])
async def test_a_budget_that_cannot_be_counted_allows_nothing_and_says_so(
    cluster: EmbeddedCluster, bad: Any
) -> None:
    cluster.create(budget(maxUnavailable=bad))
    await runs(cluster, "a")
    assert status(cluster) == {"disruptionsAllowed": 0}
    with pytest.raises(BudgetError):
        await cluster.evict_pod(EvictPod(ref("a")))
    [said] = events_of(cluster, "web", "PodDisruptionBudget")
    assert said.reason == "CalculateExpectedPodCountFailed"


async def test_a_budget_that_is_gone_protects_nobody(cluster: EmbeddedCluster) -> None:
    cluster.create(budget(minAvailable=1))
    await runs(cluster, "a")
    cluster.delete("PodDisruptionBudget", ("work", "web"))
    await cluster.evict_pod(EvictPod(ref("a")))


async def test_an_annotation_can_be_taken_away(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a", annotations={"kept": "1", "gone": "2"}))
    await cluster.patch_pod(PatchPod(ref("a"), annotations={"gone": None, "never": None}))
    found = cluster.store.get("Pod", ("work", "a"))
    assert found is not None
    assert found["metadata"]["annotations"] == {"kept": "1"}
