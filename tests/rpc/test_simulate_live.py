"""Simulations by a real core over a socket: outcomes, both tenants, a lowered quota, and unchanged state."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2 as config
from evenhand.v1 import config_pb2_grpc as config_rpc
from evenhand.v1 import decisions_pb2
from evenhand.v1 import inspect_pb2 as inspect
from evenhand.v1 import inspect_pb2_grpc as inspect_rpc
from evenhand.v1 import simulate_pb2 as pb
from evenhand.v1 import simulate_pb2_grpc as rpc
from server.preemption.policy import Plan, Refusal, ShrinkIntent
from server.preemption.quota import enforcement
from server.preemption.trial import Trial
from server.rpc.copies import Copies
from si.v1 import si_pb2 as si
from tests.rpc.copied import SHARED
from tests.rpc.harness import PATIENCE_S, RM, Served, asks, refusal, resource, until
from tests.rpc.test_decisions import speaks_of
from tests.rpc.test_decisions_live import LENT, OWED, QUEUES, full, seen
from tests.rpc.test_simulate import configured, simulate, simulated

pytestmark = pytest.mark.alone

LENDERS = (*(f"lent-{number}" for number in range(10)), "borrower", "root.lent")


def wanted(key: str, vcore: int, queue: str = "root.owed", **more: Any) -> pb.SimulatedAsk:
    return simulated(key, queue, resourcePerAlloc=resource(vcore=vcore), **more)


async def test_asks_take_from_others_as_long_as_their_queue_is_owed() -> None:
    async with full() as (served, _):
        before = served.core.digest()
        first, second, third = await simulate(
            served, wanted("a", 4), wanted("b", 2), wanted("c", 1)
        )
        assert [one.outcome for one in (first, second, third)] == [
            pb.ASK_OUTCOME_PREEMPTS,
            pb.ASK_OUTCOME_PREEMPTS,
            pb.ASK_OUTCOME_WAITS,
        ]
        assert (first.node_id, len(first.victims), len(second.victims)) == ("the-node", 4, 2)
        gone = [one.allocation_key for one in (*first.victims, *second.victims)]
        assert len(set(gone)) == 6
        assert {one.state for one in first.victims} == {decisions_pb2.VICTIM_STATE_UNSPECIFIED}
        assert (third.verdict.law, third.verdict.policy) == ("over-guarantee", "guaranteed")
        assert "(G2, W6)" in third.verdict.rule
        assert third.verdict.because == (
            "queue root.owed holds 0.006 cores, its guarantee is 0.006 cores"
        )
        assert served.core.digest() == before
        served.core.validate()


async def test_what_never_preempts_waits_and_what_nobody_has_is_refused() -> None:
    async with full() as (served, _):
        policy = si.AllocationPreemptionPolicy(allowPreemptSelf=True)
        never, unknown = await simulate(
            served,
            wanted("a", 1, preemptionPolicy=policy),
            simulated("b", "root.owed", resourcePerAlloc=resource(gpu=1)),
        )
        assert (never.outcome, never.verdict.law) == (pb.ASK_OUTCOME_WAITS, "never-preempts")
        assert unknown.outcome == pb.ASK_OUTCOME_REFUSED
        assert "gpu" in unknown.lines[0]


async def test_a_tenant_s_simulation_counts_others_and_names_none() -> None:
    async with full() as (served, _):
        goes, waits = await simulate(served, wanted("a", 6), wanted("b", 1), metadata=OWED)
        assert (goes.outcome, len(goes.victims), goes.victims_elsewhere) == (
            pb.ASK_OUTCOME_PREEMPTS,
            0,
            6,
        )
        assert waits.outcome == pb.ASK_OUTCOME_WAITS
        for one in (goes, waits):
            assert speaks_of(one, *LENDERS) == set()
        (theirs,) = await simulate(served, wanted("a", 6), metadata=LENT)
        assert theirs.outcome == pb.ASK_OUTCOME_REFUSED


async def test_the_core_goes_on_while_asks_are_simulated() -> None:
    async with full(reads=Copies(time.perf_counter)) as (served, stream):
        many = [wanted(f"s-{number}", 1) for number in range(200)]
        running = asyncio.create_task(simulate(served, *many))
        other = asyncio.create_task(simulate(served, *many))
        await served.submit("third", "root.lent")
        await stream.send(asks("more", applicationID="third"))
        await served.endpoint.pump.settled()
        found = await running
        assert [one.outcome for one in found].count(pb.ASK_OUTCOME_PREEMPTS) == 6
        assert [one.outcome for one in await other] == [one.outcome for one in found]
        served.core.validate()


LOWER = QUEUES.replace("10s}", "10s}\n            resources: {max: {vcore: 7m}}")


async def test_the_core_goes_on_while_a_configuration_is_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is told is as it was when it was asked for, whatever happens to the state meanwhile."""
    begun, changed = SHARED.Event(), SHARED.Event()
    plan = enforcement.plan

    def slow(trial: Trial, intent: ShrinkIntent) -> Plan | Refusal:
        begun.set()
        assert changed.wait(PATIENCE_S)
        return plan(trial, intent)

    monkeypatch.setattr(enforcement, "plan", slow)
    async with full(reads=Copies(time.perf_counter)) as (served, stream):
        running = asyncio.create_task(configured(served, LOWER))
        await until(begun.is_set)
        ended = [
            si.AllocationRelease(
                applicationID="borrower",
                allocationKey=f"lent-{number}",
                terminationType=si.STOPPED_BY_RM,
            )
            for number in range(10)
        ]
        await stream.send(
            si.AllocationRequest(
                rmID=RM, releases=si.AllocationReleasesRequest(allocationsToRelease=ended)
            )
        )
        assert len(await seen(stream, released=10)) == 10
        changed.set()
        (partition,) = (await running).partitions
        assert dict(partition.queues[0].usage) == {"vcore": 10}
        assert len(partition.queues[0].victims) == 3
        assert (await configured(served, LOWER)).partitions[0].queues == []
        served.core.validate()


async def test_simulations_end_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    never, begun = SHARED.Event(), SHARED.Event()
    reads = Copies(time.perf_counter)

    def endless(_trial: Trial, _intent: ShrinkIntent) -> Plan | Refusal:
        begun.set()
        never.wait()
        raise AssertionError

    monkeypatch.setattr(enforcement, "plan", endless)
    async with full(reads=reads) as (served, _):
        running = asyncio.create_task(configured(served, LOWER))
        await until(begun.is_set)
        reads.close()
        stub: Any = rpc.SimulateServiceStub(served.channel)
        late = stub.SimulateAsks(pb.SimulateAsksRequest(asks=[wanted("a", 1)]))
        for one in (running, late):
            assert (await refusal(one))[:2] == (grpc.StatusCode.UNAVAILABLE, "DRAINING")


async def test_a_lowered_max_says_who_would_go_and_when() -> None:
    async with full() as (served, _):
        before = served.core.digest()
        answer = await configured(served, LOWER)
        ((queue,),) = ([*one.queues] for one in answer.partitions)
        assert (queue.queue, dict(queue.usage), dict(queue.max)) == (
            "root.lent",
            {"vcore": 10},
            {"vcore": 7},
        )
        assert (dict(queue.target), queue.delay_ms) == ({"vcore": 3}, 10_000)
        assert queue.due_ms == served.clock.ms + 10_000
        assert len(queue.victims) == 3
        assert queue.run.result == decisions_pb2.QUOTA_RESULT_COMPLETE
        assert served.core.digest() == before
        never = await configured(served, LOWER.replace("10s", "0s"))
        assert never.partitions[0].queues[0].why_not
        assert not never.partitions[0].queues[0].victims


async def test_a_queue_over_its_max_says_when_it_comes_down() -> None:
    async with full() as (served, _):
        await applied(served, LOWER)
        lent = await queue(served, "root.lent")
        assert (dict(lent.over_max), lent.quota_due_ms) == ({"vcore": 3}, served.clock.ms + 10_000)
        await applied(served, LOWER.replace("10s", "0s"))
        lent = await queue(served, "root.lent")
        assert (lent.quota_due_ms, bool(lent.not_enforced)) == (0, True)


async def applied(served: Served, yaml: str) -> None:
    stub: Any = config_rpc.ConfigurationServiceStub(served.channel)
    assert (await stub.Apply(config.ApplyRequest(yaml=yaml))).applied


async def queue(served: Served, path: str) -> Any:
    stub: Any = inspect_rpc.InspectServiceStub(served.channel)
    root = (await stub.GetQueueTree(inspect.GetQueueTreeRequest())).tree.root
    return next(one for one in root.children if one.path == path)


async def test_a_queue_that_is_not_over_is_not_told() -> None:
    async with full() as (served, _):
        answer = await configured(served, QUEUES)
        assert [list(one.queues) for one in answer.partitions] == [[]]
