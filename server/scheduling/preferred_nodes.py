"""The choice of a node for an ask with preferences: the highest score first, then the order of the node sorting policy (design 6.15).

Each class with preferences has heaps of its own. If the labels that the class reads have few different values, such as three
zones, the class has one heap for each value. At each choice, the scores of these heaps are compared. If the labels have many
values, as host names do, all nodes are in one heap, sorted by score. If the score of a node falls, its entry in the heap is
corrected when the entry comes to the top. If the score of a node rises, the class's heaps are built again. The score of a node
rises in two cases: a pod is placed and the class prefers to run near that pod, or a pod ends and the class prefers not to run
near that pod.
"""

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from server.state.equivalence import AskClass
from server.state.nodes import NUMBER_MASK, Node, NodeEntry, NodeIndex
from server.state.preferred import Alike, Preferred

BUCKETS_MAX: Final = 32
"""The largest number of different label values for which a class has one heap for each value."""
SAMPLE: Final = 100
"""The number of nodes whose label values are counted first.

If this sample has too many different values, the values of the remaining nodes are not counted.
"""
Takes = Callable[[Node], bool]


def best(index: NodeIndex, ask_class: AskClass, takes: Takes) -> Node | None:
    """Return the best-ranked node for the class among the nodes that ``takes`` accepts, or None if ``takes`` accepts no node.

    The class must have preferences.
    """
    preferred, names = ask_class.preferred, ask_class.mask.names
    assert preferred is not None
    if names is not None:
        named = (index.nodes.get(name) for name in names)
        return _least(
            index, preferred, (node for node in named if node is not None and takes(node))
        )
    _refresh(index, ask_class, preferred, takes)
    if preferred.buckets is None:
        return _top(index, preferred, takes)
    tops = [_first(index, preferred, bucket, takes) for bucket in preferred.buckets.items()]
    return _least(index, preferred, (node for node in tops if node is not None))


def _least(index: NodeIndex, preferred: Preferred, nodes: Iterable[Node]) -> Node | None:
    return min(nodes, key=lambda node: preferred.key(node, index.domains), default=None)


def _refresh(index: NodeIndex, ask_class: AskClass, preferred: Preferred, takes: Takes) -> None:
    """Bring the heaps of the class up to date: add the nodes that moved up in the node order since the last refresh.

    Build the heaps again instead if a score rose, or if that costs less.
    """
    has_risen = preferred.buckets is None and preferred.seen != preferred.steps(index.domains)
    better = None if has_risen else index.read_log(preferred, preferred.size)
    if better is None:
        _build(index, ask_class, preferred, takes)
        return
    for node in better:
        if takes(node):
            _push(index, preferred, node)


def _build(index: NodeIndex, ask_class: AskClass, preferred: Preferred, takes: Takes) -> None:
    nodes = [one for one in index.with_capacity_for(ask_class.node_demand) if takes(one)]
    index.mark_read(preferred)
    preferred.seen = preferred.steps(index.domains)
    preferred.size = len(nodes)
    preferred.heap, preferred.buckets = [], None
    if not preferred.reads_names:
        kinds = {preferred.alike(node) for node in islice(nodes, SAMPLE)}
        if len(kinds) <= BUCKETS_MAX:
            kinds = set(map(preferred.alike, nodes))
        if len(kinds) <= BUCKETS_MAX:
            preferred.buckets = {}
    if preferred.buckets is None:
        preferred.heap = [preferred.key(node, index.domains) for node in nodes]
        heapq.heapify(preferred.heap)
        return
    for node in nodes:
        if node.entry is not None:
            preferred.buckets.setdefault(preferred.alike(node), []).append(node.entry)
    for bucket in preferred.buckets.values():
        heapq.heapify(bucket)


def _push(index: NodeIndex, preferred: Preferred, node: Node) -> None:
    assert preferred.heap is not None
    preferred.size += 1
    if preferred.buckets is None:
        heapq.heappush(preferred.heap, preferred.key(node, index.domains))
    elif node.entry is not None:
        heapq.heappush(preferred.buckets.setdefault(preferred.alike(node), []), node.entry)


def _first(
    index: NodeIndex, preferred: Preferred, bucket: tuple[Alike, list[NodeEntry]], takes: Takes
) -> Node | None:
    """Return the best node of a bucket that ``takes`` accepts, or None. A bucket is the heap of all nodes with the same label values."""
    alike, heap = bucket
    while heap:
        node = index.numbered.get(heap[0] & NUMBER_MASK)
        if node is None or not takes(node) or preferred.alike(node) != alike:
            heapq.heappop(heap)  # the log lists the node when it can take the class again
        elif node.entry is None or node.entry == heap[0]:
            return node
        else:
            heapq.heapreplace(heap, node.entry)
    return None


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
