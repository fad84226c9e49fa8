"""An index of nodes by label value, for the label keys that live constraints use."""

from collections.abc import Mapping
from typing import Final

from server.state.nodes import Node

NodeSet = dict[Node, None]
"""The nodes with one value of a label, in the order in which they got this value."""

CARRIED_MAX: Final = 65_536
"""The largest number of distinct label keys of nodes that the index remembers.

A key that is not among the remembered keys is on no node, and can be indexed without a pass over the nodes. If nodes have more
keys, no keys are remembered.
"""


class LabelIndex:
    """The nodes of a partition by label key and value.

    When the first constraint begins to use a key, one pass over the nodes indexes the key. When no constraint uses the key any
    more, its index is dropped. The nodes may have a million keys, but constraints use only a few of these keys. If no node ever
    had a key, no pass is needed to index the key (see CARRIED_MAX).
    """

    __slots__ = ("_carried", "_keys", "_labels", "_users")

    def __init__(self) -> None:
        self._labels: dict[Node, Mapping[str, str]] = {}
        self._keys: dict[str, dict[str, NodeSet]] = {}
        self._users: dict[str, int] = {}
        self._carried: set[str] | None = set()

    @property
    def nodes(self) -> Mapping[Node, Mapping[str, str]]:
        """Return all nodes, each with the labels under which it is indexed."""
        return self._labels

    def labels_of(self, node: Node) -> Mapping[str, str]:
        """Return the labels under which a node is indexed, or no labels if the node is not indexed."""
        return self._labels.get(node, {})

    def use(self, key: str) -> None:
        """Add one to the number of constraints that use a label key. If no other constraint uses the key, index the key."""
        if key not in self._users:
            self._users[key] = 0
            self._keys[key] = self._found(key)
        self._users[key] += 1

    def _found(self, key: str) -> dict[str, NodeSet]:
        """Return the nodes that have a label key, by the value of that label."""
        values: dict[str, NodeSet] = {}
        if self._carried is not None and key not in self._carried:
            return values
        for node, labels in self._labels.items():
            value = labels.get(key)
            if value is not None:
                values.setdefault(value, {})[node] = None
        return values

    def drop(self, key: str) -> None:
        """Subtract one from the number of constraints that use a label key. If no constraint uses the key any more, drop the index of the key."""
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._keys[key]

    def carrying(self, key: str, value: str) -> NodeSet:
        """Return the nodes that have this value of a label key. A constraint must be using the key."""
        return self._keys[key].get(value, {})

    def put(self, node: Node) -> None:
        """Index a node that is new, or whose labels may have changed."""
        before = self._labels.get(node)
        if before is node.labels:
            return
        if before is not None:
            self._take_out(node, before)
        self._labels[node] = node.labels
        if self._carried is not None:
            self._carried.update(node.labels)
            if len(self._carried) > CARRIED_MAX:
                self._carried = None
        for key, value in node.labels.items():
            values = self._keys.get(key)
            if values is not None:
                values.setdefault(value, {})[node] = None

    def remove(self, node: Node) -> None:
        """Remove a node from the index."""
        self._take_out(node, self._labels.pop(node))

    def _take_out(self, node: Node, labels: Mapping[str, str]) -> None:
        for key, value in labels.items():
            values = self._keys.get(key)
            if values is not None:
                del values[value][node]
                if not values[value]:
                    del values[value]
