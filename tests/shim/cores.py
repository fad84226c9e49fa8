"""Two cores in separate processes that follow each other."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import grpc

from evenhand.v1 import replication_pb2, replication_pb2_grpc
from tests.shim.rig import ROOT, free_port

LOOK_S: Final = 0.02
HAND_OVER_S: Final = 60.0


async def replication_of(channel: grpc.aio.Channel) -> replication_pb2.GetReplicationResponse:
    """Return what a core says about its replication, or an empty message if the core does not answer."""
    stub: Any = replication_pb2_grpc.ReplicationServiceStub(channel)
    with suppress(grpc.aio.AioRpcError):
        answer: replication_pb2.GetReplicationResponse = await stub.GetReplication(
            replication_pb2.GetReplicationRequest(), timeout=5
        )
        return answer
    return replication_pb2.GetReplicationResponse()


def is_level(core: replication_pb2.GetReplicationResponse) -> bool:
    """Return whether a core follows, and has all that its leader had."""
    return core.state == "follower" and core.position >= core.leader_position > 0


class Cores:
    """The two cores, with the numbers 0 and 1.

    Their processes have the given environment, or that of this process if none is given. ``options`` are further options of
    `evenhand serve`.
    """

    def __init__(self, environment: dict[str, str] | None = None, *options: str) -> None:
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self._environment = environment
        self._options = options
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, number: int) -> None:
        """Start one of the two."""
        own, other = self.addresses[number], self.addresses[1 - number]
        self._running[number] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evenhand_cli", "serve", "--listen", own, "--follow", other),
            *self._options,
            cwd=ROOT,
            env=self._environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def leader(self, seconds_max: float) -> int:
        """Return the number of the core that leads, once the other one follows it and is level. Raises TimeoutError."""
        async with asyncio.timeout(seconds_max):
            while True:
                states = [await self._replication(number) for number in (0, 1)]
                for number in (0, 1):
                    if states[number].state == "leader" and is_level(states[1 - number]):
                        return number
                await asyncio.sleep(LOOK_S)

    async def _replication(self, number: int) -> replication_pb2.GetReplicationResponse:
        async with grpc.aio.insecure_channel(self.addresses[number]) as channel:
            return await replication_of(channel)

    def send(self, number: int, sign: int) -> None:
        """Send a signal to one of the two."""
        self._running[number].send_signal(sign)

    async def hand_over(self, number: int) -> None:
        """Let one of the two hand over to the other one."""
        async with grpc.aio.insecure_channel(self.addresses[number]) as channel:
            stub: Any = replication_pb2_grpc.ReplicationServiceStub(channel)
            done = await stub.HandOver(replication_pb2.HandOverRequest(), timeout=HAND_OVER_S)
            assert done.follower == self.addresses[1 - number]

    async def restart(self, number: int) -> None:
        """Wait for the end of one of the two, and start it again."""
        await self._running[number].wait()
        await self.start(number)

    async def kill(self) -> None:
        """Kill the cores that run."""
        for one in self._running.values():
            if one.returncode is None:
                one.send_signal(signal.SIGKILL)
                await one.wait()


@asynccontextmanager
async def two_cores(
    environment: dict[str, str] | None = None, *options: str
) -> AsyncIterator[Cores]:
    """Hold two cores, which may not be ready yet."""
    found = Cores(environment, *options)
    try:
        for number in (0, 1):
            await found.start(number)
        yield found
    finally:
        await found.kill()
