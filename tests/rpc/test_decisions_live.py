"""Decisions of a real core over a socket: for operators, for the tenants on both sides, and in explanations."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import decisions_pb2_grpc as rpc
from evenhand.v1 import explain_pb2 as explain
from evenhand.v1 import explain_pb2_grpc as explain_rpc
from evenhand.v1 import watch_pb2
from evenhand.v1 import watch_pb2_grpc as rpc_watch
from server.rpc.identity import Identities, digest
from server.rpc.reads import InPlace, Reads
from server.rpc.roles import Caller, Role
from si.v1 import si_pb2 as si
from tests.rpc.harness import (
    RM,
    Served,
    Stream,
    ask,
    node,
    resource,
    serving,
    until,
    with_identities,
)
from tests.rpc.test_decisions import speaks_of

QUEUES = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: owed
            resources: {guaranteed: {vcore: 6m}}
            properties: {preemption.delay: 1s}
          - name: lent
            properties: {quota.preemption.delay: 10s}
"""
OWED: Any = (("authorization", "Bearer viewer-of-owed"),)
LENT: Any = (("authorization", "Bearer viewer-of-lent"),)
KNOWN = Identities(
    tokens={
        digest("viewer-of-owed"): Caller("olga", Role.VIEWER, "root.owed"),
        digest("viewer-of-lent"): Caller("lena", Role.VIEWER, "root.lent"),
    }
)


def named(key: str) -> dict[str, str]:
    """Return the tags of a pod that is called after its key."""
    return {"kubernetes.io/meta/namespace": "team", "kubernetes.io/meta/podName": f"pod-of-{key}"}


@asynccontextmanager
async def full(
    queues: str = QUEUES, *, names: bool = False, reads: Reads | None = None
) -> AsyncIterator[tuple[Served, Stream]]:
    """Hold a core with one node, full of pods of root.lent."""
    setting = replace(with_identities(KNOWN), reads=reads or InPlace())
    async with serving(setting) as served:
        await served.register(config=queues)
        nodes = [node("the-node", schedulableResource=resource(vcore=10))]
        await (await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=nodes))).next()
        await served.submit("borrower", "root.lent")
        await served.submit("claimant", "root.owed")
        keys = [f"lent-{number}" for number in range(10)]
        lent = [
            ask(key, applicationID="borrower", allocationTags=named(key) if names else {})
            for key in keys
        ]
        stream = await served.open(
            "UpdateAllocation", si.AllocationRequest(rmID=RM, allocations=lent)
        )
        await seen(stream, placed=10)
        yield served, stream


async def seen(stream: Stream, *, placed: int = 0, released: int = 0) -> list[str]:
    """Return the keys of the next placements or releases, ignoring other answers in between."""
    found: list[str] = []
    while len(found) < placed + released:
        answer = await stream.read(si.AllocationResponse)
        found += [one.allocationKey for one in (answer.new if placed else answer.released)]
    return found


async def confirm(stream: Stream, victims: Iterable[str]) -> None:
    """Say that these pods are gone."""
    gone = [
        si.AllocationRelease(
            allocationKey=key,
            applicationID="borrower",
            terminationType=si.PREEMPTED_BY_SCHEDULER,
        )
        for key in victims
    ]
    releases = si.AllocationReleasesRequest(allocationsToRelease=gone)
    await stream.send(si.AllocationRequest(rmID=RM, releases=releases))


async def claim(served: Served, stream: Stream, key: str = "claim", cores: int = 5) -> list[str]:
    """Submit an ask, wait for its queue's delay, and return the keys of its victims."""
    wanted = ask(key, applicationID="claimant", resourcePerAlloc=resource(vcore=cores))
    await stream.send(si.AllocationRequest(rmID=RM, allocations=[wanted]))
    await until(lambda: key in served.core.state.partitions["default"].asks)
    served.clock.ms += 2_000
    await stream.send(si.AllocationRequest(rmID=RM))
    return await seen(stream, released=cores)


async def decisions(served: Served, metadata: Any = None) -> list[pb.Decision]:
    stub: Any = rpc.DecisionServiceStub(served.channel)
    return list((await stub.ListDecisions(pb.ListDecisionsRequest(), metadata=metadata)).decisions)


async def explained(served: Served, key: str, metadata: Any = None) -> Any:
    stub: Any = explain_rpc.ExplainServiceStub(served.channel)
    return await stub.Explain(explain.ExplainRequest(key=key), metadata=metadata)


async def test_a_claim_is_told_from_its_order_to_its_end() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        (made,) = await decisions(served)
        assert (made.policy, made.state) == ("guaranteed", pb.DECISION_STATE_ORDERED)
        assert [one.allocation_key for one in made.beneficiaries] == ["claim"]
        assert sorted(one.allocation_key for one in made.victims) == sorted(victims)
        assert all(one.because for one in made.victims)
        assert [(one.queue, one.role, one.guaranteed) for one in made.levels] == [
            ("root.owed", "deciding", 6)
        ]
        found = await explained(served, made.decision_id)
        assert found.kind == explain.SUBJECT_KIND_DECISION
        goes = await explained(served, victims[0])
        assert goes.placed.decision_id == made.decision_id
        assert goes.placed.released_for == "claim"
        await confirm(stream, victims)
        assert await seen(stream, placed=1) == ["claim"]
        (done,) = await decisions(served)
        assert done.state == pb.DECISION_STATE_FULFILLED
        assert {one.state for one in done.victims} == {pb.VICTIM_STATE_GONE}
        watch = Stream(
            rpc.DecisionServiceStub(served.channel).WatchDecisions(pb.WatchDecisionsRequest())
        )
        changes = (await watch.read(pb.WatchDecisionsResponse)).changes
        assert [one.state for one in changes] == [
            pb.DECISION_STATE_ORDERED,
            pb.DECISION_STATE_CONFIRMED,
            pb.DECISION_STATE_FULFILLED,
        ]
        watch.call.cancel()


async def test_no_tenant_reads_a_name_of_the_other() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        (lends,) = await decisions(served, LENT)
        (claims,) = await decisions(served, OWED)
        theirs = ("claim", "claimant", "root.owed")
        own = await explained(served, victims[0], LENT)
        told = await explained(served, lends.decision_id, LENT)
        for message in (lends, own, told):
            assert speaks_of(message, *theirs) == set()
        assert sorted(one.allocation_key for one in lends.victims) == sorted(victims)
        assert (lends.beneficiaries_elsewhere, len(claims.victims)) == (1, 0)
        assert claims.victims_elsewhere == 5
        waits = await explained(served, "claim", OWED)
        told = await explained(served, claims.decision_id, OWED)
        lent = (*(f"lent-{number}" for number in range(10)), "borrower", "root.lent")
        for message in (claims, waits, told):
            assert speaks_of(message, *lent) == set()


async def test_what_the_manager_reads_of_a_victim_is_its_owner_s_to_know() -> None:
    async with full() as (served, stream):
        await claim(served, stream)
        for change in served.endpoint._history.after(0):
            told = getattr(change.decision, "message", "")
            if type(change.decision).__name__ == "Released":
                assert "root.lent" in told
                assert "claim" not in told.replace("root.lent", "")


async def test_the_order_of_a_decision_and_the_queues_of_its_victims_are_told() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        stays = next(f"lent-{number}" for number in range(10) if f"lent-{number}" not in victims)
        (made,) = await decisions(served)
        whole = (await explained(served, made.decision_id)).decision
        assert list(whole.order) == ["protection", "originator", "priority", "age"]
        assert [one.evicted for one in whole.ranking] == [True] * 5 + [False] * 5
        assert (whole.candidates, whole.ranking[5].law) == (10, "not-needed")
        assert [(one.law, one.queue, one.count) for one in whole.spared] == [
            ("not-needed", "root.lent", 5)
        ]
        last, stayed = whole.ranking[4].allocation_key, whole.ranking[5].allocation_key
        assert whole.why_these[0] == (
            f"{last} was number 5 of 10 candidates; the next that is not evicted is {stayed}, number 6: "
            f"it equals {last} in every key, and its allocation key comes later (key: allocation-key)."
        )
        assert whole.why_these[1] == (
            "Candidates are evicted by protection, originator, priority, age, allocation-key, the lowest first."
        )
        (taken,) = [one for one in whole.levels if one.role == "victim"]
        assert (taken.queue, taken.held, taken.guaranteed) == ("root.lent", 10, 0)
        (near,) = (await explained(served, stays)).placed.not_evicted
        assert (near.law, near.candidates, near.key) == ("not-needed", 10, "allocation-key")
        assert near.victim in victims
        assert f"of 10 in the order of decision {made.decision_id}: it equals" in near.sentence


async def test_a_candidate_that_a_later_decision_evicts_keeps_its_name_and_did_not_stay() -> None:
    async with full(names=True) as (served, stream):
        victims = await claim(served, stream)
        await confirm(stream, victims)
        await seen(stream, placed=1)
        (first,) = await decisions(served)
        after = await claim(served, stream, "more", 1)
        await confirm(stream, after)
        await seen(stream, placed=1)
        _, second = await decisions(served)
        for found in (
            await explained(served, first.decision_id),
            await explained(served, victims[0]),
        ):
            assert (
                f"; the next candidate is team/pod-of-{after[0]}, number 6, "
                f"evicted later by decision {second.decision_id}: it equals team/pod-of-"
            ) in found.decision.why_these[0]
            assert found.decision.ranking[5].name == f"team/pod-of-{after[0]}"
            assert f"team/pod-of-{after[0]}" in found.decision.spared[0].examples
        stays = (await explained(served, second.decision_id)).decision.ranking[-1].allocation_key
        names = [(await explained(served, one)).name for one in (victims[0], stays)]
        assert names == [f"team/pod-of-{victims[0]}", f"team/pod-of-{stays}"]
        told = (await explained(served, second.decision_id)).decision.why_these[0]
        assert "; the next that is not evicted is team/pod-of-" in told
        watch = rpc_watch.WatchServiceStub(served.channel).WatchEvents(
            watch_pb2.WatchEventsRequest(kinds=["released"], held_only=True)
        )
        events = [one async for answer in watch for one in answer.events]
        assert {one.name for one in events} == {f"team/pod-of-{one}" for one in [*victims, *after]}


async def test_a_tenant_hears_its_own_queues_numbers_and_no_other_names() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        stays = next(f"lent-{number}" for number in range(10) if f"lent-{number}" not in victims)
        found = await explained(served, stays, LENT)
        assert found.placed.not_evicted[0].victim in victims
        assert not speaks_of(found, "claim", "root.owed")
        (made,) = await decisions(served, LENT)
        lent = (await explained(served, made.decision_id, LENT)).decision
        assert [one.queue for one in lent.levels if one.role == "victim" and not one.hidden] == [
            "root.lent"
        ]
        assert "was number 5 of 10 candidates" in lent.why_these[0]
        owed = (await explained(served, made.decision_id, OWED)).decision
        assert list(owed.ranking) == list(owed.why_these) == []
        assert all(one.hidden for one in owed.levels if one.role == "victim")


async def test_an_evicted_allocation_is_explained_with_its_queues_numbers() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        await confirm(stream, victims)
        await seen(stream, placed=1)
        found = await explained(served, victims[0])
        (made,) = await decisions(served)
        assert (found.kind, found.key) == (explain.SUBJECT_KIND_DECISION, made.decision_id)
        assert found.evicted.allocation_key == victims[0]
        assert found.lines[0].startswith("It was evicted from queue root.lent on node the-node")
        assert "queue root.lent held 0.01 cores with no guarantee" in found.lines[0]
        place = [one.allocation_key for one in found.decision.ranking].index(victims[0]) + 1
        told = found.decision.why_these[0]
        assert told.startswith(f"{victims[0]} was number {place} of 10 candidates; the next")
        assert told in found.lines


async def test_a_pod_that_still_terminates_is_told_its_queues_numbers() -> None:
    async with full() as (served, stream):
        victims = await claim(served, stream)
        for metadata in (None, LENT):
            found = await explained(served, victims[0], metadata)
            (own,) = found.placed.release.levels
            assert (own.queue, own.held, own.guaranteed) == ("root.lent", 10, 0)
            assert found.lines[-1] == (
                "When that was decided, queue root.lent held 0.01 cores with no guarantee."
            )
