"""The nodes on which capacity became free (design 6.5), in a table that shows which unschedulable classes may fit there."""

from collections.abc import Sequence

from server.kernels.fit import Rows, SlotRows
from server.scheduling.placement import could_take
from server.state.constraints import NodeMask
from server.state.equivalence import AskClass
from server.state.nodes import Node


class FreedNodes:
    """The freed nodes.

    A node mask is the set of nodes that one constraint allows. Each node mask is compared with all freed nodes only once, even
    if several classes have that mask.

    The table is valid while no node, mask or pledge changes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._named = {node.node_id: node for node in nodes}
        entered = [node for node in nodes if node.entry is not None]
        self._entered = SlotRows([node.slot for node in entered], [node.free for node in entered])
        self._known: dict[NodeMask, Rows] = {}

    def take(self, ask_class: AskClass) -> bool:
        """Return whether at least one of the freed nodes can take one ask of the class.

        The test of each node has the same result as `could_take`.
        """
        held = ask_class.pledge
        if held is not None:
            # A pledged ask most likely fits on its own node.
            if held.node.node_id in self._named and could_take(ask_class, held.node):
                return True
            if held.replaces or held.commitment.together:
                return False
        mask = ask_class.mask
        found = self._known.get(mask)
        if found is None:
            found = self._known[mask] = self._open_to(mask)
        return found.hold(ask_class.node_demand)

    def _open_to(self, mask: NodeMask) -> Rows:
        """Return the free capacity of the nodes that take asks with the mask's constraint."""
        if mask.names is None and not mask.constraints.required_node:
            return self._entered.marked(mask.allowed)
        names = self._named if mask.names is None else mask.names
        nodes = [self._named[name] for name in names if name in self._named]
        return Rows(
            [node.free for node in nodes if node.is_open_to(mask.constraints) and mask.allows(node)]
        )
