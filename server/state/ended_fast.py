"""Allocations that ended together: the state ends up as `journal.unsettle` leaves them, called for one after the other."""

from collections.abc import Iterable, Sequence

from server.state import usage
from server.state.applications import Ask
from server.state.nodes import Node
from server.state.partition import Partition


def take_off(partition: Partition, asks: Sequence[Ask], nodes: Iterable[Node]) -> None:
    """Give back what the allocations used on nodes and in queues; none is firm, and no decision waits for one."""
    for ask, node in zip(asks, nodes, strict=True):
        partition.index.empty(node, ask.ask_class.node_demand)
        partition.note_end(ask)
    usage.discharge_all(partition, asks)
    partition.relief += len(asks)
