"""Gangs on the wire, in both versions of the published interface."""

from typing import Any

import pytest

from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, Stream, resource, serving

MINUTE = 60_000
GANG: dict[str, Any] = {
    "applicationID": "gang",
    "queueName": "root.a",
    "placeholderAsk": resource(vcore=20),
    "executionTimeoutMilliSeconds": MINUTE,
}
OLD, NEW = "ask generation", "allocation generation"


def message(generation: str, *keys: str, **more: Any) -> si.AllocationRequest:
    """Return a message of asks of ten millicores of the task group `g`."""
    facts: dict[str, Any] = {"applicationID": "gang", "taskGroupName": "g", **more}
    size = resource(vcore=10)
    if generation == OLD:
        found = [
            si.AllocationAsk(allocationKey=key, resourceAsk=size, maxAllocations=1, **facts)
            for key in keys
        ]
        return si.AllocationRequest(rmID=RM, asks=found)
    newer = [si.Allocation(allocationKey=key, resourcePerAlloc=size, **facts) for key in keys]
    return si.AllocationRequest(rmID=RM, allocations=newer)


async def begun(served: Served, **more: Any) -> tuple[Stream, Stream]:
    """Set up a node of a hundred millicores and the gang's application, and return the two streams."""
    stream = await served.ready()
    new = si.AddApplicationRequest(**{**GANG, **more})
    request = si.ApplicationRequest(rmID=RM, new=[new])
    applications = await served.open("UpdateApplication", request)
    answer = si.ApplicationResponse()
    while not answer.accepted:
        answer.MergeFrom(await applications.read(si.ApplicationResponse))
    return stream, applications


async def collected(stream: Stream, field: str, count: int) -> si.AllocationResponse:
    """Return all answers as one, once ``count`` objects of the field have come."""
    answer = si.AllocationResponse()
    while len(getattr(answer, field)) < count:
        answer.MergeFrom(await stream.read(si.AllocationResponse))
    return answer


@pytest.mark.parametrize("generation", [OLD, NEW])
async def test_a_real_ask_takes_a_placeholders_place(generation: str) -> None:
    async with serving() as served:
        stream, _ = await begun(served)
        await stream.send(message(generation, "p1", "p2", placeholder=True))
        answer = await collected(stream, "new", 2)
        assert [one.allocationKey for one in answer.new] == ["p1", "p2"]
        assert {(one.placeholder, one.taskGroupName) for one in answer.new} == {(True, "g")}
        await stream.send(message(generation, "x1"))
        (released,) = (await collected(stream, "released", 1)).released
        assert released.terminationType == si.PLACEHOLDER_REPLACED
        assert (released.allocationKey, released.beneficiary) == ("p1", "x1")
        assert ("p1" if generation == OLD else "") == released.UUID
        assert list(released.nodes) == ["n0"]
        confirmed = si.AllocationReleasesRequest(allocationsToRelease=[released])
        await stream.send(si.AllocationRequest(rmID=RM, releases=confirmed))
        (placed,) = (await collected(stream, "new", 1)).new
        assert (placed.allocationKey, placed.nodeID) == ("x1", "n0")
        assert (placed.placeholder, placed.taskGroupName) == (False, "g")
        assert not served.core.state.partitions["default"].asks.get("p1")


@pytest.mark.parametrize(
    ("generation", "waiting", "refused"),
    [(OLD, "releasedAsks", "rejected"), (NEW, "released", "rejectedAllocations")],
)
async def test_a_gang_that_fails_says_so_in_the_words_of_its_generation(
    generation: str, waiting: str, refused: str
) -> None:
    async with serving() as served:
        stream, applications = await begun(
            served, gangSchedulingStyle="Hard", placeholderAsk=resource(vcore=110)
        )
        keys = [f"p{number}" for number in range(11)]
        await stream.send(message(generation, *keys, "x0", placeholder=True))
        waits = (await collected(stream, "schedulingStates", 12)).schedulingStates
        assert {one.reason for one in waits} == {
            "not all placeholders of its application fit at once, 0.11 cores in all"
        }
        served.clock.ms += MINUTE
        await stream.send(
            message(generation, "x1")
        )  # wakes the core, which does not see the clock move
        told = si.AllocationResponse()
        while len(told.released) + len(told.releasedAsks) < 12 or not getattr(told, refused):
            told.MergeFrom(await stream.read(si.AllocationResponse))
        (late,) = getattr(told, refused)
        assert late.allocationKey == "x1"
        assert late.reason.startswith("ResourceReservationTimeout")
        ended: list[Any] = [*told.released, *told.releasedAsks]
        assert {one.terminationType for one in ended} == {si.TIMEOUT}
        assert sorted(one.allocationKey for one in ended) == sorted([*keys, "x0"])
        waited = {one.allocationKey for one in getattr(told, waiting)}
        assert waited == {*keys, "x0"}
        assert not (told.rejectedAllocations if generation == OLD else told.rejected)
        states: list[tuple[str, str]] = []
        while not any(state == "Failing" for state, _ in states):
            moved = await applications.read(si.ApplicationResponse)
            states += [(one.state, one.message) for one in moved.updated]
        assert ("Failing", "ResourceReservationTimeout") in states
        await stream.send(message(generation, "x2"))
        (after,) = getattr(await collected(stream, refused, 1), refused)
        assert after.allocationKey == "x2"


@pytest.mark.parametrize("generation", [OLD, NEW])
async def test_placeholders_without_a_job_key_are_placed_together_or_not_at_all(
    generation: str,
) -> None:
    """A client that knows published fields alone, and makes its placeholders one by one."""
    async with serving() as served:
        stream, _ = await begun(served, placeholderAsk=resource(vcore=110))
        for number in range(10):
            await stream.send(message(generation, f"p{number}", placeholder=True))
            (told,) = (await collected(stream, "schedulingStates", 1)).schedulingStates
            assert told.state == told.SKIPPED
            assert told.reason == (
                "it waits for the remaining placeholders of its application: "
                "0.11 cores in all are declared"
            )
        await stream.send(message(generation, "p10", placeholder=True))
        every = (await collected(stream, "schedulingStates", 11)).schedulingStates
        assert {one.state for one in every} == {si.UpdateContainerSchedulingStateRequest.FAILED}
        more = si.NodeInfo(
            nodeID="n1", action=si.NodeInfo.CREATE, schedulableResource=resource(vcore=10)
        )
        nodes = await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[more]))
        placed = (await collected(stream, "new", 11)).new
        assert {one.allocationKey for one in placed} == {f"p{number}" for number in range(11)}
        assert nodes is not None


def without_size(generation: str, *keys: str, **more: Any) -> si.AllocationRequest:
    """Return a message of asks of the job `j` without its size."""
    return message(generation, *keys, applicationID="app", taskGroupName="", jobKey="j", **more)


@pytest.mark.parametrize("generation", [OLD, NEW])
async def test_a_job_without_a_size_is_placed_when_nobody_came_for_two_seconds(
    generation: str,
) -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(without_size(generation, "x1"))
        (told,) = (await collected(stream, "schedulingStates", 1)).schedulingStates
        assert (told.allocationKey, told.state) == ("x1", told.SKIPPED)
        assert told.reason.startswith("its gang is counted")
        served.clock.ms += 1_500
        await stream.send(without_size(generation, "x2"))
        await collected(stream, "schedulingStates", 1)
        served.clock.ms += 1_999
        await stream.send(message(generation, "y1", applicationID="app", taskGroupName=""))
        (alone,) = (await collected(stream, "new", 1)).new
        assert alone.allocationKey == "y1"
        served.clock.ms += 1
        await stream.send(message(generation, "y2", applicationID="app", taskGroupName=""))
        placed = (await collected(stream, "new", 3)).new
        assert {one.allocationKey for one in placed} == {"x1", "x2", "y2"}


async def test_a_core_that_nobody_talks_to_places_the_job_in_time() -> None:
    async with serving() as served:
        stream = await served.ready()
        await stream.send(without_size(NEW, "x1", "x2"))
        await collected(stream, "schedulingStates", 2)
        assert served.core.next_due() == served.clock.ms + 2_000
        served.clock.ms += 2_000
        placed = (await collected(stream, "new", 2)).new
        assert [one.allocationKey for one in placed] == ["x1", "x2"]
