"""Shim, embedded cluster and the real core over a loopback socket."""

import asyncio
import random
from pathlib import Path

import pytest

from shim_client.bootstrap import make_shim, open_directory, run_shim
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.errors import CoreRefusedError
from shim_client.core_client.streams import SupersededError
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.kept import events_of
from tests.shim.objects import foreign, node, pod
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
    over_capacity,
    own,
    shim_at_work,
    waiting,
)

SMALL = ROOT / "examples" / "clusters" / "small"
WAVES, WAVE = 3, 40
SLOW = 0.002
"""Seconds that a binding takes, where a test wants to come in between."""


def cluster_of(nodes: int, bind_seconds: float = 0.0) -> WatchedCluster:
    made = WatchedCluster(bind_seconds)
    for number in range(nodes):
        made.create(node(f"n{number}", cpu="8"))
    return made


def why(cluster: EmbeddedCluster) -> dict[str, tuple[str, str]]:
    """Return reason and message of each pod of ours that has no node."""
    found = {}
    for item in waiting(cluster):
        texts = [
            (condition["reason"], condition["message"])
            for condition in item["status"].get("conditions", ())
            if condition["type"] == "PodScheduled"
        ]
        found[item["metadata"]["name"]] = texts[0] if texts else ("", "")
    return found


async def test_every_pod_of_the_small_example_is_bound_or_has_a_true_reason() -> None:
    opened = open_directory(SMALL)
    cluster = opened.cluster
    async with core_here() as address, shim_at_work(cluster, address, opened.settings) as shim:
        await until(lambda: shim.progress().is_settled)
        reasons = why(cluster)
    by_owner: dict[str, list[str]] = {}
    for name, (reason, _) in reasons.items():
        by_owner.setdefault(name.rsplit("-", 1)[0] if "-" in name else name, []).append(reason)
    assert by_owner.pop("gated") == [""]
    assert [kept.reason for kept in events_of(cluster, "gated")] == ["SchedulingGated"]
    assert by_owner.pop("too") == ["Unschedulable"]
    assert by_owner.pop("train-vision") == ["SchedulingSkipped"]
    red = [name for name in by_owner if name.startswith("api-")]
    assert [by_owner.pop(name) for name in red] == [["SchedulingSkipped"] * 2]
    # Nothing else waits: the daemon's pod runs on the cordoned node too.
    assert by_owner == {}
    for item in cluster.nodes():
        assert over_capacity(cluster, item["metadata"]["name"]) == {}


async def test_pods_that_come_and_go_are_followed() -> None:
    cluster = cluster_of(2)
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        await until(lambda: shim.progress().tally.live)
        for number in range(20):
            cluster.create(pod(f"p{number}", cpu="1"))
        await until(lambda: len(waiting(cluster)) == 4 and shim.progress().is_settled)
        assert {reason for reason, _ in why(cluster).values()} == {"Unschedulable"}
        gone = [item for item in own(cluster) if item["spec"].get("nodeName")][:4]
        for item in gone:
            cluster.delete("Pod", ("work", item["metadata"]["name"]))
        await until(lambda: not waiting(cluster))


async def test_a_foreign_pod_takes_capacity_and_gives_it_back() -> None:
    cluster = cluster_of(1)
    cluster.create(foreign("f", "n0", cpu="6"))
    cluster.create(pod("p", cpu="3"))
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        await until(lambda: shim.progress().is_settled)
        assert why(cluster)["p"][0] == "Unschedulable"
        cluster.delete("Pod", ("work", "f"))
        await until(lambda: not waiting(cluster))


async def test_a_node_that_is_drained_takes_nothing_and_one_that_goes_is_left() -> None:
    cluster = cluster_of(2)
    template = {
        "metadata": {"labels": {"applicationId": "web", "queue": "root.a"}},
        "spec": pod("x", cpu="1")["spec"],
    }
    spec = {"replicas": 4, "template": template}
    metadata = {"name": "web", "namespace": "work"}
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        cordoned = cluster.store.get("Node", ("", "n0"))
        assert cordoned is not None
        cluster.replace({**cordoned, "spec": {"unschedulable": True}})
        cluster.create({"kind": "ReplicaSet", "metadata": metadata, "spec": spec})
        await until(lambda: len(own(cluster)) == 4 and not waiting(cluster))
        assert {item["spec"]["nodeName"] for item in own(cluster)} == {"n1"}
        cluster.delete("Node", ("", "n1"))
        await until(lambda: len(waiting(cluster)) == 4 and shim.progress().is_settled)
        cluster.replace({**cordoned, "spec": {}})
        await until(lambda: not waiting(cluster))
        assert {item["spec"]["nodeName"] for item in own(cluster)} == {"n0"}


def grow(cluster: WatchedCluster, wave: int, chance: random.Random) -> None:
    """Create a wave of pods."""
    for number in range(WAVE):
        cpu = chance.choice(["100m", "200m", "300m"])
        cluster.create(pod(f"p{wave}-{number}", cpu=cpu))


async def half_way(cluster: WatchedCluster, wave: int, chance: random.Random) -> None:
    """Wait for a moment at which some of a wave's pods are bound and others are not."""
    wanted = wave * WAVE + chance.randrange(1, WAVE - 5)
    await until(lambda: len(cluster.bindings) >= wanted)


def assert_all_placed_once(cluster: WatchedCluster) -> None:
    """Assert that nothing is bound twice, nothing is over capacity, and everything is placed."""
    assert len(own(cluster)) == WAVES * WAVE
    assert waiting(cluster) == []
    assert set(cluster.bindings.values()) == {1}
    for item in cluster.nodes():
        assert over_capacity(cluster, item["metadata"]["name"]) == {}


async def test_a_core_that_is_killed_half_way_and_started_again(chance: random.Random) -> None:
    cluster, port = cluster_of(5, SLOW), free_port()
    core = await core_process(port)
    try:
        async with shim_at_work(cluster, f"127.0.0.1:{port}") as shim:
            for wave in range(WAVES):
                grow(cluster, wave, chance)
                await half_way(cluster, wave, chance)
                await kill(core)
                core = await core_process(port)
            await until(lambda: not waiting(cluster) and shim.progress().is_settled)
            assert shim.progress().sessions == WAVES + 1
    finally:
        await kill(core)
    assert_all_placed_once(cluster)


async def test_a_shim_that_is_killed_half_way_and_started_again(chance: random.Random) -> None:
    cluster = cluster_of(5, SLOW)
    async with core_here() as address:
        living = asyncio.create_task(cluster.run())
        shim = ShimTask(cluster, address, SETTINGS)
        for wave in range(WAVES):
            grow(cluster, wave, chance)
            await half_way(cluster, wave, chance)
            await shim.kill()
            shim = ShimTask(cluster, address, SETTINGS)
        await until(lambda: not waiting(cluster) and shim.shim.progress().is_settled)
        await shim.kill()
        living.cancel()
    assert_all_placed_once(cluster)


async def test_the_older_of_two_shims_ends_and_says_why() -> None:
    cluster = cluster_of(1)
    async with core_here() as address:
        first = ShimTask(cluster, address, SETTINGS)
        await until(lambda: first.shim.progress().tally.live)
        second = ShimTask(cluster, address, SETTINGS)
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(first.task, 10)
        assert ended.group_contains(SupersededError)
        await until(lambda: second.shim.progress().tally.live)
        assert second.shim.progress().sessions == 1
        await second.kill()


async def test_a_configuration_that_is_wrong_ends_the_shim_with_its_line(tmp_path: Path) -> None:
    text = "kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 1}}\n"
    (tmp_path / "n.yaml").write_text(text)
    (tmp_path / "queues.yaml").write_text("partitions:\n  - name: default\n    quues: []\n")
    opened = open_directory(tmp_path)
    async with core_here() as address:
        shim = make_shim(opened.cluster, CoreAddress(address), opened.settings)
        with pytest.raises(CoreRefusedError, match="quues"):
            await asyncio.wait_for(run_shim(shim, opened.cluster), 10)


async def test_a_configuration_with_many_mistakes_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "n.yaml").write_text(
        "kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 1}}\n"
    )
    wrong = "".join(f"          - {{name: q{at}, resourcez: {{}}}}\n" for at in range(60))
    text = (
        f"partitions:\n  - name: default\n    queues:\n      - name: root\n        queues:\n{wrong}"
    )
    (tmp_path / "queues.yaml").write_text(text)
    opened = open_directory(tmp_path)
    async with core_here() as address:
        shim = make_shim(opened.cluster, CoreAddress(address), opened.settings)
        with pytest.raises(
            CoreRefusedError, match=r"60 problems; .*line 6: unknown key 'resourcez'"
        ):
            await asyncio.wait_for(run_shim(shim, opened.cluster), 10)
