"""Epochs over a socket: what an older process of a shim may no longer do, and what responses carry (design 7.2)."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from si.v1 import si_pb2 as si
from tests.rpc.harness import Served, Stream, ask, asks, node, reason, refusal, serving, until

OLD = grpc.StatusCode.FAILED_PRECONDITION, "EPOCH_OLD"


def named(instance: str, epoch: int) -> dict[str, Any]:
    """Return the fields of a registration of a process in an epoch."""
    return {"buildInfo": {"instance": instance}, "epoch": epoch}


def stream(served: Served, method: str, epoch: int | str) -> Stream:
    """Open a stream that carries an epoch."""
    opened = Stream(getattr(served.stub, method)(metadata=(("evenhand-epoch", str(epoch)),)))
    served.streams.append(opened)
    return opened


async def ready(served: Served, instance: str, epoch: int) -> Stream:
    """Register in an epoch, create a node and the application, and return the allocation stream."""
    await served.register(**named(instance, epoch))
    nodes = stream(served, "UpdateNode", epoch)
    await nodes.send(si.NodeRequest(rmID="rm", nodes=[node("n0")]))
    await nodes.read(si.NodeResponse)
    applications = stream(served, "UpdateApplication", epoch)
    new = si.AddApplicationRequest(applicationID="app", queueName="root.a")
    await applications.send(si.ApplicationRequest(rmID="rm", new=[new]))
    await applications.read(si.ApplicationResponse)
    return stream(served, "UpdateAllocation", epoch)


async def test_responses_carry_the_epoch_of_the_registration() -> None:
    async with serving() as served:
        first = await ready(served, "one", 1)
        await first.send(asks("a"))
        placed = await first.read(si.AllocationResponse)
        assert (placed.new[0].allocationKey, placed.epoch) == ("a", 1)
        second = await ready(served, "two", 4)
        await second.send(asks("a", "b"))
        placed = await second.read(si.AllocationResponse)
        assert (len(placed.new), placed.epoch) == (2, 4)
        ends = si.AllocationReleasesRequest(
            allocationsToRelease=[si.AllocationRelease(applicationID="app", allocationKey="a")]
        )
        await second.send(si.AllocationRequest(rmID="rm", releases=ends))
        released = await second.read(si.AllocationResponse)
        assert (len(released.released), released.epoch) == (1, 4)


async def test_without_an_epoch_nothing_is_carried() -> None:
    async with serving() as served:
        first = await served.ready()
        await first.send(asks("a"))
        placed = await first.read(si.AllocationResponse)
        assert placed.epoch == 0
        assert placed == si.AllocationResponse(new=placed.new)


async def test_a_newer_epoch_ends_the_streams_of_the_older_one_at_once() -> None:
    """The elected process does not wait for the one before it, even if that one has its streams open and was elected before."""
    async with serving() as served:
        first = await ready(served, "one", 1)
        await first.send(asks("a"))
        await first.read(si.AllocationResponse)
        second = await ready(served, "two", 2)
        assert await first.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")
        await second.send(asks("a"))
        await second.read(si.AllocationResponse)
        third = await ready(served, "one", 3)
        assert await second.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")
        await third.send(asks("a"))
        assert (await third.read(si.AllocationResponse)).epoch == 3


@pytest.mark.parametrize("old", [named("one", 1), named("three", 2), {}])
async def test_an_older_registration_is_refused_and_changes_nothing(old: dict[str, Any]) -> None:
    async with serving() as served:
        second = await ready(served, "two", 2)
        await second.send(asks("a"))
        await second.read(si.AllocationResponse)
        before = served.core.digest()
        assert await refusal(served.register(**old)) == (*OLD, [])
        assert served.core.digest() == before
        await second.send(asks("b"))
        assert (await second.read(si.AllocationResponse)).new[0].allocationKey == "b"


async def test_the_refusal_says_which_epoch_is_known_and_whether_its_process_is_connected() -> None:
    async with serving() as served:
        second = await ready(served, "two", 7)
        await second.send(asks("a"))
        await second.read(si.AllocationResponse)
        assert await facts(served, named("one", 1)) == {"epoch": "7", "connected": "true"}
        for one in served.streams:
            await one.close()
        await until(lambda: not served.endpoint.sessions)
        assert await facts(served, named("one", 1)) == {"epoch": "7", "connected": "false"}


async def test_a_cluster_may_give_its_election_up_once_no_elected_process_is_connected() -> None:
    async with serving() as served:
        second = await ready(served, "two", 7)
        await second.send(asks("a"))
        await second.read(si.AllocationResponse)
        assert await refusal(served.register(forget=True)) == (*OLD, [])
        for one in served.streams:
            await one.close()
        await until(lambda: not served.endpoint.sessions)
        assert await refusal(served.register()) == (*OLD, [])
        assert await refusal(served.register(**named("one", 1), forget=True)) == (*OLD, [])
        await served.register(forget=True)
        assert served.core.managers["rm"].epoch == 0
        await served.register()


async def facts(served: Served, registration: dict[str, Any]) -> dict[str, str]:
    """Return the metadata of the ErrorInfo with which a registration is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.register(**registration)
    failed: Any = refused.value
    status = rpc_status.from_call(failed)
    assert reason(status) == "EPOCH_OLD"
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    return dict(info.metadata)


@pytest.mark.parametrize("epoch", [1, 0, "none", "", "-3", "9" * 40])
async def test_a_stream_that_an_older_process_opens_late_is_refused(epoch: int | str) -> None:
    """Without the epoch of its stream, a process that was replaced between its registration and its streams would take over."""
    async with serving() as served:
        second = await ready(served, "two", 2)
        late = stream(served, "UpdateAllocation", epoch)
        await late.send(asks("stolen"))
        assert await late.end() == OLD
        await second.send(si.AllocationRequest(rmID="rm", allocations=[ask("b")]))
        assert (await second.read(si.AllocationResponse)).new[0].allocationKey == "b"


@pytest.mark.parametrize("epoch", [-1, 2**62])
async def test_an_epoch_out_of_range_is_refused(epoch: int) -> None:
    async with serving() as served:
        invalid = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REGISTRATION", ["epoch"])
        assert await refusal(served.register(**named("one", epoch))) == invalid
