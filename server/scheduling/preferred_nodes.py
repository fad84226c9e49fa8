"""The choice of a node for an ask with preferences: the highest score first, then the order of the node sorting policy (design 6.15).

A class with preferences has a heap of its own. A score that falls is corrected when its node comes to the top of the heap. A score
that rises would be missed there, so the heap is built again: after a placement of a group that the class prefers to be near, and
after the end of an allocation of a group that it prefers to be apart from.
"""

import heapq
from collections.abc import Callable, Iterable

from server.state.equivalence import AskClass
from server.state.nodes import HEAP_SLACK, NUMBER_MASK, Node, NodeIndex
from server.state.preferred import Preferred

Takes = Callable[[Node], bool]


def best(index: NodeIndex, ask_class: AskClass, takes: Takes) -> Node | None:
    """Return the node with the best key among those that take the class; None if no node takes it. The class must have preferences."""
    preferred, names = ask_class.preferred, ask_class.mask.names
    assert preferred is not None
    if names is not None:
        named = (index.nodes.get(name) for name in names)
        return _least(
            index, preferred, (node for node in named if node is not None and takes(node))
        )
    _refresh(index, ask_class, preferred, takes)
    return _top(index, preferred, takes)


def _least(index: NodeIndex, preferred: Preferred, nodes: Iterable[Node]) -> Node | None:
    return min(nodes, key=lambda node: preferred.key(node, index.domains), default=None)


def _refresh(index: NodeIndex, ask_class: AskClass, preferred: Preferred, takes: Takes) -> None:
    """Add to the class's heap the nodes that became better since the last refresh, or build it if a score rose or that is cheaper."""
    log, heap = index.log, preferred.heap
    behind = len(log) - preferred.cursor
    if (
        heap is None
        or preferred.log_epoch != index.epoch
        or preferred.seen != preferred.steps(index.domains)
        or (behind and len(heap) + behind > 2 * len(index.nodes) + HEAP_SLACK)
    ):
        fitting = index.with_capacity_for(ask_class.node_demand)
        heap = [preferred.key(node, index.domains) for node in fitting if takes(node)]
        heapq.heapify(heap)
        preferred.heap = heap
        preferred.log_epoch = index.epoch
        preferred.seen = preferred.steps(index.domains)
    else:
        for node in dict.fromkeys(log[preferred.cursor :]):
            if takes(node):
                heapq.heappush(heap, preferred.key(node, index.domains))
    preferred.cursor = index.log_read = len(log)


def _top(index: NodeIndex, preferred: Preferred, takes: Takes) -> Node | None:
    heap = preferred.heap
    assert heap is not None
    while heap:
        node = index.numbered.get(heap[0][1] & NUMBER_MASK)
        if node is None or not takes(node):
            heapq.heappop(heap)  # the log lists the node when it can take the class again
            continue
        key = preferred.key(node, index.domains)
        if key == heap[0]:
            return node
        heapq.heapreplace(heap, key)
    return None
