"""Reservations in the answer to `Explain`: the ask's own, and those of other asks that exclude it from a node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from evenhand.v1 import explain_pb2 as pb
from evenhand.v1 import explain_pb2_grpc as rpc
from evenhand.v1 import inspect_pb2 as inspect
from evenhand.v1 import inspect_pb2_grpc as inspect_rpc
from server.rpc.identity import Identities, digest
from server.rpc.roles import Caller, Role
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, ask, node, resource, serving, until, with_identities

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a}, {name: b}]
"""
OF_A: Any = (("authorization", "Bearer viewer-of-a"),)
OF_ROOT: Any = (("authorization", "Bearer viewer-of-root"),)
KNOWN = Identities(
    tokens={
        digest("viewer-of-a"): Caller("vera", Role.VIEWER, "root.a"),
        digest("viewer-of-root"): Caller("rita", Role.VIEWER, "root"),
    }
)
RESERVE_AFTER_MS = 2_000
BOUND_MS = 600_000
NAMES = {"kubernetes.io/meta/namespace": "lab", "kubernetes.io/meta/podName": "crunch-1"}


@asynccontextmanager
async def reserved() -> AsyncIterator[tuple[Served, int]]:
    """Hold a node reserved for `large` of root.b while `small` of root.a waits, and yield the instant.

    Of the node's 100 millicores 80 are free.
    """
    async with serving(with_identities(KNOWN)) as served:
        await served.register(config=QUEUES)
        await (await served.open("UpdateNode", si.NodeRequest(rmID=RM, nodes=[node("n0")]))).read(
            si.NodeResponse
        )
        await served.submit("app", "root.a")
        await served.submit("side", "root.b")
        partition = served.core.state.partitions["default"]
        runs = ask("runs", resourcePerAlloc=resource(vcore=20))
        stream = await served.open(
            "UpdateAllocation", si.AllocationRequest(rmID=RM, allocations=[runs])
        )
        await until(lambda: "runs" in partition.asks and bool(partition.asks["runs"].node))
        more = {"applicationID": "side", "priority": 7}
        large = ask("large", resourcePerAlloc=resource(vcore=100), allocationTags=NAMES, **more)
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[large]))
        await until(lambda: "large" in partition.asks)
        served.clock.ms += RESERVE_AFTER_MS
        made = served.clock.ms
        await stream.send(
            si.AllocationRequest(
                rmID=RM, allocations=[ask("later", resourcePerAlloc=resource(vcore=200), **more)]
            )
        )
        await until(lambda: bool(partition.decisions.reservations))
        served.clock.ms += 1
        small = ask("small", resourcePerAlloc=resource(vcore=10))
        await stream.send(si.AllocationRequest(rmID=RM, allocations=[small]))
        await until(lambda: "small" in partition.asks)
        yield served, made


async def explained(served: Served, key: str, metadata: Any = None) -> pb.WaitingAsk:
    stub = rpc.ExplainServiceStub(served.channel)
    answer = await stub.Explain(pb.ExplainRequest(key=key), metadata=metadata)
    assert answer.HasField("waiting"), answer
    return answer.waiting


async def test_the_owner_of_a_reservation_has_node_bound_and_what_is_missing() -> None:
    async with reserved() as (served, made):
        own = (await explained(served, "large")).reservation
        assert (own.node_id, own.decision_id, dict(own.short)) == (
            "n0",
            "reservation",
            {"vcore": 20},
        )
        assert (own.since_ms, own.until_ms) == (made, made + BOUND_MS)


async def test_a_reason_that_excludes_nodes_has_a_text() -> None:
    async with reserved() as (served, _):
        for metadata in (None, OF_ROOT):
            (tally,) = (await explained(served, "later", metadata)).node_tally
            assert (tally.code, tally.message) == ("too-small", "too small even when empty")


async def test_an_ask_with_a_reservation_is_listed_as_pledged() -> None:
    async with reserved() as (served, _):
        stub = inspect_rpc.InspectServiceStub(served.channel)
        listed = await stub.ListAllocations(inspect.ListAllocationsRequest(include_asks=True))
        assert {one.allocation_key: one.state for one in listed.allocations} == {
            "runs": inspect.ALLOCATION_STATE_ALLOCATED,
            "large": inspect.ALLOCATION_STATE_PLEDGED,
            "later": inspect.ALLOCATION_STATE_WAITING,
            "small": inspect.ALLOCATION_STATE_WAITING,
        }
        own = await stub.ListAllocations(
            inspect.ListAllocationsRequest(include_asks=True), metadata=OF_A
        )
        assert {one.allocation_key for one in own.allocations} == {"runs", "small"}


async def test_an_ask_that_a_reservation_keeps_off_names_node_owner_priority_and_bound() -> None:
    async with reserved() as (served, made):
        found = await explained(served, "small")
        assert found.code == "capacity-reserved"
        assert not found.HasField("reservation")
        assert list(found.kept_off_by) == [
            pb.NodeReservation(
                node_id="n0",
                allocation_key="large",
                name="lab/crunch-1",
                queue="root.b",
                priority=7,
                since_ms=made,
                until_ms=made + BOUND_MS,
            )
        ]


async def test_a_viewer_is_told_no_node_and_no_ask_of_other_queues() -> None:
    async with reserved() as (served, made):
        (foreign,) = (await explained(served, "small", OF_A)).kept_off_by
        assert foreign == pb.NodeReservation(priority=7, since_ms=made, until_ms=made + BOUND_MS)
        (own,) = (await explained(served, "small", OF_ROOT)).kept_off_by
        assert (own.node_id, own.name, own.queue) == ("", "lab/crunch-1", "root.b")
