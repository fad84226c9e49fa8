"""Requests of users on the embedded cluster, and any sequence of them with a real core: both keep the same books."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from shim_client.cluster import Bind, ClusterError, ConflictError, MissingError
from shim_client.embedded import requests
from shim_client.embedded.admission import InvalidError
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.saved import Saved, fold, id_of, line, records
from tests.effort import cases
from tests.shim.kept import events_of, number_of
from tests.shim.objects import Item, named, node, pod
from tests.shim.polling import until
from tests.shim.rig import WatchedCluster, core_here, shim_at_work
from tests.shim.test_embedded_store import Clock
from tests.shim.test_embedded_workloads import workload
from tests.shim.test_garbage import SEEDLINGS, spoiled


@pytest.fixture
def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(Clock())
    for name in ("n1", "n2"):
        made.create(node(name))
    return made


async def on(cluster: EmbeddedCluster, name: str) -> None:
    """Bind every waiting pod to a node, and let it run."""
    cluster.step()
    for item in list(cluster.pods()):
        if not item["spec"].get("nodeName"):
            await cluster.bind(Bind(cluster.ref_of(item), name))
    cluster.step()


def budget(available: int) -> Item:
    labels = {"matchLabels": {"applicationId": "web"}}
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "work"},
        "spec": {"minAvailable": available, "selector": labels},
    }


async def test_a_drain_evicts_as_many_pods_as_the_budget_allows(cluster: EmbeddedCluster) -> None:
    cluster.create(workload("Deployment", "web", replicas=4))
    cluster.create(budget(2))
    await on(cluster, "n1")
    drained = await requests.drain(cluster, "n1")
    assert (len(drained.evicted), len(drained.left)) == (2, 2)
    assert all("disruption budget" in one.because for one in drained.left)
    await on(cluster, "n2")
    again = await requests.drain(cluster, "n1")
    assert (len(again.evicted), len(again.left)) == (2, 0)


def test_ephemeral_volumes_are_said_to_be_ignored_and_hold_no_pod(
    cluster: EmbeddedCluster,
) -> None:
    scratch = {"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    wants = pod("wants", spec={"volumes": [scratch, {"name": "e", "emptyDir": {}}]})
    for _ in range(2):
        requests.apply(cluster, wants)
    (event,) = events_of(cluster, "wants")
    assert (event.reason, event.warning) == ("VolumeClaimsIgnored", True)
    (made,) = cluster.pods()
    assert made["spec"]["volumes"] == [{"name": "e", "emptyDir": {}}]


async def test_a_drain_leaves_pods_that_nobody_creates_again(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("bare"))
    orphan = pod("orphan")
    orphan["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "gone", "uid": "gone"}]
    cluster.create(orphan)
    await on(cluster, "n1")
    drained = await requests.drain(cluster, "n1")
    assert drained.evicted == ()
    assert [(one.name, one.may_stay, one.needs_force) for one in drained.left] == [
        ("bare", False, True),
        ("orphan", False, True),
    ]
    forced = await requests.drain(cluster, "n1", force=True)
    assert len(forced.evicted) == 2
    assert (await requests.drain(cluster, "n1")) == requests.Drained((), ())
    with pytest.raises(MissingError, match="no Node n9"):
        await requests.drain(cluster, "n9")


def test_what_an_apply_refuses_changes_nothing(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a"))
    before = list(cluster.store.everything())
    for item, error in (
        ({"kind": "Service", "metadata": {"name": "s"}}, InvalidError),
        ({"metadata": {"name": "s"}}, InvalidError),
        (pod("b", spec={"priorityClassName": "gold"}), InvalidError),
        (pod("a", cpu="2"), InvalidError),
        (pod("b", spec={"nodeName": "n9"}), InvalidError),
        (named("PriorityClass", "system-node-critical", value=1), InvalidError),
        ({**node("n1"), "status": {"allocatable": {"memory": "32GB"}}}, InvalidError),
    ):
        with pytest.raises(error):
            requests.apply(cluster, item)
    assert list(cluster.store.everything()) == before


async def test_a_pod_that_is_being_deleted_cannot_be_applied() -> None:
    cluster = EmbeddedCluster(Clock(), stop_ms=5000)
    cluster.create(node("n1"))
    cluster.create(pod("a"))
    await on(cluster, "n1")
    requests.delete(cluster, ("Pod", "work", "a"))
    with pytest.raises(ConflictError, match="is being deleted"):
        requests.apply(cluster, pod("a"))


async def test_a_bound_pod_takes_new_labels_and_keeps_its_node(cluster: EmbeddedCluster) -> None:
    plain = pod("a")
    assert requests.apply(cluster, plain) == requests.CREATED
    await on(cluster, "n1")
    assert requests.apply(cluster, plain) == requests.UNCHANGED
    cluster.create(named("PriorityClass", "new", value=9, globalDefault=True))
    assert requests.apply(cluster, plain) == requests.UNCHANGED
    assert requests.apply(cluster, pod("a", labels={"x": "1"})) == requests.CONFIGURED
    (now,) = cluster.pods()
    assert now["spec"]["nodeName"] == "n1"
    assert now["status"]["phase"] == "Running"
    assert now["metadata"]["labels"]["x"] == "1"


def test_a_namespace_takes_its_objects_along(cluster: EmbeddedCluster) -> None:
    cluster.create(workload("Deployment", "web", replicas=2))
    cluster.create(pod("elsewhere", ns="other"))
    cluster.step()
    requests.delete(cluster, ("Namespace", "", "work"))
    cluster.step()
    assert [item["metadata"]["name"] for item in cluster.pods()] == ["elsewhere"]
    assert number_of(cluster, "Deployment") == 0
    with pytest.raises(ConflictError, match="belongs to the system"):
        requests.delete(cluster, ("PriorityClass", "", "system-node-critical"))


def test_scaling_names_what_cannot_be_scaled(cluster: EmbeddedCluster) -> None:
    cluster.create(workload("Deployment", "web", replicas=2))
    cluster.step()
    (owned,) = cluster.store.all("ReplicaSet")
    with pytest.raises(ConflictError, match="belongs to Deployment web"):
        requests.scale(cluster, ("ReplicaSet", "work", owned["metadata"]["name"]), 1)
    with pytest.raises(ConflictError, match="0 to 100,000"):
        requests.scale(cluster, ("Deployment", "work", "web"), 10**6)


# Any sequence of requests ---------------------------------------------------------------------------------------------


WORKLOADS = [
    workload("Deployment", "w", replicas=2),
    workload("StatefulSet", "w", replicas=2, ordinals={"start": 1}, updateStrategy={"type": "x"}),
    workload("Job", "w", parallelism=1, completions=2),
    workload("DaemonSet", "w"),
    budget(1),
]


@pytest.mark.parametrize("seed", range(cases(100)))
def test_junk_is_carried_out_or_refused_and_nothing_else(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    cluster = EmbeddedCluster(Clock())
    cluster.create(node("good"))
    for _ in range(40):
        seedling = chance.choice([*SEEDLINGS, *WORKLOADS])
        for item in (seedling, spoiled(seedling, chance), seedling):
            with suppress(ClusterError):
                requests.apply(cluster, item)
            cluster.step()
        if chance.randrange(4) == 0:
            for kept in list(cluster.store.everything()):
                with suppress(ClusterError):
                    requests.delete(cluster, id_of(kept))
    saved = Saved({id_of(item): item for item in cluster.store.everything()}, {}, (1, 1))
    assert fold(map(line, records(saved))) == saved
    again = EmbeddedCluster(Clock())
    again.restore(saved)
    again.step()


STEPS = 25
LOOKS_MAX = 300


@pytest.mark.parametrize("seed", range(cases(60)))
async def test_core_and_cluster_keep_the_same_books_after_any_requests(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    cluster = WatchedCluster()
    for number in range(4):
        cluster.create(node(f"n{number}", cpu="4"))
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        await until(lambda: shim.progress().tally.live)
        for _ in range(STEPS):
            await ask(cluster, chance)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        await until(lambda: shim.progress().is_settled)
        for _ in range(LOOKS_MAX):
            if shim.progress().is_settled and await allocations(address) == held(cluster):
                break
            await asyncio.sleep(0.02)  # Between two looks; the number of looks is the limit.
        assert await allocations(address) == held(cluster)
        assert shim.progress().tally.bound == len(held(cluster))


def held(cluster: EmbeddedCluster) -> list[tuple[str, str]]:
    """Return uid and node of each pod that has a node."""
    return sorted(
        (cluster.ref_of(item).uid, item["spec"]["nodeName"])
        for item in cluster.pods()
        if item["spec"].get("nodeName")
    )


async def ask(cluster: EmbeddedCluster, chance: random.Random) -> None:
    """Make one request; a refusal is a result, too."""
    name = chance.choice("abcdef")
    target = f"n{chance.randrange(5)}"
    wanted: list[Any] = [
        lambda: requests.apply(cluster, nameless(pod(name, cpu=str(chance.randrange(1, 3))))),
        lambda: requests.apply(cluster, workload("Deployment", name, replicas=chance.randrange(4))),
        lambda: requests.apply(cluster, node(target, cpu=str(chance.randrange(3, 6)))),
        lambda: requests.delete(cluster, ("Pod", "work", name)),
        lambda: requests.delete(cluster, ("Deployment", "work", name)),
        lambda: requests.delete(cluster, ("Node", "", target)),
        lambda: requests.scale(cluster, ("Deployment", "work", name), chance.randrange(5)),
        lambda: requests.cordon(cluster, target, unschedulable=chance.random() < 0.5),
    ]
    weights = (4, 4, 3, 3, 2, 1, 3, 2)
    try:
        if chance.randrange(8) == 0:
            await requests.drain(cluster, target, force=chance.randrange(2) == 0)
        else:
            chance.choices(wanted, weights)[0]()
    except ClusterError:
        pass


def nameless(item: Item) -> Item:
    """Return a pod without uid, so that each one that is created gets its own."""
    del item["metadata"]["uid"]
    return item


async def allocations(address: str) -> list[tuple[str, str]]:
    """Return key and node of each allocation that the core has."""
    import grpc  # noqa: PLC0415

    from evenhand.v1 import inspect_pb2, inspect_pb2_grpc  # noqa: PLC0415

    async with grpc.aio.insecure_channel(address) as channel:
        stub = inspect_pb2_grpc.InspectServiceStub(channel)
        answer = await stub.ListAllocations(inspect_pb2.ListAllocationsRequest())
    return sorted((one.allocation_key, one.node_id) for one in answer.allocations)
