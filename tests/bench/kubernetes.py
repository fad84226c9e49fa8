"""`make bench-kubernetes`: core and shim with a real API server, compared with a bare client.

Four figures are measured. Binding: pods per second that get a node through core and shim, and through a bare loop of
the same HTTP client with as many requests in flight; one watch on the API server counts both. First look: the time
from the start of a shim until the core knows a whole cluster of waiting pods (listed, translated, sent). Resync: the
same for running pods, after the core was killed and after the shim was killed. In addition, the shim's cost is
measured: CPU for each pod that appears and is bound, and resident memory per pod.

No kubelets are simulated, because they would need more of the machine than the measured processes.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from rich.console import Console
from rich.table import Table

from scripts.real.cluster import Cluster
from shim_client.executor import IN_FLIGHT_MAX
from shim_client.kubernetes.access import access_config, http_client
from shim_client.kubernetes.api import Api, Rate
from tests.bench.calibration import calibrate
from tests.bench.processes import cpu_seconds, resident_bytes
from tests.kubernetes import objects
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kube import Kube
from tests.kubernetes.stack import Stack

UNPACED = 1e6
SECONDS_MAX = 300.0
LOOK_S = 0.05
SETTLED_S = 2.0
"""Seconds after the last binding in which the shim still observes and reports it."""
ADDED = b'{"type":"ADDED"'
GOAL_SHARE, GOAL_LOOK_S, GOAL_RESYNC_S = 0.7, 10.0, 3.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    what: str
    value: str
    goal: str
    reached: bool


class Server:
    """An API server of our own, with a shim's account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster(folder / "cluster")
        self.cluster.start(kwok=False)
        with closing(Kube(self.cluster.kubeconfig(), self.cluster)) as kube:
            for file in ("namespace.yaml", "rbac.yaml"):
                said = kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / file))
                assert said.returncode == 0, said.stderr
            self.account = kube.account("evenhand-shim", "evenhand", folder)

    async def fill(self, api: Api, namespace: str, nodes: int, pods: Iterable[Any]) -> None:
        """Create a namespace with its nodes and pods."""
        await api.post("/api/v1/namespaces", objects.namespace(namespace))
        await _all(api.post("/api/v1/nodes", one) for one in objects.nodes(nodes, namespace))
        path = f"/api/v1/namespaces/{namespace}/pods"
        await _all(api.post(path, pod) for pod in pods)


@asynccontextmanager
async def fresh() -> AsyncIterator[tuple[Server, Api]]:
    """Hold a new API server for one measurement: objects of earlier measurements would slow it down."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        config = access_config(server.cluster.kubeconfig(), None)
        api = Api(http_client(config), Rate(UNPACED, UNPACED))
        try:
            yield server, api
        finally:
            await api.close()
            server.cluster.stop()


async def _all(calls: Iterable[Any]) -> None:
    """Await all calls, with as many at the same time as the shim allows."""
    waiting = iter(calls)

    async def some() -> None:
        for call in waiting:
            await call

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT_MAX)))


class Counter:
    """A counter of the pods of a namespace that have a node; it counts the lines of one watch without parsing them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self.times: list[float] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["Counter"]:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        selector = "fieldSelector=spec.nodeName!=&watch=1"
        head = await self._api.get(f"{path}?limit=1")
        version = head["metadata"]["resourceVersion"]
        url = f"{path}?{selector}&resourceVersion={version}"
        client = self._api.client
        async with client.stream("GET", url, timeout=httpx2.Timeout(None)) as answer:
            task = asyncio.create_task(self._count(answer))
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.wait({task})

    async def _count(self, answer: httpx2.Response) -> None:
        rest = b""
        async for chunk in answer.aiter_raw():
            text = rest + chunk
            self.times.extend([time.perf_counter()] * text.count(ADDED))
            rest = text[1 - len(ADDED) :]

    async def rate(self, count: int) -> float:
        """Wait until `count` pods have a node, and return how many got one per second after the first."""
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.times) < count:  # noqa: ASYNC110 -- the watch goes on beside.
                await asyncio.sleep(LOOK_S)
        return (count - 1) / (self.times[count - 1] - self.times[0])


async def bare_rate(nodes: int, count: int) -> float:
    """Measure the bindings per second of a bare loop."""
    name = "bare"
    async with fresh() as (server, api):
        pods = objects.pods(count, name, schedulerName="nobody")
        await server.fill(api, name, nodes, pods)
        async with Counter(api, name).watching() as counter:
            await _all(_bind(api, name, number, nodes) for number in range(count))
            rate = await counter.rate(count)
    return rate


async def _bind(api: Api, namespace: str, number: int, nodes: int) -> None:
    pod, node = f"pod-{number}", f"{namespace}-{number % nodes}"
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": pod, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    await api.post(f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)


async def shim_rate(nodes: int, count: int) -> float:
    """Measure the bindings per second through core and shim."""
    name = "through"
    async with fresh() as (server, api):
        await server.fill(api, name, nodes, objects.pods(count, name))
        async with Counter(api, name).watching() as counter:
            with closing(Watched(server, name)) as watched:
                watched.start_core()
                watched.start_shim()
                rate = await counter.rate(count)
    return rate


class Watched:
    """Core and shim, and the time that the shim needs until the core knows everything."""

    def __init__(self, server: Server, name: str) -> None:
        folder = server.folder / name
        folder.mkdir()
        self.stack = Stack(folder, server.account, "evenhand")
        self.start_core = self.stack.start_core
        self.close = self.stack.stop

    def start_shim(self) -> None:
        """Start a shim whose requests are not rate-limited."""
        self.stack.start_shim("--qps=100000", "--burst=100000")

    async def seconds_until_ready(self) -> float:
        """Measure the seconds from now until the core knows everything."""
        return await self._seconds(wanted=True)

    async def seconds_until_away(self) -> float:
        """Measure the seconds from now until the shim has seen that the core is gone."""
        return await self._seconds(wanted=False)

    def shim_usage(self) -> tuple[float, int]:
        """Return CPU seconds and resident bytes of the shim's process so far."""
        assert self.stack.shim is not None
        pid = self.stack.shim.popen.pid
        return cpu_seconds(pid), resident_bytes(pid)

    async def _seconds(self, *, wanted: bool) -> float:
        began = time.perf_counter()
        async with asyncio.timeout(SECONDS_MAX):
            while self.stack.is_ready() is not wanted:  # noqa: ASYNC110 -- a process's own state.
                await asyncio.sleep(LOOK_S)
        return time.perf_counter() - began


async def first_look(nodes: int, count: int) -> float:
    """Measure the seconds from the start of a shim until the core knows all nodes and waiting pods."""
    name = "look"
    async with fresh() as (server, api):
        await server.fill(api, name, nodes, objects.pods(count, name))
        with closing(Watched(server, name)) as watched:
            watched.start_core()
            watched.start_shim()
            seconds = await watched.seconds_until_ready()
    return seconds


async def resyncs(nodes: int, count: int) -> tuple[float, float]:
    """Measure the seconds until a new core, then a new shim, know nodes and running pods."""
    name = "again"
    async with fresh() as (server, api):
        placed = (
            objects.pod(f"pod-{number}", name, nodeName=f"{name}-{number % nodes}")
            for number in range(count)
        )
        await server.fill(api, name, nodes, placed)
        with closing(Watched(server, name)) as watched:
            watched.start_core()
            watched.start_shim()
            await watched.seconds_until_ready()
            watched.stack.kill_core()
            await watched.seconds_until_away()
            watched.start_core()
            new_core = await watched.seconds_until_ready()
            watched.stack.kill_shim()
            watched.start_shim()
            new_shim = await watched.seconds_until_ready()
    return new_core, new_shim


async def shim_cost(nodes: int, count: int) -> tuple[float, float]:
    """Return CPU seconds and bytes of the shim's process for each pod that appears and is bound."""
    name = "cost"
    async with fresh() as (server, api):
        await server.fill(api, name, nodes, ())
        with closing(Watched(server, name)) as watched:
            watched.start_core()
            watched.start_shim()
            await watched.seconds_until_ready()
            cpu, resident = watched.shim_usage()
            path = f"/api/v1/namespaces/{name}/pods"
            await _all(api.post(path, pod) for pod in objects.pods(count, name))
            await _all_bound(api, path)
            await asyncio.sleep(SETTLED_S)
            after_cpu, after_resident = watched.shim_usage()
    return (after_cpu - cpu) / count, (after_resident - resident) / count


async def _all_bound(api: Api, path: str) -> None:
    """Wait until every pod has a node, by polling the API server; a watch would be too slow beside so many requests."""
    async with asyncio.timeout(SECONDS_MAX):
        # Poll, because no watch reports the change.
        while (await api.get(f"{path}?fieldSelector=spec.nodeName%3D&limit=1"))["items"]:  # noqa: ASYNC110
            await asyncio.sleep(SETTLED_S / 4)


async def measure(nodes: int, binds: int, pods: int, runs: int) -> list[Figure]:
    """Measure all figures; a rate is the best of some runs."""
    _say(f"binding {binds:,} pods on {nodes:,} nodes, bare and through, {runs} times ...")
    pairs = [(await bare_rate(nodes, binds), await shim_rate(nodes, binds)) for _ in range(runs)]
    bare, through = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    _say(f"what the shim takes for {binds:,} pods that come ...")
    cpu, memory = await shim_cost(nodes, binds)
    _say(f"first look at {nodes:,} nodes and {pods:,} waiting pods ...")
    look = await first_look(nodes, pods)
    _say(f"resync of {nodes:,} nodes and {pods:,} running pods ...")
    new_core, new_shim = await resyncs(nodes, pods)
    return [
        Figure("binds, bare loop", f"{bare:,.0f} /s", "", reached=True),
        Figure("binds, core and shim", f"{through:,.0f} /s", "", reached=True),
        _share(through / bare),
        Figure("shim, CPU for a pod that is bound", f"{1e6 * cpu:,.0f} us", "", reached=True),
        Figure("shim, memory for it", f"{memory:,.0f} bytes", "", reached=True),
        _within(f"first look, {nodes:,} nodes, {pods:,} pods waiting", look, GOAL_LOOK_S),
        _within(f"new core, {nodes:,} nodes, {pods:,} pods running", new_core, GOAL_RESYNC_S),
        _within(f"new shim, {nodes:,} nodes, {pods:,} pods running", new_shim, GOAL_LOOK_S),
    ]


def _share(share: float) -> Figure:
    goal = f"{GOAL_SHARE:.0%} or more"
    return Figure("core and shim of the bare loop", f"{share:.0%}", goal, share >= GOAL_SHARE)


def _within(what: str, seconds: float, goal: float) -> Figure:
    return Figure(what, f"{seconds:.1f} s", f"within {goal:.0f} s", seconds <= goal)


def _say(words: str) -> None:
    Console(stderr=True).print(words)


def _table(figures: list[Figure]) -> Table:
    load = f"load {os.getloadavg()[0]:.1f}, calibration {calibrate():.3f} s"
    table = Table(title=f"on a real API server ({load})")
    for column in ("what", "measured", "goal", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for one in figures:
        verdict = "" if not one.goal else "reached" if one.reached else "MISSED"
        table.add_row(one.what, one.value, one.goal, verdict)
    return table


def main(
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 1_000,
    binds: Annotated[int, typer.Option(help="Pods that are bound in a run.")] = 3_000,
    pods: Annotated[int, typer.Option(help="Pods of the looks.")] = 10_000,
    runs: Annotated[int, typer.Option(help="Runs of binding.")] = 2,
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path(
        ".bench/kubernetes.json"
    ),
) -> None:
    """Measure core and shim on a real API server of this machine."""
    figures = asyncio.run(measure(nodes, binds, pods, runs))
    Console(width=None if sys.stdout.isatty() else 120).print(_table(figures))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([asdict(one) for one in figures], indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
