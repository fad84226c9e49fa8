"""StatefulSets of the embedded cluster: ordered names, one after the other, and the replacement of old pods."""

import random
from typing import Any

import pytest

from shim_client.cluster import Bind
from shim_client.embedded import requests
from shim_client.embedded.admission import InvalidError
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.stateful import POD_INDEX, POD_NAME
from tests.effort import cases
from tests.shim.kept import events_of
from tests.shim.objects import Item, node
from tests.shim.test_embedded_store import Clock
from tests.shim.test_embedded_workloads import TEMPLATE, workload

OF = ("StatefulSet", "work", "db")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> EmbeddedCluster:
    made = EmbeddedCluster(clock, stop_ms=2000)
    made.create(node("n1"))
    return made


def stateful(replicas: int, **spec: Any) -> Item:
    return workload("StatefulSet", "db", replicas=replicas, **spec)


def names(cluster: EmbeddedCluster) -> list[str]:
    return sorted(item["metadata"]["name"] for item in cluster.pods())


async def run(cluster: EmbeddedCluster, clock: Clock, rounds: int = 1) -> None:
    """Let time pass, and bind every pod that waits."""
    for _ in range(rounds):
        clock.now += 3000
        cluster.step()
        for item in list(cluster.pods()):
            if not item["spec"].get("nodeName"):
                await cluster.bind(Bind(cluster.ref_of(item), "n1"))
        cluster.step()


async def test_pods_come_one_after_the_other_with_ordered_names(
    cluster: EmbeddedCluster, clock: Clock
) -> None:
    requests.apply(cluster, stateful(3))
    cluster.step()
    assert names(cluster) == ["db-0"]
    (first,) = cluster.pods()
    assert first["metadata"]["labels"][POD_NAME] == "db-0"
    assert first["metadata"]["labels"][POD_INDEX] == "0"
    assert first["metadata"]["labels"]["applicationId"] == "web"
    await run(cluster, clock)
    assert names(cluster) == ["db-0", "db-1"]
    await run(cluster, clock, 2)
    assert names(cluster) == ["db-0", "db-1", "db-2"]


async def test_the_last_pod_goes_first(cluster: EmbeddedCluster, clock: Clock) -> None:
    requests.apply(cluster, stateful(3))
    await run(cluster, clock, 4)
    requests.scale(cluster, OF, 1)
    cluster.step()
    going = [
        item["metadata"]["name"]
        for item in cluster.pods()
        if item["metadata"].get("deletionTimestamp")
    ]
    assert going == ["db-2"]
    await run(cluster, clock, 3)
    assert names(cluster) == ["db-0"]


async def test_a_deleted_pod_comes_again_under_its_name(
    cluster: EmbeddedCluster, clock: Clock
) -> None:
    requests.apply(cluster, stateful(2))
    await run(cluster, clock, 3)
    before = {item["metadata"]["name"]: item["metadata"]["uid"] for item in cluster.pods()}
    requests.delete(cluster, ("Pod", "work", "db-0"))
    await run(cluster, clock, 2)
    after = {item["metadata"]["name"]: item["metadata"]["uid"] for item in cluster.pods()}
    assert after.keys() == before.keys()
    assert after["db-0"] != before["db-0"]
    assert after["db-1"] == before["db-1"]


async def test_parallel_pods_come_at_once_and_begin_at_the_start(
    cluster: EmbeddedCluster,
) -> None:
    requests.apply(cluster, stateful(3, podManagementPolicy="Parallel", ordinals={"start": 5}))
    cluster.step()
    assert names(cluster) == ["db-5", "db-6", "db-7"]
    requests.scale(cluster, OF, 0)
    cluster.step()
    assert names(cluster) == []


async def test_pods_of_an_old_template_are_replaced_one_by_one(
    cluster: EmbeddedCluster, clock: Clock
) -> None:
    requests.apply(cluster, stateful(3))
    await run(cluster, clock, 4)
    newer = {**TEMPLATE, "metadata": {"labels": {"applicationId": "web", "version": "2"}}}
    requests.apply(cluster, stateful(3, template=newer))
    cluster.step()
    replaced = []
    for _ in range(12):
        going = [one for one in cluster.pods() if one["metadata"].get("deletionTimestamp")]
        assert len(going) <= 1
        replaced += [one["metadata"]["name"] for one in going]
        await run(cluster, clock)
    assert list(dict.fromkeys(replaced)) == ["db-2", "db-1", "db-0"]
    assert all(one["metadata"]["labels"]["version"] == "2" for one in cluster.pods())
    assert names(cluster) == ["db-0", "db-1", "db-2"]


def test_volume_claims_are_said_to_be_ignored(cluster: EmbeddedCluster) -> None:
    requests.apply(cluster, stateful(1, volumeClaimTemplates=[{"metadata": {"name": "data"}}]))
    cluster.step()
    (event,) = events_of(cluster, "db", kind="StatefulSet")
    assert (event.reason, event.warning) == ("VolumeClaimsIgnored", True)
    assert names(cluster) == ["db-0"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"podManagementPolicy": "Any"}, "none of OrderedReady, Parallel"),
        ({"ordinals": {"start": -1}}, "spec.ordinals.start"),
        ({"replicas": "three"}, "spec.replicas"),
        ({"template": {}}, "spec.template"),
    ],
)
def test_what_cannot_be_used_is_refused(
    cluster: EmbeddedCluster, spec: dict[str, Any], words: str
) -> None:
    item = stateful(1)
    item["spec"].update(spec)
    with pytest.raises(InvalidError, match=words):
        requests.apply(cluster, item)


def test_a_pod_that_has_the_name_already_is_an_event(cluster: EmbeddedCluster) -> None:
    other = workload("ReplicaSet", "other", replicas=0)
    cluster.create(other)
    cluster.create({"kind": "Pod", "metadata": {"name": "db-0", "namespace": "work"}, **BARE})
    requests.apply(cluster, stateful(1))
    cluster.step()
    (event,) = events_of(cluster, "db", kind="StatefulSet")
    assert event.reason == "FailedCreate"
    assert "db-0 exists already" in event.message


BARE: Item = {"spec": {"containers": [{"name": "c"}]}}


@pytest.mark.parametrize("seed", range(cases(100)))
async def test_any_scaling_ends_with_the_wanted_names(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    clock = Clock()
    cluster = EmbeddedCluster(clock, stop_ms=chance.choice((0, 2000)))
    cluster.create(node("n1"))
    policy = chance.choice(("OrderedReady", "Parallel"))
    requests.apply(cluster, stateful(2, podManagementPolicy=policy))
    wanted = 2
    for _ in range(15):
        wanted = chance.randrange(5)
        requests.scale(cluster, OF, wanted)
        for item in list(cluster.pods()):
            if chance.randrange(6) == 0:
                requests.delete(cluster, ("Pod", "work", item["metadata"]["name"]))
        await run(cluster, clock, chance.randrange(3))
    await run(cluster, clock, 20)
    assert names(cluster) == [f"db-{ordinal}" for ordinal in range(wanted)]
