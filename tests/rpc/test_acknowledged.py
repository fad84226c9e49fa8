"""Decisions that leave when a follower has them, or after a bound (design 7.8)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from evenhand.v1 import replication_pb2 as pb
from evenhand.v1 import replication_pb2_grpc
from server.core.core import Core
from server.replication import checkpoint
from server.replication.feed import Feed
from server.rpc.acknowledged import Acknowledged
from server.rpc.acknowledging import Acknowledgements
from tests.rpc.harness import RM, SETTING, Served, asks, serving, until
from tests.rpc.test_following import following, level
from tests.rpc.test_handing_over import followers
from tests.rpc.test_resuming import Manager, counts, manager, placed, resume

pytestmark = pytest.mark.asyncio

NEVER_S = 3_600.0
SHORT_S = 0.02


class Waiting:
    """Decisions that wait, without a core that makes them."""

    def __init__(self, seconds: float, *names: str) -> None:
        self.feed = Feed(Core(), "v")
        self.asked = Acknowledgements(self.feed)
        self.followers = followers(self.feed, *names)
        self.wait = Acknowledged(self.feed, self.asked, seconds)

    def slice(self, decisions: int = 1) -> "asyncio.Task[None]":
        """Let the core take an event and make decisions, and return the wait before they leave."""
        self.feed.position += 1
        self.feed.decided += decisions
        return asyncio.create_task(self.wait.before_leaving())

    def outcomes(self) -> tuple[int, ...]:
        """Return how many slices were acknowledged, late and alone."""
        return tuple(self.wait.slices.values())


async def soon(task: "asyncio.Task[None]") -> bool:
    """Return whether a task is done after some turns of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_decisions_leave_when_a_level_follower_has_them() -> None:
    one = Waiting(NEVER_S, "a")
    one.asked.received("a", 0)
    waiting = one.slice()
    assert not await soon(waiting)
    one.asked.received("a", 0)
    assert not await soon(waiting)
    one.asked.received("a", 1)
    await waiting
    assert one.outcomes() == (1, 0, 0)


async def test_a_slice_without_decisions_does_not_wait() -> None:
    one = Waiting(NEVER_S, "a")
    one.asked.received("a", 0)
    await one.slice(decisions=0)
    assert one.outcomes() == (0, 0, 0)


async def test_a_slow_follower_delays_one_slice_until_it_has_caught_up() -> None:
    one = Waiting(SHORT_S, "a")
    one.asked.received("a", 0)
    await one.slice()
    assert one.outcomes() == (0, 1, 0)
    for _ in range(3):
        assert await soon(one.slice())
    assert one.outcomes() == (0, 1, 3)
    one.asked.received("a", 4)
    waiting = one.slice()
    assert not await soon(waiting)
    one.asked.received("a", 5)
    await waiting
    assert one.outcomes() == (1, 1, 3)


async def test_a_core_without_followers_waits_for_nobody_and_asks_until_it_is_closed() -> None:
    one = Waiting(NEVER_S)
    await one.slice()
    assert one.outcomes() == (0, 0, 1)
    assert one.asked.is_asked
    one.wait.close()
    assert not one.asked.is_asked


async def test_decisions_do_not_wait_for_a_follower_that_is_lost() -> None:
    one = Waiting(NEVER_S, "a")
    one.asked.received("a", 0)
    waiting = one.slice()
    assert not await soon(waiting)
    one.feed.leave(one.followers[0])
    one.asked.look()
    await waiting
    assert one.outcomes() == (0, 1, 0)


@asynccontextmanager
async def pair(seconds: float) -> AsyncIterator[tuple[Served, Served, Manager]]:
    """Hold a leader whose decisions wait, its follower, and a manager."""
    async with serving(replace(SETTING, acknowledged_s=seconds)) as leader:
        found = await manager(leader)
        async with following(leader) as follower:
            await level(leader, follower)
            acknowledged = leader.endpoint.feed.followers
            await until(lambda: any(one.acknowledged >= 0 for one in acknowledged))
            yield leader, follower, found


async def test_whatever_left_a_core_is_known_to_its_follower_when_the_core_is_gone() -> None:
    """The follower has made each decision at the moment at which the manager receives it."""
    async with pair(NEVER_S) as (leader, follower, found):
        for number in range(60):
            await placed(found.allocations, str(number))
            session = follower.core.managers[RM].session
            assert session is not None
            assert session.sent["allocation"] >= found.allocations.received
        outcomes = {labels["outcome"]: n for _, n, labels in leader.endpoint.gauges()}
        assert outcomes["late"] == 0
        assert outcomes["acknowledged"] >= 60
        leader.cut()
        assert counts(await resume(follower, found.offer()))[2] == found.allocations.sent


async def test_decisions_leave_after_the_bound_if_the_follower_is_silent() -> None:
    async with serving(replace(SETTING, acknowledged_s=SHORT_S)) as leader:
        found = await manager(leader)
        stub: Any = replication_pb2_grpc.ReplicationServiceStub(leader.channel)
        request = pb.FollowRequest(name="f", layout=checkpoint.layout(), process="p")
        silent = stub.Follow(request)
        await silent.read()
        await until(lambda: bool(leader.endpoint.feed.followers))
        await stub.Acknowledge(pb.AcknowledgeRequest(process="p", position=1_000))
        leader.endpoint.feed.followers[0].acknowledged = leader.endpoint.feed.position
        await found.allocations.send(asks("a"))
        assert [one.allocationKey for one in (await found.allocations.read()).new] == ["a"]
        await placed(found.allocations, "b")
        outcomes = {labels["outcome"]: n for _, n, labels in leader.endpoint.gauges()}
        assert (outcomes["acknowledged"], outcomes["late"]) == (0, 1)
        silent.cancel()
