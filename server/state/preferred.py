"""The preference scores of nodes for one class of asks, and a heap of the nodes on which the class fits, sorted by score (design 6.15)."""

from server.model.asks import Preferences
from server.state.constraints import term_holds
from server.state.domain_counts import DomainCounts
from server.state.nodes import Node, NodeEntry

Alike = tuple[str | None, ...]
"""The values of all labels that the preferences of a class read.

Nodes with equal values have equal scores, unless `Preferred.reads_names`.
"""
Key = tuple[int, NodeEntry]
"""The rank of a node for a class with preferences: its negated score, then its entry. The node with the smallest key is the best."""


class Preferred:
    """The preferences of one class.

    ``cursor`` and ``log_epoch`` are explained at `AskClass`.
    """

    __slots__ = (
        "buckets",
        "cursor",
        "heap",
        "keys",
        "labels",
        "log_epoch",
        "preferences",
        "reads_names",
        "seen",
        "size",
        "sums",
    )

    def __init__(self, preferences: Preferences) -> None:
        self.preferences = preferences
        terms = [one.term for one in preferences.terms]
        self.keys = tuple(sorted({each.key for term in terms for each in term.match_expressions}))
        """The labels that the terms of the preferences read."""
        self.reads_names = any(term.match_fields for term in terms)
        self.sums: dict[tuple[str | None, ...], int] = {}
        """The sum of the weights of the terms that hold on a node, by the node's values of these labels.

        The sums are not used if a term reads the name of the node.
        """
        self.labels = (*self.keys, *(one.topology_key for one in preferences.groups))
        self.heap: list[Key] | None = None
        """A key for each node on which the class fits.

        The key in the heap may be smaller than the node's present key, but is never larger. ``heap`` is None until it is built.
        """
        self.buckets: dict[Alike, list[NodeEntry]] | None = None
        """One heap of nodes for each combination of label values, used instead of ``heap`` if the nodes have few different values of the labels.

        None if ``heap`` is used.
        """
        self.size = 0
        """The number of entries with which the heaps were built, plus the number added since.

        If ``size`` exceeds about twice the number of nodes, the heaps are built again, even if many entries were removed since.
        """
        self.cursor = 0
        self.log_epoch = -1
        self.seen: tuple[int, ...] = ()
        """The value that `steps` returned when the heap was built."""

    def alike(self, node: Node) -> Alike:
        """Return the values of the labels that the preferences read.

        Nodes with equal values have equal scores, unless `reads_names`.
        """
        return tuple(map(node.labels.get, self.labels))

    def score(self, node: Node, domains: DomainCounts) -> int:
        """Return the sum of all weights that apply to the node."""
        found = self._of_terms(node)
        for one in self.preferences.groups:
            count = domains.by_group.get((one.group, one.topology_key))
            domain = node.labels.get(one.topology_key)
            if count is not None and domain is not None:
                found += one.weight * count.by_domain.get(domain, 0)
        return found

    def _of_terms(self, node: Node) -> int:
        if self.reads_names:
            return self._sum(node)
        values = tuple(map(node.labels.get, self.keys))
        found = self.sums.get(values)
        if found is None:
            found = self.sums[values] = self._sum(node)
        return found

    def _sum(self, node: Node) -> int:
        return sum(
            one.weight
            for one in self.preferences.terms
            if term_holds(one.term, node.labels, node.node_id)
        )

    def key(self, node: Node, domains: DomainCounts) -> Key:
        """Return the rank of a node.

        Among nodes with equal scores, a node that takes no placements comes first. Only asks that require such a node by name
        may use it.
        """
        entry = -1 if node.entry is None else node.entry
        return -self.score(node, domains), entry

    def steps(self, domains: DomainCounts) -> tuple[int, ...]:
        """Return, for each preference group of the class, the last change of the counts (step) that may have raised a node's score."""
        found = []
        for one in self.preferences.groups:
            count = domains.by_group.get((one.group, one.topology_key))
            if count is None:
                found.append(
                    domains.emptied
                )  # perhaps this group lost its last allocation at that step
            else:
                found.append(count.rose if one.weight > 0 else count.fell)
        return tuple(found)
