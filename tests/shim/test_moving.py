"""A partition moves between two running groups of cores while pods arrive, and whatever dies in between (design 7.9)."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from evenhand.v1 import replication_pb2 as pb
from evenhand_cli.core_table import read_core_table
from shim_client.translate import labels
from tests.cli.run import check_replay
from tests.replication.engine import engine
from tests.rpc.test_following import eventually
from tests.shim.groups import GPU, Groups, Pairs, RunningShim, two_groups
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.rig import WatchedCluster, own, waiting

WAITING_MAX = 10
PODS_MAX = 40
STAYS = "stays"
IN_GPU = {labels.PARTITION: GPU}


async def arrive(cluster: WatchedCluster) -> None:
    """Create pods in both partitions unless many wait, and delete the oldest bound ones, until cancelled."""
    for number in count():
        if len(waiting(cluster)) < WAITING_MAX:
            marks = IN_GPU if number % 2 else {}
            app = {"applicationId": "gpu-app" if number % 2 else "app"}
            cluster.create(pod(f"p{number}", cpu="100m", labels=marks | app))
        bound = [one for one in own(cluster) if one["spec"].get("nodeName")]
        names = [name for one in bound if (name := one["metadata"]["name"]) != STAYS]
        if len(names) > PODS_MAX:
            cluster.delete("Pod", ("work", names[0]))
        await asyncio.sleep(0.01)


@dataclass
class World:
    """Two groups, and a shim of a cluster in which pods arrive."""

    groups: Groups
    cluster: WatchedCluster
    shim: RunningShim

    def bound(self, partition: str) -> int:
        """Return how many pods of a partition were bound so far."""
        odd = partition == GPU
        numbers = [key.removeprefix("uid-p") for key in self.cluster.bindings]
        return sum(one.isdigit() and int(one) % 2 == odd for one in numbers)

    async def goes_on(self) -> None:
        """Wait until pods of both partitions are bound that were not bound before."""
        wanted = {name: self.bound(name) + 5 for name in ("default", GPU)}
        await until(lambda: all(self.bound(name) >= least for name, least in wanted.items()))


@asynccontextmanager
async def at_work(made: Groups) -> AsyncIterator[World]:
    """Hold two groups and a shim while pods arrive. At the end each pod was bound once, and no pod waits."""
    cluster = WatchedCluster()
    for number in range(2):
        cluster.create(node(f"n{number}"))
        cluster.create(node(f"g{number}", labels=IN_GPU))
    cluster.create(pod(STAYS, cpu="100m", labels=IN_GPU | {"applicationId": "gpu-app"}))
    async with two_groups(made) as groups:
        shim = RunningShim(groups, cluster)
        arriving = asyncio.create_task(arrive(cluster))
        try:
            world = World(groups, cluster, shim)
            await world.goes_on()
            yield world
            await world.goes_on()
            arriving.cancel()
            await until(lambda: not waiting(cluster))
            assert set(cluster.bindings.values()) == {1}
        finally:
            arriving.cancel()
            await shim.close()


async def exported(groups: Groups, source: str, to: str) -> list[bytes]:
    """Do the first step of a move by hand: return the copy of the partition."""
    revision = (await groups.stub(source).GetMove(pb.GetMoveRequest(partition=GPU))).revision
    request = pb.ExportPartitionRequest(partition=GPU, to=to, revision=revision)
    return [one.part async for one in groups.stub(source).ExportPartition(request)]


async def imported(groups: Groups, source: str, to: str, parts: list[bytes]) -> None:
    """Do the second step by hand: give the new owner the copy."""
    here = await groups.stub(to).GetMove(pb.GetMoveRequest(partition=GPU))
    for at, part in enumerate(parts):
        request = pb.ImportPartitionRequest(
            partition=GPU,
            former=source,
            revision=here.revision + 1,
            number=at,
            part=part,
            last=at == len(parts) - 1,
            layout=here.layout,
        )
        await groups.stub(to).ImportPartition(request)


async def moved(world: World, to: str) -> None:
    """Move the partition by the command, and check who has it then."""
    code, told = await world.groups.move(to)
    assert code == 0, told
    table = read_core_table(world.groups.table)
    assert table.owner(GPU).name == to
    other = "a" if to == "b" else "b"
    assert await world.groups.stands(to) == "owned synced"
    assert await world.groups.stands(other) == "absent"


def recorded(folder: Path, name: str) -> list[str]:
    """Return the options with which a core writes a trace and a decision log."""
    files = {"--trace": folder / f"{name}.trace", "--decision-log": folder / f"{name}.log"}
    return [str(word) for pair in files.items() for word in pair]


async def test_a_partition_moves_there_and_back_under_traffic(tmp_path: Path) -> None:
    """The traces of both cores, which have the moves, replay."""
    async with at_work(Groups(tmp_path, partial(recorded, tmp_path))) as world:
        groups, cluster = world.groups, world.cluster
        key = f"uid-{STAYS}"
        before = await groups.since("b", key)
        assert before
        for to in ("a", "b"):
            await moved(world, to)
            await world.goes_on()
            assert await groups.since(to, key) == before
        code, told = await groups.move("b")
        assert (code, "there was nothing to move" in told) == (0, True), told
        revisions = [one.revision for one in read_core_table(groups.table).groups]
        assert revisions == [3, 6]
        assert groups.table.read_text().startswith("# Groups of this test.\ncores:\n- {name: a,")
        assert cluster.bindings[key] == 1
        for name in "ab":
            log, trace = tmp_path / f"{name}.log", tmp_path / f"{name}.trace"
            assert b'"arrived"' in trace.read_bytes()
            await asyncio.to_thread(check_replay, log, trace)


@pytest.mark.parametrize("way", ["follow", "nats"])
async def test_a_partition_moves_between_pairs_of_cores_that_lose_their_leader(
    tmp_path: Path, way: str
) -> None:
    """The cores of a pair follow each other, or share a log. The follower goes on with the partition, and with what it knew of it."""
    key = f"uid-{STAYS}"

    def more(name: str) -> list[str]:
        if nats is not None:
            return ["--log", f"{nats.url}-{name[0]}"]
        return ["--follow", pairs.addresses[pairs.other(name)]]

    pairs = Pairs(tmp_path, more)
    async with AsyncExitStack() as stack:
        nats = stack.enter_context(engine(tmp_path)) if way == "nats" else None
        world = await stack.enter_async_context(at_work(pairs))
        before = await pairs.since(await pairs.leader("b"), key)
        assert before
        await moved(world, "a")
        await world.goes_on()
        killed = await pairs.leader("a")
        other = pairs.other(killed)
        await eventually(partial(pairs.is_level, other))
        await pairs.kill(killed)
        await world.goes_on()
        assert await pairs.leader("a") == other
        assert await pairs.since(other, key) == before
        await pairs.start(killed)
        await eventually(partial(pairs.is_level, killed))
        await moved(world, "b")
        assert await pairs.since(await pairs.leader("b"), key) == before


async def test_a_move_survives_the_death_of_each_part(tmp_path: Path) -> None:
    """After each death the command is run again, and ends the move."""
    async with at_work(Groups(tmp_path)) as world:
        groups = world.groups
        old = tmp_path / "old.yaml"

        await exported(groups, "b", "a")
        await groups.restart("b")  # the former owner dies after the export
        await world.goes_on()
        await moved(world, "a")

        parts = await exported(groups, "a", "b")
        await imported(groups, "a", "b", parts)
        await groups.restart("b")  # the new owner dies after the import
        await eventually(partial(groups.is_configured, "b"))
        await moved(world, "b")
        await world.goes_on()

        shutil.copy(groups.table, old)
        await moved(world, "a")
        await world.shim.restart(old)  # the shim dies, and comes back with the old table
        await world.goes_on()
        await groups.restart("b", old)  # the former owner comes back with the old table
        await world.goes_on()
        await groups.restart("b")
        await world.goes_on()
        assert [await groups.stands(one) for one in "ab"] == ["owned synced", "absent"]


async def test_a_move_that_is_interrupted_is_given_up_by_a_move_to_the_owner(
    tmp_path: Path,
) -> None:
    async with at_work(Groups(tmp_path)) as world:
        groups = world.groups
        parts = await exported(groups, "b", "a")
        await imported(groups, "b", "a", parts)
        assert [await groups.stands(one) for one in "ab"] == ["arrived", "leaving"]
        wanted = world.bound("default") + 5
        await until(lambda: world.bound("default") >= wanted)
        code, told = await groups.move("b")
        assert (code, "the move to cores a was given up" in told) == (0, True), told
        assert [await groups.stands(one) for one in "ab"] == ["absent", "owned synced"]
        await imported(groups, "b", "a", parts)  # the former owner decides again after a time
        code, told = await groups.move("b")
        assert (code, "the move to cores a was given up" in told) == (0, True), told
        assert await groups.stands("a") == "absent"
        await exported(groups, "b", "c")
        code, told = await groups.move("a")
        assert (code, "partition gpu is being moved to cores c" in told) == (1, True), told
        assert await groups.stands("b") == "leaving"
        assert (await groups.move("b"))[0] == 0


async def test_a_move_ends_after_the_table_was_written(tmp_path: Path) -> None:
    """The command wrote the file and died: the shim restarts with the new table before the former owner knows of it."""
    async with at_work(Groups(tmp_path)) as world:
        groups = world.groups
        parts = await exported(groups, "b", "a")
        await imported(groups, "b", "a", parts)
        text = groups.table.read_text()
        new = text.replace("default], revision: 1", "default, gpu], revision: 2")
        groups.table.write_text(new.replace("[gpu], revision: 4", "[], revision: 5"))
        new = groups.table.read_text()
        await world.shim.restart()
        await world.goes_on()
        groups.table.write_text(text)
        code, told = await groups.move("b")  # too late to give the move up
        assert (code, "was given up" in told) == (1, False), told
        groups.table.write_text(new)
        await moved(world, "a")
