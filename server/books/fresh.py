"""Plain asks that came since the last tick and stand in no group yet: most get their places without (`scheduling.burst`).

Until then they are known to the partition and to their applications, and nothing else counts them. What writes their
placements here leaves the books as `journal.place_first` would have, one after the other.
"""

from collections.abc import Iterable, Sequence

from server.books import backlog, ranking
from server.books.applications import Application, Ask
from server.books.nodes import Node
from server.books.partition import Partition
from server.books.queues import Queue
from server.model.fit import Amounts


def take_in(partition: Partition) -> None:
    """They wait like all others, in the order in which they came."""
    if not partition.fresh:
        return
    asks, partition.fresh = partition.fresh, []
    for ask in asks:
        backlog.enqueue(partition, ask)


def seat(partition: Partition, asks: Sequence[Ask], nodes: Iterable[Node], now: int) -> None:
    """They have their nodes, which were filled. Applications and queues are charged next."""
    for ask, node in zip(asks, nodes, strict=True):
        key, application = ask.key, ask.application
        ask.node = node
        ask.placed_ms = now
        node.allocations[key] = ask
        application.allocations[key] = ask
        del application.asks[key]
    partition.placements += len(asks)
    partition.changed += asks


def charge_applications(
    applications: Iterable[Application],
    columns: Sequence[int],
    usage: Iterable[Sequence[int]],
    shares: Iterable[int],
) -> None:
    """What applications use after it, by column, and their shares then; their limits know of it, too."""
    for one, amounts, share in zip(applications, usage, shares, strict=True):
        own = one.usage
        if one.limiters:
            pairs = zip(columns, amounts, strict=True)
            grown = tuple((index, amount - own[index]) for index, amount in pairs)
            for limiter in one.limiters:
                limiter.take(grown)
        for index, amount in zip(columns, amounts, strict=True):
            own[index] = amount
        leaf = one.leaf
        if leaf.fair:
            one.share = share
            if one.entry is not None:
                ranking.renew_application(leaf, one)


def charge_queues(
    queues: Iterable[Queue],
    columns: Sequence[int],
    usage: Iterable[Sequence[int]],
    shares: Iterable[int],
) -> None:
    """The same for queues that are not the root, which is charged with those right below it."""
    for one, amounts, share in zip(queues, usage, shares, strict=True):
        own, parent = one.usage, one.climb[0][1]
        if one.above is None:
            whole: Amounts = parent.usage
            for index, amount in zip(columns, amounts, strict=True):
                whole[index] += amount - own[index]
        for index, amount in zip(columns, amounts, strict=True):
            own[index] = amount
        one.share = share
        if one.entry is not None:
            ranking.renew_queue(parent, one)
