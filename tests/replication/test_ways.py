"""What holds for followers on each way of the input: calls between cores (gRPC), and a log of NATS JetStream."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from server.rpc import following as following_module
from server.rpc.following import State
from tests.replication.engine import Engine, engine
from tests.rpc.harness import Served, asks, serving
from tests.rpc.test_following import in_state, place, replication, same
from tests.rpc.test_following import pair as calling

pytestmark = [pytest.mark.asyncio, pytest.mark.real]


@pytest.fixture(params=["calls", "log"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine | None]:
    """Provide the engine of a log, or None for calls."""
    if request.param == "calls":
        yield None
    else:
        with engine(tmp_path) as one:
            yield one


@asynccontextmanager
async def pair(way: Engine | None) -> AsyncIterator[tuple[Served, Served]]:
    """Hold two cores, either of which follows the other one when that one leads."""
    if way is not None:
        async with serving(log=way.url) as first, serving(log=way.url) as second:
            yield first, second
        return
    async with calling() as (first, second):
        yield first, second


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a leader look often whether another core leads."""
    monkeypatch.setattr(following_module, "WATCH_S", 0.05)


async def test_a_follower_decides_as_its_leader_before_and_after_it_joined(
    way: Engine | None,
) -> None:
    async with pair(way) as (first, second):
        stream = await first.ready(nodes=2)
        await in_state(second, State.FOLLOWER)
        for key in map(str, range(30)):
            await place(stream, key)
        await same(first, second)
        assert (await replication(first)).state == State.LEADER
        more = {"log": way.url} if way else {"leaders": (f"127.0.0.1:{first.port}",)}
        async with serving(**more) as third:
            await in_state(third, State.FOLLOWER)
            await place(stream, "after")
            await same(first, third)


async def test_the_core_at_which_the_manager_registers_leads_and_the_other_one_follows(
    way: Engine | None,
) -> None:
    async with pair(way) as (first, second):
        turns = [("a", first, second), ("b", second, first), ("c", first, second)]
        for key, leader, follower in turns:
            follower.cut()
            stream = await leader.ready(nodes=2)
            await in_state(follower, State.FOLLOWER)
            await place(stream, key)
            await same(leader, follower)
        assert (await replication(first)).state == State.LEADER


async def test_a_core_that_leads_from_nothing_is_followed_with_what_it_knows(
    way: Engine | None,
) -> None:
    async with pair(way) as (first, second):
        assert (await replication(second)).state == State.JOINING
        await (await first.ready()).send(asks("a", "b"))
        await in_state(second, State.FOLLOWER)
        await same(first, second)
