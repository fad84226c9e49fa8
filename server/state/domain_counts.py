"""The number of allocations of each preference group in each topology domain (design 6.15).

Asks may prefer to run near the allocations of a preference group, or apart from them. A *domain* is a value of a node label.
The counts follow from the allocations and the labels of their nodes. Each placement and each end of an allocation changes the
counts at once, so that the next placement sees the change.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from server.state.applications import Ask
    from server.state.nodes import Node

NEVER: Final = 0
"""The value of `DomainCount.rose` and `DomainCount.fell` before any change."""


class Place(NamedTuple):
    """A topology domain in which an allocation is counted for a preference group."""

    group: str
    topology_key: str
    domain: str


class DomainCount:
    """The number of allocations of one preference group in each domain.

    ``rose`` is the last step (change of the counts) at which one of these numbers rose. ``fell`` is the last step at which one of
    them fell.
    """

    __slots__ = ("by_domain", "fell", "rose")

    def __init__(self) -> None:
        self.by_domain: dict[str, int] = {}
        self.rose = NEVER
        self.fell = NEVER


class DomainCounts:
    """The counts of all preference groups of one partition.

    ``places`` has, for each allocation, the domains in which it is counted. ``emptied`` is the last step at which a group lost
    its last allocation, so that its count was dropped.
    """

    __slots__ = ("by_group", "emptied", "places", "steps")

    def __init__(self) -> None:
        self.by_group: dict[tuple[str, str], DomainCount] = {}
        self.places: dict[Ask, tuple[Place, ...]] = {}
        self.steps = self.emptied = NEVER

    def add(self, ask: "Ask", node: "Node") -> None:
        """Count an ask as running on a node: once for each of its preference groups and each topology key, in the domain of the node."""
        found = places_of(ask, node)
        if not found:
            return
        self.places[ask] = found
        self.steps += 1
        for group, key, domain in found:
            count = self.by_group.get((group, key))
            if count is None:
                count = self.by_group[group, key] = DomainCount()
            count.by_domain[domain] = count.by_domain.get(domain, 0) + 1
            count.rose = self.steps

    def remove(self, ask: "Ask") -> None:
        """Stop counting an ask. Do nothing for an ask that is not counted."""
        found = self.places.pop(ask, ())
        if not found:
            return
        self.steps += 1
        for group, key, domain in found:
            count = self.by_group[group, key]
            count.by_domain[domain] -= 1
            count.fell = self.steps
            if not count.by_domain[domain]:
                del count.by_domain[domain]
            if not count.by_domain:
                del self.by_group[group, key]
                self.emptied = self.steps

    def relabelled(self, node: "Node") -> None:
        """Count the allocations of a node again, because the node's labels may have changed."""
        for ask in node.allocations.values():
            if ask.ask_class.preferences.groups:
                self.remove(ask)
                self.add(ask, node)


def places_of(ask: "Ask", node: "Node") -> tuple[Place, ...]:
    """Return the domains in which an ask is counted if it is on this node.

    A node without the label ``topology_key`` of a group is in no domain.
    """
    found = (
        Place(one.group, one.topology_key, domain)
        for one in ask.ask_class.preferences.groups
        if (domain := node.labels.get(one.topology_key)) is not None
    )
    return tuple(dict.fromkeys(found))
