"""The time without a placement when the core that leads is killed, or hands over, at 5,000 nodes and 50,000 pods.

Two cores in separate processes follow each other. The shim of the product works on the embedded cluster in this process. Pods
arrive at a steady rate, and as many end. When the follower is level, the leader is killed, gets SIGTERM, or is told to hand over.
The measured time goes from then to the bind of the first pod that was created after that instant. Then the ended core starts
again and follows.

Run as `python -m tests.bench.failover --runs 50`. The figures are upper bounds: the cores, the shim and the cluster share the
processors of one machine.
"""

import asyncio
import json
import os
import signal
import statistics
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer
from rich.console import Console
from rich.table import Table

from shim_client.bootstrap import make_shim, run_shim, wall_clock
from shim_client.cluster import WatchEvent
from shim_client.config import Settings
from shim_client.core_client.address import CoreAddress
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.shim import Shim
from tests.bench import manifests
from tests.bench.players import surroundings
from tests.shim.cores import Cores, two_cores

ARRIVALS_S: Final = 50
"""Pods that are created in a second, and pods that end in a second."""
SECONDS_MAX: Final = 300.0
SETTLED_S: Final = 2.0
"""Seconds of ordinary work between the level follower and the end of the leader."""
PLANNED: Final = "planned hand-over"
CASES: Final = {"killed": signal.SIGKILL, "hands over": signal.SIGTERM, PLANNED: None}
"""The signals that the leader gets; None if it is told to hand over, and goes on as a follower."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of one case in seconds."""

    case: str
    seconds: list[float]
    sessions: int
    """The number of sessions after the first in which the shim reported everything."""
    load: float
    """The load of the machine over the last minute, at the end."""

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.seconds)


@dataclass
class Life:
    """The pods of the cluster: a fixed number runs, some arrive, and as many end."""

    cluster: EmbeddedCluster
    pods: int
    running: deque[tuple[str, str]] = field(default_factory=deque)
    ended_at: float = 0.0
    bound: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: float = 0.0
    """Seconds from the end of the leader to the first bind of a pod that was created after it."""
    late: set[str] = field(default_factory=set)

    def begin(self, nodes: int) -> None:
        """Fill the cluster with running pods."""
        for at in range(nodes):
            self.cluster.create(manifests.node(at))
        for at in range(self.pods):
            made = manifests.pod(at, f"node-{at % nodes:05}")
            self.cluster.create(made)
            self.running.append((made["metadata"]["namespace"], made["metadata"]["name"]))
        self.cluster.store.noticed.append(self._notice)

    async def live(self) -> None:
        """Create pods and end others at a steady rate, until cancelled."""
        begun, made = time.perf_counter(), 0
        while True:
            while made < (time.perf_counter() - begun) * ARRIVALS_S:
                self._arrive(self.pods + made)
                made += 1
            await asyncio.sleep(1 / ARRIVALS_S)

    def _arrive(self, at: int) -> None:
        pod = manifests.pod(at)
        if self.ended_at:
            self.late.add(pod["metadata"]["uid"])
        self.cluster.create(pod)
        self.cluster.delete("Pod", self.running.popleft())
        self.running.append((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def leader_ends(self) -> None:
        """Begin to measure."""
        self.late.clear()
        self.bound.clear()
        self.ended_at = time.perf_counter()

    def _notice(self, event: WatchEvent) -> None:
        if not self.ended_at or event.kind != "Pod" or not event.item["spec"].get("nodeName"):
            return
        if event.item["metadata"]["uid"] in self.late:
            self.seconds, self.ended_at = time.perf_counter() - self.ended_at, 0.0
            self.bound.set()


@asynccontextmanager
async def _at_work(cluster: EmbeddedCluster, cores: Cores) -> AsyncIterator[Shim]:
    """Hold a shim that has reported everything to a core."""
    addresses = [CoreAddress(one) for one in cores.addresses]
    shim = make_shim(cluster, addresses, Settings(cluster_id="bench"))
    live = asyncio.Event()
    shim.on_live.append(lambda is_live: live.set() if is_live else live.clear())
    work = asyncio.create_task(run_shim(shim, cluster))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await live.wait()
        yield shim
    finally:
        work.cancel()
        await asyncio.wait({work})


async def measure(
    nodes: int, pods: int, runs: int, cases: list[str], acknowledges: str = ""
) -> list[Figure]:
    """Measure each case in this number of runs."""
    life = Life(EmbeddedCluster(wall_clock()), pods)
    life.begin(nodes)
    options = ("--follower-acknowledges", acknowledges) if acknowledges else ()
    async with two_cores(surroundings(), *options) as cores, _at_work(life.cluster, cores) as shim:
        living = asyncio.create_task(life.live())
        found = [await _case(one, runs, cores, life, shim) for one in cases]
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        return found


async def _case(case: str, runs: int, cores: Cores, life: Life, shim: Shim) -> Figure:
    seconds: list[float] = []
    before = shim.progress().sessions
    for _ in range(runs):
        leader = await cores.leader(SECONDS_MAX)
        await asyncio.sleep(SETTLED_S)
        life.leader_ends()
        if (sign := CASES[case]) is None:
            await cores.hand_over(leader)
        else:
            cores.send(leader, sign)
        async with asyncio.timeout(SECONDS_MAX):
            await life.bound.wait()
        seconds.append(life.seconds)
        if sign is not None:
            await cores.restart(leader)
    return Figure(case, seconds, shim.progress().sessions - before, os.getloadavg()[0])


def table(found: list[Figure], nodes: int, pods: int) -> Table:
    """Return the figures as a table in text."""
    made = Table(
        title=f"the core ends: {nodes:,} nodes, {pods:,} pods, {ARRIVALS_S} arrive each second"
    )
    for column in ("the leader", "runs", "median", "worst", "full reports", "load"):
        made.add_column(column, justify="left" if column == "the leader" else "right")
    for one in found:
        times = f"{1_000 * one.median:,.0f} ms", f"{1_000 * max(one.seconds):,.0f} ms"
        made.add_row(one.case, str(len(one.seconds)), *times, str(one.sessions), f"{one.load:.1f}")
    return made


def main(  # noqa: PLR0913, PLR0917 - the options of a command
    runs: Annotated[int, typer.Option(help="Runs of each case.", min=1)] = 50,
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.")] = 5_000,
    pods: Annotated[int, typer.Option(help="Pods that run.")] = 50_000,
    case: Annotated[list[str] | None, typer.Option(help="Cases, by default all.")] = None,
    acknowledges: Annotated[str, typer.Option(help="Let decisions wait for a follower.")] = "",
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path(
        ".bench/failover.json"
    ),
) -> None:
    """Measure how long nothing is placed when the core that leads ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    found = asyncio.run(measure(nodes, pods, runs, case or list(CASES), acknowledges))
    Console(width=100).print(table(found, nodes, pods))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
