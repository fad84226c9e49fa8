"""Resource types of a partition, each with an index: every amount in the state is a list by type index (design 6.10)."""

from collections.abc import Iterable, Mapping
from typing import Final

from server.model.fit import Amounts, Demand
from server.model.resources import Resource

NO_LIMIT: Final = 1 << 80
"""The headroom in a type without a limit; above every sum of quantities."""

PORT_CAPACITY: Final = 1 << 20
"""The capacity of a port's wildcard type on a node: a wildcard takes all of it, a specific address one unit."""


class ResourceTypes:
    """Names and indices of the types that a partition has seen; `Partition.grow` lengthens its amounts for new ones.

    Synthetic types (host ports) exist on nodes only and never in a queue's numbers.
    """

    __slots__ = ("index", "names", "synthetic")

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.names: list[str] = []
        self.synthetic: list[int] = []

    def __len__(self) -> int:
        return len(self.names)

    def intern(self, name: str, synthetic: int = 0) -> int:
        """Return the index of a type, registered if new; ``synthetic`` is the capacity that each node has of a synthetic type."""
        found = self.index.get(name)
        if found is None:
            found = self.index[name] = len(self.names)
            self.names.append(name)
            self.synthetic.append(synthetic)
        return found

    def demand(self, resource: Resource) -> Demand:
        """Return the resource with indices in place of names; new types are registered."""
        return tuple((self.intern(name), quantity) for name, quantity in resource)

    def zeros(self) -> Amounts:
        """Return an amount list of zeros."""
        return [0] * len(self.names)

    def named(self, amounts: Iterable[int]) -> dict[str, int]:
        """Return amounts as a mapping of the types that are not zero, synthetic ones left out, in name order."""
        pairs = (
            (name, amount)
            for name, amount, capacity in zip(self.names, amounts, self.synthetic, strict=False)
            if amount and not capacity
        )
        return dict(sorted(pairs))

    def amounts(self, quantities: Mapping[str, int], missing: int = 0) -> Amounts:
        """Return a mapping as an amount list; new types are registered, absent types get ``missing``."""
        for name in quantities:
            self.intern(name)
        return [quantities.get(name, missing) for name in self.names]
