"""The events of nodes: a node is added, updated, drained, enabled or removed."""

from server.core.events import asks, excluded_nodes, lifecycle
from server.core.preemption import open_decisions
from server.core.state import REGISTER_FIRST, State
from server.model.asks import Taint
from server.model.decisions import Decision, NodeAccepted, NodeRejected, Noted, Termination
from server.model.events import NodeAdded, NodeDrained, NodeEnabled, NodeRemoved, NodeUpdated
from server.model.fit import Amounts
from server.model.reasons import Code
from server.model.resources import QUANTITY_LIMIT, Resource
from server.state import journal
from server.state.nodes import Node
from server.state.partition import Partition

NODES_MAX = 100_000
"""The largest number of nodes that one partition accepts."""

NodeChange = NodeUpdated | NodeDrained | NodeEnabled | NodeRemoved


def add(state: State, event: NodeAdded, now: int) -> list[Decision]:
    """Add a node (CREATE and CREATE_DRAIN). Return its acceptance, or a rejection with the reason.

    If its manager registered again and reports a known node, the node is compared with the report.
    """
    partition = state.partitions.get(event.partition)
    known = None if partition is None else _unreported(partition, event.node_id)
    if partition is not None and known is not None and known.rm_id == event.rm_id:
        return _compare(partition, known, event, now)
    refusal = _may_add(state, partition, event)
    if refusal or partition is None:
        owned = partition is not None and partition.owner not in ("", event.rm_id)
        code = Code.PARTITION_OWNED.value if owned else ""
        return [NodeRejected(event.rm_id, event.node_id, refusal, code)]
    for name, _ in event.capacity:
        partition.types.intern(name)
    partition.grow()
    node = _make(partition, event)
    partition.owner = event.rm_id
    partition.index.nodes[node.node_id] = node
    partition.node_slots.nodes[node.slot] = node
    partition.index.touch(node)
    _total(partition, node.capacity, 1)
    partition.constraint_index.node_changed(node)
    partition.thrashing.thaw()
    if event.schedulable:
        _open(partition, node)
    return [NodeAccepted(event.rm_id, event.node_id)]


def _unreported(partition: Partition, node_id: str) -> Node | None:
    """Return the node if its manager registered again and has not reported the node since then. Otherwise return None."""
    resumption = partition.resumption
    node = None if resumption is None else resumption.nodes.get(node_id)
    return node if node is not None and partition.index.nodes.get(node_id) is node else None


def _compare(partition: Partition, node: Node, event: NodeAdded, now: int) -> list[Decision]:
    """Compare a node that is reported again with the node that is known. A difference is handled as an update (design 1.10).

    If the new report says that the node is draining, this takes effect only when the sync is complete, and only if the manager
    neither drains nor enables the node before that.
    """
    resumption = partition.resumption
    assert resumption is not None, f"no sync of {event.rm_id} is in progress"
    decisions: list[Decision] = []
    if _differs(partition, node, event):
        update = NodeUpdated(
            event.rm_id, node.node_id, event.capacity, partition.name, event.labels, event.taints
        )
        decisions = _update(partition, node, update, now)
        if any(isinstance(one, NodeRejected) for one in decisions):
            return decisions
    node.attributes = event.attributes
    del resumption.nodes[node.node_id]
    if not event.schedulable:
        resumption.announced[node.node_id] = None
    elif not node.schedulable:
        excluded_nodes.forget(partition, node.node_id)
        _open(partition, node)
    return [NodeAccepted(event.rm_id, event.node_id), *decisions]


def _differs(partition: Partition, node: Node, event: NodeAdded) -> bool:
    """Return whether a node is reported with another capacity, other labels or other taints than it has."""
    capacity = {name: quantity for name, quantity in event.capacity if quantity}
    return (
        capacity != partition.types.named(node.capacity)
        or dict(event.labels) != node.labels
        or _taints(event.taints) != node.taints
    )


def _may_add(state: State, partition: Partition | None, event: NodeAdded) -> str:
    if event.rm_id not in state.managers:
        return REGISTER_FIRST.format(rm_id=event.rm_id)
    if not event.node_id:
        return "nodeID is empty"
    if partition is None or partition.retired:
        return state.why_absent(event.partition)
    if partition.owner not in ("", event.rm_id):
        return asks.owned_by_other(partition)
    if event.node_id in partition.index.nodes:
        return f"node {event.node_id!r} is registered already"
    if len(partition.index.nodes) >= NODES_MAX:
        return f"partition {event.partition!r} has {NODES_MAX} nodes, the most it takes"
    return _overflow(partition, event.capacity, [])


def _overflow(partition: Partition, capacity: Resource, before: Amounts) -> str:
    """Return why a capacity is not accepted. Return "" if the total of each type stays below 2^62 (design 6.13)."""
    for name, quantity in capacity:
        if quantity < 0:
            return f"schedulableResource {name!r} is negative: {quantity}"
        index = partition.types.index.get(name)
        total = partition.capacity[index] if index is not None else 0
        had = before[index] if index is not None and before else 0
        if total - had + quantity >= QUANTITY_LIMIT:
            return f"schedulableResource {name!r}: {quantity} takes the partition's total past 2^62"
    return ""


def _make(partition: Partition, event: NodeAdded) -> Node:
    if partition.node_slots.free:
        slot = partition.node_slots.free.pop()
    else:
        slot = len(partition.node_slots.nodes)
        partition.node_slots.nodes.append(None)
    capacity = _amounts(partition, event.capacity)
    node = Node(event.rm_id, event.node_id, partition.next_number(), slot, capacity)
    node.labels = dict(event.labels)
    node.taints = _taints(event.taints)
    node.attributes = event.attributes
    return node


def _taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(sorted(set(taints)))


def _amounts(partition: Partition, capacity: Resource) -> Amounts:
    quantities = dict(capacity)
    return [
        made_up or quantities.get(name, 0)
        for name, made_up in zip(partition.types.names, partition.types.synthetic, strict=True)
    ]


def _total(partition: Partition, capacity: Amounts, sign: int) -> None:
    for index, quantity in enumerate(capacity):
        if not partition.types.synthetic[index]:
            partition.capacity[index] += sign * quantity
    partition.ranking_stale = True


def _open(partition: Partition, node: Node) -> None:
    node.schedulable = node.opened = True
    partition.index.enter(node)
    partition.relief += 1


def change(state: State, event: NodeChange, now: int) -> list[Decision]:
    """Update, drain, enable or remove a known node. The event is rejected if the node is unknown or of another manager."""
    if event.rm_id not in state.managers:
        return [NodeRejected(event.rm_id, event.node_id, REGISTER_FIRST.format(rm_id=event.rm_id))]
    partition = state.partitions.get(event.partition)
    node = partition.index.nodes.get(event.node_id) if partition else None
    if partition is None or node is None:
        reason = f"node {event.node_id!r} is not known in partition {event.partition!r}"
        return [NodeRejected(event.rm_id, event.node_id, reason)]
    if node.rm_id != event.rm_id:
        reason = f"node {event.node_id!r}: {asks.owned_by_other(partition)}"
        return [NodeRejected(event.rm_id, event.node_id, reason)]
    if isinstance(event, NodeUpdated):
        return _update(partition, node, event, now)
    if isinstance(event, NodeRemoved):
        partition.thrashing.thaw()
        return remove(state, partition, node, now)
    return _set_standing(partition, node, now, enabled=isinstance(event, NodeEnabled))


def _set_standing(partition: Partition, node: Node, now: int, *, enabled: bool) -> list[Decision]:
    """Let a node take placements if ``enabled`` is true, else let it take no new placements.

    Return notes about reservations that end.
    """
    if _stands(partition, node, enabled=enabled):
        return []
    excluded_nodes.forget(partition, node.node_id)
    if enabled:
        if not node.schedulable:
            _open(partition, node)
        return []
    node.schedulable, node.opened = False, True
    partition.index.leave(node)
    partition.index.mark_freed(node)
    partition.relief += 1
    return _drop_pledges(partition, node, now, Code.RESERVATION_DROPPED, daemons=False)


def _stands(partition: Partition, node: Node, *, enabled: bool) -> bool:
    """Return whether a drain or enable event changes nothing, because the node already has the state that the event sets.

    Such an event can come after the manager has registered again and reported the node again.
    """
    resumption = partition.resumption
    if resumption is None or node.node_id not in resumption.announced:
        return False
    del resumption.announced[node.node_id]
    return node.schedulable if enabled else node.opened and not node.schedulable


def _update(partition: Partition, node: Node, event: NodeUpdated, now: int) -> list[Decision]:
    if event.capacity is not None:
        refusal = _overflow(partition, event.capacity, node.capacity)
        if refusal:
            return [NodeRejected(event.rm_id, event.node_id, refusal)]
        _resize(partition, node, event.capacity)
    if event.labels is not None:
        node.labels = dict(event.labels)
    if event.taints is not None:
        node.taints = _taints(event.taints)
    partition.constraint_index.node_changed(node)
    if event.labels is not None:
        partition.index.domains.relabelled(node)
    excluded_nodes.forget(partition, node.node_id)
    if node.schedulable:
        partition.index.enter(node)
    else:
        partition.index.touch(node)
        partition.index.mark_freed(node)
    partition.relief += 1
    partition.thrashing.thaw()
    dropped = open_decisions.check_pledges(partition, node, now, changed=True)
    return dropped + _overcommitted(partition, node)


def _resize(partition: Partition, node: Node, resource: Resource) -> None:
    for name, _ in resource:
        partition.types.intern(name)
    partition.grow()
    capacity = _amounts(partition, resource)
    _total(partition, node.capacity, -1)
    _total(partition, capacity, 1)
    for index, quantity in enumerate(capacity):
        node.free[index] += quantity - node.capacity[index]
    node.capacity[:] = capacity
    partition.index.touch(node)


def _overcommitted(partition: Partition, node: Node) -> list[Decision]:
    pledged = partition.types.zeros()
    for held in node.pledges.values():
        for index, quantity in held.node_demand:
            pledged[index] += quantity
    over = [
        name
        for name, free, own in zip(partition.types.names, node.free, pledged, strict=True)
        if free + own < 0
    ]
    if not over:
        return []
    message = f"less capacity than its pods use, in {', '.join(over)}; nothing is placed there until some end"
    return [
        Noted("node", node.node_id, Code.NODE_OVERCOMMITTED, message, partition.name, node.rm_id)
    ]


def _drop_pledges(
    partition: Partition, node: Node, now: int, code: Code, *, daemons: bool
) -> list[Decision]:
    """Drop the pledges on a node that takes no placements.

    With ``daemons`` False, keep the pledges of asks that require this node by name.
    """
    notes: list[Decision] = []
    for held in [one for one in node.pledges.values() if daemons or not one.exclusive]:
        reason = f"node {node.node_id} takes no placements any more"
        notes += open_decisions.give_up(partition, held, reason, now, code)
    return notes


def remove(state: State, partition: Partition, node: Node, now: int) -> list[Decision]:
    """Remove a node (DECOMISSION), its foreign pods and its allocations, and return a release to the shim for each allocation.

    Drop the pledges on the node.
    """
    node.schedulable = node.opened = False
    partition.index.leave(node)
    decisions = _drop_pledges(partition, node, now, Code.NODE_LOST, daemons=True)
    for ask in list(node.allocations.values()):
        message = f"node {node.node_id} is gone"
        decisions.append(lifecycle.released(partition, ask, Termination.STOPPED_BY_RM, message))
        lifecycle.end(state, partition, ask, now)
    for foreign in list(node.foreign.values()):
        journal.unsettle_foreign(partition, foreign)
    partition.constraint_index.node_removed(node)
    del partition.index.nodes[node.node_id]
    partition.node_slots.nodes[node.slot] = None
    partition.node_slots.free.append(node.slot)
    _total(partition, node.capacity, -1)
    excluded_nodes.forget(partition, node.node_id)
    return decisions
