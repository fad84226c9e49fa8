"""The choice of a node for an ask: the best-ranked schedulable node on which the ask's class fits (O5, design 6.3).

For an ask with preferences, `preferred_nodes` ranks the nodes.

`pick_node` chooses the node for one ask, and `take_nodes_fast` chooses the nodes for many asks. All other public functions test
whether a given node can take an ask. In some of these tests, the capacity that the ask's pledge keeps counts as free.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from server.model.fit import Amounts, Demand, fits, score
from server.scheduling import preferred_nodes
from server.state.commitments import Commitment, Pledge
from server.state.constraints import NodeMask
from server.state.equivalence import AskClass
from server.state.nodes import (
    NUMBER_BITS,
    NUMBER_MASK,
    LogReader,
    Node,
    NodeEntry,
    NodeIndex,
    entry_of,
)

MISSES_MAX: Final = 12
"""The number of nodes of the shared heap that may be too small for a class before the class gets a separate heap."""

_NO_ENTRY: Final[NodeEntry] = NUMBER_MASK
"""A value in place of a node's entry if there is no node. Its arrival number belongs to no node."""

Takes = Callable[[Node], bool]


class Keeper(LogReader, Protocol):
    """The owner of a separate heap of nodes, that is, of a heap other than the heap that all classes share.

    The owner is an equivalence class, or a node mask (the nodes that one constraint allows), which several classes may share.
    """

    heap: list[NodeEntry] | None


def pick_node(index: NodeIndex, ask_class: AskClass) -> Node | None:
    """Return the node for one ask of the class.

    Return None if no node can take the ask now.

    Usually the node on top of the shared heap can take the class. That node is then the best node, and no search is needed.
    """
    if ask_class.pledge is not None:
        return _pick_reserved(index, ask_class)
    heap, mask = index.heap, ask_class.mask
    if heap and mask.names is None and not index.packing and ask_class.preferred is None:
        entry = heap[0]
        node = index.numbered.get(entry & NUMBER_MASK)
        if node is not None and node.entry == entry and mask.allowed[node.slot]:
            free = node.free
            for at, quantity in ask_class.node_demand:
                if free[at] < quantity:
                    break
            else:
                return node
    return _search(index, ask_class)


def take_nodes_fast(index: NodeIndex, classes: Iterable[AskClass]) -> list[Node]:
    """Return a node for each class in turn, until a class finds no node. No class may have a pledge or preferences.

    Each node is charged with its ask before the next node is chosen. In the usual case, the function chooses and charges a node
    in its own loop, and so avoids the cost of calling `pick_node` and `NodeIndex.fill`. Use the function for large batches, of
    tens of thousands of asks.
    """
    nodes: list[Node] = []
    numbered, dirty, packing = index.numbered, index.dirty, index.packing
    for ask_class in classes:
        demand, mask, heap = ask_class.node_demand, ask_class.mask, index.heap
        usual = heap and mask.names is None and not packing
        entry = heap[0] if usual else _NO_ENTRY
        node = numbered.get(entry & NUMBER_MASK)
        if node is not None and node.entry == entry and mask.allowed[node.slot]:
            free = node.free
            for at, quantity in demand:
                left = free[at] - quantity
                if left < 0:
                    _put_back(free, demand, at)
                    break
                free[at] = left
            else:
                points = 0
                for at, weight, whole, shift, base in node.parts:
                    points += weight * (((whole - free[at]) << shift) // base)
                node.entry = entry = (points << NUMBER_BITS) + node.number
                heapq.heapreplace(heap, entry)
                dirty[node.slot] = node
                nodes.append(node)
                continue
        node = _search(index, ask_class)
        if node is None:
            break
        index.fill(node, demand)
        nodes.append(node)
    return nodes


def _put_back(free: Amounts, demand: Demand, until: int) -> None:
    """Add the first ``until`` items of the demand back to the free amounts."""
    for at, quantity in demand:
        if at == until:
            return
        free[at] += quantity


def _search(index: NodeIndex, ask_class: AskClass) -> Node | None:
    """Return the node for one ask of the class, from the heaps that classes share or from the class's own heap.

    Return None if no node takes the ask.

    If nodes are sorted by `fair`, a class uses the shared heaps while it finds a node in them after few attempts. A class whose
    constraints exclude the first nodes of the shared heap uses the heap of all nodes that its mask allows. A class that is too
    large for the first nodes gets a separate heap.
    """
    if ask_class.preferred is not None:
        return _pick_preferred(index, ask_class)
    if ask_class.mask.names is not None:
        return _pick_named(index, ask_class)
    if ask_class.heap is None:
        if _exceeds_failed(index, ask_class):
            return None
        if not index.packing:
            node, settled = _pick_together(index, ask_class)
            if settled:
                return node
        _build_own(index, ask_class)
    node = _pick_own(index, ask_class)
    if node is None:
        _note_failed(index, ask_class)
    return node


def _pick_preferred(index: NodeIndex, ask_class: AskClass) -> Node | None:
    """Return the node that an ask with preferences takes, or None if no node takes the ask."""
    named = ask_class.mask.names is not None
    if not named and _exceeds_failed(index, ask_class):
        return None
    node = preferred_nodes.best(index, ask_class, partial(may_take, ask_class))
    if node is None and not named:
        _note_failed(index, ask_class)
    return node


def _pick_together(index: NodeIndex, ask_class: AskClass) -> tuple[Node | None, bool]:
    """Return the node from the heaps that classes share, or None, and whether that result is final.

    If the result is not final, the class needs a separate heap.
    """
    mask = ask_class.mask
    if mask.heap is None:
        node, missed = _pick_shared(index, index.heap, ask_class)
        if not missed or not _is_kept_off(index, mask, missed):
            return node, not missed
    _refresh(index, mask, mask.allows, partial(_build_masked, index, mask))
    assert mask.heap is not None
    node, missed = _pick_shared(index, mask.heap, ask_class)
    return node, not missed


def _note_failed(index: NodeIndex, ask_class: AskClass) -> None:
    """Record that no node has free capacity for the class now."""
    mask = ask_class.mask
    mask.failed, mask.failed_at = ask_class.node_demand, (index.epoch, len(index.log))
    index.log_read = len(index.log)


def _exceeds_failed(index: NodeIndex, ask_class: AskClass) -> bool:
    """Return whether an equal or smaller demand with the same node mask found no node, and no node has gained capacity since then.

    Many asks of different sizes that fit nowhere thus need only one search of the nodes, instead of one search for each size.
    """
    mask = ask_class.mask
    if mask.failed is None or mask.failed_at != (index.epoch, len(index.log)):
        return False
    wanted = dict(ask_class.node_demand)
    return all(wanted.get(at, 0) >= quantity for at, quantity in mask.failed)


def _is_kept_off(index: NodeIndex, mask: NodeMask, missed: Iterable[NodeEntry]) -> bool:
    """Return whether the mask excludes one of the nodes in ``missed``, the nodes of the shared heap that did not take the class."""
    return not all(mask.allowed[index.numbered[entry & NUMBER_MASK].slot] for entry in missed)


def may_take(ask_class: AskClass, node: Node) -> bool:
    """Return whether the node can take one ask of the class now. All pledges count as used, even the ask's own."""
    return (
        (node.entry is not None or node.is_open_to(ask_class.constraints))
        and fits(ask_class.node_demand, node.free)
        and ask_class.mask.allows(node)
    )


def could_take(ask_class: AskClass, node: Node) -> bool:
    """Return whether the node can take one ask.

    On a node with a pledge for the ask, the capacity of that pledge counts as free (design 6.6).
    """
    held = ask_class.pledge
    if held is not None and held.replaces:
        return False
    if held is not None and held.commitment.together:
        return held.node is node and fits_pledged(ask_class, held)
    if held is None or held.node is not node or may_take(ask_class, node):
        return may_take(ask_class, node)
    return fits_pledged(ask_class, held)


def fits_pledged(ask_class: AskClass, held: Pledge) -> bool:
    """Return whether the ask fits now on the node of its pledge. For a gang member, all members have to fit.

    An ask that replaces a placeholder does not fit before the end of the placeholder is confirmed. An ask whose reservation has
    to wait for asks of higher priority (``yields``) does not fit before those asks have been tried.
    """
    if held.commitment.together:
        return all_fit(held.commitment)
    return not (held.replaces or held.yields) and has_pledged_capacity(ask_class, held)


def has_pledged_capacity(ask_class: AskClass, held: Pledge) -> bool:
    """Return whether the pledged amounts are free on the node, and the node still takes the ask."""
    free = unpledged(held.node, held)
    return _is_open(ask_class, held) and fits(ask_class.node_demand, free)


def _is_open(ask_class: AskClass, held: Pledge) -> bool:
    node = held.node
    own = node.holds > 0 and (node.schedulable or node.takes_required(ask_class.constraints))
    open_to_it = own or node.is_open_to(ask_class.constraints)
    return open_to_it and ask_class.mask.allows(node)


def all_fit(commitment: Commitment) -> bool:
    """Return whether all asks of a decision fit now together, on their nodes and under their limits (J10)."""
    if commitment.suspended or _is_short_still(commitment):
        return False
    held = list(commitment.pledges.values())
    if not all(_is_open(one.ask.ask_class, one) for one in held):
        return False
    wanted: dict[Node, Counter[int]] = {}
    charged: Counter[int] = Counter()
    for one in held:
        wanted.setdefault(one.node, Counter()).update(dict(one.node_demand))
        charged.update(dict(one.demand))
    free = {one.node: unpledged(one.node, one) for one in held}
    for one in held:
        if not fits(tuple(wanted[one.node].items()), free[one.node]):
            commitment.short = one
            return False
    return all(one.holds_all(charged) for one in held[0].ask.application.limiters)


def _is_short_still(commitment: Commitment) -> bool:
    """Return whether the node that lacked capacity in the last test still lacks capacity.

    If so, the members need not be tested again.
    """
    short = commitment.short
    if short is None or short.ask.key not in commitment.pledges:
        return False
    wanted: Counter[int] = Counter()
    for one in short.node.pledges.values():
        if one.commitment is commitment:
            wanted.update(dict(one.node_demand))
    return not fits(tuple(wanted.items()), unpledged(short.node, short))


def unpledged(node: Node, held: Pledge) -> Amounts:
    """Return, by type, a node's free capacity for the holder of a pledge. The holder's own pledge counts as free.

    For the pledge of a decision, the other pledges of the node also count as free, because the decision considered these
    pledges when it was made. If the decision's ask uses the capacity of these other pledges first, their asks get the capacity
    of the decision's victims later.
    """
    free = list(node.free)
    for one in (held,) if held.reserves else node.pledges.values():
        for at, quantity in one.node_demand:
            free[at] += quantity
    return free


def _pick_shared(
    index: NodeIndex, heap: list[NodeEntry], ask_class: AskClass
) -> tuple[Node | None, Sequence[NodeEntry]]:
    """Return the best node that takes the class among the first nodes of a shared heap, and the nodes that did not take it.

    The nodes that did not take the class are returned only if the search gave up after MISSES_MAX nodes, so that the class
    should use another heap. Otherwise the returned list of nodes is empty.
    """
    demand, allowed = ask_class.node_demand, ask_class.mask.allowed
    misses: list[NodeEntry] = []
    found: Node | None = None
    gives_up = False
    while heap:
        entry = heap[0]
        node = index.numbered.get(entry & NUMBER_MASK)
        if node is None or node.entry != entry:
            _mend(heap, node)
            continue
        if allowed[node.slot] and fits(demand, node.free):
            found = node
            break
        if len(misses) == MISSES_MAX:
            gives_up = True
            break
        misses.append(heapq.heappop(heap))
    for entry in misses:
        heapq.heappush(heap, entry)
    return found, misses if gives_up else ()


def _mend(heap: list[NodeEntry], node: Node | None) -> None:
    """Remove the outdated entry on top of a heap of nodes.

    Put the present entry of its node into the heap instead, unless the node has been removed or takes no placements.
    """
    if node is None or node.entry is None:
        heapq.heappop(heap)
    else:
        heapq.heapreplace(heap, node.entry)


def _build_own(index: NodeIndex, ask_class: AskClass) -> None:
    """Build the separate heap of a class: the nodes on which the class fits, found in one scan of the free capacity of all nodes.

    Usually few or no nodes fit.
    """
    fitting = index.with_capacity_for(ask_class.node_demand)
    _build_heap(index, ask_class, (node for node in fitting if ask_class.mask.allows(node)))


def _build_masked(index: NodeIndex, mask: NodeMask) -> None:
    _build_heap(index, mask, filter(mask.allows, index.numbered.values()))


def _build_heap(index: NodeIndex, keeper: Keeper, nodes: Iterable[Node]) -> None:
    heap = [node.entry for node in nodes if node.entry is not None]
    heapq.heapify(heap)
    keeper.heap = heap
    index.mark_read(keeper)


def _refresh(index: NodeIndex, keeper: Keeper, takes: Takes, build: Callable[[], None]) -> None:
    """Add to the keeper's heap the nodes that moved up in the node order since the last refresh.

    Rebuild the heap instead if that is cheaper.
    """
    heap = keeper.heap
    better = None if heap is None else index.read_log(keeper, len(heap))
    if heap is None or better is None:
        build()
        return
    for node in better:
        if node.entry is not None and takes(node):
            heapq.heappush(heap, node.entry)


def _pick_own(index: NodeIndex, ask_class: AskClass) -> Node | None:
    if ask_class.cursor != len(index.log) or ask_class.log_epoch != index.epoch:
        build = partial(_build_own, index, ask_class)
        _refresh(index, ask_class, partial(may_take, ask_class), build)
    heap = ask_class.heap
    assert heap is not None
    while heap:
        entry = heap[0]
        node = index.numbered.get(entry & NUMBER_MASK)
        if node is not None and node.entry == entry:
            if may_take(ask_class, node):
                return node
            heapq.heappop(heap)
        elif index.packing:
            # The log has an entry for each change, so the node's present entry is in the heap as well.
            heapq.heappop(heap)
        else:
            _mend(heap, node)
    return None


def _pick_named(index: NodeIndex, ask_class: AskClass) -> Node | None:
    """Return the best of the nodes that the class requires by name and that can take the class, or None.

    Nodes that the class does not name are not tested.
    """
    best: Node | None = None
    for name in ask_class.mask.names or ():
        node = index.nodes.get(name)
        if node is None or not may_take(ask_class, node):
            continue
        if best is None or best.entry is None or node.entry is None or node.entry < best.entry:
            best = node
    return best


def _pick_reserved(index: NodeIndex, ask_class: AskClass) -> Node | None:
    """Return the node for an ask with a pledge: the node of the pledge, or any node that takes the ask.

    Return None if the ask has to wait.

    The pledge counts as free for the ask (design 6.6). If a decision freed capacity for the ask, the ask takes that capacity
    (G10). If the pledge is a reservation, the reserved node is ranked among the other nodes. An ask whose reservation has to
    wait for asks of higher priority (``yields``) is tried after all asks that outrank it.
    """
    held = ask_class.pledge
    assert held is not None
    if held.replaces or held.yields:
        return None
    if held.commitment.together:
        return held.node if fits_pledged(ask_class, held) else None
    other, node = _search(index, ask_class), held.node
    if not fits_pledged(ask_class, held):
        return other
    if other is None or other is node or other.entry is None or not held.reserves:
        return node
    points = score(node.capacity, unpledged(node, held), index.weights)
    rank = -points if index.packing else points
    if ask_class.preferred is not None:
        mine, others = (ask_class.preferred.score(one, index.domains) for one in (node, other))
        if mine != others:
            return node if mine > others else other
    return node if entry_of(rank, node) < other.entry else other
