"""Reads with at least a position: a follower waits for it, and says so when it does not come or is of another history."""

import asyncio
from typing import Any

import grpc
import pytest

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from server.rpc import min_position
from server.rpc.min_position import KEY
from si.v1 import si_pb2 as si
from tests.rpc.harness import Served, asks, refusal, serving
from tests.rpc.test_following import following, level, replication

pytestmark = pytest.mark.asyncio
REFUSED = grpc.StatusCode.FAILED_PRECONDITION


def listing(served: Served, at_least: str) -> Any:
    """Call for the allocations of a core, in a state that is not older than a position."""
    stub: Any = inspect_pb2_grpc.InspectServiceStub(served.channel)
    return stub.ListAllocations(inspect_pb2.ListAllocationsRequest(), metadata=((KEY, at_least),))


async def position(served: Served, more: int = 0) -> str:
    """Return the position of a core, with its term, as a caller gives it."""
    found = await replication(served)
    return f"{found.position + more}@{found.term}"


async def refused(served: Served, at_least: str) -> str:
    """Return the reason with which a core refuses a listing."""
    code, why, _ = await refusal(listing(served, at_least))
    assert code is REFUSED
    return why


async def test_a_core_answers_what_it_has_got_and_an_answer_names_its_position() -> None:
    async with serving() as leader:
        await leader.ready()
        answer = await listing(leader, await position(leader))
        assert await position(leader) == f"{answer.picture.position}@{answer.picture.term}"


async def test_a_follower_waits_until_it_has_got_the_position() -> None:
    async with serving() as leader:
        stream = await leader.ready()
        async with following(leader) as follower:
            await level(leader, follower)
            call = asyncio.ensure_future(listing(follower, await position(leader, 2)))
            await stream.send(asks("k"))
            await stream.read(si.AllocationResponse)
            assert [one.allocation_key for one in (await call).allocations] == ["k"]


async def test_a_follower_that_does_not_get_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_position, "POSITION_WAIT_S", 0.05)
    async with serving() as leader:
        await leader.ready()
        async with following(leader) as follower:
            await level(leader, follower)
            assert await refused(follower, await position(leader, 1_000)) == "FOLLOWER_BEHIND"
            assert await refused(follower, "1000000") == "FOLLOWER_BEHIND"


async def test_a_position_of_another_core_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_position, "POSITION_WAIT_S", 0.05)
    async with serving() as leader, serving() as stranger:
        await leader.ready()
        await stranger.ready()
        async with following(leader) as follower:
            other = await position(stranger)
            assert await refused(leader, other) == "OTHER_HISTORY"
            assert await refused(follower, other) == "OTHER_HISTORY"
        assert await refused(leader, await position(leader, 1_000)) == "OTHER_HISTORY"


async def test_what_a_leader_had_and_its_successor_has_not_is_lost() -> None:
    async with serving() as leader:
        stream = await leader.ready()
        async with following(leader) as follower:
            await level(leader, follower)
            common = await position(leader)
            await follower.register()
            await stream.send(asks("k"))
            await stream.read(si.AllocationResponse)
            assert (await listing(follower, common)).picture.term != common.partition("@")[2]
            assert await refused(follower, await position(leader)) == "OTHER_HISTORY"


@pytest.mark.parametrize("given", ["", "x", "-1", "1@", "1@a@b", "9" * 19])
async def test_what_is_no_position_is_refused(given: str) -> None:
    async with serving() as leader:
        code, why, fields = await refusal(listing(leader, given))
        assert (code, why, fields) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_POSITION", [KEY])
