"""Clusters that a client reports to a core in a separate process, and the memory limit for them."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from server.model.reports import Holdings
from server.rpc.memory import MIB, Load, budget_bytes
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc
from tests.rpc.memory_calls import Process

MANAGERS: Final = 20
"""Number of callers with three streams each."""
PODS_OF_ONE: Final = 100
"""Pods of an application."""
QUEUES: Final = 100


def budget_mib(nodes: int, pods: int, streams: int) -> float:
    """Return the documented memory limit of a core in MiB."""
    held = Holdings(nodes, pods, applications=pods // PODS_OF_ONE, queues=QUEUES)
    return budget_bytes(Load(held, streams)) / MIB


def fill(process: Process, nodes: int, pods: int) -> None:
    """Register a manager, and wait until all these pods are placed."""
    with grpc.insecure_channel(process.where) as channel:
        stub = si_pb2_grpc.SchedulerStub(channel)
        stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID="rm"))
        _send(stub.UpdateNode, _nodes(nodes))
        _send(stub.UpdateApplication, _applications(pods // PODS_OF_ONE))
        assert _send(stub.UpdateAllocation, _pods(pods)) >= pods


async def with_streams(process: Process) -> float:
    """Open the streams of `MANAGERS`; return the resident MiB while they are open."""
    async with process.channel() as channel:
        stub: Any = si_pb2_grpc.SchedulerStub(channel)
        calls = []
        for at in range(MANAGERS):
            await stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID=f"rm{at}"))
            for call, message in (
                (stub.UpdateNode(), si.NodeRequest),
                (stub.UpdateApplication(), si.ApplicationRequest),
                (stub.UpdateAllocation(), si.AllocationRequest),
            ):
                await call.write(message(rmID=f"rm{at}"))
                calls.append(call)
        resident = process.mib
        for call in calls:
            call.cancel()
    return resident


def _send(call: Callable[[Iterator[Any]], Iterator[Any]], messages: list[Any]) -> int:
    """Send messages on one stream; return how many asks were placed, or how many messages came back."""
    return sum(max(1, len(getattr(one, "new", ()))) for one in call(iter(messages)))


def _parts(count: int) -> Iterator[range]:
    return (range(at, min(count, at + 500)) for at in range(0, count, 500))


def _nodes(count: int) -> list[si.NodeRequest]:
    """Return nodes with the twenty labels that cloud providers set."""
    messages = []
    for part in _parts(count):
        message = si.NodeRequest(rmID="rm")
        for at in part:
            one = message.nodes.add(nodeID=f"node-{at:05}.cluster.example", action=1)
            quantities = {"vcore": 64_000, "memory": 1 << 38, "pods": 110}
            for name, value in quantities.items():
                one.schedulableResource.resources[name].value = value
            labels = {f"label.example.com/key{k}": f"value-{k}-{at % 13}" for k in range(19)}
            one.labels.update(labels | {"kubernetes.io/hostname": one.nodeID})
        messages.append(message)
    return messages


def _applications(count: int) -> list[si.ApplicationRequest]:
    new = [
        si.AddApplicationRequest(applicationID=f"app{at}", queueName=f"root.q{at % QUEUES}")
        for at in range(count)
    ]
    return [si.ApplicationRequest(rmID="rm", new=new)]


def _pods(count: int) -> list[si.AllocationRequest]:
    """Return pods with names, namespaces and creation times, as a shim sends them."""
    messages = []
    for part in _parts(count):
        message = si.AllocationRequest(rmID="rm")
        for at in part:
            one = message.allocations.add(
                allocationKey=f"{at:08x}-0000-4000-8000-{at:012x}",
                applicationID=f"app{at % (count // PODS_OF_ONE)}",
            )
            one.resourcePerAlloc.resources["vcore"].value = 100 + at % 20
            one.resourcePerAlloc.resources["memory"].value = MIB
            tags = {
                "kubernetes.io/meta/namespace": f"team{at % 100}",
                "kubernetes.io/meta/podName": f"worker-{at:08}-abcde",
                "creationTime": "1700000000",
            }
            one.allocationTags.update(tags)
        messages.append(message)
    return messages
