"""Preemption with all parts: core, shim, controllers that recreate victims, and kubelets."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc
from shim_client.bootstrap import open_directory, wall_clock
from shim_client.cluster import Change, KubeObject, WatchEvent
from shim_client.config import Settings
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.events import KeptEvent
from shim_client.messages import PlanCheck
from shim_client.state_machine import machine
from tests.shim.objects import Item, node, pod
from tests.shim.polling import until
from tests.shim.rig import ROOT, ShimTask, core_here, core_process, free_port, kill, shim_at_work
from tests.shim.test_suitability import HOST, near, spread

WAVES = 4
QUIET_S = 3.0
"""The time in which nothing more may happen: three times the delay and the back-off of these queues."""
QUEUES = """
partitions:
  - name: default
    preemption: {{quotapreemptionenabled: true, backoff: 1s{partition}}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources: {{guaranteed: {{vcore: {prod}}}}}
            properties: {{preemption.delay: 1s}}
          - name: test
            resources: {{guaranteed: {{vcore: {test}}}, max: {{vcore: {most}}}}}
            properties: {{preemption.delay: 1s, quota.preemption.delay: 2s}}
          - {{name: system}}
"""


def queues(*, prod: int = 5, test: int = 1, most: int = 100, partition: str = "") -> str:
    return QUEUES.format(prod=prod, test=test, most=most, partition=partition)


def settings(text: str) -> Settings:
    return Settings(cluster_id="preemption", queues=text)


def replica_set(queue: str, replicas: int, *, cpu: str = "2", **more: Any) -> Item:
    """Return a ReplicaSet of a queue, named like it."""
    labels = {"applicationId": queue, "queue": f"root.{queue}", **more.pop("labels", {})}
    template = {"metadata": {"labels": labels}, "spec": {**pod("x", cpu=cpu)["spec"], **more}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": queue, "namespace": "work"},
        "spec": {"replicas": replicas, "template": template},
    }


def scale(cluster: EmbeddedCluster, queue: str, replicas: int) -> None:
    known = cluster.store.get("ReplicaSet", ("work", queue))
    assert known is not None
    cluster.replace({**known, "spec": {**known["spec"], "replicas": replicas}})


def running(cluster: EmbeddedCluster) -> Counter[str]:
    """Return the number of pods by application that have a node and are not being deleted."""
    return Counter(
        item["metadata"]["labels"]["applicationId"]
        for item in cluster.pods()
        if item["spec"].get("nodeName") and not item["metadata"].get("deletionTimestamp")
    )


def waiting(cluster: EmbeddedCluster, queue: str) -> list[KubeObject]:
    return [
        item
        for item in cluster.pods()
        if item["metadata"]["labels"]["applicationId"] == queue and not item["spec"].get("nodeName")
    ]


def told(cluster: EmbeddedCluster, reason: str) -> list[KeptEvent]:
    return [kept for kept in cluster.events.all() if kept.reason == reason]


def preempted(cluster: EmbeddedCluster) -> list[str]:
    """Return the names of all victims so far."""
    return [kept.about.name for kept in told(cluster, "Preempted")]


async def stays(condition: Callable[[], bool]) -> None:
    """Assert that something holds for QUIET_S."""
    end = asyncio.get_running_loop().time() + QUIET_S
    while asyncio.get_running_loop().time() < end:
        assert condition()
        await asyncio.sleep(0.02)


def full(*, cpu: str = "10", prod: int = 2, test: int = 3) -> EmbeddedCluster:
    """Return a cluster with one node that prod and test fill with pods of 2 cores."""
    cluster = EmbeddedCluster(wall_clock())
    cluster.create(node("n1", cpu=cpu))
    cluster.create(replica_set("test", test))
    cluster.create(replica_set("prod", prod))
    return cluster


@asynccontextmanager
async def at_work(cluster: EmbeddedCluster, text: str) -> AsyncIterator[str]:
    """Hold core and shim once all pods that fit are placed, and yield the core's address."""
    async with core_here() as address, shim_at_work(cluster, address, settings(text)) as shim:
        await until(lambda: shim.progress().is_settled)
        yield address


LOOPS = [
    pytest.param(5, 1, 3, 1, id="case 1"),
    pytest.param(5, 1, 5, 1, id="case 1, three asks pending in one tick"),
    pytest.param(5, 5, 3, 0, id="case 2"),
    pytest.param(9, 1, 5, 2, id="case 3"),
]


@pytest.mark.parametrize(("prod", "test", "wanted", "victims"), LOOPS)
async def test_3_1_the_loop_cases_of_seed_001_end(
    prod: int, test: int, wanted: int, victims: int
) -> None:
    cluster = full()
    async with at_work(cluster, queues(prod=prod, test=test)):
        assert running(cluster) == {"prod": 2, "test": 3}
        scale(cluster, "prod", wanted)
        await until(lambda: running(cluster)["prod"] == 2 + victims)
        await stays(lambda: len(preempted(cluster)) == victims)
        assert running(cluster) == {"prod": 2 + victims, "test": 3 - victims}
        assert len(waiting(cluster, "test")) == victims, "made anew, and without a node"


async def test_both_sides_are_told_what_happens() -> None:
    cluster = full()
    async with at_work(cluster, queues()):
        scale(cluster, "prod", 3)
        await until(lambda: running(cluster)["prod"] == 3)
    [victim] = told(cluster, "Preempted")
    [planned] = told(cluster, "PreemptionPlanned")
    assert "queue root.test" in victim.message
    assert "policy guaranteed" in victim.message
    assert planned.about.name not in victim.message
    assert "on node n1" in planned.message
    assert "1 pod is evicted" in planned.message
    decision = planned.message.split("decision ")[1].split(":")[0]
    assert decision in victim.message


async def test_the_example_of_a_claim_ends_as_it_says() -> None:
    opened = open_directory(ROOT / "examples" / "clusters" / "claim")
    async with core_here() as address, shim_at_work(opened.cluster, address, opened.settings):
        await until(lambda: running(opened.cluster) == {"film": 8, "shop": 8})
        assert len(preempted(opened.cluster)) == 8


async def test_g11_a_daemons_pod_gets_its_node() -> None:
    cluster = full(prod=0, test=5)
    async with at_work(cluster, queues()):
        assert running(cluster) == {"test": 5}
        daemon = replica_set("system", 1, cpu="1")
        cluster.create({**daemon, "kind": "DaemonSet"})
        await until(lambda: running(cluster)["system"] == 1)
        await stays(lambda: len(preempted(cluster)) == 1)
        assert running(cluster) == {"test": 4, "system": 1}


SPREAD = {"topologySpreadConstraints": spread("x", key=HOST)["spec"]["topologySpreadConstraints"]}
APART = near("podAntiAffinity", HOST, {"app": "web"})


@pytest.mark.parametrize(
    ("rule", "on_each"), [(SPREAD, 2), (APART, 1)], ids=["topology spread", "anti-affinity"]
)
async def test_1_8_pods_with_rules_about_their_neighbours_get_their_guarantee(
    rule: dict[str, Any], on_each: int
) -> None:
    """Three full nodes: the queue gets its guarantee, each node as many of its pods as the rule admits, nobody goes in vain."""
    cluster = EmbeddedCluster(wall_clock())
    for name in ("n1", "n2", "n3"):
        cluster.create(node(name, cpu="4", labels={HOST: name}))
    cluster.create(replica_set("test", 6))
    wanted = 3 * on_each
    async with at_work(cluster, queues(prod=2 * wanted, test=0)):
        assert running(cluster) == {"test": 6}
        cluster.create(replica_set("prod", wanted, labels={"app": "web"}, **rule))
        await until(lambda: running(cluster)["prod"] == wanted)
        await stays(lambda: len(preempted(cluster)) == wanted)
    where = Counter(
        item["spec"]["nodeName"]
        for item in cluster.pods()
        if item["metadata"]["labels"]["applicationId"] == "prod"
    )
    assert where == {"n1": on_each, "n2": on_each, "n3": on_each}
    assert told(cluster, "FailedBinding") == []


@pytest.mark.parametrize("restarted", ["core", "shim"])
async def test_a_question_that_was_open_at_a_restart_is_asked_again(
    restarted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first question is not answered; core or shim is killed, and the shim reports everything again."""
    cluster, held = EmbeddedCluster(wall_clock()), list[PlanCheck]()
    cluster.create(node("n1", cpu="10", labels={HOST: "n1"}))
    cluster.create(replica_set("test", 5))
    cluster.create(replica_set("prod", 0, labels={"app": "web"}, **APART))
    answer = machine._DECISIONS[PlanCheck]
    monkeypatch.setitem(machine._DECISIONS, PlanCheck, lambda _state, check: held.append(check))
    living, pair = asyncio.create_task(cluster.run()), Pair(cluster, queues())
    try:
        await pair.start()
        await until(lambda: running(cluster) == {"test": 5})
        scale(cluster, "prod", 1)
        await until(lambda: bool(held))
        assert preempted(cluster) == []
        await pair.kill(restarted)
        monkeypatch.setitem(machine._DECISIONS, PlanCheck, answer)
        await pair.start()
        await until(lambda: running(cluster) == {"prod": 1, "test": 4})
        await stays(lambda: len(preempted(cluster)) == 1)
        assert len(held) == 1
    finally:
        await pair.kill("both")
        living.cancel()


async def apply(address: str, text: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = config_pb2_grpc.ConfigurationServiceStub(channel)
        await stub.Apply(config_pb2.ApplyRequest(yaml=text, source="test"))


async def test_q3_a_lowered_maximum_is_enforced_after_its_delay() -> None:
    cluster = full(prod=0, test=5)
    loop = asyncio.get_running_loop()
    async with at_work(cluster, queues(most=100)) as address:
        lowered = loop.time()
        await apply(address, queues(most=4))
        await until(lambda: bool(preempted(cluster)))
        assert loop.time() - lowered >= 2, "not before the delay"
        await until(lambda: running(cluster) == {"test": 2})
        await stays(lambda: len(preempted(cluster)) == 3)
        assert len(waiting(cluster, "test")) == 3
    assert told(cluster, "PreemptionPlanned") == [], "no event names a preemptor"


async def test_19_a_core_killed_between_release_and_confirmation_ends_nobody_else() -> None:
    cluster = EmbeddedCluster(wall_clock(), stop_ms=4_000)
    cluster.create(node("n1", cpu="10"))
    cluster.create(replica_set("test", 3))
    cluster.create(replica_set("prod", 2))
    port = free_port()
    core = await core_process(port)
    try:
        async with shim_at_work(cluster, f"127.0.0.1:{port}", settings(queues())) as shim:
            await until(lambda: running(cluster) == {"prod": 2, "test": 3})
            scale(cluster, "prod", 3)
            await until(lambda: running(cluster)["test"] == 2)
            await kill(core)
            core = await core_process(port)
            await until(lambda: shim.progress().sessions == 2)
            await until(lambda: running(cluster)["prod"] == 3)
            await stays(lambda: len(preempted(cluster)) == 1)
            assert running(cluster) == {"prod": 3, "test": 2}
    finally:
        await kill(core)


async def test_7_6_an_eviction_that_is_refused_makes_another_one_go() -> None:
    """The budget counts the pods that would go first: they are the youngest."""
    cluster = EmbeddedCluster(wall_clock())
    cluster.create(node("n1", cpu="10"))
    old = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    labels = {"applicationId": "test", "queue": "root.test"}
    cluster.create(pod("old", cpu="2", labels=labels, metadata=old))
    guarded = {**labels, "guard": "yes"}
    for name in ("young", "younger"):
        now = {"creationTimestamp": "2026-06-01T00:00:00Z", "labels": guarded}
        cluster.create(pod(name, cpu="2", metadata=now))
    cluster.create(replica_set("prod", 2))
    cluster.create(
        {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": "work"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"guard": "yes"}}},
        }
    )
    text = queues(partition=", delivery: evict, disruptionbudgets: ignore")
    async with at_work(cluster, text):
        assert running(cluster) == {"prod": 2, "test": 3}
        scale(cluster, "prod", 3)
        await until(lambda: running(cluster)["prod"] == 3)
    assert "old" not in {item["metadata"]["name"] for item in cluster.pods()}
    for name in ("young", "younger"):
        left = cluster.store.get("Pod", ("work", name))
        assert left is not None
        assert "evenhand.io/released-for" not in left["metadata"].get("annotations", {})


async def test_7_6_a_budget_that_is_respected_is_not_even_asked() -> None:
    cluster = full()
    labels = {"guard": "yes"}
    known = cluster.store.get("ReplicaSet", ("work", "test"))
    assert known is not None
    cluster.delete("ReplicaSet", ("work", "test"))
    cluster.create(replica_set("test", 3, labels=labels))
    cluster.create(
        {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": "work"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
        }
    )
    async with at_work(cluster, queues(partition=", disruptionbudgets: respect")):
        scale(cluster, "prod", 3)
        await stays(lambda: not preempted(cluster))
        cluster.delete("PodDisruptionBudget", ("work", "guard"))
        await until(lambda: running(cluster)["prod"] == 3)
        assert len(preempted(cluster)) == 1


def note_end(gone: list[str], event: WatchEvent) -> None:
    """Record the pods that were gone."""
    if event.kind == "Pod" and event.change is Change.DELETED:
        gone.append(event.item["metadata"]["name"])


class Pair:
    """A core in a process of its own and a shim, both of which may be killed and started again."""

    def __init__(self, cluster: EmbeddedCluster, text: str) -> None:
        self._cluster, self._settings, self._port = cluster, settings(text), free_port()
        self._core: asyncio.subprocess.Process | None = None
        self._shim: ShimTask | None = None

    async def start(self) -> None:
        """Start what does not run."""
        self._core = self._core or await core_process(self._port)
        address = f"127.0.0.1:{self._port}"
        self._shim = self._shim or ShimTask(self._cluster, address, self._settings)

    async def kill(self, whom: str) -> None:
        """Kill core, shim or both."""
        if whom != "core" and self._shim is not None:
            await self._shim.kill()
            self._shim = None
        if whom != "shim" and self._core is not None:
            await kill(self._core)
            self._core = None


async def test_19_kills_at_random_moments_end_nobody_in_vain(chance: random.Random) -> None:
    """Pods of one size: each that gets a place by preemption costs one that had it, whatever is killed."""
    cluster, gone = EmbeddedCluster(wall_clock(), stop_ms=300), list[str]()
    cluster.store.noticed.append(partial(note_end, gone))
    for number in range(4):
        cluster.create(node(f"n{number}", cpu="8"))
    cluster.create(replica_set("test", 16))
    cluster.create(replica_set("prod", 0))
    living, pair = asyncio.create_task(cluster.run()), Pair(cluster, queues(prod=24))
    try:
        await pair.start()
        await until(lambda: running(cluster) == {"test": 16})
        for wave in range(1, WAVES + 1):
            scale(cluster, "prod", 2 * wave)
            before = 16 - 2 * (wave - 1)
            await until(lambda before=before: running(cluster)["test"] < before)  # type: ignore[misc]
            await asyncio.sleep(chance.uniform(0, 0.5))
            await pair.kill(chance.choice(("core", "shim", "both")))
            await pair.start()
        await until(lambda: running(cluster) == {"prod": 2 * WAVES, "test": 16 - 2 * WAVES})
        await stays(lambda: len(gone) == 2 * WAVES)
    finally:
        await pair.kill("both")
        living.cancel()
