"""The translation of nodes from the wire to events, in both generations of the interface (design 1.1 and 1.10)."""

from collections.abc import Callable, Mapping
from typing import Final

from server.model.asks import Generation
from server.model.decisions import NodeRejected
from server.model.events import (
    Event,
    ForeignAdded,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    SyncCompleted,
)
from server.model.parts import Parts
from server.rpc.limits import NAME_CHARACTERS_MAX, STEP_OBJECTS
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.constraints import taints
from server.rpc.translate.fields import RefusedError, listed, name, one_of, partition, quantities
from si.v1 import si_pb2

PARTITION_ATTRIBUTES: Final = ("evenhand.io/partition", "si/node-partition")
OCCUPIED_KEY: Final = "occupied/"
"""The prefix of the key of the foreign allocation that represents a node's `occupiedResource`."""

_ATTRIBUTES_OF_AN_OBJECT: Final = 20
"""The number of attributes of a node that take about as long to translate as one object."""

_Translate = Callable[[str, si_pb2.NodeInfo, str], Event]


def node_batching(message: si_pb2.NodeRequest, reader: Reader) -> Parts[Batch]:
    """Return events and refusals of a NodeRequest in the order of its nodes, made in steps."""
    batch = Batch(message.rmID)
    slow = 0
    for node in message.nodes:
        slow += 1 + len(node.existingAllocations) + len(node.attributes) // _ATTRIBUTES_OF_AN_OBJECT
        if slow >= STEP_OBJECTS:
            slow = 0
            yield
        try:
            _add(batch, node, reader)
        except RefusedError as refused:
            node_id = node.nodeID[:NAME_CHARACTERS_MAX]
            batch.refusals.append(NodeRejected(batch.rm_id, node_id, str(refused)))
    if message.HasField("syncComplete"):
        counts = message.syncComplete
        batch.events.append(
            SyncCompleted(
                batch.rm_id, counts.nodes, counts.applications, counts.allocations, counts.asks
            )
        )
    return batch


def _add(batch: Batch, node: si_pb2.NodeInfo, reader: Reader) -> None:
    """Add a node with its allocations to the batch. Raise RefusedError before anything of the node is added."""
    name("nodeID", node.nodeID)
    action = _ACTIONS.get(node.action)
    if action is None:
        raise RefusedError(f"action: {node.action} is unknown")
    listed("attributes", node.attributes)
    where = _partition(node.attributes)
    events = [action(batch.rm_id, node, where), *_occupied(batch.rm_id, node, where)]
    batch.events.extend(events)
    for allocation in node.existingAllocations:
        _add_existing(batch, node.nodeID, allocation, reader)


def _partition(attributes: Mapping[str, str]) -> str:
    found = [attributes[key] for key in PARTITION_ATTRIBUTES if attributes.get(key)]
    return partition(found[0] if found else "")


def _create(rm_id: str, node: si_pb2.NodeInfo, where: str) -> NodeAdded:
    listed("labels", node.labels)
    return NodeAdded(
        rm_id,
        node.nodeID,
        quantities("schedulableResource", node.schedulableResource),
        schedulable=node.action == si_pb2.NodeInfo.CREATE,
        partition=where,
        labels=tuple(sorted(node.labels.items())),
        taints=taints(node.taints),
        attributes=tuple(sorted(node.attributes.items())),
    )


def _update(rm_id: str, node: si_pb2.NodeInfo, where: str) -> NodeUpdated:
    """Return the update of a node. Fields that the client does not send keep their values.

    A client that sends labels also sends taints. Labels without taints therefore mean that the node has no taints.
    """
    listed("labels", node.labels)
    speaks = bool(node.labels or node.taints)
    return NodeUpdated(
        rm_id,
        node.nodeID,
        quantities("schedulableResource", node.schedulableResource)
        if node.HasField("schedulableResource")
        else None,
        where,
        tuple(sorted(node.labels.items())) if node.labels else None,
        taints(node.taints) if speaks else None,
    )


_ACTIONS: Final[Mapping[int, _Translate]] = {
    si_pb2.NodeInfo.CREATE: _create,
    si_pb2.NodeInfo.CREATE_DRAIN: _create,
    si_pb2.NodeInfo.UPDATE: _update,
    si_pb2.NodeInfo.DRAIN_NODE: lambda rm_id, node, where: NodeDrained(rm_id, node.nodeID, where),
    si_pb2.NodeInfo.DRAIN_TO_SCHEDULABLE: lambda rm_id, node, where: NodeEnabled(
        rm_id, node.nodeID, where
    ),
    si_pb2.NodeInfo.DECOMISSION: lambda rm_id, node, where: NodeRemoved(rm_id, node.nodeID, where),
}
_WITH_CAPACITY: Final = frozenset(
    {si_pb2.NodeInfo.CREATE, si_pb2.NodeInfo.CREATE_DRAIN, si_pb2.NodeInfo.UPDATE}
)


def _occupied(rm_id: str, node: si_pb2.NodeInfo, where: str) -> list[Event]:
    """Return `occupiedResource` as a foreign allocation, in the generations that have the field (design 1.1)."""
    if not node.HasField("occupiedResource") or node.action not in _WITH_CAPACITY:
        return []
    taken = quantities("occupiedResource", node.occupiedResource)
    if not taken and node.action != si_pb2.NodeInfo.UPDATE:
        return []
    key = OCCUPIED_KEY + node.nodeID
    return [ForeignAdded(rm_id, key, node.nodeID, taken, where, static=True)]


def _add_existing(
    batch: Batch, node_id: str, allocation: si_pb2.Allocation, reader: Reader
) -> None:
    """Add an allocation that a node's message lists as running to the batch, as in the older interface.

    If the allocation is refused, add its refusal.
    """
    try:
        one_of("nodeID", allocation.nodeID, ("", node_id))
        batch.events.append(reader.reported(batch.rm_id, allocation, node_id))
    except RefusedError as refused:
        key = allocation.allocationKey or allocation.UUID
        batch.refuse(key, allocation.applicationID, str(refused), Generation.ASK)
