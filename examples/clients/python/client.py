"""A resource manager in Python: report nodes, ask for pods, end a pod when the core orders it.

    python client.py [HOST:PORT]

The exit code is 1 when the core refuses something. The error stream then has the core's message.
"""

import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc

from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc as rpc

MANAGER = "example"
QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
          - name: web
            resources: {guaranteed: {vcore: 1}}  # in cores; messages count millicores
            properties: {preemption.delay: 1s}
"""
Message = si.NodeRequest | si.ApplicationRequest | si.AllocationRequest


class RefusedError(Exception):
    """A refusal by the core, with the core's message."""


class Stream:
    """One stream of the service, which carries messages to the core and answers back."""

    def __init__(self, method: Callable[..., Iterator[Any]]) -> None:
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self.answers = method(iter(self._messages.get, None))

    def send(self, message: Message) -> None:
        """Send a message, with the name of the manager."""
        message.rmID = MANAGER
        self._messages.put(message)

    def close(self) -> None:
        """End this side, and read until the core has handled every message and ends its side."""
        self._messages.put(None)
        for _ in self.answers:
            pass


def cores(millicores: int) -> si.Resource:
    """Return a quantity of processor time."""
    return si.Resource(resources={"vcore": si.Quantity(value=millicores)})


def ask(key: str, application: str, millicores: int) -> si.Allocation:
    """Return an ask: an allocation that names no node."""
    size = cores(millicores)
    return si.Allocation(allocationKey=key, applicationID=application, resourcePerAlloc=size)


def accepted(stream: Stream, field: str, wanted: int) -> None:
    """Read answers until `wanted` nodes or applications are accepted. Print the `field` of each."""
    for answer in stream.answers:
        for refused in answer.rejected:
            raise RefusedError(refused.reason)
        for one in answer.accepted:
            print(getattr(one, field), "accepted")
        wanted -= len(answer.accepted)
        if wanted <= 0:
            return
    raise RefusedError("the core ended the stream")


def follow(stream: Stream, last: str) -> None:
    """Read placements and orders to release pods, until the pod with this key is placed."""
    for answer in stream.answers:
        for refused in answer.rejectedAllocations:
            raise RefusedError(refused.reason)
        for pod in answer.new:
            print(pod.allocationKey, "placed on", pod.nodeID)
        for order in answer.released:
            why = si.TerminationType.Name(order.terminationType)
            print(order.allocationKey, "must end for", f"{order.beneficiary}: {why}")
            # End the pod here. When it has ended, send the order back: that confirms the release.
            print(order.allocationKey, "ended")
            ended = si.AllocationReleasesRequest(allocationsToRelease=[order])
            stream.send(si.AllocationRequest(releases=ended))
        if any(pod.allocationKey == last for pod in answer.new):
            return
    raise RefusedError("the core ended the stream")


def run(core: rpc.SchedulerStub) -> None:
    """Play a resource manager from its registration to its end."""
    core.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID=MANAGER, config=QUEUES))
    print("registered as", MANAGER)
    nodes, applications = Stream(core.UpdateNode), Stream(core.UpdateApplication)
    allocations = Stream(core.UpdateAllocation)

    for name in ("node-1", "node-2"):
        node = si.NodeInfo(nodeID=name, schedulableResource=cores(2000), action=si.NodeInfo.CREATE)
        nodes.send(si.NodeRequest(nodes=[node]))
    accepted(nodes, "nodeID", 2)
    ada = si.UserGroupInformation(user="ada")
    for name, queue in (("nightly", "root.batch"), ("shop", "root.web")):
        new = si.AddApplicationRequest(applicationID=name, queueName=queue, ugi=ada)
        applications.send(si.ApplicationRequest(new=[new]))
    accepted(applications, "applicationID", 2)

    # Three pods of queue `batch` fill both nodes.
    sizes = {"batch-1": 2000, "batch-2": 1000, "batch-3": 1000}
    asks = [ask(key, "nightly", size) for key, size in sizes.items()]
    allocations.send(si.AllocationRequest(allocations=asks))
    follow(allocations, "batch-3")
    # Queue `web` is guaranteed one core: after its delay, a pod of `batch` must end for this ask.
    allocations.send(si.AllocationRequest(allocations=[ask("web-1", "shop", 1000)]))
    follow(allocations, "web-1")
    print("press Enter to leave", flush=True)
    sys.stdin.readline()

    # Whatever still runs of an application ends with it.
    for name in ("nightly", "shop"):
        gone = si.RemoveApplicationRequest(applicationID=name)
        applications.send(si.ApplicationRequest(remove=[gone]))
    applications.close()
    for name in ("node-1", "node-2"):
        node = si.NodeInfo(nodeID=name, action=si.NodeInfo.DECOMISSION)
        nodes.send(si.NodeRequest(nodes=[node]))
    nodes.close()
    allocations.close()
    print("left")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
    try:
        with grpc.insecure_channel(address) as channel:
            run(rpc.SchedulerStub(channel))
    except RefusedError as refused:
        sys.exit(f"refused: {refused}")
    except grpc.RpcError as error:
        sys.exit(f"refused: {error.details()}")
