"""Victims on the embedded cluster, ordered by a minimal fake core over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shim_client.bootstrap import wall_clock
from shim_client.cluster import DeletePod
from shim_client.embedded.cluster import EmbeddedCluster
from si.v1 import si_pb2
from tests.shim.fake_core import FakeCore
from tests.shim.kept import events_of
from tests.shim.objects import Item, node, pod
from tests.shim.polling import until
from tests.shim.rig import SETTINGS, ShimTask, shim_at_work

MARK = "evenhand.io/released-for"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SELECTOR = {"matchLabels": {"app": "web"}}


class StuckCluster(EmbeddedCluster):
    """A cluster that deletes nothing while it is stuck."""

    def __init__(self) -> None:
        super().__init__(wall_clock())
        self.free = asyncio.Event()
        self.asked: list[DeletePod] = []

    async def delete_pod(self, order: DeletePod) -> None:
        self.asked.append(order)
        await self.free.wait()
        await super().delete_pod(order)


@pytest.fixture
async def core() -> AsyncIterator[FakeCore]:
    made = FakeCore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def cluster() -> StuckCluster:
    made = StuckCluster()
    made.create(node("n1"))
    for name in "ab":
        made.create(pod(name, node="n1", labels={"app": "web"}, status=READY))
    made.create(pod("w"))
    made.step()
    return made


def release(name: str, delivery: str = "delete") -> si_pb2.AllocationResponse:
    end = si_pb2.AllocationRelease(
        allocationKey=f"uid-{name}",
        applicationID="app",
        terminationType="PREEMPTED_BY_SCHEDULER",
        message="queue root.b claims its guarantee, decision g-1-2",
        decisionID="g-1-2",
        beneficiary="uid-w",
        nodes=["n1"],
        delivery=delivery,
    )
    return si_pb2.AllocationResponse(released=[end])


def requests(core: FakeCore) -> list[si_pb2.AllocationRequest]:
    return [one for one in core.messages if isinstance(one, si_pb2.AllocationRequest)]


def vetoes(core: FakeCore) -> list[si_pb2.VictimVeto]:
    return [veto for request in requests(core) for veto in request.vetoes]


def ends(core: FakeCore) -> list[tuple[str, str]]:
    """Return key and decision of the pods confirmed as preempted."""
    return [
        (end.allocationKey, end.decisionID)
        for request in requests(core)
        for end in request.releases.allocationsToRelease
        if end.terminationType == si_pb2.PREEMPTED_BY_SCHEDULER
    ]


def budgets(core: FakeCore) -> list[tuple[str, int]]:
    return [
        (one.name, one.allowed) for request in requests(core) for one in request.disruptionBudgets
    ]


def found(cluster: EmbeddedCluster, name: str) -> Any:
    return cluster.store.get("Pod", ("work", name))


def budget(**spec: Any) -> Item:
    metadata = {"name": "web", "namespace": "work"}
    return {
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"selector": SELECTOR, **spec},
    }


def condition(cluster: EmbeddedCluster, name: str) -> tuple[str, str]:
    """Return status and reason of a pod's DisruptionTarget."""
    [one] = [
        one
        for one in found(cluster, name)["status"]["conditions"]
        if one["type"] == "DisruptionTarget"
    ]
    return one["status"], one["reason"]


async def test_a_budget_that_refuses_makes_a_veto_and_another_goes(
    cluster: StuckCluster, core: FakeCore
) -> None:
    cluster.free.set()
    cluster.create(budget(minAvailable=2))
    cluster.step()
    async with shim_at_work(cluster, f"127.0.0.1:{core.port}"):
        await until(lambda: core.synced == 1)
        assert list(core.allocations["uid-a"].disruptionGroups) == ["work/web"]
        assert budgets(core) == [("work/web", 0)]
        core.say("allocations", release("a", "evict"))
        await until(lambda: bool(vetoes(core)))
        [veto] = vetoes(core)
        assert (veto.decisionID, veto.allocationKey) == ("g-1-2", "uid-a")
        assert "disruption budget" in veto.reason
        await until(lambda: MARK not in found(cluster, "a")["metadata"]["annotations"])
        assert condition(cluster, "a") == ("False", "PreemptionWithdrawn")
        cluster.delete("PodDisruptionBudget", ("work", "web"))
        core.say("allocations", release("b", "evict"))
        await until(lambda: ends(core) == [("uid-b", "g-1-2")])
    assert found(cluster, "a") is not None
    assert found(cluster, "b") is None
    messages = [kept.message for kept in events_of(cluster, "w")]
    assert "capacity is being freed on node n1 by decision g-1-2: 1 pod is evicted" in messages
    [said] = [kept for kept in events_of(cluster, "b") if kept.reason == "Preempted"]
    assert said.message == "queue root.b claims its guarantee, decision g-1-2"


async def test_budgets_are_told_as_pods_come_and_go(cluster: StuckCluster, core: FakeCore) -> None:
    cluster.free.set()
    cluster.create(budget(minAvailable=1))
    cluster.step()
    async with shim_at_work(cluster, f"127.0.0.1:{core.port}"):
        await until(lambda: core.synced == 1)
        core.say("allocations", release("a"))
        await until(lambda: budgets(core) == [("work/web", 1), ("work/web", 0)])


async def test_a_shim_that_is_killed_before_the_deletion_goes_on_with_it(
    cluster: StuckCluster, core: FakeCore
) -> None:
    address = f"127.0.0.1:{core.port}"
    first = ShimTask(cluster, address, SETTINGS)
    await until(lambda: core.synced == 1)
    core.say("allocations", release("a"))
    await until(lambda: bool(cluster.asked))
    await first.kill()
    assert found(cluster, "a")["metadata"]["annotations"][MARK] == "g-1-2/uid-w/n1"
    assert condition(cluster, "a") == ("True", "PreemptionByScheduler")
    core.messages.clear()
    cluster.free.set()
    async with shim_at_work(cluster, address):
        await until(lambda: core.synced == 2)
        mark = told(core, "uid-a")
        assert mark.releasing.decisionID == "g-1-2"
        assert (mark.releasing.releasedFor, mark.releasing.nodeID) == ("uid-w", "n1")
        assert not told(core, "uid-b").HasField("releasing")
        await until(lambda: ends(core) == [("uid-a", "g-1-2")])
    assert found(cluster, "b") is not None


def told(core: FakeCore, key: str) -> si_pb2.Allocation:
    """Return the first allocation that the core received for a key."""
    return next(
        one for request in requests(core) for one in request.allocations if one.allocationKey == key
    )


async def test_a_pod_that_its_owner_deletes_is_told_as_going_before_it_is_gone(
    core: FakeCore,
) -> None:
    cluster = EmbeddedCluster(wall_clock(), stop_ms=60_000)
    cluster.create(node("n1"))
    cluster.create(pod("a", node="n1"))
    async with shim_at_work(cluster, f"127.0.0.1:{core.port}"):
        await until(lambda: core.synced == 1)
        cluster.delete("Pod", ("work", "a"))
        await until(lambda: core.allocations["uid-a"].HasField("releasing"))
        mark = core.allocations["uid-a"].releasing
        assert (mark.terminationType, mark.decisionID) == (si_pb2.STOPPED_BY_RM, "")
