"""The fast path of `journal`.

The functions of this module write many changes at once: all placements of a batch, or the ends of all allocations that ended
together.

Afterwards the state is as if `journal.place_first` or `journal.unsettle` had been called for one ask after the other.
"""

from collections.abc import Iterable, Mapping, Sequence

from server.model.fit import Amounts
from server.state import ranking, usage
from server.state.applications import Application, Ask
from server.state.limits import Limiter
from server.state.nodes import Node
from server.state.partition import Partition
from server.state.queues import Queue


def assign(partition: Partition, asks: Sequence[Ask], nodes: Iterable[Node], now: int) -> None:
    """Record the node of each ask. The caller must have charged the nodes before this call, and charges applications and queues after it."""
    changed = partition.columns.changed
    for ask, node in zip(asks, nodes, strict=True):
        key, application = ask.key, ask.application
        ask.node = node
        ask.placed_ms = now
        node.allocations[key] = ask
        application.allocations[key] = ask
        del application.asks[key]
        changed[ask] = None
    partition.placements += len(asks)


def charge_limits(columns: Sequence[int], wanted: Mapping[Limiter, Amounts]) -> None:
    """Charge each limiter once, with the sum of the amounts of all placements that it limits. ``wanted`` has these sums by column."""
    for limiter, sums in wanted.items():
        limiter.take(tuple(zip(columns, sums, strict=True)))


def charge_applications(
    columns: Sequence[int], after: Iterable[tuple[Application, Sequence[int], int]]
) -> None:
    """Set each application's usage, in these columns, to the values after the batch.

    If the leaf sorts by share, also set the application's share.
    """
    for one, amounts, share in after:
        own, leaf = one.usage, one.leaf
        for index, amount in zip(columns, amounts, strict=True):
            own[index] = amount
        if leaf.fair:
            one.share = share
            if one.entry is not None:
                ranking.renew_application(leaf, one)


def charge_queues(
    columns: Sequence[int], after: Iterable[tuple[Queue, Sequence[int], int]]
) -> None:
    """Set the usage and the share of each queue in ``after``, which has all queues of the batch except the root.

    Add the growth of the root's children to the root.
    """
    for one, amounts, share in after:
        own, parent = one.usage, one.climb[0][1]
        if one.above is None:
            whole = parent.usage
            for index, amount in zip(columns, amounts, strict=True):
                whole[index] += amount - own[index]
        for index, amount in zip(columns, amounts, strict=True):
            own[index] = amount
        one.share = share
        if one.entry is not None:
            ranking.renew_queue(parent, one)


def take_off(partition: Partition, asks: Sequence[Ask], nodes: Iterable[Node]) -> None:
    """Subtract the amounts of the allocations from nodes and queues, and record their ends.

    No allocation may be firm, releasing, a gang member or a victim of an open decision.
    """
    for ask, node in zip(asks, nodes, strict=True):
        partition.index.empty(node, ask.ask_class.node_demand)
        partition.note_end(ask)
    usage.discharge_all(partition, asks)
    partition.relief += len(asks)
