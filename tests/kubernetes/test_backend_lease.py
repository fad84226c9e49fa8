"""The lease at an API server that answers correctly, wrongly or not at all, and what a shim that may not act still sends to it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shim_client.cluster import (
    Bind,
    ClusterError,
    CreatePod,
    DeletePod,
    EvictPod,
    FencedError,
    ObjectRef,
    PatchPod,
    RecordEvent,
)
from shim_client.election.lease import Lease, LeaseError, LeaseTakenError, LeaseWrite
from shim_client.kubernetes.access import access_config, http_client
from shim_client.kubernetes.api import Api
from shim_client.kubernetes.cluster import KubernetesCluster
from shim_client.kubernetes.leases import KubernetesLease
from tests.kubernetes.fake_api import HANG, Answer, Asked, FakeApi, Handler, status, world

PATH = "/apis/coordination.k8s.io/v1/namespaces/own/leases"
REF = ObjectRef("Pod", "work", "a", "uid-a")
NOW_MS = 1_767_225_600_123


def lease(holder: str = "one", version: int = 5, **spec: Any) -> Answer:
    facts = {"holderIdentity": holder, "leaseDurationSeconds": 6, "leaseTransitions": 3, **spec}
    metadata = {
        "name": "shim",
        "namespace": "own",
        "resourceVersion": str(version),
        "labels": {"a": "b"},
    }
    return Answer(
        body={
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": facts,
        }
    )


@asynccontextmanager
async def store(
    folder: Path, handle: Handler, now_ms: Callable[[], int] = lambda: NOW_MS
) -> AsyncIterator[tuple[KubernetesLease, FakeApi]]:
    async with world(folder, handle) as there:
        config = access_config(there.kubeconfig, None)
        made = KubernetesLease(config, "own", "shim", 5.0, now_ms)
        try:
            yield made, there.api
        finally:
            await made.close()


async def test_a_lease_is_read(tmp_path: Path) -> None:
    async with store(tmp_path, lambda _: lease()) as (made, api):
        assert await made.read() == Lease("5", "one", 6, 3)
    assert [(one.method, one.path) for one in api.asked] == [("GET", f"{PATH}/shim")]


async def test_no_lease_is_none(tmp_path: Path) -> None:
    async with store(tmp_path, lambda _: status(404, "not found")) as (made, _):
        assert await made.read() is None


async def test_a_lease_of_another_program_without_a_duration_is_left_alone_for_long(
    tmp_path: Path,
) -> None:
    async with store(
        tmp_path, lambda _: lease(leaseDurationSeconds=None, leaseTransitions=None)
    ) as (made, _):
        found = await made.read()
    assert found is not None
    assert found.duration >= 600
    assert found.transitions == 0


@pytest.mark.parametrize(
    "answer", [status(500, "no etcd"), status(403, "forbidden"), status(429, "slowly")]
)
async def test_a_lease_that_cannot_be_read_is_an_error(tmp_path: Path, answer: Answer) -> None:
    async with store(tmp_path, lambda _: answer) as (made, _):
        with pytest.raises(LeaseError, match=str(answer.code)):
            await made.read()


async def test_a_renewal_names_the_version_and_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    began = "2025-12-31T23:59:00.000000Z"

    def handle(asked: Asked) -> Answer:
        return lease(acquireTime=began) if asked.method == "GET" else lease(version=6)

    async with store(tmp_path, handle) as (made, api):
        await made.read()
        assert await made.write(LeaseWrite("5", "one", 6, 3)) == Lease("6", "one", 6, 3)
    [put] = api.of("PUT")
    assert put.path == f"{PATH}/shim"
    assert put.body["metadata"]["resourceVersion"] == "5"
    assert put.body["metadata"]["labels"] == {"a": "b"}
    spec = put.body["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (
        "one",
        6,
        3,
    )
    assert spec["acquireTime"].startswith("2025-12-31T23:59:00")
    assert spec["renewTime"].startswith("2026-01-01T00:00:00.123")


@pytest.mark.parametrize("now_ms", [1_767_225_600_000, 1_767_225_600_001])
async def test_instants_have_a_fraction_because_the_api_server_refuses_others(
    tmp_path: Path, now_ms: int
) -> None:
    began = "2025-12-31T23:59:00.000000Z"

    def handle(asked: Asked) -> Answer:
        return lease(acquireTime=began) if asked.method == "GET" else lease(version=6)

    async with store(tmp_path, handle, lambda: now_ms) as (made, api):
        await made.read()
        await made.write(LeaseWrite("5", "one", 6, 3))
        await made.write(LeaseWrite("6", "one", 6, 4, acquires=True))
    for put in api.of("PUT"):
        for name in ("acquireTime", "renewTime"):
            assert re.fullmatch(r"[-0-9]+T[:0-9]+\.[0-9]{6}Z", put.body["spec"][name])


async def test_a_new_lease_is_created_without_a_version(tmp_path: Path) -> None:
    async with store(
        tmp_path, lambda asked: status(404, "no") if asked.method == "GET" else lease()
    ) as (made, api):
        assert await made.read() is None
        await made.write(LeaseWrite("", "one", 6, 1, acquires=True))
    [post] = api.of("POST")
    assert post.path == PATH
    assert "resourceVersion" not in post.body["metadata"]
    assert post.body["spec"]["acquireTime"] == post.body["spec"]["renewTime"]


@pytest.mark.parametrize("code", [409, 404])
async def test_a_lease_that_has_changed_is_not_overwritten(tmp_path: Path, code: int) -> None:
    async with store(
        tmp_path, lambda asked: lease() if asked.method == "GET" else status(code, "changed")
    ) as (made, _):
        await made.read()
        with pytest.raises(LeaseTakenError):
            await made.write(LeaseWrite("5", "one", 6, 3))


@pytest.mark.parametrize("answer", [status(500, "no"), status(503, "no")])
async def test_a_write_with_an_unknown_result_is_no_taken_lease(
    tmp_path: Path, answer: Answer
) -> None:
    async with store(tmp_path, lambda asked: lease() if asked.method == "GET" else answer) as (
        made,
        _,
    ):
        await made.read()
        with pytest.raises(LeaseError) as failed:
            await made.write(LeaseWrite("5", "one", 6, 3))
        assert not isinstance(failed.value, LeaseTakenError)


# The fence ---------------------------------------------------------------------------------------------------------


class Fenced:
    """A cluster client of which a test says for how many seconds it may act."""

    def __init__(self) -> None:
        self.left = 100.0
        self.looks = 0

    def seconds_left(self) -> float:
        self.looks += 1
        return self.left


@asynccontextmanager
async def fenced(
    folder: Path, handle: Handler
) -> AsyncIterator[tuple[KubernetesCluster, FakeApi, Fenced]]:
    async with world(folder, handle) as there:
        fence = Fenced()
        client = http_client(access_config(there.kubeconfig, None))
        cluster = KubernetesCluster(Api(client, None, fence.seconds_left), "own", lambda: NOW_MS)
        try:
            yield cluster, there.api, fence
        finally:
            await cluster.close()


def pod_or_claim(asked: Asked) -> Answer:
    """Answer as a cluster with one pod and one claim without a volume, which takes every change."""
    body: dict[str, Any] = {
        "metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "1"},
        "spec": {},
        "status": {},
    }
    if asked.path.endswith("claims/c"):
        body = {
            "metadata": {"name": "c", "uid": "uid-c", "annotations": {}},
            "spec": {},
            "status": {"phase": "Pending"},
        }
    return Answer(body=body)


ORDERS = {
    "bind": lambda cluster: cluster.bind(Bind(REF, "n1")),
    "volume": lambda cluster: cluster.bind(Bind(REF, "n1", (("c", ""),))),
    "evict": lambda cluster: cluster.evict_pod(EvictPod(REF)),
    "delete": lambda cluster: cluster.delete_pod(DeletePod(REF)),
    "mark": lambda cluster: cluster.patch_pod(PatchPod(REF, annotations={"a": "b"})),
    "condition": lambda cluster: cluster.patch_pod(
        PatchPod(REF, condition=("A", "True", "B", "c"))
    ),
    "create": lambda cluster: cluster.create_pod(
        CreatePod(REF, {"metadata": {"name": "a"}}, "uid")
    ),
    "event": lambda cluster: cluster.record_event(RecordEvent(REF, "A", "b", warning=False)),
}


@pytest.mark.parametrize("order", ORDERS)
async def test_nothing_is_changed_without_the_lease(tmp_path: Path, order: str) -> None:
    async with fenced(tmp_path, pod_or_claim) as (cluster, api, fence):
        fence.left = 0.0
        with pytest.raises(FencedError):
            await ORDERS[order](cluster)
        assert {one.method for one in api.asked} <= {"GET"}
        fence.left = 100.0
        try:
            await ORDERS[order](cluster)
        except FencedError:
            raise
        except ClusterError:
            pass  # The claim of this cluster gets no volume.
        assert {one.method for one in api.asked} - {"GET"}, "with the lease it is changed"


async def test_reading_needs_no_lease(tmp_path: Path) -> None:
    async with fenced(
        tmp_path,
        lambda _: Answer(
            body={"kind": "Job", "metadata": {"uid": "u"}, "spec": {"parallelism": 3}}
        ),
    ) as (cluster, _, fence):
        fence.left = 0.0
        assert await cluster.pods_wanted(ObjectRef("Job", "work", "j", "u")) == 3


async def test_the_lease_is_looked_at_when_the_bytes_go_out(tmp_path: Path) -> None:
    """A request that waits, here for its connection, looks again: at the start of its headers, and of its body."""
    async with fenced(tmp_path, pod_or_claim) as (cluster, api, fence):

        def once_more() -> float:
            fence.looks += 1
            return 0.0 if fence.looks > allowed else 100.0

        cluster._api._seconds_left = once_more
        for allowed in (1, 2):
            fence.looks = 0
            with pytest.raises(FencedError):
                await cluster.bind(Bind(REF, "n1"))
            assert fence.looks == allowed + 1
        assert api.of("POST") == []
        allowed, fence.looks = 3, 0
        await cluster.bind(Bind(REF, "n1"))
        assert len(api.of("POST")) == 1


async def test_an_answer_is_not_awaited_longer_than_the_lease_is_held(tmp_path: Path) -> None:
    async with fenced(tmp_path, lambda _: HANG) as (cluster, _, fence):
        fence.left = 0.1
        waiting = asyncio.create_task(cluster.bind(Bind(REF, "n1")))
        with pytest.raises(ClusterError):
            await asyncio.wait_for(waiting, 5)
