"""Soft evictions whose decision ends, over a socket: a marked pod keeps running, and the manager is told (J11)."""

from typing import Any

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import watch_pb2 as watch
from evenhand.v1 import watch_pb2_grpc as watch_rpc
from server.model.asks import ReleaseMark
from server.model.decisions import Termination
from shim_client.messages import Withdrawn
from shim_client.translate import wire
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, Stream, ask, node, resource, serving, soft_mark, until
from tests.rpc.test_decisions_live import QUEUES, claim, decisions, full

SOFTLY = QUEUES.replace("preemption: {", "preemption: {delivery: soft, ")
NOBODY = "no pod waits for its capacity any more"


async def withdrawn(stream: Stream, count: int) -> list[si.WithdrawnRelease]:
    """Return the next withdrawals, ignoring other answers in between."""
    found: list[si.WithdrawnRelease] = []
    while len(found) < count:
        found += (await stream.read(si.AllocationResponse)).withdrawn
    return found


def no_more(key: str, application: str) -> si.AllocationRequest:
    """Return the message that the waiting pod is gone."""
    gone = si.AllocationRelease(
        allocationKey=key, applicationID=application, terminationType=si.STOPPED_BY_RM
    )
    releases = si.AllocationReleasesRequest(allocationsToRelease=[gone])
    return si.AllocationRequest(rmID=RM, releases=releases)


async def kinds(served: Served, count: int) -> list[Any]:
    """Return the first events of kind `allocation` that are withdrawals."""
    stub = watch_rpc.WatchServiceStub(served.channel)
    events = Stream(stub.WatchEvents(watch.WatchEventsRequest(kinds=["allocation"])))
    found: list[Any] = []
    while len(found) < count:
        some = (await events.read(watch.WatchEventsResponse)).events
        found += [one for one in some if one.code == "withdrawn"]
    events.call.cancel()
    return found


async def test_j11_victims_stay_when_the_ask_is_released() -> None:
    async with full(SOFTLY) as (served, stream):
        victims = await claim(served, stream)
        (decision,) = served.core.state.partitions["default"].decisions.open
        await stream.send(no_more("claim", "claimant"))
        stays = await withdrawn(stream, 5)
        assert {one.allocationKey for one in stays} == set(victims)
        assert {(one.partitionName, one.decisionID, one.reason) for one in stays} == {
            ("default", decision, NOBODY)
        }
        told = await kinds(served, 5)
        assert {one.object for one in told} == set(victims)
        assert all(decision in one.message for one in told)
        (ended,) = await decisions(served)
        assert ended.state == pb.DECISION_STATE_ABORTED
        assert {one.state for one in ended.victims} == {pb.VICTIM_STATE_KEPT}
        assert (len(ended.victims), ended.lost_ran_ms) == (5, 0), "nothing is lost with them"
        served.core.validate()
        assert not served.core.state.partitions["default"].decisions.leaving


async def test_j11_one_that_stays_when_the_ask_found_other_capacity_is_not_gone() -> None:
    async with full(SOFTLY) as (served, stream):
        victims = await claim(served, stream)
        others = sorted({f"lent-{number}" for number in range(10)} - set(victims))
        for key in others:
            await stream.send(no_more(key, "borrower"))
        stays = await withdrawn(stream, 5)
        assert {one.allocationKey for one in stays} == set(victims)
        (ended,) = await decisions(served)
        assert ended.state == pb.DECISION_STATE_FULFILLED
        assert {one.state for one in ended.victims} == {pb.VICTIM_STATE_KEPT}


async def test_j11_whoever_is_told_to_go_for_good_is_not_taken_back() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        await stream.send(no_more("claim", "claimant"))
        await until(lambda: not served.core.state.partitions["default"].decisions.open)
        assert set(served.core.state.partitions["default"].decisions.leaving) == set(victims)


async def test_1_7_a_mark_that_came_with_a_restart_is_withdrawn_once_all_is_known() -> None:
    async with serving() as served:
        await served.register(config=SOFTLY, explicitSync=True)
        nodes = [node("the-node", schedulableResource=resource(vcore=10))]
        news = await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=nodes))
        await news.next()
        await served.submit("borrower", "root.lent")
        mark = soft_mark("g-1-1", "gone", "the-node")
        one = ask("lent", applicationID="borrower", nodeID="the-node", releasing=mark)
        stream = await served.open(
            "UpdateAllocation", si.AllocationRequest(rmID=RM, allocations=[one])
        )
        partition = served.core.state.partitions["default"]
        await until(lambda: "lent" in partition.asks)
        assert partition.decisions.marks["g-1-1"]["lent"] == ReleaseMark(
            Termination.PREEMPTED_BY_SCHEDULER, "g-1-1", "gone", "the-node", "soft"
        )
        await news.send(si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete()))
        (stays,) = await withdrawn(stream, 1)
        assert (stays.allocationKey, stays.decisionID) == ("lent", "g-1-1")
        assert list(wire.pod_decisions(si.AllocationResponse(withdrawn=[stays]))) == [
            Withdrawn("lent", "g-1-1", NOBODY, "default")
        ]
