"""Allocations that ended together: what they had is everybody's, as `journal.unsettle` leaves the books one by one."""

from collections.abc import Iterable, Sequence

from server.books import usage
from server.books.applications import Ask
from server.books.nodes import Node
from server.books.partition import Partition


def take_off(partition: Partition, asks: Sequence[Ask], nodes: Iterable[Node]) -> None:
    """They are off their nodes and applications, which win the room; no decision waits for them, none is firm."""
    for ask, node in zip(asks, nodes, strict=True):
        partition.index.empty(node, ask.ask_class.node_demand)
        partition.note_end(ask)
    usage.discharge_all(partition, asks)
    partition.relief += len(asks)
