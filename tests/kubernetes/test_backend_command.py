"""The shim as a process next to an API server, including its command line; no real API server is needed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shim_client.config import BadSettingError
from shim_client.core_client.address import CoreAddress
from shim_client.deployed import ShimOptions, run_on_kubernetes
from shim_client.probe import NoPortError, Probe
from tests.cli.run import evenhand
from tests.kubernetes.fake_api import (
    HANG,
    Answer,
    Asked,
    Handler,
    World,
    listing,
    status,
    stream,
    world,
)
from tests.shim import objects
from tests.shim.polling import until
from tests.shim.rig import QUEUES, core_here

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Cluster:
    """One node, some pods and ConfigMaps; a binding is told by the next watch, and cuts this one."""

    def __init__(self, *items: objects.Item) -> None:
        self.version = 10
        self.lists: dict[str, list[Any]] = {}
        self.events: list[Any] = []
        self.told: list[dict[str, Any]] = []
        for item in items:
            self.lists.setdefault(PATHS[item["kind"]], []).append(self._stamped(item))

    def __call__(self, asked: Asked) -> Answer:
        if asked.method == "POST":
            return self._bind(asked) if asked.path.endswith("/binding") else self._event(asked)
        if asked.method == "PATCH":
            return Answer(body={})
        if "watch" in asked.query:
            since = int(asked.query["resourceVersion"])
            mine = [one for one in self.events if asked.path == PATHS["Pod"]]
            return stream(*(one for one in mine if _version(one["object"]) > since), HANG)
        return listing(*self.lists.get(asked.path, []), version=self.version)

    def bound(self) -> dict[str, str]:
        pods = self.lists.get(PATHS["Pod"], [])
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    def _bind(self, asked: Asked) -> Answer:
        name = asked.body["metadata"]["name"]
        pods = self.lists[PATHS["Pod"]]
        pod = next(one for one in pods if one["metadata"]["name"] == name)
        pod["spec"]["nodeName"] = asked.body["target"]["name"]
        self.events.append({"type": "MODIFIED", "object": self._stamped(pod)})
        return Answer(201, {"kind": "Status"})

    def _event(self, asked: Asked) -> Answer:
        self.told.append(asked.body)
        return Answer(201, asked.body)

    def _stamped(self, item: objects.Item) -> objects.Item:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        return item


PATHS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "ConfigMap": "/api/v1/namespaces/home/configmaps",
}


def _version(item: objects.Item) -> int:
    return int(item["metadata"]["resourceVersion"])


def settings(**data: str) -> objects.Item:
    metadata = {"name": "yunikorn-configs", "namespace": "home"}
    flat = {key.replace("__", "."): value for key, value in data.items()}
    return {"kind": "ConfigMap", "metadata": metadata, "data": flat}


@asynccontextmanager
async def shim(folder: Path, handle: Handler, **place: Any) -> AsyncIterator[tuple[World, Any]]:
    """Hold a running shim with a core of its own; yield the world and the shim's task."""
    async with world(folder, handle) as here, core_here() as core:
        run = run_on_kubernetes(ShimOptions(here.kubeconfig, **place), CoreAddress(core))
        task = asyncio.create_task(run)
        try:
            yield here, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def health(port: int, service: str = "") -> Any:
    """Return the status of the health service, None without an answer."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        question = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = await stub.Check(question, timeout=5, wait_for_ready=True)
        except grpc.RpcError:
            return None
    return answer.status


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_shim_places_pods_and_says_when_it_is_ready(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(8)]
    cluster = Cluster(
        objects.node("n1"), *(objects.pod(name) for name in names), settings(queues__yaml=QUEUES)
    )
    port = free_port()
    async with shim(tmp_path, cluster, health=f"127.0.0.1:{port}") as (here, task):
        await until(lambda: set(cluster.bound().values()) == {"n1"} or task.done())
        assert not task.done()
        assert await health(port) == SERVING
        assert await health(port, "readiness") == SERVING
        here.api.cut()
        scheduled = "Scheduled"
        await until(lambda: sum(one["reason"] == scheduled for one in cluster.told) == len(names))
        await until(lambda: "ConfigurationApplied" in {one["reason"] for one in cluster.told})
    assert await health(port) is None


async def test_an_api_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    cluster, away = Cluster(objects.node("n1"), objects.pod("p")), True

    def handle(asked: Asked) -> Answer:
        return status(503, "starting") if away else cluster(asked)

    port = free_port()
    async with shim(tmp_path, handle, health=f"127.0.0.1:{port}") as (here, _):
        await until(lambda: len(here.api.asked) > 1)
        assert await health(port) == SERVING
        assert await health(port, "readiness") == NOT_SERVING
        away = False
        await until(lambda: cluster.bound() == {"p": "n1"})


async def test_settings_are_read_first_and_a_bad_one_is_said_on_the_map(tmp_path: Path) -> None:
    cluster = Cluster(settings(service__podAllowPreemption="perhaps"))
    async with shim(tmp_path, cluster) as (here, task):
        with pytest.raises(BadSettingError):
            await task
    assert [one.path for one in here.api.asked] == [
        PATHS["ConfigMap"],
        "/api/v1/namespaces/home/events",
    ]
    assert cluster.told[0]["reason"] == "ConfigurationRefused"
    assert cluster.told[0]["involvedObject"]["name"] == "yunikorn-configs"


async def test_a_bad_configuration_at_the_start_leaves_the_core_with_what_it_has(
    tmp_path: Path,
) -> None:
    cluster = Cluster(objects.node("n1"), objects.pod("p"), settings(queues__yaml="nonsense: 1"))
    async with shim(tmp_path, cluster):
        await until(lambda: cluster.bound() == {"p": "n1"})
        await until(lambda: "ConfigurationRefused" in {one["reason"] for one in cluster.told})


async def test_the_namespace_may_be_named(tmp_path: Path) -> None:
    async with shim(tmp_path, Cluster(), namespace="other") as (here, _):
        await until(lambda: len(here.api.asked) > 1)
        assert here.api.asked[0].path == "/api/v1/namespaces/other/configmaps"


async def test_a_health_port_that_is_taken() -> None:
    first, second = Probe(), Probe()
    port = await first.start("127.0.0.1:0")
    with pytest.raises(NoPortError):
        await second.start(f"127.0.0.1:{port}")
    await first.stop()
    await second.stop()


@pytest.mark.parametrize("options", [[], ["--kubernetes", "--cluster", "somewhere"]])
def test_one_cluster_has_to_be_named(options: list[str]) -> None:
    ended = evenhand("shim", *options)
    assert ended.code == 2
    assert "--kubernetes" in ended.err
    assert "Traceback" not in ended.err


def test_no_way_to_the_api_server(tmp_path: Path) -> None:
    ended = evenhand("shim", "--kubernetes", "--kubeconfig", str(tmp_path / "missing"))
    assert ended.code == 1
    assert "no way to reach a Kubernetes API server" in ended.err
    assert "kubectl" in ended.err
