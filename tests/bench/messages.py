"""The messages of a workload, as bytes, and the scripts made of them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

from server.model.decisions import BARRIER
from si.v1 import si_pb2 as si
from tests.bench.script import SERVICE, Script, Step
from tests.bench.workloads import (
    RM,
    Workload,
    application,
    node_capacity,
    queues_yaml,
    shape,
)

BATCH = 500
"""Objects in a message where it is not their number that is measured."""


def as_resource(quantities: Mapping[str, int]) -> si.Resource:
    """Quantities as the wire has them."""
    return si.Resource(
        resources={name: si.Quantity(value=value) for name, value in quantities.items()}
    )


def registered(yaml: str, *, explicit_sync: bool = False) -> Step:
    """The resource manager introduces itself, with its queues."""
    request = si.RegisterResourceManagerRequest(
        rmID=RM, version="1", config=yaml, explicitSync=explicit_sync
    )
    return Step(SERVICE + "RegisterResourceManager", [request.SerializeToString()])


def nodes_told(nodes: Sequence[si.NodeInfo]) -> Step:
    """All nodes, until each is accepted."""
    messages = [
        si.NodeRequest(rmID=RM, nodes=nodes[at : at + BATCH]).SerializeToString()
        for at in range(0, len(nodes), BATCH)
    ]
    return Step("UpdateNode", messages, "accepted", len(nodes), refused="rejected")


def applications_told(names: Mapping[str, str]) -> Step:
    """All applications with their queues, until each is accepted."""
    new = [
        si.AddApplicationRequest(applicationID=name, queueName=queue, partitionName="default")
        for name, queue in names.items()
    ]
    message = si.ApplicationRequest(rmID=RM, new=new).SerializeToString()
    return Step("UpdateApplication", [message], "accepted", len(new), refused="rejected")


def packed(allocations: Sequence[si.Allocation], batch: int = BATCH) -> list[bytes]:
    """Asks or allocations, so many a message."""
    return [
        si.AllocationRequest(rmID=RM, allocations=allocations[at : at + batch]).SerializeToString()
        for at in range(0, len(allocations), batch)
    ]


def settled(allocations: Sequence[si.Allocation]) -> Step:
    """Allocations that run, until the core has taken all of them: it answers what stands behind them."""
    barrier = si.Allocation(allocationKey=BARRIER, applicationID=BARRIER)
    messages = packed([*allocations, barrier])
    return Step(
        "UpdateAllocation", messages, "rejectedAllocations", 1, only=b"\n" + _short(BARRIER)
    )


def _short(text: str) -> bytes:
    """A string on the wire, behind its tag; shorter than 128 bytes."""
    return bytes([len(text)]) + text.encode()


# A workload ---------------------------------------------------------------------------------------------------------


def _nodes(workload: Workload) -> list[si.NodeInfo]:
    return [
        si.NodeInfo(
            nodeID=f"node-{at:05}",
            action=si.NodeInfo.CREATE,
            schedulableResource=as_resource(node_capacity(workload, at)),
        )
        for at in range(workload.nodes)
    ]


def _applications(workload: Workload) -> dict[str, str]:
    pairs = range(workload.leaves * workload.applications_per_leaf)
    return dict(application(workload, at) for at in pairs)


def _ask(workload: Workload, at: int, node: str = "") -> si.Allocation:
    return si.Allocation(
        allocationKey=f"ask-{at:06}",
        applicationID=application(workload, at)[0],
        partitionName="default",
        nodeID=node,
        resourcePerAlloc=as_resource(shape(workload, at)),
        allocationTags={
            "kubernetes.io/meta/namespace": "bench",
            "kubernetes.io/meta/podName": f"pod-{at:06}",
            "kubernetes.io/label/app": f"app-{at % 50}",
            "creationTime": "1700000000",
        },
    )


def _standing(workload: Workload) -> list[Step]:
    """What is there before the clock starts."""
    return [
        registered(queues_yaml(workload)),
        nodes_told(_nodes(workload)),
        applications_told(_applications(workload)),
    ]


def flood(workload: Workload, batch: int) -> Script:
    """All asks as fast as the stream takes them, so many a message; until the last placement."""
    standing = _standing(workload)
    messages = packed([_ask(workload, at) for at in range(workload.asks)], batch)
    placed = Step("UpdateAllocation", messages, "new", workload.asks, "rejectedAllocations")
    return Script([*standing, placed], len(standing))


def ping(workload: Workload) -> Script:
    """One ask at a time, each when the former has its node."""
    standing = _standing(workload)
    messages = packed([_ask(workload, at) for at in range(workload.asks)], 1)
    after = range(workload.asks)
    placed = Step(
        "UpdateAllocation", messages, "new", workload.asks, "rejectedAllocations", [*after]
    )
    return Script([*standing, placed], len(standing))


def resync(workload: Workload) -> Script:
    """A core that was started again hears of everything that runs, until it places the one ask that waits."""
    running = workload.asks - 1
    allocations = [
        _ask(workload, at, node) for at, node in zip(range(running), seats(workload), strict=False)
    ]
    counts = si.SyncComplete(
        nodes=workload.nodes,
        applications=workload.leaves * workload.applications_per_leaf,
        allocations=running,
        asks=1,
    )
    synced = si.NodeRequest(rmID=RM, syncComplete=counts).SerializeToString()
    steps = [
        registered(queues_yaml(workload), explicit_sync=True),
        nodes_told(_nodes(workload)),
        applications_told(_applications(workload)),
        settled([*allocations, _ask(workload, running)]),
        Step("UpdateNode", [synced], "accepted", 0),
        Step("UpdateAllocation", [], "new", 1),
    ]
    return Script(steps, 0)


def seats(workload: Workload) -> Iterator[str]:
    """A node with room for each ask in turn, going round the nodes."""
    free = [node_capacity(workload, at) for at in range(workload.nodes)]
    turn = cycle(range(workload.nodes))
    for at in range(workload.asks):
        wanted = shape(workload, at)
        slot = next(one for one in turn if _fits(free[one], wanted))
        for name, value in wanted.items():
            free[slot][name] -= value
        yield f"node-{slot:05}"


def _fits(free: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return all(free[name] >= value for name, value in wanted.items())


def manager() -> bytes:
    """The field that names the resource manager, for messages that a client makes."""
    return si.AllocationRequest(rmID=RM).SerializeToString()
