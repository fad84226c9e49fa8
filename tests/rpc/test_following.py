"""Followers over the wire: a core that follows another has its state, and leads once a manager registers there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc, replication_pb2, replication_pb2_grpc
from scripts.real.cluster import free_ports
from server.core.core import Core
from server.model.parts import Parts
from server.replication.applying import LostError
from server.replication.feed import Feed
from server.rpc import following as following_module
from server.rpc import incoming as incoming_module
from server.rpc import presence as presence_module
from server.rpc.endpoint import Setting
from server.rpc.following import Followed, Following, Replica, State
from server.rpc.identity import Identities
from server.rpc.incoming import Incoming
from server.rpc.roles import Caller, Role
from si.v1 import si_pb2 as si
from tests.rpc.harness import (
    PATIENCE_S,
    RM,
    SETTING,
    Served,
    Stream,
    asks,
    node,
    refusal,
    serving,
    until,
    with_identities,
)

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def following(leader: Served, **more: Any) -> AsyncIterator[Served]:
    """Hold a core that follows the leader and has its checkpoint."""
    async with serving(leaders=(f"127.0.0.1:{leader.port}",), **more) as follower:
        await in_state(follower, State.FOLLOWER)
        yield follower


async def replication(served: Served) -> replication_pb2.GetReplicationResponse:
    """Return what a core says about itself."""
    stub: Any = replication_pb2_grpc.ReplicationServiceStub(served.channel)
    return await stub.GetReplication(replication_pb2.GetReplicationRequest())  # type: ignore[no-any-return]


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes. Raises TimeoutError if it never is."""
    async with asyncio.timeout(PATIENCE_S):
        while not await true():  # noqa: ASYNC110 - what another process says has no event
            await asyncio.sleep(0.005)


async def in_state(served: Served, state: State) -> None:
    """Wait until a core is in a state."""

    async def there() -> bool:
        return (await replication(served)).state == state

    await eventually(there)


async def level(leader: Served, follower: Served) -> None:
    """Wait until the follower has got all input of the leader."""
    await leader.endpoint.pump.settled()

    async def there() -> bool:
        return (await replication(follower)).position >= (await replication(leader)).position

    await eventually(there)


@asynccontextmanager
async def pair(setting: Setting = SETTING) -> AsyncIterator[tuple[Served, Served]]:
    """Hold two cores, either of which follows the other one when that one leads."""
    (port,) = free_ports(1)
    async with (
        serving(setting, leaders=(f"127.0.0.1:{port}",)) as second,
        serving(setting, leaders=(f"127.0.0.1:{second.port}",), port=port) as first,
    ):
        yield first, second


async def same(leader: Served, follower: Served) -> None:
    """Wait until a follower has all input of the leader, then compare their states."""
    await level(leader, follower)
    await until(lambda: leader.core.digest() == follower.core.digest())
    assert (await replication(follower)).difference == ""


async def place(stream: Stream, key: str) -> None:
    """Ask for a pod, and wait until it is placed."""
    await stream.send(asks(key))
    placed = await stream.read(si.AllocationResponse)
    assert [one.allocationKey for one in placed.new] == [key]


async def test_a_follower_has_the_state_of_its_leader_from_before_and_after_it_joined() -> None:
    async with serving() as leader:
        allocations = await leader.ready(nodes=2)
        await place(allocations, "before")
        async with following(leader) as follower:
            await place(allocations, "after")
            await level(leader, follower)
            assert follower.core.digest() == leader.core.digest()
            assert (await replication(follower)).difference == ""
            stub: Any = inspect_pb2_grpc.InspectServiceStub(follower.channel)
            listed = await stub.ListAllocations(inspect_pb2.ListAllocationsRequest())
            assert {one.allocation_key for one in listed.allocations} == {"before", "after"}


async def test_a_follower_joins_with_the_token_that_replaced_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_module, "RETRY_S", 0.02)
    token, told = tmp_path / "token", sha256(b"second").digest()
    token.write_text("first\n")
    known = Identities(tokens={told: Caller("core", Role.FOLLOWER)})
    async with (
        serving(with_identities(known)) as leader,
        serving(leaders=(f"127.0.0.1:{leader.port}",), token_file=token) as follower,
    ):
        way: Any = follower.endpoint._following._way  # type: ignore[union-attr]
        token.write_text("two\nlines")
        await until(lambda: "one line" in way._problem)
        assert (await replication(follower)).state == State.JOINING
        token.write_text("second")
        await in_state(follower, State.FOLLOWER)
        assert not way._problem


async def test_a_follower_refuses_what_only_a_leader_accepts() -> None:
    async with serving() as leader:
        await leader.ready()
        async with following(leader) as follower:
            stream = await follower.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[node("n7")]))
            assert await stream.end() == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER")
            stub: Any = replication_pb2_grpc.ReplicationServiceStub(follower.channel)
            call = stub.Follow(replication_pb2.FollowRequest())
            assert await refusal(anext(aiter(call))) == (
                grpc.StatusCode.FAILED_PRECONDITION,
                "NOT_LEADER",
                [],
            )


async def test_a_core_with_other_fields_is_refused() -> None:
    async with serving() as leader:
        stub: Any = replication_pb2_grpc.ReplicationServiceStub(leader.channel)
        call = stub.Follow(replication_pb2.FollowRequest(layout="other", version="9"))
        assert await refusal(anext(aiter(call))) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "OTHER_LAYOUT",
            [],
        )


async def test_a_follower_leads_once_a_manager_registers_there() -> None:
    async with serving() as leader:
        allocations = await leader.ready()
        await place(allocations, "before")
        async with following(leader) as follower:
            await level(leader, follower)
            stream = await follower.ready()
            assert (await replication(follower)).state == State.LEADER
            await place(stream, "after")
            assert (await replication(leader)).followers == []


async def test_followers_join_one_after_the_other_and_one_follows_the_next() -> None:
    async with serving() as leader:
        allocations = await leader.ready(nodes=2)
        async with following(leader) as first, following(leader) as second:
            for key in map(str, range(20)):
                await place(allocations, key)
            await level(leader, first)
            await level(leader, second)
            assert first.core.digest() == second.core.digest() == leader.core.digest()
            assert len((await replication(leader)).followers) == 2


def gate(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> asyncio.Event:
    """Let each call of a method wait for an event, and return the event, which is set."""
    may_work, call = asyncio.Event(), getattr(owner, method)
    may_work.set()

    async def slowly(*arguments: Any) -> Any:
        await may_work.wait()
        return await call(*arguments)

    monkeypatch.setattr(owner, method, slowly)
    return may_work


async def test_a_follower_gets_what_had_arrived_when_its_leader_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GRPC drops messages that it has received, and that were not read, when a connection ends."""
    may_work = gate(monkeypatch, Followed, "apply")
    async with serving() as leader:
        allocations = await leader.ready(nodes=2)
        async with following(leader) as follower:
            await level(leader, follower)
            may_work.clear()
            for key in "abcdef":
                await place(allocations, key)
            await leader.endpoint.pump.settled()
            sent = leader.endpoint.feed.position
            await until(lambda: follower.endpoint.replica.leader_position == sent)
            assert follower.endpoint.feed.position < sent
            await leader.endpoint.stop()
            may_work.set()
            await until(lambda: follower.endpoint.feed.position == sent)
            assert follower.core.digest() == leader.core.digest()


async def test_a_message_that_arrives_while_the_follower_is_busy_is_no_silence() -> None:
    """The thread of gRPC receives messages while the core works. Nothing else runs then."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[replication_pb2.FollowResponse]()
    said = replication_pb2.FollowResponse(alive=replication_pb2.Alive(position=7))

    async def responses() -> AsyncIterator[replication_pb2.FollowResponse]:
        while True:
            yield await arrived.get()

    async with Incoming(responses(), 0.02, lambda _: None) as incoming:
        await asyncio.sleep(0)
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(arrived.put_nowait, said))
        busy_until = loop.time() + 0.05
        thread.start()
        thread.join()
        while loop.time() < busy_until:
            pass
        assert await incoming.next() == said
        with pytest.raises(TimeoutError):
            await incoming.next()


async def test_a_follower_that_begins_to_lead_applies_what_had_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A manager registers at a busy follower before the follower has applied all that its killed leader had sent."""
    may_work = gate(monkeypatch, Incoming, "next")
    async with serving() as leader:
        allocations = await leader.ready(nodes=2)
        async with following(leader) as follower:
            await level(leader, follower)
            may_work.clear()
            await place(allocations, "a")  # the follower takes this slice, and no other one
            for key in "bcdef":
                await place(allocations, key)
            sent = leader.endpoint.feed.position
            await until(lambda: follower.endpoint.replica.leader_position == sent)
            await leader.endpoint.stop()
            await follower.register("another")
            stub: Any = inspect_pb2_grpc.InspectServiceStub(follower.channel)
            listed = await stub.ListAllocations(inspect_pb2.ListAllocationsRequest())
            assert {one.allocation_key for one in listed.allocations} == {*"abcdef"}


async def test_a_follower_reads_no_more_while_much_waits_for_its_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incoming_module, "BACKLOG_BYTES_MAX", 10)
    made = count(1)

    async def responses() -> AsyncIterator[replication_pb2.FollowResponse]:
        for position in made:
            yield replication_pb2.FollowResponse(
                slice=replication_pb2.InputSlice(position=position, input=b"12345678")
            )
            if position == 4:
                return

    heard: list[int] = []
    async with Incoming(responses(), PATIENCE_S, heard.append) as incoming:
        await until(lambda: heard == [1, 2])
        for _ in range(10):
            await asyncio.sleep(0)
        assert heard == [1, 2]
        assert (await incoming.next()).slice.position == 1
        await until(lambda: heard == [1, 2, 3])
        assert [(await incoming.next()).slice.position for _ in range(3)] == [2, 3, 4]
        with pytest.raises(LostError, match="ended the stream"):
            await incoming.next()


async def test_a_follower_that_loses_its_leader_keeps_its_state_and_joins_the_next_one() -> None:
    async with serving() as leader:
        await leader.ready()
        async with serving() as other:
            await other.ready(nodes=3)
            addresses = tuple(f"127.0.0.1:{one.port}" for one in (leader, other))
            async with serving(leaders=addresses) as follower:
                await in_state(follower, State.FOLLOWER)
                await level(leader, follower)
                await leader.endpoint.stop()
                await until(lambda: follower.core.digest() == other.core.digest())


async def test_a_core_without_a_leader_to_reach_leads_when_a_manager_registers() -> None:
    async with serving(core=Core(), leaders=("127.0.0.1:1",)) as alone:
        assert (await replication(alone)).state == State.JOINING
        stream = await alone.ready()
        await place(stream, "k")


async def test_a_leader_that_its_manager_left_follows_the_core_that_leads_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "WATCH_S", 0.05)
    async with pair() as (first, second):
        await place(await first.ready(nodes=2), "a")
        await in_state(second, State.FOLLOWER)
        await level(first, second)
        first.cut()
        stream = await second.ready(nodes=2)
        await in_state(first, State.FOLLOWER)
        await place(stream, "b")
        await same(second, first)
        assert (await replication(second)).state == State.LEADER


class Silent:
    """A way on which nothing arrives and no other core leads."""

    async def follow(self) -> None:
        await asyncio.Event().wait()

    async def take_over(self) -> None:
        return

    async def lead(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def finish(self) -> None:
        return


async def test_a_registration_at_a_leader_does_not_end_its_next_time_as_follower() -> None:
    async with serving() as served:
        replica = Replica(("127.0.0.1:1",))
        following = Following(replica, Feed(Core(), "v"), served.endpoint.pump, Silent())
        following.stop()
        await following.run()
        assert replica.state is State.LEADER
        following.stop()
        replica.state = State.FOLLOWER
        again = asyncio.create_task(following.run())
        done, _ = await asyncio.wait({again}, timeout=0.05)
        assert not done
        following.stop()
        await asyncio.wait_for(again, PATIENCE_S)


async def test_a_core_that_follows_again_does_not_say_that_its_manager_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "WATCH_S", 0.05)
    monkeypatch.setattr(presence_module, "AWAY_GRACE_MS", 0)
    async with pair() as (first, second):
        await first.ready()
        await in_state(second, State.FOLLOWER)
        first.cut()
        await second.ready()
        await in_state(first, State.FOLLOWER)
        stub: Any = inspect_pb2_grpc.InspectServiceStub(first.channel)
        checked = await stub.CheckConsistency(inspect_pb2.CheckConsistencyRequest())
        assert [one.code for one in checked.findings] == []
        listed = await stub.ListPartitions(inspect_pb2.ListPartitionsRequest())
        assert not listed.picture.away


async def test_a_leader_with_a_stream_leads_on_beside_another_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "WATCH_S", 0.02)
    async with serving() as other, serving(leaders=(f"127.0.0.1:{other.port}",)) as mine:
        await in_state(mine, State.FOLLOWER)
        stream = await mine.ready()
        for key in "abc":
            await asyncio.sleep(0.05)
            await place(stream, key)
        assert (await replication(mine)).state == State.LEADER


async def test_a_leader_whose_manager_left_follows_no_core_that_knows_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "WATCH_S", 0.02)
    async with serving() as other, serving(leaders=(f"127.0.0.1:{other.port}",)) as mine:
        stream = await mine.ready()
        for key in "abcdefgh":
            await place(stream, key)
        mine.cut()
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert (await replication(mine)).state == State.LEADER
        known = (await replication(mine)).position
        await other.ready()
        assert (await replication(other)).position < known
        await in_state(mine, State.FOLLOWER)
        await until(lambda: mine.core.digest() == other.core.digest())


async def test_a_registration_of_an_older_epoch_makes_no_follower_the_leader() -> None:
    async with serving() as leader:
        await leader.register(epoch=7)
        async with following(leader) as follower:
            await level(leader, follower)
            request = si.RegisterResourceManagerRequest(rmID=RM, epoch=6)
            code, why, _ = await refusal(follower.stub.RegisterResourceManager(request))
            assert (code, why) == (grpc.StatusCode.FAILED_PRECONDITION, "EPOCH_OLD")
            assert (await replication(follower)).state == State.FOLLOWER
            await follower.register(epoch=8)
            assert (await replication(follower)).state == State.LEADER


async def test_a_core_that_finds_itself_among_its_leaders_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "WATCH_S", 0.02)
    (port,) = free_ports(1)
    async with serving(leaders=(f"127.0.0.1:{port}",), port=port) as alone:
        await alone.register()
        assert (await replication(alone)).process
        for _ in range(10):
            await asyncio.sleep(0.02)
            assert (await replication(alone)).state == State.LEADER


async def test_a_follower_yields_within_a_large_slice_and_is_whole_when_it_has_to_lead() -> None:
    ticking = count()
    async with serving(seconds=lambda: float(next(ticking))) as follower:
        pump = follower.endpoint.pump
        done: list[int] = []

        def parts() -> Parts[str]:
            for number in range(3):
                done.append(number)
                yield
            return "all"

        work = asyncio.create_task(pump.in_parts(parts()))
        await asyncio.sleep(0)
        assert done == [0], "between two parts other tasks run"
        assert (await work)[0] == "all"
        done.clear()
        told: list[str] = []

        async def follow() -> None:
            told.append((await pump.in_parts(parts()))[0])
            await asyncio.sleep(0)
            told.append("never")

        led = asyncio.create_task(follow())
        await asyncio.sleep(0)
        assert done == [0]
        led.cancel()
        await asyncio.wait({led})
        assert (led.cancelled(), done, told) == (True, [0, 1, 2], ["all"])
        done.clear()

        async def follow_for_a_time() -> None:
            async with asyncio.timeout(0):  # as in `LogWay.take_over`
                await follow()

        with pytest.raises(TimeoutError):
            await follow_for_a_time()
        assert done == [0, 1, 2]
