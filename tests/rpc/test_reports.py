"""ReportService over a socket: unmet guarantees and lost work; operators see all, viewers only their own tenant."""

from typing import Any

import grpc
import pytest

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc
from evenhand.v1 import reports_pb2 as pb
from evenhand.v1 import reports_pb2_grpc as rpc
from si.v1 import si_pb2 as si
from tests.rpc.harness import Served, Stream, ask, resource
from tests.rpc.test_decisions import speaks_of
from tests.rpc.test_decisions_live import LENT, OWED, claim, full


async def unmet(served: Served, metadata: Any = None, **request: Any) -> Any:
    stub: Any = rpc.ReportServiceStub(served.channel)
    return await stub.GetUnmetGuarantees(pb.GetUnmetGuaranteesRequest(**request), metadata=metadata)


async def lost(served: Served, metadata: Any = None, **request: Any) -> Any:
    stub: Any = rpc.ReportServiceStub(served.channel)
    return await stub.GetLostWork(pb.GetLostWorkRequest(**request), metadata=metadata)


async def protected(served: Served, stream: Stream) -> None:
    """Submit an ask of root.owed for more than the node has, and wait until it is reported as unmet."""
    wanted = ask("claim", applicationID="claimant", resourcePerAlloc=resource(vcore=11))
    await stream.send(si.AllocationRequest(rmID="rm", allocations=[wanted]))
    for _ in range(500):
        if (await unmet(served)).queues:
            return
    raise AssertionError("the ask never came")


async def test_an_operator_is_told_everything() -> None:
    async with full() as (served, stream):
        before = (await unmet(served)).queues
        assert not before
        await protected(served, stream)
        served.clock.ms += 5_000
        found = await unmet(served)
        (queue,) = found.queues
        assert queue.queue == "root.owed"
        ((kind, owed, held, missing),) = [
            (one.resource_type, one.entitled, one.held, one.missing) for one in queue.types
        ]
        assert (kind, owed, held, missing) == ("vcore", 6, 0, 6)
        (asks,) = queue.asks
        assert (asks.allocation_key, asks.count, asks.binding) == ("claim", 1, "node-shape")
        assert (asks.cure.change, dict(asks.cure.amounts)) == ("add-node", {"vcore": 11})
        assert asks.because
        assert asks.searched
        assert found.plans > 0


async def judged(served: Served, count: int) -> Any:
    """Return the report on the asks, once it counts this number of asks."""
    for _ in range(500):
        queues = (await unmet(served)).queues
        if queues and queues[0].asks[0].count == count:
            (asks,) = queues[0].asks
            return asks
    raise AssertionError("the asks never came")


async def test_a_gang_is_told_as_one() -> None:
    async with full() as (served, stream):
        wanted = [
            ask(
                key,
                applicationID="claimant",
                resourcePerAlloc=resource(vcore=3),
                jobKey="fit",
                jobMembers=2,
            )
            for key in ("fit-1", "fit-2")
        ]
        await stream.send(si.AllocationRequest(rmID="rm", allocations=wanted))
        asks = await judged(served, len(wanted))
        assert (asks.job, asks.count, dict(asks.resources)) == ("fit", 2, {"vcore": 6})
        assert (asks.binding, asks.cure.subject) == ("preemption-off", "policies")
        (mine,) = (await unmet(served, OWED)).queues
        assert (mine.asks[0].job, mine.asks[0].cure.subject) == ("fit", "")


async def test_the_report_changes_nothing() -> None:
    async with full() as (served, stream):
        await protected(served, stream)
        before = served.core.digest()
        await unmet(served)
        assert served.core.digest() == before


async def test_a_viewer_sees_its_own_side() -> None:
    async with full() as (served, stream):
        await protected(served, stream)
        mine = await unmet(served, OWED)
        assert [one.queue for one in mine.queues] == ["root.owed"]
        assert not speaks_of(mine, "root.lent", "the-node", "lent-")
        assert not (await unmet(served, LENT)).queues
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unmet(served, LENT, queue="root.owed")
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("request_", [{"queue": "root.nowhere"}, {"partition": "nowhere"}])
async def test_what_is_not_there_is_said(request_: dict[str, str]) -> None:
    async with full() as (served, _):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unmet(served, **request_)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_lost_work_is_told_to_both_sides() -> None:
    async with full() as (served, stream):
        assert not (await lost(served)).lines
        served.clock.ms += 3_000
        victims = await claim(served, stream)
        releases = [
            si.AllocationRelease(
                partitionName="default",
                applicationID="borrower",
                allocationKey=key,
                terminationType=si.TerminationType.PREEMPTED_BY_SCHEDULER,
            )
            for key in victims
        ]
        request = si.AllocationReleasesRequest(allocationsToRelease=releases)
        await stream.send(si.AllocationRequest(rmID="rm", releases=request))
        line = await counted(served, len(victims))
        assert (line.partition, line.policy) == ("default", "guaranteed")
        assert (line.claimant, line.victim, line.victims) == ("root.owed", "root.lent", 5)
        assert line.ran_ms == line.millicore_ms > 0
        (mine,) = (await lost(served, OWED)).lines
        assert (mine.claimant, mine.victim) == ("root.owed", "another queue")
        (theirs,) = (await lost(served, LENT)).lines
        assert (theirs.claimant, theirs.victim) == ("another queue", "root.lent")
        assert (theirs.victims, theirs.millicore_ms) == (5, line.millicore_ms)
        await of_owners(served, line)
        await in_the_decision(served, line)
        await narrowed(served, line)


async def of_owners(served: Served, line: Any) -> None:
    """Check that the victims' application is named only to callers who may see the victims' queue."""
    for metadata, application in ((None, "borrower"), (LENT, "borrower"), (OWED, "")):
        (owner,) = (await lost(served, metadata)).owners
        assert owner.application_id == application
        assert (owner.victims, owner.millicore_ms) == (line.victims, line.millicore_ms)
    assert not (await lost(served, queue="root.len")).owners


async def narrowed(served: Served, line: Any) -> None:
    """Check that each filter of the request acts."""
    whole = [line]
    assert dict(line.resource_seconds) == {"vcore": line.millicore_ms // 1_000}
    for same in ({"queue": "root.owed"}, {"queue": "root.lent"}, {"policy": "guaranteed"}):
        assert list((await lost(served, **same)).lines) == whole
    for other in ({"queue": "root.len"}, {"policy": "quota"}):
        assert not (await lost(served, **other)).lines
    now = served.clock.ms
    assert list((await lost(served, since_ms=now)).lines) == whole
    later = await lost(served, since_ms=now + 60_000)
    assert not later.lines
    assert later.since_ms == (now + 60_000) // 60_000 * 60_000
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await lost(served, since_ms=-1)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def in_the_decision(served: Served, line: Any) -> None:
    stub: Any = decisions_pb2_grpc.DecisionServiceStub(served.channel)
    (one,) = (await stub.ListDecisions(decisions_pb2.ListDecisionsRequest())).decisions
    assert (one.lost_ran_ms, one.lost_millicore_ms) == (line.ran_ms, line.millicore_ms)
    assert sum(each.ran_ms for each in one.victims) == line.ran_ms
    assert dict(one.lost_resource_seconds) == dict(line.resource_seconds)
    (own,) = (
        await stub.ListDecisions(decisions_pb2.ListDecisionsRequest(), metadata=OWED)
    ).decisions
    assert own.lost_ran_ms == 0, "a claimant is not told what others had done"


async def counted(served: Served, victims: int) -> Any:
    """Return the line of lost work, once it counts this number of victims."""
    for _ in range(500):
        lines = (await lost(served)).lines
        if lines and lines[0].victims == victims:
            return lines[0]
    raise AssertionError("they were never counted")
