"""Sums stay below 2^62 (design 6.13): who would take one past it is refused."""

from collections.abc import Iterator

from server.books.classes import SMALL, AskClass
from server.books.partition import Partition
from server.model.resources import QUANTITY_LIMIT, Resource


def overflow(partition: Partition, resource: Resource, *, counted: bool = False) -> str:
    """Is a quantity none, or does it take the usage of the whole tree past 2^62? Why, or "".

    ``counted``: it is one of no more asks than a partition takes, so that a small quantity cannot.
    """
    if not resource:
        return "the resource is empty: a positive quantity of some type is needed"
    for name, quantity in resource:
        if not 0 < quantity < QUANTITY_LIMIT:
            return (
                f"resource {name!r}: quantity is {quantity}, allowed are 1 to {QUANTITY_LIMIT - 1}"
            )
        if counted and quantity < SMALL:
            continue
        if _total(partition, name) + quantity >= QUANTITY_LIMIT:
            return f"resource {name!r}: quantity {quantity} takes the partition's total past 2^62"
    return ""


def _total(partition: Partition, name: str) -> int:
    """What is used and what waits in one type, over the whole partition."""
    index = partition.types.index.get(name)
    if index is None:
        return 0
    pending = sum(dict(one.demand).get(index, 0) * one.pending for one in _classes(partition))
    return partition.root.usage[index] + partition.foreign_usage[index] + pending


def _classes(partition: Partition) -> Iterator[AskClass]:
    """All classes, those of asks that hold a pledge with them."""
    yield from partition.classes.values()
    for held in partition.pledges.values():
        yield held.ask.ask_class
