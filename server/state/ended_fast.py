"""The end of many allocations at once, with the same resulting state as one call of `journal.unsettle` for each."""

from collections.abc import Iterable, Sequence

from server.state import usage
from server.state.applications import Ask
from server.state.nodes import Node
from server.state.partition import Partition


def take_off(partition: Partition, asks: Sequence[Ask], nodes: Iterable[Node]) -> None:
    """Subtract the amounts of the allocations from nodes and queues. None may be firm, and no decision may wait for one."""
    for ask, node in zip(asks, nodes, strict=True):
        partition.index.empty(node, ask.ask_class.node_demand)
        partition.note_end(ask)
    usage.discharge_all(partition, asks)
    partition.relief += len(asks)
