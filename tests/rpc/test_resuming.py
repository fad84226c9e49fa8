"""A manager that registers again through gRPC: with `explicitSync` it is compared, with `forget` it starts with nothing (C9, C10)."""

import grpc

from server.core.queries.known_decisions import decisions
from server.state.resumption import Resumption
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, Served, asks, node, serving, until

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {guaranteed: {vcore: 10}}, properties: {preemption.delay: 1ms}}
          - {name: b}
"""


async def lived(served: Served) -> None:
    """Let one pod of another queue fill the node, and a claim order its eviction, before the manager is heard again."""
    stream = await served.ready(queue="root.b", config=QUEUES, explicitSync=True)
    await served.streams[0].send(si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete()))
    await stream.send(asks("old"))
    assert (await stream.read(si.AllocationResponse)).new[0].allocationKey == "old"


async def told_again(served: Served, *keys: str, node_id: str = "") -> None:
    """Report the node, the application and these pods again."""
    brought = si.NodeRequest(rmID=RM, nodes=[node("n0")])
    await (await served.open("UpdateNode", brought)).read(si.NodeResponse)
    await served.submit("app", "root.b")
    if keys:
        await served.open("UpdateAllocation", asks(*keys, nodeID=node_id))


def compared(served: Served) -> Resumption:
    """Return the comparison in progress."""
    found = served.core.state.partitions["default"].resumption
    assert found is not None
    return found


async def test_what_is_reported_as_before_stays_and_what_is_missing_ends() -> None:
    async with serving() as served:
        await lived(served)
        partition = served.core.state.partitions["default"]
        before = partition.asks["old"]
        await served.register(explicitSync=True)
        assert partition.asks["old"] is before, "nothing is wiped"
        await told_again(served, "old", node_id="n0")
        await until(lambda: not compared(served).asks)
        done = si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete(nodes=1))
        await served.open("UpdateNode", done)
        await until(lambda: served.core.state.managers[RM].synced)
        assert partition.asks["old"] is before
        await served.register(explicitSync=True)
        await told_again(served)
        await served.open("UpdateNode", done)
        await until(lambda: not partition.asks)
        assert not decisions(served.core)
        served.core.validate()


async def test_a_placement_whose_answer_was_lost_is_sent_again() -> None:
    async with serving() as served:
        await lived(served)
        await served.register(explicitSync=True)
        await told_again(served)
        stream = await served.open("UpdateAllocation", asks("old"))
        await until(lambda: bool(compared(served).unseen))
        await served.open("UpdateNode", si.NodeRequest(rmID=RM, syncComplete=si.SyncComplete()))
        placed = (await stream.read(si.AllocationResponse)).new[0]
        assert (placed.allocationKey, placed.nodeID) == ("old", "n0")
        served.core.validate()


async def test_a_manager_that_asks_for_it_starts_with_nothing_and_its_streams_end() -> None:
    async with serving() as served:
        await lived(served)
        stream = served.streams[-1]
        await served.register(explicitSync=True, forget=True)
        assert await stream.end() == (grpc.StatusCode.ABORTED, "REGISTERED_AGAIN")
        partition = served.core.state.partitions["default"]
        assert (partition.asks, partition.index.nodes, partition.resumption) == ({}, {}, None)
