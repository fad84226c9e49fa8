"""A core that is killed while the disk of its decision log is full: each eviction is in the log, or counted as lost (D7)."""

import asyncio
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from server.core.core import Core
from si.v1 import si_pb2 as si
from tests.cli.processes import SECONDS_MAX, address_of, running
from tests.cli.run import evenhand
from tests.real.needs import absent
from tests.record.test_log import lines
from tests.rpc.harness import RM, Served, Stream, ask, node, resource

DISK_KB = 256
"""The disk of the log."""
LEFT_KB = 48
"""The space that `fill` leaves on the disk."""
PODS = 60
QUEUES = f"""\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {{name: owed, resources: {{guaranteed: {{vcore: {PODS}m}}}}, properties: {{preemption.delay: 1s}}}}
          - {{name: lent}}
"""
HEALTH = health_pb2.HealthCheckResponse


@pytest.fixture
def disk() -> Iterator[Path]:
    """Provide a small file system of our own, which disappears with the process that holds it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        absent("there is no unshare here")
    mount = f"mount -t tmpfs -o size={DISK_KB}k none /mnt && echo here && exec sleep 1000"
    with subprocess.Popen(
        [unshare, "-Urm", "sh", "-c", mount],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        try:
            assert holder.stdout is not None
            if holder.stdout.readline() != "here\n":
                absent("no file system can be mounted here")
            yield Path(f"/proc/{holder.pid}/root/mnt")
        finally:
            holder.kill()


class Cluster:
    """A client of one node that `lent` fills; it carries out what the core decides."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.health: Any = health_pb2_grpc.HealthStub(channel)
        self.carried_out: list[str] = []
        """Decisions for which a pod was released."""
        self._served = Served(Core(), None, None, 0, channel, None)  # type: ignore[arg-type]
        self._stream: Stream

    async def fill(self) -> None:
        """Fill the node."""
        await self._served.register()
        whole = node("n", schedulableResource=resource(vcore=PODS))
        await (await self._served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[whole]))).next()
        await self._served.submit("lent", "root.lent")
        await self._served.submit("owed", "root.owed")
        self._stream = await self._served.open("UpdateAllocation", _asks("lent"))
        placed = 0
        while placed < PODS:
            placed += len((await self._stream.read(si.AllocationResponse)).new)

    async def claim(self) -> None:
        """Submit asks for the whole node."""
        await self._stream.send(_asks("owed"))

    async def carry_out(self, count: int) -> None:
        """Read answers until the releases of ``count`` decisions have come."""
        while len(self.carried_out) < count:
            answer = await self._stream.read(si.AllocationResponse)
            self.carried_out += [one.decisionID for one in answer.released if one.decisionID]

    async def until(self, status: Any) -> None:
        """Wait until the scheduler's health has this status."""
        watching = self.health.Watch(health_pb2.HealthCheckRequest(service="si.v1.Scheduler"))
        async with asyncio.timeout(SECONDS_MAX):
            async for answer in watching:
                if answer.status == status:
                    return


def _asks(application: str) -> si.AllocationRequest:
    allocations = [
        ask(f"{application}-{number}", applicationID=application) for number in range(PODS)
    ]
    return si.AllocationRequest(rmID=RM, allocations=allocations)


class Place:
    """The files of a core; ``full`` is what fills the disk of its log."""

    def __init__(self, disk: Path, folder: Path) -> None:
        self.log = disk / "decisions.jsonl"
        self.trace = folder / "trace.jsonl"
        self.full = disk / "full"
        self.address = ""
        self._config = folder / "queues.yaml"
        self._said = folder / "said"
        self._config.write_text(QUEUES)
        self._kept = folder / "state"
        self._kept.mkdir(exist_ok=True)

    def fill(self) -> None:
        """Fill the disk but for a little space."""
        self.full.write_bytes(bytes((DISK_KB - LEFT_KB) << 10))

    @asynccontextmanager
    async def core(self, *more: str) -> AsyncIterator[tuple[subprocess.Popen[str], Cluster]]:
        """Hold a core; yield its process and a cluster connected to it."""
        files = ["--config", str(self._config), "--decision-log", str(self.log)]
        files += ["--trace", str(self.trace), "--state-dir", str(self._kept)]
        with running(["serve", "--listen", "127.0.0.1:0", *files, *more], self._said) as process:
            self.address = address_of(process, self._said)
            async with grpc.aio.insecure_channel(self.address) as channel:
                yield process, Cluster(channel)

    async def start_again(self) -> None:
        """Run a core and end it in order; the trace of the run before becomes the previous one."""
        async with self.core():
            pass

    def decided(self) -> set[str]:
        """Return the ids of the decisions in the log."""
        found = (one["facts"] for one in lines(self.log) if one["kind"] == "decided")
        return {one["record"]["decision_id"] for one in found}


@pytest.fixture
def place(disk: Path, tmp_path: Path) -> Place:
    return Place(disk, tmp_path)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(SECONDS_MAX)


async def test_d7_what_a_killed_core_did_not_write_is_counted(place: Place) -> None:
    place.fill()
    async with place.core() as (process, cluster):
        await cluster.fill()
        await cluster.claim()
        await cluster.carry_out(PODS)
        kill(process)
    place.full.unlink()
    before = evenhand("log", "verify", str(place.log), "-o", "json")
    await place.start_again()
    after = evenhand("log", "verify", str(place.log), "-o", "json")
    assert (before.code, after.code) == (1, 1)
    found = after.value()
    assert found["fits"]
    assert not found["more_missing"]
    assert found["missing"] == before.value()["missing"] > 0
    standing = found["kinds"].get("decided", 0) + found["kinds"].get("moved", 0)
    replayed = evenhand(
        *("replay", f"{place.trace}.previous", "--compare", str(place.log), "-o", "json")
    )
    assert replayed.code == 0, replayed.out
    assert standing + found["missing"] >= replayed.value()["log_lines"] - 1
    assert standing + found["missing"] >= len(set(cluster.carried_out)) == PODS
    assert len(place.decided()) < PODS


async def test_d7_durable_decisions_wait_for_space_and_none_is_missing(place: Place) -> None:
    place.fill()
    async with place.core("--durable") as (process, cluster):
        await cluster.fill()
        await cluster.claim()
        await cluster.until(HEALTH.NOT_SERVING)
        found = evenhand("doctor", "--core", place.address, "-o", "json").value()["findings"]
        assert "decisions-held" in [one["code"] for one in found]
        version = evenhand("version", "--core", place.address, width=200).words("decision log")
        assert version[2:7] == ["durable", f"{place.log};", "no", "decision", "leaves:"]
        place.full.unlink()
        await cluster.carry_out(PODS)
        await cluster.until(HEALTH.SERVING)
        kill(process)
    await place.start_again()
    assert evenhand("log", "verify", str(place.log)).code == 0
    assert set(cluster.carried_out) <= place.decided()


async def test_a_durable_core_on_a_full_disk_ends_in_order(place: Place) -> None:
    place.fill()
    async with place.core("--durable") as (process, cluster):
        await cluster.fill()
        await cluster.claim()
        await cluster.until(HEALTH.NOT_SERVING)
        process.terminate()
        assert process.wait(2 * SECONDS_MAX) == 0
    place.full.unlink()
    assert evenhand("log", "verify", str(place.log)).code == 0


@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_nothing_that_left_a_durable_core_is_missing(place: Place, seed: int) -> None:
    """Kills it at a random decision."""
    async with place.core("--durable") as (process, cluster):
        await cluster.fill()
        await cluster.claim()
        await cluster.carry_out(random.Random(seed).randint(1, PODS))
        kill(process)
    await place.start_again()
    assert evenhand("log", "verify", str(place.log)).code == 0
    assert set(cluster.carried_out) <= place.decided()
