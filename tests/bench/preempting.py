"""The client of preemption's benchmark over gRPC, a process of its own: a cluster, then claims or a lowered maximum.

Run as ``python -m tests.bench.preempting ADDRESS`` with the order as JSON on standard input; prints one JSON line.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import grpc

from evenhand.v1 import config_pb2
from server.model.decisions import BARRIER
from si.v1 import si_pb2 as si
from tests.bench import preemption
from tests.bench.client import SERVICE, as_resource, converse, read, stream
from tests.bench.preemption import PER_NODE, RM, Cluster
from tests.bench.wire import usage

BATCH = 500
APPLY = "/evenhand.v1.ConfigurationService/Apply"


def _nodes(cluster: Cluster) -> list[bytes]:
    capacity = as_resource(preemption.quantities(100 * PER_NODE))
    nodes = [
        si.NodeInfo(nodeID=f"node-{at:05}", action=si.NodeInfo.CREATE, schedulableResource=capacity)
        for at in range(cluster.nodes)
    ]
    return [
        si.NodeRequest(rmID=RM, nodes=nodes[at : at + BATCH]).SerializeToString()
        for at in range(0, len(nodes), BATCH)
    ]


def _applications(cluster: Cluster) -> dict[str, str]:
    leaves = cluster.leaves * preemption.APPLICATIONS
    return {
        **dict(preemption.application(cluster, at) for at in range(leaves)),
        "claimant": "root.high",
    }


def _running(cluster: Cluster, at: int) -> si.Allocation:
    percent, priority, opted = preemption.shape(cluster, at)
    return si.Allocation(
        allocationKey=f"run-{at:06}",
        applicationID=preemption.application(cluster, at)[0],
        partitionName="default",
        nodeID=f"node-{at // PER_NODE:05}",
        resourcePerAlloc=as_resource(preemption.quantities(percent)),
        priority=priority,
        preemptionPolicy=si.AllocationPreemptionPolicy(
            allowPreemptSelf=not opted, allowPreemptOther=True
        ),
        allocationTags={"creationTime": str(1_700_000_000 - at)},
    )


def _asks(cluster: Cluster) -> list[si.Allocation]:
    return [
        si.Allocation(
            allocationKey=f"claim-{at}",
            applicationID="claimant",
            partitionName="default",
            resourcePerAlloc=as_resource(preemption.quantities(100)),
            priority=100,
            preemptionPolicy=si.AllocationPreemptionPolicy(
                allowPreemptSelf=True, allowPreemptOther=True
            ),
            allocationTags={"creationTime": str(int(time.time()) - 10)},
        )
        for at in range(cluster.claims)
    ]


def _messages(allocations: list[si.Allocation]) -> list[bytes]:
    return [
        si.AllocationRequest(rmID=RM, allocations=allocations[at : at + BATCH]).SerializeToString()
        for at in range(0, len(allocations), BATCH)
    ]


class Conversation:
    """The stream of allocations, after all that runs was told."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call = stream(channel, "UpdateAllocation")
        self._barriers = 0

    async def answers(self) -> AsyncIterator[si.AllocationResponse]:
        """What the core says, message by message."""
        while True:
            yield si.AllocationResponse.FromString(await read(self._call))

    async def send(self, messages: list[bytes]) -> None:
        """Messages in order."""
        for message in messages:
            await self._call.write(message)

    async def settle(self) -> None:
        """Waits until the core has taken everything that was sent."""
        self._barriers += 1
        key = f"{BARRIER}-{self._barriers}"
        await self.send(_messages([si.Allocation(allocationKey=key, applicationID=BARRIER)]))
        async for answer in self.answers():
            if any(one.allocationKey == key for one in answer.rejectedAllocations):
                return

    async def claims(self, cluster: Cluster) -> int:
        """All asks at once; each release is confirmed as soon as it is read."""
        await self.send(_messages(_asks(cluster)))
        placed = 0
        async for answer in self.answers():
            placed += len(answer.new)
            if answer.released:
                gone = si.AllocationReleasesRequest(allocationsToRelease=answer.released)
                await self.send([si.AllocationRequest(rmID=RM, releases=gone).SerializeToString()])
            if placed >= cluster.claims:
                break
        return placed

    async def quota(self, channel: grpc.aio.Channel, cluster: Cluster) -> int:
        """The maximum is lowered to a tenth; until the last victim is announced."""
        left = cluster.running // preemption.LOWERED
        yaml = preemption.queues_yaml(cluster, left)
        apply: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(APPLY)
        await apply(config_pb2.ApplyRequest(yaml=yaml, source="lowered").SerializeToString())
        announced = 0
        async for answer in self.answers():
            announced += len(answer.released)
            if announced >= cluster.running - left:
                break
        return announced

    async def end(self) -> None:
        """Nothing more is sent."""
        await self._call.done_writing()


async def main(address: str, cluster: Cluster, mode: str, pid: int) -> dict[str, float]:
    """Register, tell all that stands, then do what is measured; figures as a mapping."""
    async with grpc.aio.insecure_channel(address) as channel:
        register: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            SERVICE + "RegisterResourceManager"
        )
        yaml = preemption.queues_yaml(cluster, cluster.running if mode == "quota" else None)
        await register(
            si.RegisterResourceManagerRequest(rmID=RM, version="1", config=yaml).SerializeToString()
        )
        await converse(channel, "UpdateNode", _nodes(cluster), cluster.nodes)
        names = _applications(cluster)
        new = [
            si.AddApplicationRequest(applicationID=name, queueName=queue, partitionName="default")
            for name, queue in names.items()
        ]
        told = si.ApplicationRequest(rmID=RM, new=new).SerializeToString()
        await converse(channel, "UpdateApplication", [told], len(names))
        talk = Conversation(channel)
        await talk.send(_messages([_running(cluster, at) for at in range(cluster.running)]))
        await talk.settle()
        cpu, started = usage(pid)[0], time.perf_counter()
        claiming = mode == "claims"
        count = await (talk.claims(cluster) if claiming else talk.quota(channel, cluster))
        wall = time.perf_counter() - started
        spent = usage(pid)[0] - cpu
        await talk.end()
        return {"count": count, "wall_ms": 1_000 * wall, "server_cpu_ms": 1_000 * spent}


if __name__ == "__main__":
    order = json.loads(sys.stdin.read())
    figures = asyncio.run(
        main(sys.argv[1], Cluster(**order["cluster"]), order["mode"], order["pid"])
    )
    print(json.dumps(figures))  # noqa: T201 - the answer to the parent process
