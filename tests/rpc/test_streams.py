"""Streams: which messages are answered, who may send, and how streams end."""

import asyncio
from typing import Any

import grpc
import pytest

from server.rpc import limits
from server.rpc.sessions import Kind
from si.v1 import si_pb2 as si
from tests.rpc.harness import (
    PATIENCE_S,
    RM,
    Served,
    Stream,
    ask,
    asks,
    node,
    refusal,
    resource,
    serving,
    until,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def test_an_ask_is_placed_and_its_release_is_echoed() -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(asks("a", allocationTags={"creationTime": "7"}))
        (placed,) = (await stream.read(si.AllocationResponse)).new
        assert (placed.allocationKey, placed.nodeID, placed.applicationID) == ("a", "n0", "app")
        assert placed.allocationTags == {"creationTime": "7"}
        assert not placed.UUID
        release = si.AllocationRelease(
            applicationID="app", allocationKey="a", terminationType=si.STOPPED_BY_RM
        )
        releases = si.AllocationReleasesRequest(allocationsToRelease=[release])
        await stream.send(si.AllocationRequest(rmID=RM, releases=releases))
        (released,) = (await stream.read(si.AllocationResponse)).released
        assert released.allocationKey == "a"
        assert released.terminationType == si.STOPPED_BY_RM


async def test_the_ask_generation_is_answered_in_its_own_words() -> None:
    async with serving() as served:
        stream = await served.ready()
        good = si.AllocationAsk(
            allocationKey="a", applicationID="app", resourceAsk=resource(vcore=1), maxAllocations=1
        )
        bad = si.AllocationAsk(
            allocationKey="b", applicationID="app", resourceAsk=resource(vcore=1), maxAllocations=2
        )
        await stream.send(si.AllocationRequest(rmID=RM, asks=[good, bad]))
        answer = si.AllocationResponse()
        while not (answer.new and answer.rejected):
            answer.MergeFrom(await stream.read(si.AllocationResponse))
        assert (answer.new[0].UUID, answer.new[0].allocationKey) == ("a", "a")
        assert answer.rejected[0].allocationKey == "b"
        assert answer.rejected[0].reason.startswith("maxAllocations:")
        assert not answer.rejectedAllocations


async def test_an_object_that_is_wrong_is_rejected_and_the_stream_goes_on() -> None:
    async with serving() as served:
        stream = await served.ready()
        wrong = ask("bad", resourcePerAlloc=resource(vcore=-5))
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[wrong, ask("good")]))
        answer = si.AllocationResponse()
        while not answer.new:
            answer.MergeFrom(await stream.read(si.AllocationResponse))
        (rejected,) = answer.rejectedAllocations
        assert rejected.allocationKey == "bad"
        assert rejected.reason == "resourcePerAlloc[vcore]: -5 is negative"
        assert [one.allocationKey for one in answer.new] == ["good"]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("UpdateAllocation", asks("a", rm_id="nobody")),
        ("UpdateNode", si.NodeRequest(rmID="nobody", nodes=[node("n")])),
        (
            "UpdateApplication",
            si.ApplicationRequest(
                rmID="nobody", new=[si.AddApplicationRequest(applicationID="app")]
            ),
        ),
    ],
)
async def test_before_the_registration_objects_are_rejected_and_the_stream_lives(
    method: str, message: si.NodeRequest
) -> None:
    async with serving() as served:
        stream = await served.open(method, message)
        answer = await stream.call.read()
        found = [*answer.rejected, *getattr(answer, "rejectedAllocations", ())]
        assert "RegisterResourceManager" in found[0].reason
        await stream.send(message)
        assert await stream.call.read() == answer


async def test_the_last_stream_wins_and_the_older_one_ends_aborted() -> None:
    async with serving() as served:
        older = await served.ready()
        await older.send(asks("a"))
        await older.read(si.AllocationResponse)
        newer = await served.open("UpdateAllocation", asks("b"))
        assert (await newer.read(si.AllocationResponse)).new[0].allocationKey == "b"
        assert await older.end() == (grpc.StatusCode.ABORTED, "STREAM_REPLACED")


async def test_a_second_registration_wipes_and_ends_the_old_streams() -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(asks("a"))
        await stream.read(si.AllocationResponse)
        fresh = served.core.digest()
        await served.register()
        assert await stream.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")
        assert served.core.digest() != fresh
        again = await served.ready()
        await again.send(asks("a"))
        assert (await again.read(si.AllocationResponse)).new[0].allocationKey == "a"
        served.core.validate()


async def test_a_process_that_was_taken_over_waits_until_its_successor_is_gone() -> None:
    older: dict[str, Any] = {"buildInfo": {"instance": "older"}}
    newer: dict[str, Any] = {"buildInfo": {"instance": "newer"}}
    waits: Any = (grpc.StatusCode.ABORTED, "ANOTHER_INSTANCE", [])
    async with serving() as served:
        first = await served.ready(**older)
        await first.send(asks("a"))
        await first.read(si.AllocationResponse)
        second = await served.ready(**newer)
        assert await first.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")
        assert await refusal(served.register(**older)) == waits
        await second.send(asks("a"))
        assert (await second.read(si.AllocationResponse)).new[0].allocationKey == "a"
        third = await served.ready(**newer)
        assert await second.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")
        await third.send(asks("a"))
        await third.read(si.AllocationResponse)
        assert await refusal(served.register(**older)) == waits
        for stream in served.streams:
            await stream.close()
        await until(lambda: not served.endpoint.sessions)
        fourth = await served.ready(**older)
        await fourth.send(asks("a"))
        assert (await fourth.read(si.AllocationResponse)).new[0].allocationKey == "a"


async def test_processes_without_a_name_take_over_as_they_come() -> None:
    async with serving() as served:
        for _ in range(3):
            stream = await served.ready()
            await stream.send(asks("a"))
            assert (await stream.read(si.AllocationResponse)).new[0].allocationKey == "a"


async def test_a_stream_belongs_to_one_manager() -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(asks("a"))
        await stream.send(asks("a", rm_id="other"))
        assert await stream.end() == (INVALID, "MANAGER_CHANGED")


async def test_malformed_bytes_end_a_stream_with_invalid_argument() -> None:
    async with serving() as served:
        for method in ("UpdateAllocation", "UpdateApplication", "UpdateNode"):
            raw: Any = served.channel.stream_stream(f"/si.v1.Scheduler/{method}")
            stream = Stream(raw())
            await stream.call.write(b"\x0a\xff")
            assert await stream.end() == (INVALID, "MALFORMED_MESSAGE")


async def test_a_client_that_closes_its_side_gets_its_answers_then_the_end() -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(asks("a", "b"))
        await stream.close()
        answer = await stream.all(si.AllocationResponse)
        assert [one.allocationKey for one in answer.new] == ["a", "b"]
        assert await stream.call.code() is grpc.StatusCode.OK


async def test_what_is_decided_before_a_stream_is_opened_waits_for_it() -> None:
    async with serving() as served:
        await served.register()
        running = si.Allocation(
            allocationKey="old", UUID="old", applicationID="app", resourcePerAlloc=resource(vcore=1)
        )
        await served.submit("app", "root.a")
        nodes = await served.open(
            "UpdateNode", si.NodeRequest(rmID=RM, nodes=[node("n", existingAllocations=[running])])
        )
        await nodes.read(si.NodeResponse)
        gone = si.NodeInfo(nodeID="n", action=si.NodeInfo.DECOMISSION)
        await nodes.send(si.NodeRequest(rmID=RM, nodes=[gone]))
        await until(lambda: served.endpoint.sessions.depths().get((RM, Kind.ALLOCATION), 0) > 0)
        stream = await served.open("UpdateAllocation", si.AllocationRequest(rmID=RM))
        (released,) = (await stream.read(si.AllocationResponse)).released
        assert (released.UUID, released.allocationKey) == ("old", "old")


async def test_responses_are_cut_at_a_thousand_objects() -> None:
    async with serving() as served:
        stream = await served.ready(nodes=25)
        keys = [f"k{i:04}" for i in range(2_400)]
        await stream.send(asks(*keys))
        sizes: list[int] = []
        got: list[str] = []
        while len(got) < len(keys):
            answer = await stream.read(si.AllocationResponse)
            sizes.append(len(answer.new))
            got += [one.allocationKey for one in answer.new]
        assert sorted(got) == keys
        assert max(sizes) <= limits.RESPONSE_OBJECTS_MAX


async def test_more_objects_than_allowed_in_a_message_are_refused() -> None:
    async with serving() as served:
        stream = await served.ready()
        many = [si.VictimVeto()] * (limits.OBJECTS_MAX + 1)
        await stream.send(si.AllocationRequest(rmID=RM, vetoes=many))
        assert await stream.end() == (INVALID, "MALFORMED_MESSAGE")


async def test_a_message_that_is_too_long_is_refused() -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(asks("k" * (limits.MESSAGE_BYTES_MAX + 1)))
        code, _ = await stream.end()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_streams_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.rpc.sessions.STREAMS_MAX", 3)
    async with serving() as served:
        for rm_id in ("one", "two", "three"):
            stream = await served.open("UpdateAllocation", asks("a", rm_id=rm_id))
            await stream.read(si.AllocationResponse)
        fourth = await served.open("UpdateAllocation")
        assert await fourth.end() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")


async def test_a_client_that_does_not_read_loses_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.rpc.outbox.OUTBOX_OBJECTS_MAX", 5)
    async with serving() as served:
        stream = await served.ready()
        await stream.send(asks(*(f"a{i}" for i in range(6))))
        assert await stream.end() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OUTBOX_FULL")
        # It registers again and finds everything as on the first day.
        again = await served.ready()
        await again.send(asks("a1"))
        assert (await again.read(si.AllocationResponse)).new[0].allocationKey == "a1"


async def flooded(served: Served, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Return a stream that spilled while a message was under way to a client that reads nothing."""
    monkeypatch.setattr("server.rpc.outbox.OUTBOX_OBJECTS_MAX", 8_000)
    stream = await served.ready()
    await stream.send(si.AllocationRequest(rmID=RM))
    outbox = served.endpoint.sessions.outbox(RM, Kind.ALLOCATION)
    assert outbox is not None
    wrong = resource(vcore=-1)
    large = asks(*(f"{at}-{'k' * 900}" for at in range(1_000)), resourcePerAlloc=wrong)
    while len(outbox) < 3_000:  # gRPC takes some 10 MB before a write has to wait
        await stream.send(large)
    await stream.send(asks(*(f"l{at}" for at in range(8_001)), resourcePerAlloc=wrong))
    await until(lambda: outbox.spilled)
    return stream


async def test_a_stream_that_spilled_ends_though_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as served:
        stream = await flooded(served, monkeypatch)
        await until(lambda: len(served.endpoint.sessions) == 2)
        assert not stream.call.done()
        assert await stream.end() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OUTBOX_FULL")


async def test_a_drain_does_not_wait_for_a_client_that_spilled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as served:
        await flooded(served, monkeypatch)
        # The bound of the drain is far beyond the patience of this test.
        await asyncio.wait_for(served.endpoint.drain(served.pump, 1_000.0), PATIENCE_S)
