"""Gangs with all parts: core, shim, Jobs, kubelets; no node is ever over its capacity."""

import asyncio
import json
from collections import Counter
from typing import Any

from shim_client.bootstrap import open_directory
from shim_client.cluster import DeletePod, KubeObject
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.objects import Item, node, pod
from tests.shim.polling import until
from tests.shim.rig import (
    ROOT,
    SETTINGS,
    ShimTask,
    WatchedCluster,
    core_here,
    core_process,
    free_port,
    kill,
    shim_at_work,
)

PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
GROUP = "yunikorn.apache.org/task-group-name"


def member(name: str, count: int, *, style: str = "Soft", seconds: int = 600, **more: Any) -> Item:
    """Return a pod of two cores in a task group of `count` members."""
    group = {"name": "g", "minMember": count, "minResource": {"cpu": "2"}}
    parameters = f"placeholderTimeoutInSeconds={seconds} gangSchedulingStyle={style}"
    notes = {
        "yunikorn.apache.org/task-groups": json.dumps([group]),
        "yunikorn.apache.org/schedulingPolicyParameters": parameters,
        GROUP: "g",
    }
    return pod(name, cpu="2", annotations=notes, **more)


def is_placeholder(item: KubeObject) -> bool:
    return PLACEHOLDER in (item["metadata"].get("annotations") or {})


def placeholders(cluster: EmbeddedCluster) -> list[KubeObject]:
    return [item for item in cluster.pods() if is_placeholder(item)]


def placed(cluster: EmbeddedCluster) -> dict[str, str]:
    """Real pods with their nodes."""
    return {
        item["metadata"]["name"]: item["spec"]["nodeName"]
        for item in cluster.pods()
        if item["spec"].get("nodeName") and not is_placeholder(item)
    }


def reason(cluster: EmbeddedCluster, name: str) -> str:
    """Why a pod waits, as its condition says."""
    item = cluster.store.get("Pod", ("work", name))
    conditions = item["status"].get("conditions", []) if item else []
    return str(conditions[-1].get("reason", "")) if conditions else ""


class Slow(WatchedCluster):
    """A cluster that deletes nothing until the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_delete = asyncio.Event()
        self.asked: Counter[str] = Counter()

    async def delete_pod(self, order: DeletePod) -> None:
        self.asked[order.pod.name] += 1
        await self.may_delete.wait()
        await super().delete_pod(order)


async def test_1_9_real_pods_take_the_places_of_their_placeholders() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="4"))
    cluster.create(node("n2", cpu="2"))
    cluster.create(member("a", 3))
    async with core_here() as address, shim_at_work(cluster, address):
        await until(lambda: placed(cluster).keys() == {"a"} and len(placeholders(cluster)) == 2)
        for name in ("b", "c"):
            cluster.create(member(name, 3))
        await until(lambda: placed(cluster).keys() == {"a", "b", "c"})
        await until(lambda: not placeholders(cluster))
    assert Counter(placed(cluster).values()) == {"n1": 2, "n2": 1}
    assert set(cluster.bindings.values()) == {1}


async def test_1_9_a_gang_that_does_not_fit_holds_nothing() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="4"))
    cluster.create(member("a", 3))
    cluster.create(pod("other", cpu="4", labels={"applicationId": "other"}))
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        await until(lambda: placed(cluster) == {"other": "n1"})
        await until(lambda: len(placeholders(cluster)) == 3)
        await until(lambda: shim.progress().is_settled)
        assert placed(cluster) == {"other": "n1"}
        assert not any(item["spec"].get("nodeName") for item in placeholders(cluster))


async def test_1_9_soft_goes_on_without_its_gang() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="4"))
    cluster.create(member("a", 3, seconds=2))
    async with core_here() as address, shim_at_work(cluster, address):
        await until(lambda: len(placeholders(cluster)) == 3)
        await until(lambda: placed(cluster) == {"a": "n1"})
        await until(lambda: not placeholders(cluster))


async def test_1_9_hard_fails_with_its_gang() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="4"))
    cluster.create(member("a", 3, style="Hard", seconds=2))

    def failed() -> bool:
        item = cluster.store.get("Pod", ("work", "a"))
        return item is not None and item["status"]["phase"] == "Failed"

    async with core_here() as address, shim_at_work(cluster, address):
        await until(lambda: len(placeholders(cluster)) == 3)
        await until(failed)
        await until(lambda: not placeholders(cluster))
        cluster.delete("Pod", ("work", "a"))
        cluster.create(member("again", 2))
        await until(lambda: placed(cluster) == {"again": "n1"})
    item = cluster.store.get("Pod", ("work", "again"))
    assert item is not None


async def test_1_9_unused_placeholders_go_with_the_last_real_pod() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="8"))
    cluster.create(member("a", 3))
    async with core_here() as address, shim_at_work(cluster, address):
        await until(lambda: bool(placed(cluster)) and len(placeholders(cluster)) == 2)
        cluster.delete("Pod", ("work", "a"))
        await until(lambda: not list(cluster.pods()))


async def test_1_7_a_core_killed_in_the_middle_of_a_replacement() -> None:
    """The placeholder's place is its real pod's afterwards, too, although a more important pod waits for one."""
    cluster = Slow()
    cluster.create(node("n1", cpu="2"))
    cluster.create(member("a", 1))
    port = free_port()
    core = await core_process(port)
    try:
        async with shim_at_work(cluster, f"127.0.0.1:{port}") as shim:
            await until(lambda: bool(cluster.asked))
            await kill(core)
            urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 100}
            cluster.create(urgent)
            labels = {"applicationId": "rival"}
            spec = {"priorityClassName": "urgent"}
            cluster.create(pod("rival", cpu="2", labels=labels, spec=spec))
            core = await core_process(port)
            await until(lambda: shim.progress().sessions == 2)
            await until(lambda: reason(cluster, "rival") == "Unschedulable")
            assert reason(cluster, "a") == "SchedulingSkipped", "no reason to make nodes for it"
            assert placed(cluster) == {}
            cluster.may_delete.set()
            await until(lambda: bool(placed(cluster)))
        assert placed(cluster) == {"a": "n1"}
        assert not placeholders(cluster)
    finally:
        await kill(core)


async def test_1_7_a_shim_killed_in_the_middle_of_a_replacement() -> None:
    cluster = Slow()
    cluster.create(node("n1", cpu="2"))
    cluster.create(member("a", 1))
    async with core_here() as address:
        work = asyncio.create_task(cluster.run())
        first = ShimTask(cluster, address, SETTINGS)
        await until(lambda: bool(cluster.asked))
        await first.kill()
        (left,) = placeholders(cluster)
        assert left["metadata"]["annotations"]["evenhand.io/released-for"].startswith("p-")
        cluster.may_delete.set()
        second = ShimTask(cluster, address, SETTINGS)
        await until(lambda: placed(cluster) == {"a": "n1"})
        assert not placeholders(cluster)
        await second.kill()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_the_example_of_gangs_ends_as_it_says() -> None:
    opened = open_directory(ROOT / "examples" / "clusters" / "placeholders")
    cluster = opened.cluster
    together: set[frozenset[str]] = set()

    def done() -> bool:
        running = [item for item in cluster.pods() if item["spec"].get("nodeName")]
        apps = [
            item["metadata"]["labels"].get("applicationId")
            for item in running
            if item["status"]["phase"] == "Running" and not is_placeholder(item)
        ]
        together.add(frozenset(filter(None, apps)))
        phases = Counter(item["status"]["phase"] for item in cluster.pods())
        return phases == {"Succeeded": 8}

    async with core_here() as address, shim_at_work(cluster, address, opened.settings):
        await until(done)
    assert frozenset({"first", "second"}) not in together
