"""The bound on sums: an amount that would raise a sum to 2^62 is rejected (design 6.13)."""

from collections.abc import Iterator
from typing import Final

from server.model.resources import QUANTITY_LIMIT, Resource
from server.state.equivalence import SMALL, AskClass
from server.state.partition import Partition

ASKS_MAX: Final = 2_000_000
"""The largest number of asks and allocations that one partition accepts."""
CROWDED: Final = QUANTITY_LIMIT - ASKS_MAX * SMALL
"""The total of a type below which small asks need no check.

A small ask requests less than SMALL of each type. Even if ASKS_MAX small asks are added to a total below CROWDED, the sum stays
below the bound.
"""


def overflow(partition: Partition, resource: Resource, *, of_ask: bool = False) -> str:
    """Return why an amount is refused.

    An amount is refused if it is empty, if one of its quantities is out of range, or if it would raise a total of the
    partition to 2^62.

    Return "" if the amount is valid.

    ``of_ask`` is true if the amount belongs to an ask. An ask's quantity below SMALL is not checked while the partition's total
    of the same type is below CROWDED: ASKS_MAX such quantities cannot raise the total to 2^62.
    """
    if not resource:
        return "the resource is empty: a positive quantity of some type is needed"
    for name, quantity in resource:
        if not 0 < quantity < QUANTITY_LIMIT:
            return (
                f"resource {name!r}: quantity is {quantity}, allowed are 1 to {QUANTITY_LIMIT - 1}"
            )
        if of_ask and quantity < SMALL and name not in partition.classes.crowded:
            continue
        total = _total(partition, name) + quantity
        if total >= QUANTITY_LIMIT:
            return f"resource {name!r}: quantity {quantity} takes the partition's total past 2^62"
        partition.classes.crowd(name, crowded=total >= CROWDED)
    return ""


def _total(partition: Partition, name: str) -> int:
    """Return the sum of one type over the whole partition: usage, foreign pods, and waiting asks."""
    index = partition.types.index.get(name)
    if index is None:
        return 0
    waiting = (one for one in _classes(partition) if one.pending) if partition.ask_count else ()
    pending = sum(dict(one.demand).get(index, 0) * one.pending for one in waiting)
    return partition.root.usage[index] + partition.foreign.usage[index] + pending


def _classes(partition: Partition) -> Iterator[AskClass]:
    """Yield all equivalence classes, including the classes of asks that have a pledge."""
    yield from partition.classes.by_key.values()
    for held in partition.decisions.pledges.values():
        yield held.ask.ask_class
