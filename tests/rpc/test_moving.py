"""The calls that move a partition between cores of two groups, and the shim's registration that ends the move (design 7.9)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from evenhand.v1 import replication_pb2 as pb
from evenhand.v1 import replication_pb2_grpc
from server.core.core import Core
from server.core.events.moving import PART_BYTES
from server.model.events import ManagerRegistered, NodeAdded
from server.replication import checkpoint, saved
from server.replication.feed import Feed
from server.rpc.following import State
from server.rpc.saving import restore
from server.rpc.table_revision import METADATA_KEY
from shim_client.core_client.refusals import Move, refusal_of
from si.v1 import si_pb2 as si
from tests.core.test_assignments import core_of
from tests.rpc.harness import RM, Served, node, refusal, serving
from tests.rpc.test_following import eventually, following, in_state, same

GPU = "gpu"
FAILED = grpc.StatusCode.FAILED_PRECONDITION


def stub(served: Served) -> Any:
    """Return the replication service of a core."""
    return replication_pb2_grpc.ReplicationServiceStub(served.channel)


async def register(served: Served, revision: int = 0, epoch: int = 0) -> None:
    """Register with a revision of the table; nothing is reported yet."""
    request = si.RegisterResourceManagerRequest(rmID=RM, explicitSync=True, epoch=epoch)
    metadata = [(METADATA_KEY, str(revision))] if revision else []
    await served.stub.RegisterResourceManager(request, metadata=metadata)


async def report(served: Served, *partitions: str) -> Any:
    """Report a node of each partition, end the sync, and return the stream."""
    nodes = [node(f"{one}-n", attributes={"si/node-partition": one}) for one in partitions]
    stream = await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=nodes))
    await stream.read(si.NodeResponse)
    await stream.send(si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete()))
    await served.endpoint.pump.settled()
    return stream


async def stands(served: Served) -> pb.GetMoveResponse:
    return await stub(served).GetMove(pb.GetMoveRequest(partition=GPU))  # type: ignore[no-any-return]


async def is_synced(served: Served) -> bool:
    return bool((await stands(served)).synced)


async def exported(source: Served, **more: Any) -> list[bytes]:
    request = pb.ExportPartitionRequest(**{"partition": GPU, "to": "a", "revision": 0, **more})
    return [one.part async for one in stub(source).ExportPartition(request)]


def part(content: bytes, **more: Any) -> pb.ImportPartitionRequest:
    facts: dict[str, Any] = {"partition": GPU, "former": "b", "revision": 1, "last": True}
    return pb.ImportPartitionRequest(
        **facts | {"layout": checkpoint.layout(), "part": content} | more
    )


def completed(**more: Any) -> pb.CompleteMoveRequest:
    facts: dict[str, Any] = {"partition": GPU, "to": "a", "revision": 1, "to_revision": 1}
    return pb.CompleteMoveRequest(**facts | more)


@asynccontextmanager
async def groups() -> AsyncIterator[tuple[Served, Served]]:
    """Hold a core of group `b`, which has `gpu`, and one of group `a`; a manager has reported to both."""
    async with serving(core=core_of("b")) as source, serving(core=core_of("a")) as target:
        for served, names in ((source, (GPU, "web")), (target, ("default",))):
            await register(served)
            await report(served, *names)
        yield source, target


async def test_a_partition_moves_with_its_followers() -> None:
    async with groups() as (source, target), following(source) as one, following(target) as two:
        (copy,) = await exported(source)
        assert (await stands(source)).state == "leaving"
        await stub(target).ImportPartition(part(copy))
        found = await stands(target)
        assert (found.state, found.other, found.next_revision) == ("arrived", "b", 1)
        await same(target, two)
        await stub(source).CompleteMove(completed())
        assert await source.streams[0].end() == (grpc.StatusCode.UNAVAILABLE, "PARTITION_MOVED")
        await stub(source).CompleteMove(completed())
        assert (await stands(source)).state == "absent"
        await register(target, 1)
        assert not (await stands(target)).synced
        await report(target, "default", GPU)
        await eventually(partial(is_synced, target))
        found = await stands(target)
        assert (found.state, found.synced, found.revision, found.group) == ("owned", True, 1, "a")
        assert [*target.core.state.partitions[GPU].index.nodes] == ["gpu-n"]
        for leader, follower in ((source, one), (target, two)):
            await same(leader, follower)
        async with following(target) as three:
            await same(target, three)


async def test_a_follower_of_the_new_owner_takes_the_copy_when_a_manager_comes_to_it() -> None:
    async with groups() as (source, target), following(target) as follower:
        (copy,) = await exported(source)
        await stub(target).ImportPartition(part(copy))
        await same(target, follower)
        await stub(source).CompleteMove(completed())
        await register(follower, 1)
        await in_state(follower, State.LEADER)
        await report(follower, "default", GPU)
        await eventually(partial(is_synced, follower))


async def test_a_shim_with_the_older_table_learns_what_moved() -> None:
    async with groups() as (source, target):
        (copy,) = await exported(source)
        await stub(target).ImportPartition(part(copy))
        await stub(source).CompleteMove(completed())
        await register(target, 1)
        for served, move in ((source, Move(1, GPU, "a", 1)), (target, Move(1, GPU, "a", 1))):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await register(served)
            found = refusal_of(refused.value)
            assert (found.reason, found.moves) == ("OTHER_TABLE", (move,))
            assert json.loads(found.facts["moves"]) == [[1, GPU, "a", 1]]
        table = target.core.state.assignment
        assert table is not None
        target.core.state.assignment = table._replace(
            revision=9
        )  # and another change that is no move
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(target)
        assert refusal_of(refused.value).moves == ()


async def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    async with groups() as (source, target):
        before = source.core.digest()
        for more, expected in (
            ({"revision": 3}, "OTHER_TABLE"),
            ({"partition": "default"}, "NOT_OWNER"),
            ({"partition": "nowhere"}, "NOT_FOUND"),
            ({"to": "b"}, "INVALID_GROUP"),
            ({"to": ""}, "INVALID_GROUP"),
        ):
            assert (await refusal(exported(source, **more)))[1] == expected
        for content, facts, expected in (
            (b"", {"layout": "another"}, "OTHER_LAYOUT"),
            (b"x" * (PART_BYTES + 1), {}, "INVALID_PART"),
            (b"", {"number": 1 << 20}, "INVALID_PART"),
            (b"", {"number": -1}, "INVALID_PART"),
            (b"", {"partition": "nowhere"}, "NOT_FOUND"),
            (b"", {"revision": 5}, "OTHER_TABLE"),
            (b"no copy", {}, "BAD_COPY"),
        ):
            asked = stub(target).ImportPartition(part(content, **facts))
            assert (await refusal(asked))[1] == expected
        assert (await refusal(stub(source).CompleteMove(completed())))[:2] == (
            FAILED,
            "NOT_LEAVING",
        )
        assert source.core.digest() == before
        await exported(source)
        for asked in (exported(source, partition="web"), exported(source, to="c")):
            assert (await refusal(asked))[1] == "OTHER_MOVE"
        into = part(b"x", partition="night", revision=1)
        assert (await refusal(stub(source).ImportPartition(into)))[1] == "OTHER_MOVE"
        assert source.core.state.leaving[GPU].group == "a"
        assert (target.core.state.arrivals, target.core.state.copies) == ({}, {})
        assert GPU not in target.core.state.partitions


async def test_a_move_is_given_up() -> None:
    async with groups() as (source, target):
        (copy,) = await exported(source)
        await stub(target).ImportPartition(part(copy))
        for served, state in ((source, "owned"), (target, "absent")):
            await stub(served).CancelMove(pb.CancelMoveRequest(partition=GPU))
            assert (await stands(served)).state == state
        assert (await refusal(stub(source).CompleteMove(completed())))[:2] == (
            FAILED,
            "NOT_LEAVING",
        )
        assert not source.core.state.leaving


async def test_a_core_that_is_no_leader_or_has_no_table_moves_nothing() -> None:
    async with groups() as (source, _), following(source) as follower:
        assert (await refusal(exported(follower)))[1] == "NOT_LEADER"
        asked = stub(follower).CancelMove(pb.CancelMoveRequest(partition=GPU))
        assert (await refusal(asked))[1] == "NOT_LEADER"
    async with serving() as alone:
        assert (await refusal(stub(alone).GetMove(pb.GetMoveRequest())))[:2] == (FAILED, "NO_TABLE")


async def test_a_manager_of_an_older_epoch_is_refused_by_a_new_owner_that_does_not_know_it() -> (
    None
):
    async with serving(core=core_of("b")) as source, serving(core=core_of("a")) as target:
        known = ManagerRegistered(RM, epoch=7), NodeAdded(RM, "n", (), partition=GPU)
        source.core.take(known, 0)
        (copy,) = await exported(source)
        await stub(target).ImportPartition(part(copy))
        assert (await refusal(register(target, 1, epoch=6)))[:2] == (FAILED, "EPOCH_OLD")
        assert (await stands(target)).state == "arrived"
        await register(target, 1, epoch=7)
        assert (await stands(target)).state == "owned"


async def test_a_manager_that_has_not_reported_everything_holds_the_move_up() -> None:
    async with groups() as (source, _):
        await register(source)
        assert (await refusal(exported(source)))[1] == "NOT_SYNCED"


async def test_a_core_that_restarts_with_the_new_table_takes_the_copy_from_its_saved_state(
    tmp_path: Any,
) -> None:
    async with groups() as (source, target):
        (copy,) = await exported(source)
        await stub(target).ImportPartition(part(copy))
        path = tmp_path / saved.NAME
        saved.write(path, Feed(target.core, "v").checkpoint())
    new: Core = core_of("a")
    table = new.state.assignment
    assert table is not None
    new.state.assignment = table._replace(owners={**table.owners, GPU: "a"}, revision=1)
    other: Core = core_of("a")  # its table has this revision because of another change
    other.state.assignment = table._replace(revision=1)
    assert restore(path, Feed(other, "v"), other, None)
    assert GPU not in other.state.partitions
    assert restore(path, Feed(new, "v"), new, None)
    assert [*new.state.partitions[GPU].index.nodes] == ["gpu-n"]
    assert not new.state.arrivals
