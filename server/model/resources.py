"""The quantities of resources, as exact whole numbers.

A *resource* is a canonical tuple of ``(type, quantity)`` pairs, sorted by type and without zeros. Two equal requests are thus
equal tuples. ``vcore`` is in milli-cores, ``memory`` in bytes, all else in plain units. A *limit* keeps explicit zeros, because
``max: {gpu: 0}`` forbids the type while a missing key does not.
"""

from collections.abc import Iterable, Mapping
from typing import Final

Resource = tuple[tuple[str, int], ...]
Limit = tuple[tuple[str, int], ...]

NOTHING: Final[Resource] = ()

QUANTITY_LIMIT: Final = 1 << 62
"""The bound that every quantity, and the sum of each type in a partition, must stay below (design 6.13)."""


PORT_PREFIX: Final = "hostport/"
"""The prefix of the resource type that stands for a host port of a node (see `state/constraints`)."""


class BadQuantity(ValueError):
    """A quantity that is negative or too large. ``str()`` names the resource type."""


def resource(quantities: Mapping[str, int]) -> Resource:
    """Return the canonical resource of a mapping, without zeros. Raise BadQuantity for negative or huge quantities."""
    return tuple(pair for pair in limit(quantities) if pair[1])


def limit(quantities: Mapping[str, int]) -> Limit:
    """Return the canonical limit of a mapping. An explicit 0 forbids the type and is kept.

    Raise BadQuantity for negative or huge quantities.
    """
    for name, quantity in quantities.items():
        if not 0 <= quantity < QUANTITY_LIMIT:
            raise BadQuantity(
                f"quantity of {name!r} is {quantity}, allowed are 0 to {QUANTITY_LIMIT - 1}"
            )
    return tuple(sorted(quantities.items()))


def total(parts: Iterable[Resource]) -> Resource:
    """Return the sum of several resources, type by type."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, quantity in part:
            sums[name] = sums.get(name, 0) + quantity
    return tuple(sorted((name, quantity) for name, quantity in sums.items() if quantity))
