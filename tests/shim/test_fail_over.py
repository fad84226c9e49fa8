"""A shim whose core is killed, or hands over, while pods arrive: each pod is bound once, and a hand-over repeats no report."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import grpc

from evenhand.v1 import replication_pb2, replication_pb2_grpc
from shim_client.bootstrap import make_shim, run_shim
from shim_client.core_client.connection import CoreAddress
from shim_client.shim import Shim
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.rig import ROOT, SETTINGS, WatchedCluster, free_port, own, waiting

PODS_MAX = 60
WAITING_MAX = 20
ENDS = 3


@dataclass
class Pair:
    """Two cores in separate processes, which follow each other."""

    addresses: list[str] = field(
        default_factory=lambda: [f"127.0.0.1:{free_port()}" for _ in range(2)]
    )
    running: list[Any] = field(default_factory=lambda: [None, None])

    async def start(self, number: int) -> None:
        options = "--listen", self.addresses[number], "--follow", self.addresses[1 - number]
        self.running[number] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evenhand_cli", "serve", *options),
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def state(self, number: int) -> replication_pb2.GetReplicationResponse:
        async with grpc.aio.insecure_channel(self.addresses[number]) as channel:
            stub: Any = replication_pb2_grpc.ReplicationServiceStub(channel)
            with suppress(grpc.aio.AioRpcError):
                request = replication_pb2.GetReplicationRequest()
                return await stub.GetReplication(request, timeout=5)  # type: ignore[no-any-return]
        return replication_pb2.GetReplicationResponse()

    async def leader(self) -> int:
        """Return the core that leads, once the other one follows it and is level."""
        async with asyncio.timeout(60):
            while True:
                states = [await self.state(number) for number in (0, 1)]
                for number in (0, 1):
                    follower = states[1 - number]
                    level = follower.position >= follower.leader_position > 0
                    if states[number].state == "leader" and follower.state == "follower" and level:
                        return number
                await asyncio.sleep(0.05)

    async def end(self, number: int, sign: int) -> None:
        """End a core with a signal, and start it again."""
        self.running[number].send_signal(sign)
        await self.running[number].wait()
        await self.start(number)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    found = Pair()
    try:
        await found.start(0)
        await found.start(1)
        yield found
    finally:
        for one in found.running:
            if one is not None and one.returncode is None:
                one.kill()
                await one.wait()


async def arrive(cluster: WatchedCluster) -> None:
    """Create a pod every few milliseconds unless many wait, and delete the oldest bound ones, until cancelled."""
    numbers = count()
    while True:
        if len(waiting(cluster)) < WAITING_MAX:
            cluster.create(pod(f"p{next(numbers)}", cpu="100m"))
        bound = [item for item in own(cluster) if item["spec"].get("nodeName")]
        if len(bound) > PODS_MAX:
            cluster.delete("Pod", ("work", bound[0]["metadata"]["name"]))
        await asyncio.sleep(0.01)


def _more(cluster: WatchedCluster, count: int) -> Callable[[], bool]:
    """Return the condition that so many more pods were bound than now."""
    wanted = len(cluster.bindings) + count
    return lambda: len(cluster.bindings) >= wanted


async def ended(sign: int) -> tuple[WatchedCluster, Shim]:
    """End the core that leads some times while pods arrive, and return the cluster and the shim when nothing waits."""
    cluster = WatchedCluster()
    for number in range(4):
        cluster.create(node(f"n{number}"))
    async with pair() as cores:
        shim = make_shim(cluster, [CoreAddress(one) for one in cores.addresses], SETTINGS)
        work = asyncio.create_task(run_shim(shim, cluster))
        try:
            arriving = asyncio.create_task(arrive(cluster))
            for _ in range(ENDS):
                await cores.end(await cores.leader(), sign)
                await until(_more(cluster, 20))
            arriving.cancel()
            await until(lambda: not waiting(cluster) and shim.progress().is_settled)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    return cluster, shim


async def test_pods_are_bound_once_while_cores_are_killed() -> None:
    cluster, _ = await ended(signal.SIGKILL)
    assert set(cluster.bindings.values()) == {1}


async def test_a_core_that_ends_in_order_hands_its_session_over() -> None:
    cluster, shim = await ended(signal.SIGTERM)
    assert set(cluster.bindings.values()) == {1}
    assert shim.progress().sessions == 1
