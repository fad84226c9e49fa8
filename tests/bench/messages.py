"""The messages of a workload as bytes, and the scripts that consist of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle

from server.model.asks import UNCONSTRAINED, Constraints
from server.model.decisions import BARRIER
from si.v1 import si_pb2 as si
from tests.bench.script import SERVICE, Script, Step
from tests.bench.workloads import (
    RM,
    Workload,
    application,
    applications,
    ask_key,
    node,
    queues_yaml,
    spec,
)

BATCH = 500
"""Number of objects in a message, unless the case measures the effect of this number."""


def as_resource(quantities: Mapping[str, int]) -> si.Resource:
    """Return quantities in the form of the wire."""
    return si.Resource(
        resources={name: si.Quantity(value=value) for name, value in quantities.items()}
    )


def registered(yaml: str, *, explicit_sync: bool = False) -> Step:
    """Return the step in which the resource manager registers with its queues."""
    request = si.RegisterResourceManagerRequest(
        rmID=RM, version="1", config=yaml, explicitSync=explicit_sync
    )
    return Step(SERVICE + "RegisterResourceManager", [request.SerializeToString()])


def nodes_told(nodes: Sequence[si.NodeInfo]) -> Step:
    """Return the step that sends all nodes and waits until each is accepted."""
    messages = [
        si.NodeRequest(rmID=RM, nodes=nodes[at : at + BATCH]).SerializeToString()
        for at in range(0, len(nodes), BATCH)
    ]
    return Step("UpdateNode", messages, "accepted", len(nodes), refused="rejected")


def applications_told(names: Mapping[str, str]) -> Step:
    """Return the step that sends all applications with their queues and waits until each is accepted."""
    new = [
        si.AddApplicationRequest(applicationID=name, queueName=queue, partitionName="default")
        for name, queue in names.items()
    ]
    message = si.ApplicationRequest(rmID=RM, new=new).SerializeToString()
    return Step("UpdateApplication", [message], "accepted", len(new), refused="rejected")


def packed(allocations: Sequence[si.Allocation], batch: int = BATCH) -> list[bytes]:
    """Return the messages of asks or allocations, at most `batch` in each."""
    return [
        si.AllocationRequest(rmID=RM, allocations=allocations[at : at + batch]).SerializeToString()
        for at in range(0, len(allocations), batch)
    ]


def settled(allocations: Sequence[si.Allocation]) -> Step:
    """Return the step that sends running allocations and waits until the core refuses the barrier behind them."""
    barrier = si.Allocation(allocationKey=BARRIER, applicationID=BARRIER)
    messages = packed([*allocations, barrier])
    return Step(
        "UpdateAllocation", messages, "rejectedAllocations", 1, only=b"\n" + _short(BARRIER)
    )


def _short(text: str) -> bytes:
    """Return a string of at most 127 bytes in the form of the wire, without its tag."""
    return bytes([len(text)]) + text.encode()


# A workload ---------------------------------------------------------------------------------------------------------


Labels = Callable[[str], Mapping[str, str]]
"""A function that returns further labels of a node by its id, besides those of the workload."""


def _node(workload: Workload, at: int, more: Labels = lambda _: {}) -> si.NodeInfo:
    found = node(workload, at)
    return si.NodeInfo(
        nodeID=found.node_id,
        action=si.NodeInfo.CREATE,
        schedulableResource=as_resource(dict(found.capacity)),
        labels={**dict(found.labels), **more(found.node_id)},
        taints=[si.Taint(key=one.key, value=one.value, effect=one.effect) for one in found.taints],
    )


def _constraints(found: Constraints) -> si.NodeConstraints:
    return si.NodeConstraints(
        nodeSelector=dict(found.node_selector),
        requiredTerms=[
            si.NodeSelectorTerm(
                matchExpressions=[
                    si.NodeSelectorRequirement(
                        key=one.key, operator=one.operator, values=one.values
                    )
                    for one in term.match_expressions
                ]
            )
            for term in found.required_terms
        ],
        tolerations=[
            si.Toleration(key=one.key, operator=one.operator) for one in found.tolerations
        ],
    )


def ask(workload: Workload, at: int, node_id: str = "") -> si.Allocation:
    """Return an ask, or with a node its allocation."""
    found = spec(workload, at)
    made = si.Allocation(
        allocationKey=ask_key(at),
        applicationID=application(workload, at)[0],
        partitionName="default",
        nodeID=node_id,
        resourcePerAlloc=as_resource(dict(found.resource)),
        allocationTags={
            "kubernetes.io/meta/namespace": "bench",
            "kubernetes.io/meta/podName": f"pod-{at:06}",
            "kubernetes.io/label/app": f"app-{at % 50}",
            "creationTime": "1700000000",
        },
    )
    if found.constraints != UNCONSTRAINED:
        made.constraints.CopyFrom(_constraints(found.constraints))
    return made


def standing(workload: Workload, more: Labels = lambda _: {}) -> list[Step]:
    """Return the steps before the measurement: a shim registers, sends nodes and applications, and ends its sync."""
    return [
        registered(queues_yaml(workload), explicit_sync=True),
        nodes_told([_node(workload, at, more) for at in range(workload.nodes)]),
        applications_told(applications(workload)),
        synced(workload),
    ]


def sync_ended(counts: si.SyncComplete) -> Step:
    """Return the step that ends a sync in which so many objects were sent. The core sends no answer."""
    message = si.NodeRequest(rmID=RM, syncComplete=counts).SerializeToString()
    return Step("UpdateNode", [message], "accepted", 0)


def synced(workload: Workload, allocations: int = 0, asks: int = 0) -> Step:
    """Return the step that ends the sync of a workload."""
    counts = si.SyncComplete(
        nodes=workload.nodes,
        applications=workload.applications,
        allocations=allocations,
        asks=asks,
    )
    return sync_ended(counts)


def placed(messages: Sequence[bytes], asks: int, after: Sequence[int] | None = None) -> Step:
    """Return the step that sends asks and waits until `asks` of them are placed."""
    return Step("UpdateAllocation", messages, "new", asks, "rejectedAllocations", after)


def _all(workload: Workload, batch: int = BATCH) -> list[bytes]:
    return packed([ask(workload, at) for at in range(workload.asks)], batch)


def flood(workload: Workload, batch: int) -> Script:
    """Return the script that sends all asks as fast as the stream takes them, until the last placement."""
    before = standing(workload)
    return Script([*before, placed(_all(workload, batch), workload.asks)], len(before))


def ping(workload: Workload) -> Script:
    """Return the script that sends one ask at a time, each after the one before has its node."""
    before = standing(workload)
    paced = placed(_all(workload, 1), workload.asks, range(workload.asks))
    return Script([*before, paced], len(before))


def churn(workload: Workload, batch: int, rounds: int) -> Script:
    """Return the script of a full cluster on which pods end and as many arrive with each message.

    Each message is sent when the pods of the previous message are placed.
    """
    before = [*standing(workload), placed(_all(workload), workload.asks)]
    starts = range(0, rounds * batch, batch)
    messages = [_turnover(workload, range(at, at + batch)) for at in starts]
    return Script([*before, placed(messages, rounds * batch, starts)], len(before))


def _turnover(workload: Workload, ended: range) -> bytes:
    """Return the message that ends the pods of these asks and adds one ask for each of them."""
    gone = [
        si.AllocationRelease(
            partitionName="default",
            applicationID=application(workload, at)[0],
            allocationKey=ask_key(at),
            terminationType=si.STOPPED_BY_RM,
        )
        for at in ended
    ]
    releases = si.AllocationReleasesRequest(allocationsToRelease=gone)
    coming = [ask(workload, workload.asks + at) for at in ended]
    return si.AllocationRequest(rmID=RM, releases=releases, allocations=coming).SerializeToString()


def resync(workload: Workload) -> Script:
    """Return the script of a restarted core: a shim sends all running pods, and then the only waiting ask is placed."""
    running = workload.asks - 1
    allocations = [
        ask(workload, at, node_id)
        for at, node_id in zip(range(running), assignments(workload), strict=False)
    ]
    steps = [
        registered(queues_yaml(workload), explicit_sync=True),
        nodes_told([_node(workload, at) for at in range(workload.nodes)]),
        applications_told(applications(workload)),
        settled([*allocations, ask(workload, running)]),
        synced(workload, running, 1),
        placed([], 1),
    ]
    return Script(steps, 0)


def assignments(workload: Workload) -> Iterator[str]:
    """Yield a node with enough capacity for each ask, one node after the other; for workloads without constraints."""
    nodes = [node(workload, at) for at in range(workload.nodes)]
    free = [dict(one.capacity) for one in nodes]
    turn = cycle(range(workload.nodes))
    for at in range(workload.asks):
        wanted = spec(workload, at).resource
        slot = next(one for one in turn if all(free[one][name] >= much for name, much in wanted))
        for name, much in wanted:
            free[slot][name] -= much
        yield nodes[slot].node_id


def manager() -> bytes:
    """Return the field that names the resource manager, for messages that a client composes."""
    return si.AllocationRequest(rmID=RM).SerializeToString()
