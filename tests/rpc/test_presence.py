"""Every answer says when a resource manager is away; real streams are cut for the test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evenhand.v1 import decisions_pb2 as decisions
from evenhand.v1 import decisions_pb2_grpc as decisions_rpc
from evenhand.v1 import explain_pb2 as explain
from evenhand.v1 import explain_pb2_grpc as explain_rpc
from evenhand.v1 import inspect_pb2 as pb
from evenhand.v1 import inspect_pb2_grpc as rpc
from evenhand.v1 import reports_pb2 as reports
from evenhand.v1 import reports_pb2_grpc as reports_rpc
from evenhand.v1 import simulate_pb2 as simulate
from evenhand.v1 import simulate_pb2_grpc as simulate_rpc
from evenhand.v1 import watch_pb2 as watch
from evenhand.v1 import watch_pb2_grpc as watch_rpc
from server.observe.metrics import Around, Metrics
from server.rpc.identity import Identities, digest
from server.rpc.presence import AWAY_GRACE_MS, Presence
from server.rpc.roles import Caller, Role
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, Stream, ask, asks, serving, until, with_identities

KNOWN = Identities(tokens={digest("viewer-of-a"): Caller("vera", Role.VIEWER, "root.a")})
VIEWER: Any = (("authorization", "Bearer viewer-of-a"),)
QUEUES = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
)
ANSWERS: dict[str, Callable[[Any], Any]] = {
    "partitions": lambda it: rpc.InspectServiceStub(it).ListPartitions,
    "queues": lambda it: rpc.InspectServiceStub(it).GetQueueTree,
    "apps": lambda it: rpc.InspectServiceStub(it).ListApplications,
    "nodes": lambda it: rpc.InspectServiceStub(it).ListNodes,
    "allocations": lambda it: rpc.InspectServiceStub(it).ListAllocations,
    "explain": lambda it: explain_rpc.ExplainServiceStub(it).Explain,
    "decisions": lambda it: decisions_rpc.DecisionServiceStub(it).ListDecisions,
    "shadows": lambda it: decisions_rpc.DecisionServiceStub(it).ListShadowDecisions,
    "simulate ask": lambda it: simulate_rpc.SimulateServiceStub(it).SimulateAsks,
    "simulate config": lambda it: simulate_rpc.SimulateServiceStub(it).SimulateConfiguration,
    "unmet": lambda it: reports_rpc.ReportServiceStub(it).GetUnmetGuarantees,
    "lost work": lambda it: reports_rpc.ReportServiceStub(it).GetLostWork,
}
REQUESTS: dict[str, Any] = {
    "partitions": pb.ListPartitionsRequest(),
    "queues": pb.GetQueueTreeRequest(),
    "apps": pb.ListApplicationsRequest(),
    "nodes": pb.ListNodesRequest(),
    "allocations": pb.ListAllocationsRequest(),
    "explain": explain.ExplainRequest(key="small"),
    "decisions": decisions.ListDecisionsRequest(),
    "shadows": decisions.ListShadowDecisionsRequest(),
    "simulate ask": simulate.SimulateAsksRequest(
        asks=[simulate.SimulatedAsk(ask=ask("new"), queue="root.a")]
    ),
    "simulate config": simulate.SimulateConfigurationRequest(yaml=QUEUES),
    "unmet": reports.GetUnmetGuaranteesRequest(),
    "lost work": reports.GetLostWorkRequest(),
}


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Served, Stream]]:
    """Hold a core with one node, one running pod, and three open streams."""
    async with serving(with_identities(KNOWN)) as served:
        stream = await served.ready(config=QUEUES)
        await stream.send(asks("small"))
        assert (await stream.read(si.AllocationResponse)).new
        yield served, stream


async def cut(served: Served) -> None:
    """End all streams of the manager, and wait until it is away."""
    served.cut()
    await until(lambda: not served.endpoint.sessions.open_kinds(RM))
    await until(lambda: bool(served.endpoint.sessions.presence.sighting(RM, 0).away_since_ms))


async def info(served: Served) -> pb.ManagerInfo:
    stub = rpc.InspectServiceStub(served.channel)
    (manager,) = (await stub.ServerInfo(pb.ServerInfoRequest())).managers
    return manager


async def doctor(served: Served) -> list[str]:
    stub = rpc.InspectServiceStub(served.channel)
    found = (await stub.CheckConsistency(pb.CheckConsistencyRequest())).findings
    return [one.code for one in found if one.severity == pb.FINDING_SEVERITY_ERROR]


async def test_a_manager_whose_streams_are_open_is_there() -> None:
    async with running() as (served, _):
        served.clock.ms += 3_600_000
        manager = await info(served)
        assert (manager.away, manager.away_since_ms) == (False, 0)
        assert manager.last_message_ms == served.clock.ms - 3_600_000
        counts = (manager.nodes, manager.applications, manager.allocations, manager.asks)
        assert counts == (1, 1, 1, 0)
        assert await doctor(served) == []


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_answer_says_that_its_manager_is_away(name: str) -> None:
    async with running() as (served, _):
        call = ANSWERS[name](served.channel)
        assert not (await call(REQUESTS[name])).picture.away
        gone = served.clock.ms
        await cut(served)
        served.clock.ms += AWAY_GRACE_MS
        picture = (await call(REQUESTS[name])).picture
        assert [(one.rm_id, one.since_ms) for one in picture.away] == [(RM, gone)]
        assert picture.taken_at_ms == served.clock.ms


async def test_a_reconnect_within_the_grace_is_no_alarm() -> None:
    async with running() as (served, _):
        call = ANSWERS["queues"](served.channel)
        await cut(served)
        served.clock.ms += AWAY_GRACE_MS - 1
        assert not (await call(pb.GetQueueTreeRequest())).picture.away
        assert await doctor(served) == []
        manager = await info(served)
        assert (manager.away, manager.away_since_ms > 0) == (False, True)
        await served.register()
        await served.open("UpdateNode", si.NodeRequest(rmID=RM))
        await until(lambda: bool(served.endpoint.sessions.open_kinds(RM)))
        served.clock.ms += AWAY_GRACE_MS
        assert not (await call(pb.GetQueueTreeRequest())).picture.away


async def test_the_doctor_finds_a_manager_that_is_away() -> None:
    async with running() as (served, _):
        await cut(served)
        served.clock.ms += 192_000
        assert await doctor(served) == ["manager-away"]
        stub = rpc.InspectServiceStub(served.channel)
        (found,) = (await stub.CheckConsistency(pb.CheckConsistencyRequest())).findings
        assert found.subject == f"manager {RM}"
        assert "away for 3 min" in found.message
        assert "in default" in found.message


async def test_the_doctor_misses_a_manager_that_never_came() -> None:
    async with serving() as served:
        stub = rpc.InspectServiceStub(served.channel)
        (found,) = (await stub.CheckConsistency(pb.CheckConsistencyRequest())).findings
        assert found.code == "no-manager"


async def test_a_viewer_learns_that_the_picture_is_old_but_no_name() -> None:
    async with running() as (served, _):
        await cut(served)
        served.clock.ms += AWAY_GRACE_MS
        call = ANSWERS["queues"](served.channel)
        picture = (await call(pb.GetQueueTreeRequest(), metadata=VIEWER)).picture
        assert [one.rm_id for one in picture.away] == [""]


async def test_a_manager_that_only_registered_counts_as_away_since_then() -> None:
    async with serving() as served:
        await served.register()
        registered = served.clock.ms
        served.clock.ms += AWAY_GRACE_MS
        assert (await info(served)).away_since_ms == registered
        assert await doctor(served) == ["manager-away"]


async def test_a_manager_that_still_sends_is_named_and_what_it_brought_is_counted() -> None:
    async with serving() as served:
        stream = await served.ready(config=QUEUES, explicitSync=True)
        await stream.send(asks("ran", nodeID="n0"))
        await until(lambda: "ran" in served.core.state.partitions["default"].asks)
        call = ANSWERS["partitions"](served.channel)
        assert list((await call(pb.ListPartitionsRequest())).picture.syncing) == [RM]
        done = si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete(nodes=1))
        await served.streams[0].send(done)
        await until(lambda: served.core.state.managers[RM].synced)
        assert not (await call(pb.ListPartitionsRequest())).picture.syncing
        manager = await info(served)
        assert (manager.recovered_allocations, manager.recovered_asks) == (1, 0)
        stub = rpc.InspectServiceStub(served.channel)
        found = await stub.CheckConsistency(pb.CheckConsistencyRequest())
        assert (found.started_at_ms, found.recovered_allocations, found.decision_log) == (1, 1, "")


async def test_who_watches_the_queues_is_told_when_the_manager_comes_back() -> None:
    async with running() as (served, _):
        await cut(served)
        served.clock.ms += AWAY_GRACE_MS
        seen = watch_rpc.WatchServiceStub(served.channel).WatchQueues(
            watch.WatchQueuesRequest(min_interval_ms=100)
        )
        first: Any = await seen.read()
        assert first.picture.away
        await served.open("UpdateNode", si.NodeRequest(rmID=RM))
        second: Any = await seen.read()
        assert not second.picture.away
        seen.cancel()


async def test_metrics_tell_managers_apart() -> None:
    async with running() as (served, _):
        presence = served.endpoint.sessions.presence
        clock = served.clock
        metrics = Metrics(served.core, Around(managers=lambda: presence.connections(clock.ms)))
        clock.ms += 7_000
        assert 'evenhand_manager_connected{manager="rm"} 1.0' in metrics.text().decode()
        assert 'evenhand_manager_silent_seconds{manager="rm"} 7.0' in metrics.text().decode()
        await cut(served)
        text = metrics.text().decode()
        assert 'evenhand_manager_connected{manager="rm"} 0.0' in text
        assert 'evenhand_manager_synced{manager="rm"} 1.0' in text
        metrics.close()


def test_what_was_never_registered_is_not_kept() -> None:
    presence = Presence()
    assert not presence.heard("stranger", 5)
    assert not presence.left("stranger", 5)
    assert not presence.away(10**9)
    assert not presence.connections(10**9)


async def test_what_ran_before_the_core_has_the_age_of_its_pod_or_a_bound() -> None:
    async with serving() as served:
        stream = await served.ready(config=QUEUES)
        now = served.clock.ms
        hour_ago = now // 1_000 * 1_000 - 3_600_000
        brought = [
            ask("known", nodeID="n0", startedAt=hour_ago),
            ask("unknown", nodeID="n0"),
        ]
        await stream.send(si.AllocationRequest(rmID=RM, allocations=brought))
        await until(lambda: "unknown" in served.core.state.partitions["default"].asks)
        served.clock.ms += 60_000
        listed = await ANSWERS["allocations"](served.channel)(pb.ListAllocationsRequest())
        since = {one.allocation_key: one for one in listed.allocations}
        assert (since["known"].since_ms, since["known"].since_at_the_latest) == (hour_ago, False)
        assert (since["unknown"].since_ms, since["unknown"].since_at_the_latest) == (now, True)
        why = ANSWERS["explain"](served.channel)
        known = await why(explain.ExplainRequest(key="known"))
        assert (known.placed.since_ms, known.placed.since_at_the_latest) == (hour_ago, False)
        assert known.lines[0] == "It has run on node n0 for 61 min."
        unknown = await why(explain.ExplainRequest(key="unknown"))
        assert unknown.placed.since_at_the_latest
        assert unknown.lines[0] == "It has run on node n0 for 60 s at least."


async def test_what_the_core_placed_itself_keeps_its_time_when_its_pod_starts() -> None:
    async with running() as (served, stream):
        placed = served.clock.ms
        started = ask("small", nodeID="n0", startedAt=placed // 1_000 * 1_000 - 5_000)
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[started]))
        small = served.core.state.partitions["default"].asks["small"]
        await until(lambda: small.started_ms is not None)
        assert small.runs_since == (placed, False)
