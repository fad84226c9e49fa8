"""The first obstacle that keeps an ask waiting, in the form of a code. The module only reads the state."""

from collections.abc import Iterator, Sequence
from typing import Final

from server.core.state import State
from server.kernels.fit import any_fit
from server.model.fit import Amounts, Demand, fits
from server.model.reasons import Code
from server.state.applications import Ask, Gang, Group
from server.state.commitments import Pledge
from server.state.constraints import NodeMask, matches
from server.state.equivalence import AskClass
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.placeholders import Hold, is_reserving
from server.state.queues import QueueState
from server.state.snapshotting import first_blocker

FEW_SIZES: Final = 16
"""If the nodes have at most this many distinct capacities, a loop over these capacities is faster than arrays."""


class Obstacles:
    """The obstacles of the asks of one partition.

    The result for each group and each class is computed once and kept. An object of this class must therefore not be used after
    a change of the state.
    """

    def __init__(self, state: State, partition: Partition) -> None:
        self._partition = partition
        self._synced = state.synced(partition)
        self._groups: dict[Group | Gang, Code] = {}
        self._classes: dict[AskClass, Code] = {}
        self._sizes: dict[NodeMask, list[Amounts]] = {}

    def code(self, ask: Ask) -> Code:
        """Return why an ask waits, or NOT_TRIED if no obstacle is known.

        All asks of a group get the result for the first ask that is examined.
        """
        if not self._synced:
            return Code.NOT_SYNCED
        group = ask.group
        assert group is not None, f"ask {ask.key} waits"
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = self._of_group(group, ask)
        return found

    def _of_group(self, group: Group | Gang, ask: Ask) -> Code:
        if is_stopped(self._partition, ask):
            return Code.QUEUE_STOPPED
        if isinstance(group, Gang):
            return _of_gang(self._partition, group)
        if ask.pledge is not None and ask.pledge.replaces:
            return Code.PLACEHOLDER_GOING
        limiter = first_blocker(ask)
        if limiter is not None:
            return limiter.code
        if not group.ask_class.dead and ask.pledge is None:
            return Code.NOT_TRIED
        return self._of_nodes(ask)

    def _of_nodes(self, ask: Ask) -> Code:
        """Return why no node takes the ask. Only the constraints in the ask's spec count.

        Nodes that the ask avoids after a failed binding count as allowed.
        """
        ask_class = ask.ask_class
        if ask.key in self._partition.avoided or ask.pledge is not None:
            return node_code(self._partition, ask)
        found = self._classes.get(ask_class)
        if found is None:
            found = self._classes[ask_class] = self._of_class(ask)
        return found

    def _of_class(self, ask: Ask) -> Code:
        """Return the code that says why no node takes the asks of this ask's class. The result equals that of `node_code`.

        The nodes are examined once for all classes with the same constraints.
        """
        partition, mask = self._partition, ask.ask_class.mask
        if mask.names is not None or ask.spec.constraints.required_node:
            return node_code(partition, ask)
        if not partition.index.numbered:
            return Code.NO_NODES
        sizes = self._sizes.get(mask)
        if sizes is None:
            nodes = partition.index.numbered.values()
            found = {tuple(node.capacity) for node in nodes if mask.allows(node)}
            sizes = self._sizes[mask] = [list(one) for one in sorted(found)]
        if not sizes:
            return Code.NO_NODE_CONSTRAINTS
        if not _fits_any(ask.ask_class.node_demand, sizes):
            return Code.NO_NODE_CAPACITY
        return _without_capacity(partition, ask)


def _fits_any(demand: Demand, sizes: Sequence[Amounts]) -> bool:
    """Return whether a demand fits into one of these capacities. For few capacities a plain loop is faster than arrays."""
    if len(sizes) > FEW_SIZES:
        return any_fit([demand], sizes)[0]
    return any(fits(demand, size) for size in sizes)


def is_stopped(partition: Partition, ask: Ask) -> bool:
    """Return whether a queue on the ask's path, or the whole partition, is stopped."""
    path = ask.application.leaf.path_up()
    return partition.retired or any(queue.state is QueueState.STOPPED for queue in path)


def _of_gang(partition: Partition, gang: Gang) -> Code:
    if isinstance(gang, Hold):
        reserving = is_reserving(gang.application)
        return Code.PLACEHOLDERS_GATHERING if reserving else Code.PLACEHOLDER_AWAITED
    if not gang.gathered:
        return Code.GANG_COUNTING if gang in partition.gangs.gathering else Code.GANG_GATHERING
    return Code.GANG_PARTIAL if gang.parked else Code.NOT_TRIED


def is_allowed(partition: Partition, ask: Ask, node: Node) -> bool:
    """Return whether the ask's own constraints allow the node, even if the ask avoids the node after a failed binding."""
    if ask.key not in partition.avoided:
        return ask.ask_class.mask.allows(node)
    return matches(ask.spec.constraints, node.labels, node.taints, node.node_id)


def node_code(partition: Partition, ask: Ask) -> Code:
    """Return why no node takes the ask.

    NO_NODES: no node takes placements. NO_NODE_CONSTRAINTS: the constraints allow none of the nodes that take placements.
    NO_NODE_CAPACITY: each node that the constraints allow is too small even when empty. CAPACITY_RESERVED: a node has enough
    unused capacity, but it is reserved for another ask. NO_NODE: no node has enough free capacity now.
    """
    constraints = ask.spec.constraints
    if not any(node.is_open_to(constraints) for node in partition.index.nodes.values()):
        return Code.NO_NODES
    found = Code.NO_NODE_CONSTRAINTS
    for node in _meant(partition, ask):
        if node.is_open_to(constraints) and is_allowed(partition, ask, node):
            if fits(ask.ask_class.node_demand, node.capacity):
                return _without_capacity(partition, ask)  # the first one suffices
            found = Code.NO_NODE_CAPACITY
    return found


def _meant(partition: Partition, ask: Ask) -> Iterator[Node]:
    """Yield the nodes that the ask's constraints may allow.

    If the constraints name nodes, these are the named nodes; otherwise they are all nodes.

    If the ask avoids a node after a failed binding, all nodes are yielded.
    """
    nodes, names = partition.index.nodes, ask.ask_class.mask.names
    if names is None or ask.key in partition.avoided:
        return iter(nodes.values())
    return (nodes[name] for name in names if name in nodes)


def _without_capacity(partition: Partition, ask: Ask) -> Code:
    return Code.CAPACITY_RESERVED if in_the_way(partition, ask) else Code.NO_NODE


def in_the_way(partition: Partition, ask: Ask) -> list[Pledge]:
    """Return each reservation without which the ask would fit on the reserved node now. The reservation that ends first comes first."""
    found = [
        held
        for held in partition.decisions.reservations.values()
        if _keeps_off(partition, held, ask)
    ]
    return sorted(found, key=lambda held: (held.commitment.expires_ms or 1 << 62, held.node.number))


def _keeps_off(partition: Partition, held: Pledge, ask: Ask) -> bool:
    node = held.node
    if held.ask is ask or not node.is_open_to(ask.spec.constraints):
        return False
    free = list(node.free)
    for index, quantity in held.node_demand:
        free[index] += quantity
    return fits(ask.ask_class.node_demand, free) and is_allowed(partition, ask, node)
