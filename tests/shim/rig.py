"""A real core and an embedded cluster that checks its own invariants, for end-to-end tests."""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from server.bootstrap import ServeOptions, serve
from shim_client.bootstrap import make_shim, run_shim, wall_clock
from shim_client.cluster import Bind
from shim_client.config import Settings
from shim_client.core_client.address import CoreAddress
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.shim import Shim
from shim_client.translate.node import read_node
from shim_client.translate.resources import resize_is_infeasible, taken
from tests.shim.polling import until

ROOT = Path(__file__).parents[2]
QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a}, {name: b}]
"""
SETTINGS = Settings(cluster_id="end-to-end", queues=QUEUES)


class WatchedCluster(EmbeddedCluster):
    """A cluster that binds one pod after another, counts bindings, and asserts that the node has enough capacity."""

    def __init__(self, bind_seconds: float = 0.0) -> None:
        super().__init__(wall_clock())
        self.bindings: Counter[str] = Counter()
        self._bind_seconds = bind_seconds
        self._turn = asyncio.Lock()

    async def bind(self, order: Bind) -> None:
        async with self._turn:
            await asyncio.sleep(self._bind_seconds)
            await super().bind(order)
        self.bindings[order.pod.uid] += 1
        assert over_capacity(self, order.node) == {}, order


def over_capacity(cluster: EmbeddedCluster, name: str) -> dict[str, int]:
    """Return by how much a node's pods exceed its capacity, by type."""
    item = cluster.store.get("Node", ("", name))
    assert item is not None
    free = Counter(read_node(item).capacity)
    for pod in cluster.pods():
        ended = pod["status"]["phase"] in {"Succeeded", "Failed"}
        if pod["spec"].get("nodeName") == name and not ended:
            infeasible = resize_is_infeasible(pod["status"])
            free.subtract(taken(pod["spec"], pod["status"], infeasible=infeasible))
    return {kind: -left for kind, left in free.items() if left < 0}


def own(cluster: EmbeddedCluster) -> list[Any]:
    """Return the pods that name our scheduler."""
    return [pod for pod in cluster.pods() if pod["spec"]["schedulerName"] == "evenhand"]


def waiting(cluster: EmbeddedCluster) -> list[Any]:
    """Return our pods without a node."""
    return [pod for pod in own(cluster) if not pod["spec"].get("nodeName")]


def free_port() -> int:
    """Return a port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def core_here(port: int = 0, state_dir: Path | None = None) -> AsyncIterator[str]:
    """Hold a core in this process while the block runs, and yield its address."""
    address: list[str] = []
    stop = asyncio.Event()
    options = ServeOptions(listen=f"127.0.0.1:{port}", state_dir=state_dir)
    task = asyncio.create_task(serve(options, ready=address.append, stop=stop))
    try:
        await until(lambda: bool(address) or task.done())
        yield address[0]
        stop.set()
        assert await task == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def core_process(port: int) -> asyncio.subprocess.Process:
    """Start a core in a separate process, which can be killed."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "server",
        "--listen",
        f"127.0.0.1:{port}",
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process with SIGKILL."""
    process.kill()
    await process.wait()


class ShimTask:
    """A running shim that can be killed without an orderly end."""

    def __init__(self, cluster: EmbeddedCluster, address: str, settings: Settings) -> None:
        self.shim: Shim = make_shim(cluster, CoreAddress(address), settings)
        self.task = asyncio.create_task(self.shim.run())

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def shim_at_work(
    cluster: EmbeddedCluster, address: str, settings: Settings = SETTINGS
) -> AsyncIterator[Shim]:
    """Hold a running shim with its cluster while the block runs."""
    shim = make_shim(cluster, CoreAddress(address), settings)
    task = asyncio.create_task(run_shim(shim, cluster))
    try:
        yield shim
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
