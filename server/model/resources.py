"""Resource quantities as exact whole numbers.

A *resource* is a canonical tuple of ``(type, quantity)`` pairs, sorted by type and without zeros. Equal requests are thus equal
tuples. ``vcore`` is in millicores, ``memory`` is in bytes, and all other types are in plain units. A *limit* keeps explicit
zeros, because ``max: {gpu: 0}`` forbids the type, whereas a missing type has no limit.
"""

from collections.abc import Mapping
from typing import Final

Resource = tuple[tuple[str, int], ...]
Limit = tuple[tuple[str, int], ...]

NOTHING: Final[Resource] = ()

QUANTITY_LIMIT: Final = 1 << 62
"""The upper bound of each quantity, and of the sum of each type in a partition (design 6.13).

Quantities and sums must be less than this number.
"""


PORT_PREFIX: Final = "hostport/"
"""The prefix of the resource type that stands for a host port of a node (see `state/constraints`)."""


class BadQuantity(ValueError):
    """The error for a quantity that is negative or too large. ``str()`` of the error names the resource type."""


def resource(quantities: Mapping[str, int]) -> Resource:
    """Return the canonical resource of a mapping, without zeros. Raise BadQuantity if a quantity is negative or too large."""
    return tuple(pair for pair in limit(quantities) if pair[1])


def limit(quantities: Mapping[str, int]) -> Limit:
    """Return the canonical limit of a mapping. An explicit 0 stays in the limit, because 0 forbids the type.

    Raise BadQuantity if a quantity is negative or too large.
    """
    for name, quantity in quantities.items():
        if not 0 <= quantity < QUANTITY_LIMIT:
            raise BadQuantity(
                f"quantity of {name!r} is {quantity}, allowed are 0 to {QUANTITY_LIMIT - 1}"
            )
    return tuple(sorted(quantities.items()))
