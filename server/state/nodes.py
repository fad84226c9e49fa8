"""Nodes, and the indexes that find the best node for a class without examining all nodes (design 6.3, 6.4).

In *fair* order, one heap serves all classes, with the least used node first. A class gets a heap of its own if too many nodes of
the shared heap are unsuitable for it. A heap entry is valid only while it is the node's current entry. A node that may have
become better for a class is written to a log. A class with its own heap updates that heap from this log.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Protocol

from server.model.asks import NO_TAGS, Constraints, Tags, Taint
from server.model.fit import Amounts, Demand, Part, parts, score
from server.model.quota import NodeSort
from server.state.domain_counts import DomainCounts
from server.state.free_table import FreeTable

if TYPE_CHECKING:
    from server.state.applications import Ask
    from server.state.commitments import Pledge

NodeEntry = int
"""Rank and arrival number as one number, because a heap of thousands of entries is faster without tuples.

The node with the smallest entry is the best, both in fair and in binpacking order.
"""
NUMBER_BITS: Final = 48
"""The number of low bits of an entry that hold the arrival number. 2^48 arrival numbers suffice for a thousand years."""
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1

HEAP_SLACK: Final = 16
"""The slack of a heap. A heap is rebuilt when its number of entries exceeds twice the number of current entries plus this slack."""


class Node:
    """The state of one node."""

    __slots__ = (
        "allocations",
        "attributes",
        "capacity",
        "changes",
        "entry",
        "foreign",
        "free",
        "freed",
        "holds",
        "labels",
        "node_id",
        "number",
        "opened",
        "parts",
        "pledges",
        "rm_id",
        "schedulable",
        "slot",
        "taints",
    )

    def __init__(self, rm_id: str, node_id: str, number: int, slot: int, capacity: Amounts) -> None:
        self.rm_id = rm_id
        self.node_id = node_id
        self.number = number
        self.slot = slot
        self.capacity = capacity
        self.free: Amounts = list(capacity)
        """The capacity minus usage, foreign pods and pledges, by type index. ``free`` may be negative."""
        self.schedulable = False
        self.opened = False
        """Whether the node's manager has enabled or drained the node since the node was added.

        From then on, all pods of the node are known.
        """
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.attributes: tuple[tuple[str, str], ...] = ()
        self.allocations: dict[str, Ask] = {}
        self.foreign: dict[str, Foreign] = {}
        self.pledges: dict[str, Pledge] = {}
        self.entry: NodeEntry | None = None
        self.parts: tuple[Part, ...] = ()
        """The terms of the score by which nodes are ordered (see `NodeIndex.rank`)."""
        self.holds = 0
        """The number of exclusive pledges on the node. While there are any, the node takes only asks with a pledge on it (G11)."""
        self.changes = 0
        """A counter that rises when the node opens, closes or is updated, and when capacity becomes free on it.

        The counter does not rise when capacity is taken. If preemption was refused to an ask that requires the node, the ask is
        tried again only after the counter has risen.
        """
        self.freed = False

    def dying(self) -> "Iterator[Ask]":
        """Yield the allocations of the node that are being released."""
        return (ask for ask in self.allocations.values() if ask.releasing)

    def free_without(self, going: "Iterable[Ask]") -> Amounts:
        """Return, by type, the free capacity of the node once the allocations in ``going``, which run on the node, are gone."""
        free = list(self.free)
        for ask in going:
            for index, quantity in ask.ask_class.node_demand:
                free[index] += quantity
        return free

    def is_open_to(self, constraints: Constraints) -> bool:
        """Return whether the node takes placements of asks with these constraints.

        A drained node still takes asks that require it by name, because a cordon does not block DaemonSet pods. Return False
        for a node with an exclusive pledge. Asks with a pledge on such a node are checked elsewhere (G11).
        """
        return self.entry is not None or (not self.holds and self.takes_required(constraints))

    def takes_required(self, constraints: Constraints) -> bool:
        """Return whether the node, drained or not, takes asks with these constraints because they require a node by name.

        The caller checks whether the required node is this node. Return False until the node's manager has enabled or drained
        the node.
        """
        return self.opened and bool(constraints.required_node)


class Foreign:
    """A pod of another scheduler. Such a pod occupies its node, belongs to no queue, and is never a victim."""

    __slots__ = ("demand", "key", "node", "rm_id", "static", "tags")

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        rm_id: str,
        key: str,
        node: Node,
        demand: Demand,
        static: bool,  # noqa: FBT001
        tags: Tags = NO_TAGS,
    ) -> None:
        self.rm_id = rm_id
        self.key = key
        self.node = node
        self.demand = demand
        self.static = static
        self.tags = tags


def entry_of(rank: int, node: Node) -> NodeEntry:
    """Return the heap entry of a node with this rank."""
    return (rank << NUMBER_BITS) + node.number


class LogReader(Protocol):
    """An object that has a heap of nodes, and updates this heap from the log of nodes.

    ``cursor`` is the position up to which the reader has read the log. ``log_epoch`` is the value of `NodeIndex.epoch` when the
    reader last read the log.
    """

    cursor: int
    log_epoch: int


class NodeIndex:
    """The order of schedulable nodes, which is updated as nodes change."""

    __slots__ = (
        "_for_columns",
        "_for_table",
        "_largest",
        "_table",
        "dirty",
        "domains",
        "entered",
        "epoch",
        "freed",
        "heap",
        "log",
        "log_read",
        "nodes",
        "numbered",
        "packing",
        "reviving",
        "weights",
    )

    def __init__(self, sort: NodeSort, weights: tuple[tuple[int, int], ...]) -> None:
        self.packing = sort is NodeSort.BINPACKING
        self.weights = weights
        self.nodes: dict[str, Node] = {}
        self.heap: list[NodeEntry] = []
        self.numbered: dict[int, Node] = {}
        """The nodes with an entry, by arrival number."""
        self.log: list[Node] = []
        """The nodes that may have become better for a class, in the order of their changes. One node may occur several times."""
        self.log_read = 0
        self.epoch = 0
        """A number that changes when entries are removed from the log.

        A class whose heap was built before the last change of this number builds its heap again.
        """
        self.freed: list[Node] = []
        """The nodes on which capacity became free since the last tick.

        Unschedulable classes are tested on these nodes, and may be requeued (design 6.5).
        """
        self.reviving: dict[Node, None] = {}
        """The freed nodes on which unschedulable classes are still to be tested, because one tick may test only a limited number of classes."""
        self.dirty: dict[int, Node] = {}
        """The nodes that have changed since a reader last asked for changes, by slot.

        The readers are the columns of snapshots and the table of free capacity. A changed node stays in ``dirty`` until both
        readers have read the change.
        """
        self._for_columns: dict[int, Node] = {}
        self._for_table: dict[int, Node] = {}
        self._table = FreeTable()
        self.domains = DomainCounts()
        """The number of allocations in each topology domain, for asks with preferences."""
        self.entered = 0
        """The number of times that a node opened, or was updated while it was open."""
        self._largest: tuple[int, Amounts] = (-1, [])

    def rank(self, node: Node) -> int:
        """Return the number by which nodes are sorted, the smallest first: the node's score, negated for binpacking.

        `_renew` and `placement.take_nodes_fast` compute the same number inline.
        """
        points = score(node.capacity, node.free, self.weights)
        return -points if self.packing else points

    def measure(self, node: Node) -> None:
        """Recompute the terms of the node's score, after its capacity or the weights changed."""
        node.parts = parts(tuple(node.capacity), self.weights)

    def enter(self, node: Node) -> None:
        """Let the node take placements from now on, unless it has an exclusive pledge."""
        self.measure(node)
        if node.holds:
            self.touch(node)
            self.mark_freed(node)
            return
        if node.entry is None:
            self.numbered[node.number] = node
        self._renew(node)
        self._note(node)
        self.mark_freed(node)
        self.touch(node)
        self.entered += 1

    def leave(self, node: Node) -> None:
        """Let the node take no more placements. Its heap entries are outdated from now on."""
        self.touch(node)
        if node.entry is not None:
            del self.numbered[node.number]
            node.entry = None

    def hold(self, node: Node) -> None:
        """Count one more exclusive pledge on the node. The node then takes only asks that have a pledge on it (G11)."""
        node.holds += 1
        self.leave(node)
        self.mark_freed(node)

    def let_go(self, node: Node) -> None:
        """Subtract one from the exclusive pledges on the node.

        If none are left, the node takes placements if its manager has enabled it.
        """
        node.holds -= 1
        if not node.holds and node.schedulable:
            self.enter(node)

    def touch(self, node: Node) -> None:
        """Record that this node changed, for the columns and the table of free capacity."""
        node.changes += 1
        self.dirty[node.slot] = node

    def fill(self, node: Node, demand: Demand) -> None:
        """Subtract a demand from the node's free capacity.

        In fair order, this makes the node's rank worse. In binpacking order, it makes the rank better for classes that still
        fit on the node.
        """
        free = node.free
        for index, quantity in demand:
            free[index] -= quantity
        self.dirty[node.slot] = node
        if node.entry is not None:
            self._renew(node)
            if self.packing:
                self._note(node)

    def empty(self, node: Node, demand: Demand) -> None:
        """Add a demand to the node's free capacity."""
        free = node.free
        for index, quantity in demand:
            free[index] += quantity
        node.changes += 1
        self.dirty[node.slot] = node
        self.mark_freed(node)
        if node.entry is not None:
            self._renew(node)
            self._note(node)

    def changed_slots(self) -> list[int]:
        """Return, for the columns of snapshots, the slots of nodes that have changed since the last call of this method."""
        self._hand_out()
        slots = list(self._for_columns)
        self._for_columns.clear()
        return slots

    @property
    def unread(self) -> set[int]:
        """Return the slots of nodes that have changed since the columns of snapshots were filled."""
        return {*self._for_columns, *self.dirty}

    def with_capacity_for(self, demand: Demand) -> list[Node]:
        """Return the nodes that take placements and have free capacity for the demand.

        One comparison of arrays covers all nodes.
        """
        self._hand_out()
        self._table.catch_up(self._for_table)
        self._for_table.clear()
        return self._table.with_capacity_for(demand)

    def _hand_out(self) -> None:
        self._for_columns.update(self.dirty)
        self._for_table.update(self.dirty)
        self.dirty.clear()

    def mark_freed(self, node: Node) -> None:
        """Record, for the next tick, that asks may now fit on this node."""
        if not node.freed:
            node.freed = True
            self.freed.append(node)

    def unmark_freed(self, node: Node) -> None:
        """Undo `mark_freed` for a node whose capacity was free only during a test."""
        node.freed = False
        self.freed.remove(node)

    def take_freed(self) -> list[Node]:
        """Return the nodes on which capacity became free since the last call, in the order of the events.

        Clear the marks of these nodes.
        """
        freed = self.freed
        self.freed = []
        for node in freed:
            node.freed = False
        return freed

    def largest(self) -> Amounts:
        """Return the largest capacity of the nodes that take placements, by type.

        The result is computed again after a node opened or was updated.
        """
        if self._largest[0] != self.entered:
            shapes = (node.capacity for node in self.numbered.values())
            self._largest = (
                self.entered,
                [max(column) for column in zip_longest(*shapes, fillvalue=0)],
            )
        return self._largest[1]

    def read_log(self, reader: LogReader, size: int) -> Iterable[Node] | None:
        """Return the nodes that were added to the log since the reader last read it, without repetitions.

        Return None if the reader has to build its heap of ``size`` entries again, because entries were removed from the log, or
        because building the heap takes less time than reading the log. The reader calls `mark_read` afterwards.
        """
        if reader.log_epoch != self.epoch:
            return None
        cursor = reader.cursor
        behind = len(self.log) - cursor
        if not behind:
            return ()
        if size + behind > 2 * len(self.nodes) + HEAP_SLACK:
            return None
        self.mark_read(reader)
        return dict.fromkeys(self.log[cursor:])

    def mark_read(self, reader: LogReader) -> None:
        """Record that the reader has read the whole log, and that its heap has all nodes of the log."""
        reader.log_epoch = self.epoch
        reader.cursor = self.log_read = len(self.log)

    def reorder(self, sort: NodeSort, weights: tuple[tuple[int, int], ...]) -> None:
        """Apply another node sort policy: compute all ranks and heaps again."""
        self.packing = sort is NodeSort.BINPACKING
        self.weights = weights
        self._cut_log()
        for node in self.nodes.values():
            if node.entry is not None:
                self.measure(node)
                node.entry = entry_of(self.rank(node), node)
        self.rebuild()

    def rebuild(self) -> None:
        """Rebuild the shared heap without outdated entries."""
        self.heap = [node.entry for node in self.nodes.values() if node.entry is not None]
        heapq.heapify(self.heap)

    def _renew(self, node: Node) -> None:
        """Replace the node's entry by an entry with the node's present rank. The rank is computed inline, because every placement does this."""
        free, points = node.free, 0
        for index, weight, whole, shift, base in node.parts:
            points += weight * (((whole - free[index]) << shift) // base)
        rank = -points if self.packing else points
        old = node.entry
        node.entry = entry = (rank << NUMBER_BITS) + node.number
        if self.packing:
            return
        heap = self.heap
        if heap and heap[0] == old:
            heapq.heapreplace(heap, entry)
            return
        heapq.heappush(heap, entry)
        if len(heap) > 2 * len(self.numbered) + HEAP_SLACK:
            self.rebuild()

    def _note(self, node: Node) -> None:
        """Write the node to the log.

        Do nothing if the last entry of the log names this node already and no class has read this entry yet.
        """
        log = self.log
        if log and log[-1] is node and self.log_read < len(log):
            return
        log.append(node)
        if len(log) > 16 * len(self.nodes) + 1024:
            self._cut_log()

    def _cut_log(self) -> None:
        self.log.clear()
        self.log_read = 0
        self.epoch += 1


class ForeignPods:
    """The pods of other schedulers in one partition, by key, and the sum of their usage."""

    __slots__ = ("pods", "usage")

    def __init__(self, usage: Amounts) -> None:
        self.pods: dict[str, Foreign] = {}
        self.usage = usage


class NodeSlots:
    """The nodes of one partition, each at the index of its slot. The index is also the row of the node in the columns.

    A slot without a node contains None, and its index is in ``free``, for the next new node.
    """

    __slots__ = ("free", "nodes")

    def __init__(self) -> None:
        self.nodes: list[Node | None] = []
        self.free: list[int] = []
