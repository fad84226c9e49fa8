"""Resource types of a partition, each with an index. Every amount in the state is a list by type index (design 6.10)."""

from collections.abc import Iterable, Mapping
from typing import Final

from server.model.fit import Amounts, Demand
from server.model.resources import Resource

NO_LIMIT: Final = 1 << 80
"""The headroom in a type without a limit. No sum of quantities is this large."""

PORT_CAPACITY: Final = 1 << 20
"""The capacity of a host port's type on a node.

A port on all addresses takes the whole capacity, and a port on one address takes one unit.
"""


class ResourceTypes:
    """The names and indices of the types that a partition has seen. `Partition.grow` lengthens the partition's amounts for new types.

    Synthetic types (host ports) are counted on nodes only, and never in the amounts of queues.
    """

    __slots__ = ("index", "names", "synthetic")

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.names: list[str] = []
        self.synthetic: list[int] = []

    def __len__(self) -> int:
        return len(self.names)

    def intern(self, name: str, synthetic: int = 0) -> int:
        """Return the index of a type. Register the type if it is new.

        ``synthetic`` is the capacity that each node has of a synthetic type, and 0 for other types.
        """
        found = self.index.get(name)
        if found is None:
            found = self.index[name] = len(self.names)
            self.names.append(name)
            self.synthetic.append(synthetic)
        return found

    def demand(self, resource: Resource) -> Demand:
        """Return the resource with type indices in place of names. New types are registered."""
        return tuple((self.intern(name), quantity) for name, quantity in resource)

    def zeros(self) -> Amounts:
        """Return an amount list of zeros."""
        return [0] * len(self.names)

    def named(self, amounts: Iterable[int]) -> dict[str, int]:
        """Return the amounts that are not zero, by type name and in name order, without synthetic types."""
        known = zip(self.names, amounts, self.synthetic, strict=False)
        pairs = [(name, amount) for name, amount, capacity in known if amount and not capacity]
        pairs.sort()
        return dict(pairs)


def replaced(
    amounts: Amounts, quantities: Iterable[tuple[str, int]] | None, index: Mapping[str, int]
) -> Amounts:
    """Return a copy of the amounts in which each given quantity replaces the amount of its type.

    ``index`` maps each type name to its index.
    """
    made = amounts.copy()
    if quantities:
        for name, quantity in quantities:
            made[index[name]] = quantity
    return made
