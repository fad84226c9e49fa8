"""The core's container, used through its published port by a client of the published interface.

No code of this project runs outside the container: the client knows only the messages.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.container import DockerContainer

from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc
from tests.compose.docker import Docker

PORT = 50051
PATIENCE_S = 30.0
GRACE_S = 25
RM = "plain-client"
QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {max: {vcore: 2}}}
"""


@pytest.fixture(scope="module")
def rights(docker: Docker) -> Iterator[dict[str, object]]:
    """Provide the rights of a container, once testcontainers has the settings of the engine."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in docker.engine.environment().items():
            patch.setenv(name, value)
        # The reaper is an image to pull; each container here ends with its test.
        patch.setattr(testcontainers_config, "ryuk_disabled", True)
        if docker.engine.private:
            # Its ports are on our loopback, even where we are in a container.
            patch.setattr(testcontainers_config, "tc_host_override", "127.0.0.1")
            mode = ConnectionMode.docker_host
            patch.setattr(testcontainers_config, "connection_mode_override", mode)
        yield {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}


@pytest.fixture
def core(image: str, rights: dict[str, object]) -> Iterator[DockerContainer]:
    """Start the core alone, open to this machine."""
    words = ["serve", "--listen", f"0.0.0.0:{PORT}", "--insecure"]
    container = DockerContainer(image).with_command(words).with_exposed_ports(PORT)
    with container.with_kwargs(**rights) as started:
        yield started


@pytest.fixture
async def channel(core: DockerContainer) -> AsyncIterator[grpc.aio.Channel]:
    """Provide a connection to the published port, once the core serves."""
    target = f"{core.get_container_host_ip()}:{core.get_exposed_port(PORT)}"
    async with grpc.aio.insecure_channel(target) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        answer = await health.Check(request, timeout=PATIENCE_S, wait_for_ready=True)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        yield channel


class Client:
    """A resource manager: one registration and three streams."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = si_pb2_grpc.SchedulerStub(channel)
        self.nodes = self._stub.UpdateNode()
        self.applications = self._stub.UpdateApplication()
        self.allocations = self._stub.UpdateAllocation()
        self._heard: dict[str, list[Any]] = {"new": [], "released": [], "schedulingStates": []}

    async def register(self) -> None:
        """Register the manager with the queues of its cluster."""
        request = si.RegisterResourceManagerRequest(rmID=RM, version="1", config=QUEUES)
        await self._stub.RegisterResourceManager(request, timeout=PATIENCE_S)

    async def told(self, part: str) -> list[Any]:
        """Return and forget the items of one part of the answers: `new`, `released`, `schedulingStates`."""
        while not self._heard[part]:
            answer = await _read(self.allocations)
            for name, heard in self._heard.items():
                heard.extend(getattr(answer, name))
        found, self._heard[part] = self._heard[part], []
        return found


async def _read(stream: Any) -> Any:
    return await asyncio.wait_for(stream.read(), PATIENCE_S)


def cores(milli: int) -> si.Resource:
    return si.Resource(resources={"vcore": si.Quantity(value=milli)})


def ask(key: str, milli: int) -> si.AllocationRequest:
    wanted = si.Allocation(allocationKey=key, applicationID="app", resourcePerAlloc=cores(milli))
    return si.AllocationRequest(rmID=RM, allocations=[wanted])


def release(key: str) -> si.AllocationRequest:
    gone = si.AllocationRelease(
        applicationID="app", allocationKey=key, terminationType=si.STOPPED_BY_RM
    )
    releases = si.AllocationReleasesRequest(allocationsToRelease=[gone])
    return si.AllocationRequest(rmID=RM, releases=releases)


@pytest.fixture
async def client(channel: grpc.aio.Channel) -> Client:
    """Provide a registered client with a node of eight cores and an application."""
    client = Client(channel)
    await client.register()
    node = si.NodeInfo(nodeID="n1", action=si.NodeInfo.CREATE, schedulableResource=cores(8000))
    await client.nodes.write(si.NodeRequest(rmID=RM, nodes=[node]))
    assert [one.nodeID for one in (await _read(client.nodes)).accepted] == ["n1"]
    user = si.UserGroupInformation(user="ada")
    application = si.AddApplicationRequest(applicationID="app", queueName="root.a", ugi=user)
    await client.applications.write(si.ApplicationRequest(rmID=RM, new=[application]))
    accepted = (await _read(client.applications)).accepted
    assert [one.applicationID for one in accepted] == ["app"]
    return client


def evenhand(core: DockerContainer, *words: str) -> Any:
    """Return the JSON output of the command line inside the container."""
    done = core.exec(["evenhand", *words, "--output", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def queue_a(core: DockerContainer) -> Any:
    """Return the queue `root.a`, as `evenhand queues` shows it inside the container."""
    return evenhand(core, "queues", "root.a")["root"]


async def test_asks_are_placed_within_the_queue_and_released(
    core: DockerContainer, client: Client
) -> None:
    await client.allocations.write(ask("pod-1", 1500))
    (placed,) = await client.told("new")
    assert (placed.allocationKey, placed.nodeID) == ("pod-1", "n1")

    await client.allocations.write(ask("pod-2", 1000))
    # Two and a half cores are more than the queue may use: the second one waits.
    assert [one.allocationKey for one in await client.told("schedulingStates")] == ["pod-2"]
    told = await asyncio.to_thread(evenhand, core, "explain", "pod-2")
    assert told["kind"] == "waiting_ask"
    queue = await asyncio.to_thread(queue_a, core)
    assert (queue["usage"]["vcore"], queue["allocations"]) == (1500, 1)

    await client.allocations.write(release("pod-1"))
    assert [one.allocationKey for one in await client.told("released")] == ["pod-1"]
    (placed,) = await client.told("new")
    assert (placed.allocationKey, placed.nodeID) == ("pod-2", "n1")
    queue = await asyncio.to_thread(queue_a, core)
    assert (queue["usage"]["vcore"], queue["allocations"]) == (1000, 1)


async def test_sigterm_drains(core: DockerContainer, client: Client) -> None:
    await client.allocations.write(ask("pod-1", 1000))
    await client.told("new")
    stopping = asyncio.create_task(
        asyncio.to_thread(core.get_wrapped_container().stop, timeout=GRACE_S)
    )
    # Its clients hear that it goes, in words, rather than lose the connection.
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await client.told("new")
    assert told.value.code() is grpc.StatusCode.UNAVAILABLE
    await stopping
    info = core.get_container_info()
    assert info is not None
    assert info.State is not None
    # Killed at the end of the grace it would be 137.
    assert info.State.ExitCode == 0
