"""The embedded cluster's objects: versions, watches, 410, binding, deletion, patches, events."""

import asyncio
from typing import Any

import pytest

from shim_client.cluster import (
    Bind,
    Change,
    ConflictError,
    CreatePod,
    DeletePod,
    GoneError,
    MissingError,
    ObjectRef,
    PatchPod,
    RecordEvent,
    WatchEvent,
)
from shim_client.embedded.cluster import EmbeddedCluster
from tests.shim.kept import events_of
from tests.shim.objects import Item, node, pod


class Clock:
    """An instant that tests move."""

    def __init__(self) -> None:
        self.now = 1_767_225_600_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> EmbeddedCluster:
    made = EmbeddedCluster(clock, stop_ms=2000)
    made.create(node("n1"))
    made.create(node("n2"))
    return made


def ref(name: str, uid: str = "") -> ObjectRef:
    return ObjectRef("Pod", "work", name, uid)


def status_of(cluster: EmbeddedCluster, name: str) -> Item:
    found = cluster.store.get("Pod", ("work", name))
    assert found is not None
    status: Item = found["status"]
    return status


async def first(cluster: EmbeddedCluster, kind: str, version: int, count: int) -> list[WatchEvent]:
    """Return the first changes that a watch yields."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(5):
        async for event in cluster.watch(kind, version):
            found.append(event)
            if len(found) == count:
                break
    return found


async def test_a_watch_tells_everything_after_the_list_in_order(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("before"))
    listing = await cluster.list_objects("Pod")
    assert [item["metadata"]["name"] for item in listing.items] == ["before"]
    watching = asyncio.create_task(first(cluster, "Pod", listing.version, 4))
    cluster.create(pod("a"))
    await cluster.bind(Bind(ref("a"), "n1"))
    cluster.create(pod("b"))
    await asyncio.sleep(0)
    cluster.delete("Pod", ("work", "b"))
    told = [(event.change, event.item["metadata"]["name"]) for event in await watching]
    assert told == [
        (Change.ADDED, "a"),
        (Change.MODIFIED, "a"),
        (Change.ADDED, "b"),
        (Change.DELETED, "b"),
    ]


async def test_versions_grow_and_objects_are_not_changed_in_place(cluster: EmbeddedCluster) -> None:
    before = cluster.create(pod("a"))
    await cluster.bind(Bind(ref("a"), "n1"))
    after = cluster.store.get("Pod", ("work", "a"))
    assert after is not None
    assert "nodeName" not in before["spec"]
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert after["spec"]["containers"] is before["spec"]["containers"]


async def test_a_version_that_is_too_old_answers_410(clock: Clock) -> None:
    cluster = EmbeddedCluster(clock, history_max=10)
    version = cluster.store.version
    for number in range(30):
        cluster.create(pod(f"p{number}"))
    with pytest.raises(GoneError):
        await first(cluster, "Pod", version, 1)
    recent = await first(cluster, "Pod", cluster.store.version - 3, 3)
    assert [event.item["metadata"]["name"] for event in recent] == ["p27", "p28", "p29"]


async def test_a_pod_is_bound_once(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a"))
    await cluster.bind(Bind(ref("a", "uid-a"), "n1"))
    with pytest.raises(ConflictError, match="already assigned to n1"):
        await cluster.bind(Bind(ref("a", "uid-a"), "n2"))
    conditions = status_of(cluster, "a")["conditions"]
    assert [(item["type"], item["status"]) for item in conditions] == [("PodScheduled", "True")]


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (Bind(ref("nobody"), "n1"), MissingError),
        (Bind(ref("a", "another"), "n1"), ConflictError),
        (Bind(ref("a"), "n9"), ConflictError),
        (DeletePod(ref("nobody")), MissingError),
        (DeletePod(ref("a", "another")), ConflictError),
        (PatchPod(ref("nobody")), MissingError),
        (PatchPod(ref("a", "another")), ConflictError),
    ],
)
async def test_orders_about_another_pod_are_refused(
    cluster: EmbeddedCluster, order: Any, error: type[Exception]
) -> None:
    cluster.create(pod("a"))
    doing: dict[type, Any] = {
        Bind: cluster.bind,
        DeletePod: cluster.delete_pod,
        PatchPod: cluster.patch_pod,
    }
    with pytest.raises(error):
        await doing[type(order)](order)


async def test_a_pod_is_made_once(cluster: EmbeddedCluster) -> None:
    item = pod("a", annotations={"group": "g"})
    item["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "o", "uid": "uid-o"}]
    order = CreatePod(ref("a"), item, "uid-o")
    await cluster.create_pod(order)
    await cluster.create_pod(order)
    assert [one["metadata"]["name"] for one in cluster.pods()] == ["a"]


async def test_a_pod_that_is_refused_or_whose_name_is_taken_is_not_made(
    cluster: EmbeddedCluster,
) -> None:
    item = pod("a", annotations={"group": "g"})
    item["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "o", "uid": "uid-o"}]
    wrong = {**item, "spec": {**item["spec"], "priorityClassName": "none"}}
    with pytest.raises(ConflictError, match="PriorityClass"):
        await cluster.create_pod(CreatePod(ref("a"), wrong))
    cluster.create(pod("a"))
    with pytest.raises(ConflictError, match="exists"):
        await cluster.create_pod(CreatePod(ref("a"), item))


async def test_a_pod_without_node_goes_at_once(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a"))
    await cluster.delete_pod(DeletePod(ref("a")))
    assert cluster.store.get("Pod", ("work", "a")) is None


async def test_a_running_pod_gets_its_grace(cluster: EmbeddedCluster, clock: Clock) -> None:
    cluster.create(pod("a", spec={"terminationGracePeriodSeconds": 1}))
    cluster.create(pod("b", spec={"terminationGracePeriodSeconds": 60}))
    for name in "ab":
        await cluster.bind(Bind(ref(name), "n1"))
        cluster.step()
        await cluster.delete_pod(DeletePod(ref(name)))
    cluster.step()
    going = cluster.store.get("Pod", ("work", "b"))
    assert going is not None
    assert going["metadata"]["deletionTimestamp"] == "2026-01-01T00:01:00Z"
    assert cluster.next_due() == clock.now + 1000
    clock.now += 1000
    cluster.step()
    assert [item["metadata"]["name"] for item in cluster.pods()] == ["b"]
    clock.now += 1000
    cluster.step()
    assert list(cluster.pods()) == []


async def test_a_pod_being_deleted_is_not_bound(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    with pytest.raises(ConflictError, match="being deleted"):
        await cluster.bind(Bind(ref("a"), "n1"))


async def test_a_bound_pod_runs_and_a_short_one_succeeds(
    cluster: EmbeddedCluster, clock: Clock
) -> None:
    cluster.create(pod("a", annotations={"evenhand.io/run-seconds": "5"}))
    await cluster.bind(Bind(ref("a"), "n1"))
    cluster.step()
    assert status_of(cluster, "a")["phase"] == "Running"
    assert status_of(cluster, "a")["startTime"] == "2026-01-01T00:00:00Z"
    clock.now += 5000
    cluster.step()
    assert status_of(cluster, "a")["phase"] == "Succeeded"


async def test_pods_go_with_their_node(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a"))
    await cluster.bind(Bind(ref("a"), "n1"))
    cluster.step()
    cluster.delete("Node", ("", "n1"))
    cluster.step()
    assert list(cluster.pods()) == []


async def test_patches_set_annotations_conditions_and_phase(cluster: EmbeddedCluster) -> None:
    cluster.create(pod("a", annotations={"kept": "1"}))
    waits = ("PodScheduled", "False", "Unschedulable", "no node")
    await cluster.patch_pod(PatchPod(ref("a"), annotations={"new": "2"}, condition=waits))
    await cluster.patch_pod(PatchPod(ref("a"), condition=(*waits[:3], "still no node")))
    await cluster.patch_pod(PatchPod(ref("a"), phase="Failed", reason="R", message="M"))
    found = cluster.store.get("Pod", ("work", "a"))
    assert found is not None
    assert found["metadata"]["annotations"] == {"kept": "1", "new": "2"}
    assert [item["message"] for item in found["status"]["conditions"]] == ["still no node"]
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "R")


async def test_equal_events_are_counted(cluster: EmbeddedCluster, clock: Clock) -> None:
    about = ref("a", "uid-a")
    for _ in range(3):
        await cluster.record_event(RecordEvent(about, "Scheduled", "on n1"))
        clock.now += 1
    await cluster.record_event(RecordEvent(about, "Scheduled", "on n2"))
    assert [(event.message, event.count) for event in events_of(cluster, "a")] == [
        ("on n1", 3),
        ("on n2", 1),
    ]
    assert events_of(cluster, "a")[0].last_ms == events_of(cluster, "a")[0].first_ms + 2
