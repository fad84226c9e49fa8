"""The oracle's reservations: who takes which node when nothing is placeable any more (design 6.6)."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.choice import best_node, may_place
from tests.simulation.rules import missing_part
from tests.simulation.tables import Item, Node, Partition, Sums

RESERVATION_AFTER_MS: Final = 2_000
RESERVATIONS_PER_LEAF: Final = 5
NODES_PER_RESERVATION: Final = 10


def reserved(partition: Partition, now: int) -> Iterator[tuple[Item, Node]]:
    """Ask after ask with its node; the next one is looked for when the caller has noted the last.

    Best ask first over the whole partition. It has waited 2 s, has head-room, fits no node now; it is no
    member of a job and needs no check by its manager. One an ask, one a node, five a leaf queue, one for
    each ten nodes (but one at least).
    """
    for item in sorted(partition.waiting(), key=lambda each: each.rank):
        if _may_reserve(partition, item, now) and (node := _least_short(partition, item, now)):
            yield item, node


def _may_reserve(partition: Partition, item: Item, now: int) -> bool:
    held = partition.reservations()
    leaf = item.application.queue
    return (
        not item.reserved
        and item.job is None
        and not item.spec.rm_check
        and now - item.since >= RESERVATION_AFTER_MS
        and len(held) < max(1, len(partition.nodes) // NODES_PER_RESERVATION)
        and sum(other.application.queue is leaf for other in held) < RESERVATIONS_PER_LEAF
        and may_place(Sums(partition), item)
        and best_node(partition, Sums(partition), item, now) is None
    )


def could_hold(node: Node, item: Item) -> bool:
    """Would the node, were it empty, take the item?"""
    large = all(node.capacity.get(kind, 0) >= wanted for kind, wanted in item.request.items())
    return node.schedulable and large and node.takes(item)


def _least_short(partition: Partition, item: Item, now: int) -> Node | None:
    sums = Sums(partition)
    reserved = {other.reserved for other in partition.reservations()}
    candidates = [
        (missing_part(item.request, node.capacity, sums.free(node, item)), node.arrival, node)
        for node in partition.nodes.values()
        if could_hold(node, item)
        and node.node_id not in reserved
        and item.avoided.get(node.node_id, now) <= now
        and sums.ports_free(node, item)
    ]
    return min(candidates, key=lambda each: each[:2])[2] if candidates else None
