"""The shim against a fake core on a loopback socket: sessions, reconnection, refusals, replacement by a newer shim."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from shim_client.bootstrap import make_shim, run_shim
from shim_client.config import Settings
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.errors import CoreRefusedError
from shim_client.core_client.streams import SupersededError
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.shim import Shim
from si.v1 import si_pb2
from tests.shim.fake_core import FakeCore
from tests.shim.kept import events_of
from tests.shim.objects import foreign, node, pod
from tests.shim.polling import until
from tests.shim.test_embedded_store import Clock

SETTINGS = Settings(cluster_id="test", queues="partitions: []")


@pytest.fixture
async def core() -> AsyncIterator[FakeCore]:
    made = FakeCore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster(Clock())
    for item in (node("n1"), node("n2"), pod("a"), pod("b"), foreign("f", "n2")):
        made.create(item)
    made.step()
    return made


@asynccontextmanager
async def running(
    cluster: EmbeddedCluster, core: FakeCore, *, forget: bool = False
) -> AsyncIterator[Shim]:
    """Hold a running shim for as long as the block lasts."""
    shim = make_shim(cluster, CoreAddress(f"127.0.0.1:{core.port}"), SETTINGS, forget=forget)
    task = asyncio.create_task(run_shim(shim, cluster))
    try:
        yield shim
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def bound(cluster: EmbeddedCluster) -> dict[str, str]:
    return {
        item["metadata"]["name"]: item["spec"]["nodeName"]
        for item in cluster.pods()
        if item["spec"].get("nodeName")
    }


async def test_a_stream_without_reports_names_its_manager(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shim_client.core_client.resuming.GREETING_SECONDS", 0.0)
    async with running(EmbeddedCluster(Clock()), core):
        await until(lambda: len({type(message) for message in core.messages}) == 3)
    assert {message.rmID for message in core.messages} == {"test"}


async def test_everything_is_told_in_few_messages_and_pods_are_bound(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    core.place_on = "n1"
    async with running(cluster, core) as shim:
        await until(lambda: len(bound(cluster)) == 3 and shim.progress().is_settled)
    registration = core.registrations[0]
    assert (registration.rmID, registration.explicitSync) == ("test", True)
    assert (registration.config, registration.policyGroup) == ("partitions: []", "queues")
    first = next(m for m in core.messages if isinstance(m, si_pb2.AllocationRequest))
    told = [item.allocationKey for item in first.allocations]
    assert told[:3] == ["uid-f", "uid-a", "uid-b"]
    assert core.synced == 1
    assert bound(cluster) == {"a": "n1", "b": "n1", "f": "n2"}
    assert {kept.reason for kept in events_of(cluster, "a")} == {"Scheduled"}


async def test_a_session_that_ends_is_told_anew_in_full(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    core.place_on = "n1"
    async with running(cluster, core) as shim:
        await until(lambda: shim.progress().is_settled and len(bound(cluster)) == 3)
        core.end_streams(grpc.StatusCode.RESOURCE_EXHAUSTED, "your outbox is full")
        await until(lambda: core.synced == 2)
        await until(lambda: set(core.allocations) == {"uid-a", "uid-b", "uid-f"})
        assert core.asks == {}
        assert shim.progress().sessions == 2


async def test_only_the_first_session_asks_the_core_to_forget(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    core.place_on = "n1"
    async with running(cluster, core, forget=True) as shim:
        await until(lambda: shim.progress().is_settled)
        core.end_streams(grpc.StatusCode.RESOURCE_EXHAUSTED, "your outbox is full")
        await until(lambda: core.synced == 2)
    assert [one.forget for one in core.registrations] == [True, False]


async def test_a_core_that_comes_back_is_found_again(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    second = FakeCore()
    async with running(cluster, core) as shim:
        await until(lambda: core.synced == 1)
        await core.stop()
        await until(lambda: not shim.progress().tally.live)
        cluster.create(pod("late"))
        cluster.delete("Pod", ("work", "b"))
        second.place_on = "n2"
        await second.start(core.port)
        await until(lambda: bound(cluster) == {"a": "n2", "late": "n2", "f": "n2"})
    assert second.synced == 1
    await second.stop()


async def test_a_shim_waits_for_a_core_that_is_not_there_yet(cluster: EmbeddedCluster) -> None:
    core = FakeCore()
    await core.start()
    await core.stop()
    async with running(cluster, core):
        await asyncio.sleep(0)
        await core.start(core.port)
        await until(lambda: core.synced == 1)
    await core.stop()


async def ended(cluster: EmbeddedCluster, core: FakeCore) -> tuple[asyncio.Task[None], Shim]:
    address = CoreAddress(f"127.0.0.1:{core.port}")
    shim = make_shim(cluster, address, replace(SETTINGS, queues="bad"))
    return asyncio.create_task(run_shim(shim, cluster)), shim


async def test_design_1_10_the_older_shim_ends_when_a_newer_one_took_over(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    task, _ = await ended(cluster, core)
    await until(lambda: core.synced == 1)
    core.end_streams(grpc.StatusCode.ABORTED, "rmID 'test' was registered again")
    with pytest.raises(SupersededError, match="registered again"):
        await asyncio.wait_for(task, 10)
    assert len(core.registrations) == 1


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    ],
)
async def test_a_refused_registration_ends_the_shim_with_the_core_s_words(
    cluster: EmbeddedCluster, core: FakeCore, code: grpc.StatusCode
) -> None:
    core.refuse = (code, "queues.yaml:3: root.a: unknown key 'quotaa'")
    task, _ = await ended(cluster, core)
    with pytest.raises(CoreRefusedError, match="unknown key 'quotaa'"):
        await asyncio.wait_for(task, 10)


@pytest.mark.parametrize(
    "details",
    [
        "Stream removed (received metadata size exceeds soft limit (9000 vs. 8192))",
        "SERVER: Received message larger than max (5000000 vs. 4194304)",
    ],
)
async def test_what_is_too_large_for_grpc_is_no_busy_core(
    cluster: EmbeddedCluster, core: FakeCore, details: str
) -> None:
    core.refuse = (grpc.StatusCode.RESOURCE_EXHAUSTED, details)
    task, _ = await ended(cluster, core)
    with pytest.raises(CoreRefusedError, match="RESOURCE_EXHAUSTED"):
        await asyncio.wait_for(task, 10)


async def test_a_busy_core_is_asked_again(cluster: EmbeddedCluster, core: FakeCore) -> None:
    core.refuse = (grpc.StatusCode.RESOURCE_EXHAUSTED, "there are 64 resource managers already")
    async with running(cluster, core):
        await asyncio.wait_for(core.refused.wait(), 10)
        core.refuse = None
        await until(lambda: bool(core.registrations))


async def test_an_order_deletes_the_victim_and_is_confirmed(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    core.place_on = "n1"
    async with running(cluster, core):
        await until(lambda: len(bound(cluster)) == 3)
        core.place_on = ""
        release = si_pb2.AllocationRelease(
            allocationKey="uid-a", terminationType="PREEMPTED_BY_SCHEDULER", decisionID="d1"
        )
        core.say("allocations", si_pb2.AllocationResponse(released=[release]))
        await until(lambda: "a" not in bound(cluster))
        await until(lambda: any(end.decisionID == "d1" for end in releases(core)))
    confirmed = [end for end in releases(core) if end.allocationKey == "uid-a"]
    assert [end.terminationType for end in confirmed] == [si_pb2.PREEMPTED_BY_SCHEDULER]


def releases(core: FakeCore) -> list[si_pb2.AllocationRelease]:
    return [
        end
        for message in core.messages
        if isinstance(message, si_pb2.AllocationRequest)
        for end in message.releases.allocationsToRelease
    ]


async def test_an_event_of_the_cluster_reaches_the_core(
    cluster: EmbeddedCluster, core: FakeCore
) -> None:
    async with running(cluster, core):
        await until(lambda: core.synced == 1)
        cluster.create(node("n3"))
        await until(lambda: DRAIN_TO_SCHEDULABLE in actions(core, "n3"))
        cordoned = cluster.store.get("Node", ("", "n3"))
        assert cordoned is not None
        cluster.replace({**cordoned, "spec": {"unschedulable": True}})
        cluster.delete("Node", ("", "n2"))
        await until(lambda: actions(core, "n2")[-1] == si_pb2.NodeInfo.DECOMISSION)
    assert actions(core, "n3")[-1] == si_pb2.NodeInfo.DRAIN_NODE


DRAIN_TO_SCHEDULABLE = si_pb2.NodeInfo.DRAIN_TO_SCHEDULABLE


def actions(core: FakeCore, name: str) -> list[int]:
    return [
        one.action
        for message in core.messages
        if isinstance(message, si_pb2.NodeRequest)
        for one in message.nodes
        if one.nodeID == name
    ]
