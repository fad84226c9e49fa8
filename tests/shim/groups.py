"""Two groups of cores with a core each, in separate processes, and a shim in this process (design 7.6, 7.9)."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc

from evenhand.v1 import (
    config_pb2,
    config_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    replication_pb2,
    replication_pb2_grpc,
)
from evenhand_cli.core_table import read_core_table
from shim_client.bootstrap import make_shim
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.spread import CoreGroup
from shim_client.shim import Shim
from tests.cli.processes import environment
from tests.shim.cores import is_level, replication_of
from tests.shim.rig import ROOT, SETTINGS, WatchedCluster, free_port, kill

GPU: Final = "gpu"
_QUEUES = """
partitions:
- name: default
  queues: [{name: root, submitacl: "*", queues: [{name: a}]}]
- name: gpu
  queues: [{name: root, submitacl: "*", queues: [{name: a}]}]
"""
_SETTINGS: Final = replace(SETTINGS, queues=_QUEUES)
_LOOK_S: Final = 0.02
_START_S: Final = 90.0


class Groups:
    """The groups `a`, which has the partition `default`, and `b`, which has `gpu`."""

    names: Sequence[str] = ("a", "b")
    """The names of the cores."""

    def __init__(self, folder: Path, more: Callable[[str], Iterable[str]] = lambda _: ()) -> None:
        """Write the table. ``more`` returns further options of a group's core."""
        self.folder = folder
        self._more = more
        self.table = folder / "cores.yaml"
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in self.names}
        a, b = (
            ", ".join(f"'{one}'" for name, one in self.addresses.items() if name[0] == group)
            for group in "ab"
        )
        self.table.write_text(
            "# Groups of this test.\n"
            f"cores:\n- {{name: a, addresses: [{a}], partitions: [default], revision: 1}}\n"
            f"- {{name: b, addresses: [{b}], partitions: [gpu], revision: 4}}\n"
        )
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._channels = {
            name: grpc.aio.insecure_channel(one) for name, one in self.addresses.items()
        }

    async def start(self, group: str, table: Path | None = None) -> None:
        """Start the core of a group, and wait until it answers."""
        place, cores = ("--listen", self.addresses[group]), str(table or self.table)
        self._running[group] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evenhand_cli", "serve", *place, "--group", group[0]),
            *("--cores", cores, *self._more(group)),
            cwd=ROOT,
            env=environment(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(_START_S):
            while not await self.answers(group):  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(_LOOK_S)

    async def kill(self, group: str) -> None:
        """Kill the core of a group."""
        await kill(self._running[group])

    async def restart(self, group: str, table: Path | None = None) -> None:
        """Kill the core of a group, and start it again, with nothing that it knew."""
        await self.kill(group)
        await self.start(group, table)

    async def close(self) -> None:
        """Kill the cores that run."""
        for one in self._channels.values():
            await one.close()
        for group, process in self._running.items():
            if process.returncode is None:
                await self.kill(group)

    def stub(self, group: str) -> Any:
        """Return the replication service of a group's core."""
        return replication_pb2_grpc.ReplicationServiceStub(self._channels[group])

    async def answers(self, name: str) -> bool:
        """Return whether a core answers."""
        return bool((await self.replication(name)).state)

    async def replication(self, name: str) -> replication_pb2.GetReplicationResponse:
        """Return what a core says about its replication, or an empty message if the core does not answer."""
        return await replication_of(self._channels[name])

    async def stands(self, group: str) -> str:
        """Return how `gpu` stands at the core of a group, "" if the core does not answer."""
        request = replication_pb2.GetMoveRequest(partition=GPU)
        with suppress(grpc.aio.AioRpcError):
            found = await self.stub(group).GetMove(request, timeout=5)
            return f"{found.state} synced" if found.synced else str(found.state)
        return ""

    async def is_configured(self, group: str) -> bool:
        """Return whether the core of a group has a configuration with `gpu`, which a shim brings when it registers."""
        stub: Any = config_pb2_grpc.ConfigurationServiceStub(self._channels[group])
        return GPU in (await stub.Get(config_pb2.GetRequest())).yaml

    async def since(self, group: str, key: str) -> int:
        """Return since when the core of a group counts a pod on its node; 0 if it does not have the pod."""
        stub: Any = inspect_pb2_grpc.InspectServiceStub(self._channels[group])
        listed = await stub.ListAllocations(inspect_pb2.ListAllocationsRequest(partition=GPU))
        return next(
            (int(one.since_ms) for one in listed.allocations if one.allocation_key == key), 0
        )

    async def move(self, to: str, *more: str) -> tuple[int, str]:
        """Run `evenhand partition move gpu`, and return its exit code and its output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evenhand_cli", "partition", "move", GPU, "--to", to),
            *("--cores", str(self.table), *more),
            cwd=ROOT,
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    def shim(self, cluster: WatchedCluster, table: Path | None = None) -> Shim:
        """Return a shim with the table of a file."""
        groups = [
            CoreGroup(
                one.name,
                tuple(CoreAddress(each) for each in one.addresses.split(",")),
                one.partitions,
                one.revision,
            )
            for one in read_core_table(table or self.table).groups
        ]
        return make_shim(cluster, groups, _SETTINGS)


@asynccontextmanager
async def two_groups(made: Groups) -> AsyncIterator[Groups]:
    """Hold the cores of two groups."""
    try:
        await asyncio.gather(*(made.start(name) for name in made.names))
        yield made
    finally:
        await made.close()


class Pairs(Groups):
    """The groups of `Groups` with two cores each, of which one leads and the other one follows."""

    names = ("a0", "a1", "b0", "b1")

    async def leader(self, group: str) -> str:
        """Return the core that leads a group, "" if none does."""
        for name in self.names:
            if name[0] == group and (await self.replication(name)).state == "leader":
                return name
        return ""

    def other(self, name: str) -> str:
        """Return the other core of a core's group."""
        return next(one for one in self.names if one[0] == name[0] and one != name)

    async def is_level(self, name: str) -> bool:
        """Return whether a core follows, and has all that its leader had."""
        return is_level(await self.replication(name))

    async def stands(self, group: str) -> str:
        """Return how `gpu` stands at the core that leads a group, "" if none does."""
        leader = await self.leader(group)
        return await super().stands(leader) if leader else ""


class RunningShim:
    """A shim that can end without order, and begin again with another table."""

    def __init__(self, groups: Groups, cluster: WatchedCluster) -> None:
        self._groups = groups
        self._cluster = cluster
        self._stepping = asyncio.create_task(cluster.run())
        self._begin(None)

    def _begin(self, table: Path | None) -> None:
        self.shim = self._groups.shim(self._cluster, table)
        self._task = asyncio.create_task(self.shim.run())

    async def restart(self, table: Path | None = None) -> None:
        """End the shim at once, and begin with the table of a file."""
        await self._end()
        self._begin(table)

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """End the shim and its cluster."""
        await self._end()
        self._stepping.cancel()
        await asyncio.gather(self._stepping, return_exceptions=True)
