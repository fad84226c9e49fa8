"""Gangs with all parts: labelled Jobs and ReplicaSets, a real core, and nodes with and without enough capacity."""

from typing import Any

from shim_client.bootstrap import open_directory, wall_clock
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.objects import Item, node, pod
from tests.shim.polling import until
from tests.shim.rig import ROOT, SETTINGS, WatchedCluster, core_here, own, shim_at_work, waiting
from tests.shim.test_preemption import stays, told

JOB = "pod-group.scheduling.sigs.k8s.io"
SIZE = "pod-group.scheduling.sigs.k8s.io/min-available"


def workload(kind: str, name: str, spec: dict[str, Any], **labels: str) -> Item:
    """Return a Job or ReplicaSet whose pods, of one core each, form one gang."""
    marks = {"applicationId": name, "queue": "root.a", JOB: name, **labels}
    template = {"metadata": {"labels": marks}, "spec": pod("x")["spec"]}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "work"},
        "spec": {**spec, "template": template},
    }


def of(cluster: EmbeddedCluster, name: str) -> int:
    """Return how many pods of an application have a node."""
    return sum(
        bool(item["spec"].get("nodeName"))
        for item in own(cluster)
        if item["metadata"]["labels"]["applicationId"] == name
    )


async def test_j1_a_job_is_placed_whole_or_not_at_all() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="5"))
    cluster.create(workload("Job", "train", {"parallelism": 8}))
    cluster.create(workload("Job", "small", {"parallelism": 4}))
    async with core_here() as address, shim_at_work(cluster, address):
        await until(lambda: of(cluster, "small") == 4)
        await stays(lambda: of(cluster, "train") == 0)
        cluster.create(node("n2", cpu="7"))
        await until(lambda: of(cluster, "train") == 8)
    assert max(cluster.bindings.values()) == 1


async def test_j1_a_label_counts_before_what_the_owner_wants() -> None:
    cluster = EmbeddedCluster(wall_clock())
    cluster.create(node("n1", cpu="8"))
    gang = workload("ReplicaSet", "serve", {"replicas": 2}, **{SIZE: "3"})
    cluster.create(gang)
    async with core_here() as address, shim_at_work(cluster, address):
        await until(lambda: len(waiting(cluster)) == 2)
        await stays(lambda: of(cluster, "serve") == 0)
        known = cluster.store.get("ReplicaSet", ("work", "serve"))
        assert known is not None
        cluster.replace({**known, "spec": {**known["spec"], "replicas": 3}})
        await until(lambda: of(cluster, "serve") == 3)


async def test_j1_a_job_that_grows_before_it_has_capacity_waits_for_all_of_it() -> None:
    cluster = EmbeddedCluster(wall_clock())
    cluster.create(node("n1", cpu="5"))
    gang = workload("ReplicaSet", "serve", {"replicas": 6})
    cluster.create(gang)
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        await until(lambda: shim.progress().tally.explained == 6)
        known = cluster.store.get("ReplicaSet", ("work", "serve"))
        assert known is not None
        cluster.replace({**known, "spec": {**known["spec"], "replicas": 3}})
        await until(lambda: of(cluster, "serve") == 3)
        assert waiting(cluster) == []


async def test_j1_without_a_word_the_members_that_came_together_are_the_job() -> None:
    cluster = EmbeddedCluster(wall_clock())
    cluster.create(node("n1", cpu="2"))
    for name in "abc":
        cluster.create(pod(name, labels={JOB: "j"}))
    async with core_here() as address, shim_at_work(cluster, address, SETTINGS) as shim:
        await until(lambda: shim.progress().tally.explained == 3)
        await until(lambda: len(told(cluster, "JobGathering")) == 3)
        cluster.create(node("n2", cpu="1"))
        await until(lambda: waiting(cluster) == [])


async def test_the_example_is_what_its_comments_say() -> None:
    """Its training runs 20 s, which the test does not wait for: it deletes it."""
    opened = open_directory(ROOT / "examples" / "clusters" / "gang")
    assert not opened.ignored
    cluster = opened.cluster
    async with core_here() as address, shim_at_work(cluster, address, opened.settings) as shim:
        await until(lambda: of(cluster, "train") == 8 and shim.progress().tally.explained == 12)
        await stays(lambda: of(cluster, "sweep") == 0)
        cluster.delete("Job", ("research", "train"))
        await until(lambda: of(cluster, "sweep") == 12)


async def test_the_last_pods_of_a_job_wait_for_no_more_than_are_left() -> None:
    """Of six completions, four at a time, the last two have nobody else to wait for."""
    cluster = EmbeddedCluster(wall_clock())
    cluster.create(node("n1", cpu="4"))
    work = workload("Job", "train", {"parallelism": 4, "completions": 6})
    work["spec"]["template"]["metadata"]["annotations"] = {"evenhand.io/run-seconds": "1"}
    cluster.create(work)
    async with core_here() as address, shim_at_work(cluster, address):

        def done() -> int:
            known = cluster.store.get("Job", ("work", "train"))
            return int(known.get("status", {}).get("succeeded", 0)) if known else 0

        await until(lambda: done() == 6)
