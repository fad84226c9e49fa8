"""Changes of the oracle's nodes: new capacity, labels or taints, and nodes that are drained, enabled or removed."""

from server.model.events import NodeDrained, NodeEnabled, NodeRemoved, NodeUpdated
from tests.simulation.reserving import could_hold
from tests.simulation.tables import Node, Partition

NodeChange = NodeUpdated | NodeDrained | NodeEnabled | NodeRemoved


def change_node(partition: Partition, node: Node, event: NodeChange) -> None:
    """Carry out the change; an ask that avoided the node may use it again, and an ask that reserved it may lose it.

    An allocation on a removed node is removed; it does not become an ask.
    """
    match event:
        case NodeUpdated():
            _update(node, event)
        case NodeDrained():
            node.schedulable, node.opened = False, True
        case NodeEnabled():
            node.schedulable = node.opened = True
        case NodeRemoved():
            del partition.nodes[node.node_id]
            node.schedulable = False
            _clear(partition, node)
    node.changed = True
    for item in partition.items.values():
        item.avoided.pop(node.node_id, None)
        if item.reserved == node.node_id and not could_hold(node, item):
            item.reserved = ""


def _update(node: Node, event: NodeUpdated) -> None:
    node.capacity = dict(event.capacity) if event.capacity is not None else node.capacity
    node.labels = dict(event.labels) if event.labels is not None else node.labels
    node.taints = event.taints if event.taints is not None else node.taints


def _clear(partition: Partition, node: Node) -> None:
    for item in partition.placed():
        if item.node_id == node.node_id:
            del partition.items[item.key]
