"""The client of the wire's benchmark, a process of its own: sends prepared bytes, counts what comes back.

Run as ``python -m tests.bench.client ADDRESS`` with the workload as JSON on standard input; prints one JSON line.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterable

import grpc

from si.v1 import si_pb2 as si
from tests.bench.workloads import (
    RM,
    Workload,
    application,
    node_capacity,
    queues_yaml,
    shape,
)

SERVICE = "/si.v1.Scheduler/"


def as_resource(quantities: dict[str, int]) -> si.Resource:
    """Quantities as the wire has them."""
    return si.Resource(
        resources={name: si.Quantity(value=value) for name, value in quantities.items()}
    )


def _node_messages(workload: Workload) -> list[bytes]:
    nodes = [
        si.NodeInfo(
            nodeID=f"node-{at:05}",
            action=si.NodeInfo.CREATE,
            schedulableResource=as_resource(node_capacity(workload, at)),
        )
        for at in range(workload.nodes)
    ]
    return [
        si.NodeRequest(rmID=RM, nodes=nodes[at : at + 500]).SerializeToString()
        for at in range(0, len(nodes), 500)
    ]


def _application_message(workload: Workload) -> bytes:
    pairs = range(workload.leaves * workload.applications_per_leaf)
    names = dict(application(workload, at) for at in pairs)
    new = [
        si.AddApplicationRequest(applicationID=name, queueName=queue, partitionName="default")
        for name, queue in names.items()
    ]
    return si.ApplicationRequest(rmID=RM, new=new).SerializeToString()


def _ask_messages(workload: Workload, batch: int) -> list[bytes]:
    asks = [
        si.Allocation(
            allocationKey=f"ask-{at:06}",
            applicationID=application(workload, at)[0],
            partitionName="default",
            resourcePerAlloc=as_resource(shape(workload, at)),
            allocationTags={
                "kubernetes.io/meta/namespace": "bench",
                "kubernetes.io/meta/podName": f"pod-{at:06}",
                "kubernetes.io/label/app": f"app-{at % 50}",
                "creationTime": "1700000000",
            },
        )
        for at in range(workload.asks)
    ]
    return [
        si.AllocationRequest(rmID=RM, allocations=asks[at : at + batch]).SerializeToString()
        for at in range(0, len(asks), batch)
    ]


def stream(channel: grpc.aio.Channel, method: str) -> grpc.aio.StreamStreamCall[bytes, bytes]:
    """A stream of raw bytes both ways."""
    opened: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
        SERVICE + method
    )
    return opened()


async def read(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> bytes:
    """The next message; the stream must not have ended."""
    answer = await call.read()
    if not isinstance(answer, bytes):
        raise SystemExit(f"the stream ended: {await call.code()} {await call.details()}")
    return answer


async def converse(
    channel: grpc.aio.Channel, method: str, messages: list[bytes], answers: int
) -> None:
    """Send messages on one stream and read until so many objects were accepted."""
    call = stream(channel, method)
    for message in messages:
        await call.write(message)
    kind = si.NodeResponse if method == "UpdateNode" else si.ApplicationResponse
    accepted = 0
    while accepted < answers:
        answer = kind.FromString(await read(call))
        if answer.rejected:
            raise SystemExit(f"rejected: {answer.rejected[0]}")
        accepted += len(answer.accepted)
    await call.done_writing()


async def _flood(channel: grpc.aio.Channel, messages: Iterable[bytes], asks: int) -> float:
    """All asks as fast as the stream takes them; seconds from the first byte to the last placement."""
    call = stream(channel, "UpdateAllocation")

    async def send() -> None:
        for message in messages:
            await call.write(message)

    started = time.perf_counter()
    sender = asyncio.create_task(send())
    placed = 0
    while placed < asks:
        placed += len(si.AllocationResponse.FromString(await read(call)).new)
    seconds = time.perf_counter() - started
    await sender
    await call.done_writing()
    return seconds


async def _ping(channel: grpc.aio.Channel, messages: list[bytes]) -> list[float]:
    """One ask at a time; the milliseconds that each waited for its node."""
    call = stream(channel, "UpdateAllocation")
    waits = []
    for message in messages:
        started = time.perf_counter()
        await call.write(message)
        while not si.AllocationResponse.FromString(await read(call)).new:
            pass
        waits.append(1000 * (time.perf_counter() - started))
    await call.done_writing()
    return waits


async def main(address: str, workload: Workload, batch: int, mode: str) -> dict[str, object]:
    """Register, send nodes and applications, then the asks; figures as a mapping."""
    async with grpc.aio.insecure_channel(address) as channel:
        register: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            SERVICE + "RegisterResourceManager"
        )
        request = si.RegisterResourceManagerRequest(
            rmID=RM, version="1", config=queues_yaml(workload)
        )
        await register(request.SerializeToString())
        await converse(channel, "UpdateNode", _node_messages(workload), workload.nodes)
        applications = min(workload.asks, workload.leaves * workload.applications_per_leaf)
        await converse(channel, "UpdateApplication", [_application_message(workload)], applications)
        messages = _ask_messages(workload, batch)
        cpu = time.process_time()
        if mode == "ping":
            return {"waits_ms": await _ping(channel, messages)}
        seconds = await _flood(channel, messages, workload.asks)
        return {"seconds": seconds, "client_cpu": time.process_time() - cpu}


if __name__ == "__main__":
    order = json.loads(sys.stdin.read())
    figures = asyncio.run(
        main(sys.argv[1], Workload(**order["workload"]), order["batch"], order["mode"])
    )
    print(json.dumps(figures))  # noqa: T201 - the answer to the parent process
