"""The input log on a real NATS server that is killed, stopped, cut off, full and written by others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

from server.core.core import Core
from server.replication import feed as feeding
from server.replication import log
from server.replication.feed import Feed
from server.rpc import log_engine, log_way
from server.rpc.following import Replica, State
from server.rpc.log_engine import Link
from si.v1 import si_pb2 as si
from tests.faults.counts import Counts, make
from tests.faults.proxy import Proxy
from tests.replication.engine import Engine, engine
from tests.rpc.harness import Served, Stream, asks, node, serving, until
from tests.rpc.test_following import eventually, in_state, replication, same
from tests.rpc.test_following import place as place_named

pytestmark = [pytest.mark.asyncio, pytest.mark.real]
_KEYS = count(1)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Engine]:
    """Provide a server."""
    with engine(tmp_path) as one:
        yield one


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cores notice within a moment that the engine is away, and try again soon."""
    monkeypatch.setattr(log_way, "SILENT_S", 0.1)
    monkeypatch.setattr(log_way, "RETRY_S_MAX", 0.25)


async def place(stream: Stream) -> None:
    """Ask for a pod with a new name, and wait until it is placed."""
    await place_named(stream, str(next(_KEYS)))


async def is_away(core: Served, *, away: bool = True) -> None:
    """Wait until a core says that its log is away, or that it is there."""
    await said(core, lambda one: bool(one.away_since_ms) == away)


async def writes(core: Served) -> None:
    """Wait until a leader writes its log."""
    await said(core, lambda one: one.connected and one.gaps == 1)


async def said(core: Served, true: Callable[[Any], bool]) -> None:
    """Wait until what a core says of its log is as it should be."""

    async def there() -> bool:
        return true((await replication(core)).log)

    await eventually(there)


@asynccontextmanager
async def linked(nats: Engine) -> AsyncIterator[Link]:
    """Hold a connection to the log of an engine."""
    link = await log_engine.connect(log.Access(log.address(nats.url)), "test")
    try:
        yield link
    finally:
        await link.close()


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_a_leader_decides_while_its_log_is_away_and_catches_up_with_a_checkpoint(
    nats: Engine, how: str
) -> None:
    async with serving(log=nats.url) as leader, serving(log=nats.url) as follower:
        stream = await leader.ready()
        await in_state(follower, State.FOLLOWER)
        before = (await replication(leader)).log.gaps
        getattr(nats, how)()
        await place(stream)
        await is_away(leader)
        await is_away(follower)
        for _ in range(5):
            await place(stream)
        away = (await replication(leader)).log
        assert away.why
        assert (await replication(leader)).state == State.LEADER
        assert (await replication(follower)).state == State.FOLLOWER
        if how == "kill":
            nats.start()
        else:
            nats.resume()
        await is_away(leader, away=False)
        await place(stream)
        await same(leader, follower)
        assert (await replication(leader)).log.gaps > before
        assert (await replication(follower)).log.why == ""


async def test_a_core_that_reads_a_log_is_not_level_before_its_end(
    nats: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a checkpoint from the middle, it counts as behind until it has read the last message."""
    found: list[bool] = []
    heard = Replica.heard

    def note(replica: Replica, leader_position: int, position: int, now: int) -> None:
        heard(replica, leader_position, position, now)
        if len(positions) == 1:
            found.append(position < positions[0] and position >= replica.leader_position)

    positions: list[int] = []
    async with serving(log=nats.url) as leader:
        stream = await leader.ready()
        for _ in range(5):
            await place(stream)
        await said(leader, lambda one: one.position == leader.endpoint.feed.position)
        monkeypatch.setattr(Replica, "heard", note)
        positions.append(leader.endpoint.feed.position)
        async with serving(log=nats.url) as follower:
            await same(leader, follower)
    assert len(found) > 3
    assert not any(found)


async def test_a_former_leader_is_refused_and_ends_the_streams_of_its_manager(
    nats: Engine,
) -> None:
    async with serving(log=nats.url) as first, serving(log=nats.url) as second:
        stream = await first.ready()
        await writes(first)
        await place(stream)
        await in_state(second, State.FOLLOWER)
        await second.ready()
        await stream.send(asks("late"))
        assert await stream.end() == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER")
        await in_state(first, State.FOLLOWER)
        await same(second, first)
        assert (await replication(second)).state == State.LEADER


async def test_the_engine_refuses_what_a_former_leader_writes(nats: Engine) -> None:
    async with linked(nats) as link:
        tail = await link.tail()
        one = await link.append(log.beginning(log.Begun("a.1", "a", 0, continues=True)), tail.last)
        two = await link.append(log.beginning(log.Begun("b.1", "b", 0, continues=True)), one)
        with pytest.raises(log_engine.RefusedError):
            await link.append(log.beginning(log.Begun("a.2", "a", 0, continues=True)), one)
        assert await link.tail() == (1, two, "b.1")


@asynccontextmanager
async def proxied(nats: Engine, folder: Path) -> AsyncIterator[tuple[str, Callable[..., None]]]:
    """Hold a proxy before the engine. Provide the address of the log behind it, and a function that sets faults."""
    make(folder / "counts")
    proxy = Proxy(nats.port, Counts(folder / "counts"))

    def fault(**faults: int) -> None:
        proxy.hurt(faults)

    async with await proxy.listen(0):
        try:
            yield f"nats://127.0.0.1:{proxy.port}/test", fault
        finally:
            proxy.end()


async def test_a_leader_that_is_cut_off_stops_leading_once_it_can_see_the_other_one(
    nats: Engine, tmp_path: Path
) -> None:
    async with proxied(nats, tmp_path) as (url, fault), serving(log=url) as first:
        stream = await first.ready()
        await writes(first)
        await place(stream)
        async with serving(log=nats.url) as second:
            await in_state(second, State.FOLLOWER)
            fault(stalled=1)
            await place(stream)
            await is_away(first)
            theirs = await second.ready()
            await place(theirs)
            assert (await replication(first)).state == State.LEADER
            fault()
            assert await stream.end() == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER")
            await in_state(first, State.FOLLOWER)
            await place(theirs)
            await same(second, first)


async def test_an_offer_waits_for_input_also_after_the_engine_was_away(
    nats: Engine, tmp_path: Path
) -> None:
    """The follower goes on without a checkpoint. It answers an offer when it has the decisions that the shim received."""
    async with proxied(nats, tmp_path) as (url, fault), serving(log=nats.url) as leader:
        stream = await leader.ready()
        await place(stream)
        async with serving(log=url) as follower:
            await same(leader, follower)
            joined = follower.endpoint.replica.joined
            fault(stalled=1)
            await place(stream)
            await is_away(follower)
            fault()
            await is_away(follower, away=False)
            await same(leader, follower)
            assert follower.endpoint.replica.joined == joined
            waiting = asyncio.ensure_future(follower.endpoint._servicer.reach(lambda: False))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()
            await asyncio.wait({waiting})


async def test_a_follower_that_falls_behind_a_trimmed_log_joins_again(
    nats: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_way, "CHECKPOINT_MESSAGES", 5)
    async with proxied(nats, tmp_path) as (url, fault), serving(log=nats.url) as leader:
        stream = await leader.ready()
        async with serving(log=url) as follower:
            await in_state(follower, State.FOLLOWER)
            await same(leader, follower)
            at, joined = follower_at(follower)
            fault(stalled=1)
            await is_away(follower)
            async with linked(nats) as link:
                while (await link.tail()).first <= at + 1:
                    await place(stream)
            fault()
            await same(leader, follower)
            assert follower_at(follower)[1] == joined + 1


def follower_at(follower: Served) -> tuple[int, int]:
    """Return the number of the last message that a follower has read, and the number of checkpoints that it has taken."""
    replica = follower.endpoint.replica
    assert replica.log is not None
    return replica.log.sequence, replica.joined


async def test_a_full_store_is_reported_and_the_leader_goes_on(tmp_path: Path) -> None:
    with engine(tmp_path, store=200_000) as nats:
        async with serving(log=nats.url) as leader:
            stream = await leader.ready()
            await writes(leader)
            more = [node(f"m{n}", attributes={"a": "x" * 500}) for n in range(2_000)]
            nodes = await leader.open("UpdateNode", si.NodeRequest(rmID="rm", nodes=more))
            await nodes.read(si.NodeResponse)
            await is_away(leader)
            assert "resource" in (await replication(leader)).log.why
            for _ in range(3):
                await place(stream)
            nats.kill()
            nats.resize(1 << 30)
            nats.start()
            await is_away(leader, away=False)
            async with serving(log=nats.url) as follower:
                await in_state(follower, State.FOLLOWER)
                await place(stream)
                await same(leader, follower)


async def test_a_follower_that_begins_at_the_end_of_the_log_says_where_it_is(
    nats: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message comes after the checkpoint with which it begins."""
    monkeypatch.setattr(log_way, "CHECKPOINT_S", 0.05)
    async with serving(log=nats.url) as leader:
        stream = await leader.ready()
        await writes(leader)
        await place(stream)
        await leader.endpoint.pump.settled()
        await said(leader, lambda one: one.position == leader.endpoint.feed.position)
        await said(leader, lambda one: one.checkpoint_sequence == one.sequence)
        wrote = (await replication(leader)).log
        async with serving(log=nats.url) as follower:
            await in_state(follower, State.FOLLOWER)
            read = (await replication(follower)).log
            assert (read.sequence, read.leader) == (wrote.sequence, wrote.leader)
            assert read.sequence == read.last_sequence > 0


async def test_a_core_that_starts_alone_has_everything_that_the_log_has(nats: Engine) -> None:
    async with serving(log=nats.url) as leader:
        stream = await leader.ready(nodes=2)
        for _ in range(10):
            await place(stream)
        await stream.send(
            asks("waits", resourcePerAlloc=si.Resource(resources={"vcore": si.Quantity(value=999)}))
        )
        await until(lambda: "waits" in leader.core.state.partitions["default"].asks)
        await leader.endpoint.pump.settled()
        digest, position = leader.core.digest(), (await replication(leader)).position
        await said(leader, lambda one: one.position >= position)
    async with serving(log=nats.url) as alone:
        await in_state(alone, State.FOLLOWER)
        await until(lambda: alone.core.digest() == digest)
        assert (await replication(alone)).position >= position
        await place(await alone.ready(nodes=2))
        assert (await replication(alone)).state == State.LEADER


async def test_a_slice_that_is_longer_than_a_message_arrives_whole(
    nats: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_engine, "_PART_BYTES_MAX", 200)
    async with serving(log=nats.url) as leader, serving(log=nats.url) as follower:
        await leader.ready()
        await writes(leader)
        many = [node(f"m{n}") for n in range(200)]
        nodes = await leader.open("UpdateNode", si.NodeRequest(rmID="rm", nodes=many))
        await nodes.read(si.NodeResponse)
        await in_state(follower, State.FOLLOWER)
        await same(leader, follower)
        assert (await replication(leader)).log.sequence > 20


async def test_a_core_leads_without_an_engine_and_writes_the_log_once_there_is_one(
    tmp_path: Path,
) -> None:
    nats = Engine(tmp_path)
    async with serving(log=nats.url) as leader:
        assert (await replication(leader)).state == State.JOINING
        await is_away(leader)
        stream = await leader.ready()
        await place(stream)
        nats.start()
        try:
            await is_away(leader, away=False)
            async with serving(log=nats.url) as follower:
                await in_state(follower, State.FOLLOWER)
                await place(stream)
                await same(leader, follower)
        finally:
            nats.kill()


async def test_input_that_waits_for_the_engine_is_limited(
    nats: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_engine, "ACK_S", 20.0)
    monkeypatch.setattr(feeding, "BACKLOG_BYTES_MAX", 4_000)
    async with serving(log=nats.url) as leader:
        stream = await leader.ready()
        await writes(leader)
        nats.pause()
        while not any(one.is_behind for one in leader.endpoint.feed.followers):
            await place(stream)
        waiting = sum(one._bytes for one in leader.endpoint.feed.followers if not one.is_behind)
        assert waiting <= 4_000
        nats.resume()
        async with serving(log=nats.url) as follower:
            await in_state(follower, State.FOLLOWER)
            await place(stream)
            await same(leader, follower)
            assert (await replication(leader)).log.gaps >= 2


async def test_a_message_of_another_program_costs_a_checkpoint_and_no_leader(nats: Engine) -> None:
    async with serving(log=nats.url) as leader, serving(log=nats.url) as follower:
        stream = await leader.ready()
        await in_state(follower, State.FOLLOWER)
        async with linked(nats) as link:
            await link.append({"X": "y"}, (await link.tail()).last)
        await place(stream)
        await said(leader, lambda one: one.gaps == 2 and not one.away_since_ms)
        await place(stream)
        await same(leader, follower)
        assert (await replication(leader)).state == State.LEADER


def other_state() -> bytes:
    """Return the checkpoint of a core that was given nothing."""
    return b"".join(Feed(Core(), "test").checkpoint())


@pytest.mark.parametrize("data", [b"junk", other_state()], ids=["unreadable", "of another term"])
async def test_a_checkpoint_that_does_not_fit_is_not_used(nats: Engine, data: bytes) -> None:
    async with serving(log=nats.url) as leader:
        stream = await leader.ready()
        await place(stream)
        await writes(leader)
        async with linked(nats) as link:
            slot = {"checkpoint-a", "checkpoint-b"} - {one.slot for one in await link.checkpoints()}
            await link.store(slot.pop(), data, log.Mark("other.1", (await link.tail()).last))
        await place(stream)
        await said(leader, lambda one: one.position > 0 and one.sequence == one.last_sequence)
        async with serving(log=nats.url) as follower:
            await same(leader, follower)


async def test_a_leader_without_a_manager_follows_a_core_that_leads(nats: Engine) -> None:
    async with serving(log=nats.url) as first, serving(log=nats.url) as second:
        stream = await first.ready()
        await in_state(second, State.FOLLOWER)
        first.cut()
        stream = await second.ready()
        await in_state(first, State.FOLLOWER)
        await place(stream)
        await same(second, first)
