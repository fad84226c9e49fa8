"""The cost of the shim: CPU for each bound pod, memory for each watched pod.

**Bound**: pods appear on the embedded cluster and are bound until they run; the core runs in a separate process. Each
pod is observed, translated, reported, placed, bound and observed twice more. The embedded cluster works in the shim's
process; its own cost is measured with a bare binding loop in the same run and subtracted.

**Watched**: pods as an API server sends them are read from bytes one by one, and the shim keeps them with an open
session. Memory is measured by Python's account of allocations, and by the process's resident memory.

Run alone as `python -m tests.bench.shim`.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import time
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from sys import intern
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from shim_client.bootstrap import make_shim, run_shim, wall_clock
from shim_client.cluster import KINDS, Bind, Change, Listing, ObjectRef, WatchEvent
from shim_client.config import Settings
from shim_client.core_client.address import CoreAddress
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.kubernetes.kinds import trimmed
from shim_client.messages import (
    ApplicationAnswer,
    ApplicationReport,
    Decision,
    NodeAnswer,
    NodeReport,
    Placed,
    PodRefused,
    PodReport,
    Report,
)
from shim_client.state_machine.barriers import APPLICATION
from shim_client.state_machine.machine import Link, Mirror
from tests.bench import manifests
from tests.bench.calibration import calibrate
from tests.bench.processes import resident_bytes
from tests.shim.rig import core_process, free_port, kill

PODS_OF_A_NODE = 50
LOOK_S = 0.1
SECONDS_MAX = 600.0
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class BoundFigure:
    """CPU from the appearance of pods until they run, in microseconds per pod."""

    pods: int
    shim_us: float
    cluster_us: float
    """CPU of the embedded cluster in the same process, which `shim_us` does not include."""
    pods_per_second: float
    calibration: float


@dataclass(frozen=True, slots=True)
class WatchedFigure:
    """Memory of watched pods, in bytes per pod."""

    pods: int
    waiting_bytes: float
    """Memory of a pod that was reported to the core as an ask."""
    running_bytes: float
    """Memory of a pod that was reported, placed, bound and seen running."""
    running_resident: float
    """The resident memory of the process per pod, including allocator and garbage."""


def bound(pods: int = 5_000) -> BoundFigure:
    """Measure the CPU per bound pod, with shim and core in separate processes."""
    return _apart(_bound, pods)


def watched(pods: int = 20_000) -> WatchedFigure:
    """Measure the memory per watched pod; Python's account, which is slow, is taken for a quarter of the pods."""
    counted = _apart(_counted, pods // 4)
    resident = _apart(_resident, pods)
    return WatchedFigure(pods, *counted, resident)


def _apart(work: Callable[[int], Answer], pods: int) -> Answer:
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as workers:
        return workers.submit(work, pods).result()


# Bound.


def _bound(pods: int) -> BoundFigure:
    alone = asyncio.run(_alone(pods))
    cpu, seconds = asyncio.run(_with_core(pods))
    return BoundFigure(
        pods, 1e6 * (cpu - alone) / pods, 1e6 * alone / pods, pods / seconds, calibrate()
    )


def _cluster(pods: int) -> EmbeddedCluster:
    cluster = EmbeddedCluster(wall_clock())
    for at in range(-(-pods // PODS_OF_A_NODE)):
        cluster.create(manifests.node(at))
    return cluster


def _appear(cluster: EmbeddedCluster, pods: int) -> None:
    for at in range(pods):
        cluster.create(manifests.pod(at))


class Started:
    """A counter of the pods of a cluster that begin to run."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.count = 0
        cluster.store.noticed.append(self._notice)

    def _notice(self, event: WatchEvent) -> None:
        if event.kind == "Pod" and event.item["status"]["phase"] == "Running":
            self.count += 1


async def _alone(pods: int) -> float:
    """Return the CPU seconds in which a bare loop binds all pods and they begin to run."""
    cluster = _cluster(pods)
    started = Started(cluster)
    _appear(cluster, pods)
    waiting = list(cluster.pods())
    gc.collect()
    began = time.process_time()
    for at, pod in enumerate(waiting):
        metadata = pod["metadata"]
        ref = ObjectRef("Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        await cluster.bind(Bind(ref, f"node-{at // PODS_OF_A_NODE:05}"))
    cluster.step()
    seconds = time.process_time() - began
    assert started.count == pods
    return seconds


async def _with_core(pods: int) -> tuple[float, float]:
    """Measure the shim with a core in a separate process."""
    port = free_port()
    core = await core_process(port)
    try:
        return await _with_shim(f"127.0.0.1:{port}", pods)
    finally:
        await kill(core)


async def _with_shim(address: str, pods: int) -> tuple[float, float]:
    """Return CPU seconds and real seconds from the appearance of all pods until they run and no work is left."""
    cluster = _cluster(pods)
    started = Started(cluster)
    shim = make_shim(cluster, CoreAddress(address), Settings(cluster_id="bench"))
    work = asyncio.create_task(run_shim(shim, cluster))
    async with asyncio.timeout(SECONDS_MAX):
        while not shim.progress().is_settled:  # noqa: ASYNC110 -- nobody tells.
            await asyncio.sleep(LOOK_S)
        _appear(cluster, pods)
        gc.collect()
        cpu, began = time.process_time(), time.perf_counter()
        while started.count < pods or not shim.progress().is_settled:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    work.cancel()
    await asyncio.wait({work})
    return cpu, seconds


# Watched.


class Watching:
    """A state machine with a session at a core that accepts everything."""

    def __init__(self, nodes: int) -> None:
        self.mirror = Mirror(Settings())
        for kind in KINDS:
            listed = [manifests.node(at) for at in range(nodes)] if kind == "Node" else []
            self.mirror.handle(Listing(kind, listed, 1))
        self.mirror.handle(Link.REGISTERED)
        self.answer()

    def see(self, written: bytes, change: Change) -> None:
        """Process a pod that is read from its bytes."""
        item = trimmed("Pod", msgspec.json.decode(written))
        self.mirror.handle(WatchEvent(change, "Pod", item, 1))

    def answer(self) -> None:
        """Answer as a core does until the shim sends no more reports; the shim's actions are dropped."""
        while True:
            reports, _ = self.mirror.take()
            if not reports:
                return
            for answer in _answers(reports):
                self.mirror.handle(answer)


def _answers(reports: Iterable[Report]) -> list[Decision]:
    found: list[Decision] = []
    for report in reports:
        match report:
            case NodeReport():
                found.append(NodeAnswer(report.node, accepted=True))
            case ApplicationReport():
                found.append(ApplicationAnswer(report.application, accepted=True))
            case PodReport(application=name) if name == APPLICATION:
                found.append(PodRefused(report.key, "nobody has it"))
    return found


def _wait(watching: Watching, pods: int) -> None:
    for at in range(pods):
        watching.see(manifests.pod_bytes(at), Change.ADDED)
        watching.answer()


def _run(watching: Watching, pods: int) -> None:
    for at in range(pods):
        node = intern(f"node-{at // PODS_OF_A_NODE:05}")  # As when read from the wire.
        uid = manifests.pod(at)["metadata"]["uid"]
        watching.mirror.handle(Placed(uid, node))
        watching.see(manifests.pod_bytes(at, node), Change.MODIFIED)
        watching.answer()


def _counted(pods: int) -> tuple[float, float]:
    watching = Watching(-(-pods // PODS_OF_A_NODE))
    tracemalloc.start()
    sizes = []
    for step in (lambda *_: None, _wait, _run):
        step(watching, pods)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    tally = watching.mirror.tally()
    assert (tally.bound, tally.live) == (pods, True), tally
    return (sizes[1] - sizes[0]) / pods, (sizes[2] - sizes[0]) / pods


def _resident(pods: int) -> float:
    watching = Watching(-(-pods // PODS_OF_A_NODE))
    gc.collect()
    before = resident_bytes(os.getpid())
    _wait(watching, pods)
    _run(watching, pods)
    gc.collect()
    return (resident_bytes(os.getpid()) - before) / pods


def table(cpu: BoundFigure, memory: WatchedFigure) -> Table:
    """Return both figures as a table in text."""
    made = Table(title=f"the shim (calibration {cpu.calibration:.3f} s)")
    for column in ("what", "a pod"):
        made.add_column(column, justify="left" if column == "what" else "right")
    lines: dict[str, str] = {
        f"CPU until it runs, of {cpu.pods:,}": f"{cpu.shim_us:,.0f} us",
        "the embedded cluster's own, beside": f"{cpu.cluster_us:,.0f} us",
        f"memory while it waits, of {memory.pods:,}": f"{memory.waiting_bytes:,.0f} bytes",
        "memory when it runs": f"{memory.running_bytes:,.0f} bytes",
        "resident": f"{memory.running_resident:,.0f} bytes",
    }
    for what, amount in lines.items():
        made.add_row(what, amount)
    return made


def main(
    pods: Annotated[int, typer.Option(help="Pods that are bound.")] = 5_000,
    watch: Annotated[int, typer.Option(help="Pods that are watched.")] = 20_000,
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path(
        ".bench/shim.json"
    ),
) -> None:
    """Measure what the shim costs."""
    cpu, memory = bound(pods), watched(watch)
    Console(width=100).print(table(cpu, memory))
    figures: dict[str, Any] = {"bound": asdict(cpu), "watched": asdict(memory)}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
