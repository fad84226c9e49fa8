"""The planned hand-over: a leader stops, a level follower gets the rest, and its manager goes on there (design 7.7)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from evenhand.v1 import config_pb2, config_pb2_grpc, replication_pb2_grpc
from evenhand.v1 import replication_pb2 as pb
from server.core.core import Core
from server.replication import checkpoint
from server.replication.feed import Feed, Follower
from server.rpc import following as following_module
from server.rpc import handing_over as handing_over_module
from server.rpc.acknowledging import Acknowledgements
from server.rpc.evenhand import configuration_service
from server.rpc.following import State
from shim_client.core_client.refusals import Refusal, refusal_in, refusal_of
from si.v1 import si_pb2 as si
from tests.rpc.harness import PATIENCE_S, RM, SETTING, Served, asks, refusal, serving, until
from tests.rpc.test_following import eventually, in_state, level, replication, same
from tests.rpc.test_following import pair as cores
from tests.rpc.test_resuming import Line, Manager, counts, manager, placed, resume

pytestmark = pytest.mark.asyncio

NEVER_S = 0.05


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cores look for other leaders often."""
    monkeypatch.setattr(following_module, "WATCH_S", 0.05)


def followers(feed: Feed, *names: str) -> list[Follower]:
    """Let cores of these names follow, whose processes have the same names."""
    made = [Follower(name, lambda: None, process=name) for name in names]
    for one in made:
        feed.join(one)
    return made


async def test_the_first_follower_that_acknowledges_a_position_is_found() -> None:
    feed = Feed(Core(), "v")
    asked = Acknowledgements(feed)
    _, second = known = followers(feed, "a", "b")
    waiting = asyncio.create_task(asked.reached(lambda: known, 7, PATIENCE_S))
    await asyncio.sleep(0)
    assert asked.is_asked
    for process, position in (("a", 6), ("c", 9), ("", 9), ("b", 8)):
        asked.received(process, position)
    assert await waiting is second
    assert not asked.is_asked


async def test_nothing_is_awaited_of_followers_that_are_gone_or_too_slow() -> None:
    feed = Feed(Core(), "v")
    asked = Acknowledgements(feed)
    known = followers(feed, "a")
    assert await asked.reached(lambda: known, 7, NEVER_S) is None
    waiting = asyncio.create_task(asked.reached(lambda: known, 7, PATIENCE_S))
    await asyncio.sleep(0)
    known.clear()
    asked.look()
    assert await waiting is None


async def hand_over(served: Served, to: str = "") -> pb.HandOverResponse:
    """Let a core hand over."""
    stub: Any = replication_pb2_grpc.ReplicationServiceStub(served.channel)
    answer: pb.HandOverResponse = await stub.HandOver(pb.HandOverRequest(to=to))
    return answer


async def why_not(served: Served, to: str = "") -> str:
    """Return why a core refuses to hand over, and check that it still leads."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await hand_over(served, to)
    status = rpc_status.from_call(refused.value)  # type: ignore[arg-type]
    assert status is not None
    assert refusal_of(refused.value).reason == "NO_LEVEL_FOLLOWER"
    assert (await replication(served)).state == State.LEADER
    return str(status.message)


async def end_of(line: Line) -> tuple[grpc.StatusCode, Refusal]:
    """Return the status with which a stream ends, after all its responses."""
    while (answer := await line.stream.next()) is not None:
        line.received = answer.sequence or line.received
    call = line.stream.call
    return await call.code(), refusal_in(await call.trailing_metadata())


async def at_work(first: Served, second: Served) -> Manager:
    """Return a manager at the first core, which the second one follows."""
    found = await manager(first)
    await in_state(second, State.FOLLOWER)
    return found


async def test_a_session_goes_on_at_the_follower_to_which_its_leader_hands_over() -> None:
    async with cores() as (first, second):
        found = await at_work(first, second)
        await placed(found.allocations, "a")
        done = await hand_over(first)
        code, refused = await end_of(found.allocations)
        process = (await replication(second)).process
        assert (code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "HANDED_OVER")
        assert refused.successor == process
        assert refused.facts["follower"] == done.follower == f"core-{process}"
        assert counts(await resume(second, found.offer())) == (2, 1, 1)
        stream = Line(await second.open("UpdateAllocation"), 1, found.allocations.received)
        await placed(stream, "b")
        await in_state(first, State.FOLLOWER)
        await same(second, first)
        assert (await replication(second)).position > done.position


async def test_messages_that_the_leader_did_not_take_are_for_the_follower() -> None:
    """The manager sends asks all the time. Each is placed once: by the leader, or after its message was repeated."""
    async with cores() as (first, second):
        found = await at_work(first, second)
        keys = [str(number) for number in range(200)]

        async def send() -> None:
            for key in keys:
                try:
                    await found.allocations.send(asks(key))
                except grpc.aio.AioRpcError:
                    return

        sending = asyncio.create_task(send())
        await until(lambda: found.allocations.sent > 5)
        done = await hand_over(first)
        await asyncio.wait({sending})
        keys_placed = await all_placed(found.allocations)
        position = (await replication(first)).position
        assert position == done.position, "the leader takes nothing after it has stopped"
        taken = counts(await resume(second, found.offer()))[2]
        assert 0 < taken <= found.allocations.sent
        stream = Line(await second.open("UpdateAllocation"), taken, found.allocations.received)
        for key in keys[taken:]:
            await stream.send(asks(key))
        while len(keys_placed) < len(keys):
            keys_placed += [one.allocationKey for one in (await stream.read()).new]
        assert sorted(keys_placed) == sorted(keys)
        await in_state(first, State.FOLLOWER)
        await same(second, first)


async def test_a_stream_that_never_pauses_does_not_delay_a_hand_over() -> None:
    """Decisions wait for the follower, so that there is always another message when they leave."""
    async with cores(replace(SETTING, acknowledged_s=PATIENCE_S)) as (first, second):
        found = await at_work(first, second)
        await level(first, second)
        numbers = count()

        async def send() -> None:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    key = str(next(numbers))
                    await found.allocations.send(asks(key))

        sending = asyncio.create_task(send())
        await until(lambda: found.allocations.sent > 50)
        async with asyncio.timeout(PATIENCE_S):
            await hand_over(first)
        await sending
        taken = counts(await resume(second, found.offer()))[2]
        assert 0 < taken <= found.allocations.sent


async def all_placed(line: Line) -> list[str]:
    """Return the keys of all placements on a stream until it ends."""
    found: list[str] = []
    while (answer := await line.stream.next()) is not None:
        line.received = answer.sequence or line.received
        found += [one.allocationKey for one in answer.new]
    return found


async def test_a_core_hands_over_again_and_again() -> None:
    async with cores() as (first, second):
        found = await at_work(first, second)
        leader, follower = first, second
        for number in range(4):
            await level(leader, follower)
            await placed(found.allocations, str(number))
            await hand_over(leader)
            for line in (found.nodes, found.applications, found.allocations):
                await end_of(line)
            offer = found.offer()
            taken = counts(await resume(follower, offer))
            leader, follower = follower, leader
            found = await again(leader, offer, taken)
            await in_state(follower, State.FOLLOWER)
        await same(leader, follower)


async def again(leader: Served, offer: si.SessionResume, taken: tuple[int, int, int]) -> Manager:
    """Return the manager with streams to another core."""
    received = offer.nodes.received, offer.applications.received, offer.allocations.received
    made = []
    for method, sent, seen in zip(
        ("UpdateNode", "UpdateApplication", "UpdateAllocation"), taken, received, strict=True
    ):
        made.append(Line(await leader.open(method), sent, seen))
    for line, kind in zip(
        made, (si.NodeRequest, si.ApplicationRequest, si.AllocationRequest), strict=True
    ):
        await line.send(kind(rmID=RM))
    return Manager(*made)


async def test_a_hand_over_that_cannot_be_done_is_refused_and_changes_nothing() -> None:
    async with serving() as alone:
        await manager(alone)
        assert "--follow" in await why_not(alone)
    async with cores() as (first, second):
        await in_state(first, State.JOINING)
        assert (await refusal(hand_over(first)))[1] == "NOT_LEADER"
        await first.register()
        await in_state(second, State.FOLLOWER)
        assert "no resource manager" in await why_not(first)
        await manager(first)
        mine = f"core-{(await replication(second)).process}"
        assert mine in await why_not(first, "another")
        assert (await refusal(hand_over(second)))[1] == "NOT_LEADER"


async def test_a_follower_that_acknowledges_nothing_is_not_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing_over_module, "LEVEL_S", NEVER_S)
    async with cores() as (first, second):
        found = await at_work(first, second)
        stub: Any = replication_pb2_grpc.ReplicationServiceStub(first.channel)
        request = pb.FollowRequest(name="slow", layout=checkpoint.layout(), process="p")
        silent = stub.Follow(request)
        await silent.read()
        assert "follower slow has not said" in await why_not(first, "slow")
        await stub.Acknowledge(pb.AcknowledgeRequest(process="p", position=1))
        await placed(found.allocations, "a")
        assert "events and ticks behind" in await why_not(first, "slow")
        silent.cancel()


async def test_a_leader_whose_follower_is_lost_while_it_stands_still_leads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cores() as (first, second):
        found = await at_work(first, second)
        stub: Any = replication_pb2_grpc.ReplicationServiceStub(first.channel)
        silent = stub.Follow(pb.FollowRequest(name="lost", layout=checkpoint.layout(), process="p"))
        await silent.read()
        await level(first, second)
        position = (await replication(first)).position
        await stub.Acknowledge(pb.AcknowledgeRequest(process="p", position=position + 1_000))
        feed, rest = first.endpoint.feed, first.endpoint.pump.rest

        def rest_without_the_follower() -> None:
            feed.leave(next(one for one in feed.followers if one.name == "lost"))
            rest()

        monkeypatch.setattr(first.endpoint.pump, "rest", rest_without_the_follower)
        assert "leads on" in await why_not(first, "lost")
        await placed(found.allocations, "a")
        await same(first, second)
        silent.cancel()


async def test_a_third_core_follows_the_core_that_leads_after_a_hand_over() -> None:
    async with cores() as (first, second):
        found = await at_work(first, second)
        leaders = tuple(f"127.0.0.1:{one.port}" for one in (first, second))
        async with serving(leaders=leaders) as third:
            await in_state(third, State.FOLLOWER)
            await hand_over(first, f"core-{(await replication(second)).process}")
            await end_of(found.allocations)
            await resume(second, found.offer())
            stream = Line(await second.open("UpdateAllocation"), 0, found.allocations.received)
            await placed(stream, "a")

            async def both_follow() -> bool:
                return len((await replication(second)).followers) == 2

            await eventually(both_follow)
            await same(second, third)


async def test_a_hand_over_that_nobody_waits_for_any_longer_is_not_done() -> None:
    async with cores() as (first, second):
        found = await at_work(first, second)
        handing, pump = first.endpoint.handing, first.endpoint.pump
        asked = asyncio.create_task(handing.hand_over(""))
        await until(lambda: pump.resting)
        asked.cancel()
        await asyncio.wait({asked})
        await placed(found.allocations, "a")
        assert (await replication(first)).state == State.LEADER
        await same(first, second)


async def test_a_leader_that_ends_in_order_names_the_follower_that_has_everything() -> None:
    async with cores() as (first, second):
        found = await at_work(first, second)
        await placed(found.allocations, "a")
        draining = asyncio.create_task(first.endpoint.drain(first.pump, PATIENCE_S))
        _, refused = await end_of(found.allocations)
        assert refused.reason == "DRAINING"
        assert refused.successor == (await replication(second)).process
        assert counts(await resume(second, found.offer())) == (2, 1, 1)
        await draining


async def test_a_leader_that_ends_waits_for_no_follower_that_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing_over_module, "LAST_S", NEVER_S)
    async with serving() as leader:
        found = await manager(leader)
        stub: Any = replication_pb2_grpc.ReplicationServiceStub(leader.channel)
        silent = stub.Follow(pb.FollowRequest(name="slow", layout=checkpoint.layout(), process="p"))
        await silent.read()
        draining = asyncio.create_task(leader.endpoint.drain(leader.pump, PATIENCE_S))
        _, refused = await end_of(found.allocations)
        assert (refused.reason, refused.successor) == ("DRAINING", "")
        await draining


async def test_a_core_that_another_one_replaces_while_it_stands_still_follows_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing_over_module, "REST_S", 1.0)
    async with cores() as (first, second):
        found = await at_work(first, second)
        stub: Any = replication_pb2_grpc.ReplicationServiceStub(first.channel)
        silent = stub.Follow(pb.FollowRequest(name="hung", layout=checkpoint.layout(), process="p"))
        await silent.read()
        await level(first, second)
        position = (await replication(first)).position
        await stub.Acknowledge(pb.AcknowledgeRequest(process="p", position=position))
        asked = asyncio.create_task(refusal(hand_over(first, "hung")))
        await until(lambda: first.endpoint.pump.resting)
        first.cut()
        found = await manager(second)
        _, reason, _ = await asked
        await placed(found.allocations, "a")
        await same(second, first)
        assert reason == "NOT_LEADER"
        silent.cancel()


async def test_a_configuration_on_its_way_during_a_hand_over_never_comes_into_force_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def prepared(_core: Core, *_: object) -> AsyncIterator[None]:
        begun.set()
        await may_go_on.wait()
        yield

    monkeypatch.setattr(configuration_service, "prepared", prepared)
    async with cores() as (first, second):
        await at_work(first, second)
        stub: Any = config_pb2_grpc.ConfigurationServiceStub(first.channel)
        text = "partitions: [{name: default, queues: [{name: root, queues: [{name: late}]}]}]"
        applying = asyncio.create_task(refusal(stub.Apply(config_pb2.ApplyRequest(yaml=text))))
        await begun.wait()
        await hand_over(first)
        may_go_on.set()
        async with asyncio.timeout(PATIENCE_S):
            assert (await applying)[1] == "NOT_LEADER"
        await first.register()
        assert "root.late" not in first.core.state.partitions["default"].queues
