"""Sessions that go on at a follower: no report is repeated, and what is missing on either side is sent (design 7.5)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from google.protobuf.message import Message

from server.model.parts import Parts
from server.replication.applying import Applier
from server.replication.feed import Slice
from server.rpc import following as following_module
from server.rpc.following import Followed, State
from server.rpc.sessions import Kind
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, Stream, ask, asks, node, resource, serving, until
from tests.rpc.test_following import following, in_state, level, replication

pytestmark = pytest.mark.asyncio

SESSION = "s1"


@dataclass
class Line:
    """One stream of a manager: the number of messages that it sent, and of the last response that it received."""

    stream: Stream
    sent: int = 0
    received: int = 0

    async def send(self, message: Message) -> None:
        """Send a message."""
        self.sent += 1
        await self.stream.send(message)

    async def read(self) -> Any:
        """Return the next response."""
        answer = await self.stream.next()
        self.received = answer.sequence or self.received
        return answer

    def progress(self) -> si.StreamProgress:
        """Return the progress as a registration tells it."""
        return si.StreamProgress(received=self.received, sent=self.sent, oldest=1)


@dataclass
class Manager:
    """A manager with a session of which it keeps account."""

    nodes: Line
    applications: Line
    allocations: Line

    def offer(self) -> si.SessionResume:
        """Return the offer to resume the session."""
        return si.SessionResume(
            sessionID=SESSION,
            nodes=self.nodes.progress(),
            applications=self.applications.progress(),
            allocations=self.allocations.progress(),
        )


async def manager(served: Served, *, synced: bool = True) -> Manager:
    """Register a manager with two nodes and an application, and complete its sync."""
    await served.register(explicitSync=True, sessionID=SESSION)
    found = Manager(
        Line(await served.open("UpdateNode")),
        Line(await served.open("UpdateApplication")),
        Line(await served.open("UpdateAllocation")),
    )
    await found.nodes.send(si.NodeRequest(rmID=RM, nodes=[node("n0"), node("n1")]))
    while found.nodes.received < 2:
        await found.nodes.read()
    new = si.AddApplicationRequest(applicationID="app", queueName="root.a")
    await found.applications.send(si.ApplicationRequest(rmID=RM, new=[new]))
    await found.applications.read()
    if synced:
        await found.nodes.send(si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete()))
        await served.endpoint.pump.settled()
        await until(lambda: served.core.managers[RM].synced)
    return found


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Served, Served, Manager]]:
    """Hold a leader with a manager, and its follower."""
    async with serving() as leader:
        found = await manager(leader)
        async with following(leader) as follower:
            yield leader, follower, found


async def placed(line: Line, key: str) -> si.AllocationResponse:
    """Send an ask, and return the response with its placement."""
    await line.send(asks(key))
    answer: si.AllocationResponse = await line.read()
    assert [one.allocationKey for one in answer.new] == [key]
    return answer


async def resume(
    served: Served, offer: si.SessionResume, **more: Any
) -> si.RegisterResourceManagerResponse:
    """Register, and offer to resume a session. Return the answer."""
    request = si.RegisterResourceManagerRequest(
        rmID=RM, explicitSync=True, sessionID="s2", resume=offer, **more
    )
    answer: si.RegisterResourceManagerResponse = await served.stub.RegisterResourceManager(request)
    return answer


def counts(answer: si.RegisterResourceManagerResponse) -> tuple[int, int, int]:
    """Return how many messages of each stream the core has."""
    assert answer.HasField("resumed")
    found = answer.resumed
    return found.nodes, found.applications, found.allocations


async def test_a_session_goes_on_at_the_follower_without_reports() -> None:
    async with pair() as (leader, follower, found):
        await placed(found.allocations, "a")
        await level(leader, follower)
        answer = await resume(follower, found.offer())
        assert counts(answer) == (2, 1, 1)
        assert (await replication(follower)).state == State.LEADER
        stream = Line(await follower.open("UpdateAllocation"), 1, found.allocations.received)
        response = await placed(stream, "b")
        assert response.sequence == found.allocations.received + 1
        assert set(follower.core.state.partitions["default"].asks) == {"a", "b"}


async def test_decisions_that_the_manager_has_not_received_are_sent_once_more() -> None:
    async with pair() as (leader, follower, found):
        before = found.offer()
        await placed(found.allocations, "a")
        await placed(found.allocations, "b")
        await level(leader, follower)
        before.allocations.sent = found.allocations.sent
        answer = await resume(follower, before)
        assert counts(answer) == (2, 1, 2)
        stream = Line(await follower.open("UpdateAllocation"))
        await stream.send(si.AllocationRequest(rmID=RM))
        response = await stream.read()
        assert [one.allocationKey for one in response.new] == ["a", "b"]
        assert response.sequence == found.allocations.received


async def test_messages_that_the_follower_has_not_got_are_asked_for() -> None:
    async with pair() as (leader, follower, found):
        await level(leader, follower)
        offer = found.offer()
        offer.allocations.sent += 3
        assert counts(await resume(follower, offer)) == (2, 1, 0)
        stream = Line(await follower.open("UpdateAllocation"))
        await placed(stream, "lost")


async def test_each_response_tells_its_number_and_states_of_asks_have_none() -> None:
    async with serving() as leader:
        found = await manager(leader)
        assert (await placed(found.allocations, "a")).sequence == 1
        huge = ask("huge", resourcePerAlloc=resource(vcore=5_000))
        await found.allocations.send(si.AllocationRequest(rmID=RM, allocations=[huge]))
        state = await found.allocations.read()
        assert (len(state.schedulingStates), state.sequence) == (1, 0)
        assert (await placed(found.allocations, "b")).sequence == 2


async def test_a_client_without_a_session_gets_no_numbers() -> None:
    async with serving() as leader:
        stream = Line(await leader.ready())
        assert (await placed(stream, "a")).sequence == 0
        assert leader.core.managers[RM].session is None


@pytest.mark.parametrize("wrong", ["other", "ahead", "dropped", "never-sent", "epoch", "instance"])
async def test_what_does_not_fit_is_an_ordinary_registration(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(following_module, "LEVEL_S", 0.05)
    async with pair() as (leader, follower, found):
        await placed(found.allocations, "a")
        await level(leader, follower)
        offer, more = found.offer(), dict[str, Any]()
        match wrong:
            case "other":
                offer.sessionID = "s0"
            case "ahead":
                offer.allocations.received += 1
            case "dropped":
                offer.allocations.oldest = offer.allocations.sent + 2
            case "never-sent":
                offer.allocations.sent = 0
            case "epoch":
                more["epoch"] = 7
            case _:
                more["buildInfo"] = {"instance": "another"}
        answer = await resume(follower, offer, **more)
        assert not answer.HasField("resumed")
        session = follower.core.managers[RM].session
        assert session is not None
        assert session.name == "s2"
        assert not follower.core.managers[RM].synced


async def test_a_session_within_its_sync_is_not_resumed() -> None:
    async with serving() as leader:
        found = await manager(leader, synced=False)
        async with following(leader) as follower:
            await level(leader, follower)
            assert not (await resume(follower, found.offer())).HasField("resumed")


async def test_objects_that_the_core_never_saw_end_a_session() -> None:
    async with pair() as (leader, follower, found):
        bad = asks("bad", resourcePerAlloc=resource(vcore=-1))
        await found.allocations.send(bad)
        assert (await found.allocations.read()).rejectedAllocations
        await level(leader, follower)
        assert follower.core.managers[RM].session is None
        assert not leader.endpoint.sessions.kept, "nothing is kept that no one can ask for"
        assert not follower.endpoint.sessions.kept
        assert not (await resume(follower, found.offer())).HasField("resumed")


async def test_a_registration_waits_for_what_the_leader_had_sent_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "LEVEL_S", 20.0)
    async with pair() as (leader, follower, found):
        await level(leader, follower)
        offer = found.offer()
        offer.allocations.received, offer.allocations.sent = 1, 1
        resuming = asyncio.create_task(resume(follower, offer))
        await asyncio.sleep(0.05)
        assert not resuming.done()
        await found.allocations.send(asks("a"))
        assert counts(await resuming) == (2, 1, 1)


async def test_a_registration_within_a_slice_of_the_follower_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decisions of the slice are counted, and not kept yet. The follower yields there, because its machine is busy."""
    is_free, arrived, ticking = asyncio.Event(), asyncio.Event(), count()
    apply, reach = Applier.apply_in_parts, Followed.reach

    async def arrives(self: Followed, is_enough: Callable[[], bool]) -> None:
        arrived.set()
        await reach(self, is_enough)

    def slowly(self: Applier, one: Slice) -> Parts[Any]:
        applied = yield from apply(self, one)
        for _ in range(100_000):
            if is_free.is_set():
                break
            yield
        return applied

    monkeypatch.setattr(Followed, "reach", arrives)
    async with serving() as leader:
        found = await manager(leader)
        async with following(leader, seconds=lambda: float(next(ticking))) as follower:
            await level(leader, follower)
            monkeypatch.setattr(Applier, "apply_in_parts", slowly)
            await placed(found.allocations, "a")
            session = follower.core.managers[RM].session
            assert session is not None
            await until(lambda: session.sent.get(Kind.ALLOCATION) == found.allocations.received)
            resuming = asyncio.create_task(resume(follower, found.offer()))
            await arrived.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            is_free.set()
            assert counts(await resuming) == (2, 1, 1)


async def test_a_follower_of_a_follower_that_leads_now_continues_the_session_again() -> None:
    async with pair() as (leader, follower, found):
        await placed(found.allocations, "a")
        await level(leader, follower)
        assert counts(await resume(follower, found.offer())) == (2, 1, 1)
        stream = Line(await follower.open("UpdateAllocation"), 1, found.allocations.received)
        found.applications.stream = await follower.open("UpdateApplication")
        await found.applications.send(si.ApplicationRequest(rmID=RM))
        assert (await found.applications.read()).updated[0].state == "Running"
        async with serving(leaders=(f"127.0.0.1:{follower.port}",)) as third:
            await in_state(third, State.FOLLOWER)
            await placed(stream, "b")
            found.allocations = stream
            await level(follower, third)
            assert counts(await resume(third, found.offer())) == (2, 2, 2)
            assert third.core.managers[RM].synced
