"""Checks of the node search (design 6.3-6.5, 6.10).

Ranks, heaps and masks agree with the nodes, and no unschedulable class fits on a node.
"""

from collections.abc import Callable

from server.model.asks import Constraints, Taint
from server.model.fit import Amounts, Demand, fits
from server.state.constraints import NodeMask, matches, mentioned
from server.state.domain_counts import DomainCounts, places_of
from server.state.equivalence import AskClass
from server.state.invariants.keys import class_name, live_classes
from server.state.invariants.order import is_heap
from server.state.nodes import NUMBER_MASK, LogReader, Node, NodeEntry, NodeIndex, entry_of
from server.state.partition import Partition

Sight = tuple[tuple[str | None, ...], tuple[Taint, ...]]
"""The part of a node that one constraint reads: values of label keys, and taints."""


def check_search(partition: Partition) -> None:
    """Assert that the order of nodes, the heap of each class, and the verdicts of constraints are correct."""
    index = partition.index
    _check_index(index)
    for mask in partition.constraint_index.masks.values():
        if mask.names is None or mask.anchor is not None:
            _check_mask(mask, index)
        if mask.names is None and mask.heap is not None and mask.log_epoch == index.epoch:
            _check_heap(index, mask, f"the mask of {mask.constraints}", mask.allows)
    _check_domains(partition)
    most_free = _most_free(partition)
    for ask_class in live_classes(partition):
        if ask_class.heap is not None and ask_class.log_epoch == index.epoch:
            _check_heap(index, ask_class, class_name(ask_class), _takers(ask_class))
        if ask_class.preferred is not None:
            _check_preferred(index, ask_class)
        if ask_class.dead and ask_class.pending and fits(ask_class.node_demand, most_free):
            _check_dead(index, ask_class)


# Nodes ----------------------------------------------------------------------------------------------------------


def _check_index(index: NodeIndex) -> None:
    """Assert that every schedulable node without an exclusive pledge has an entry with its present rank.

    In fair order, the shared heap must have this entry.
    """
    entered = 0
    standing = set(index.heap)
    freed = {id(node) for node in index.freed}
    for node in index.nodes.values():
        name = f"node {node.node_id}"
        assert node.freed == (id(node) in freed), (
            f"{name}: freed is {node.freed} and the list does not agree"
        )
        ranked = node.schedulable and not node.holds
        assert ranked == (node.entry is not None), (
            f"{name}: schedulable is {node.schedulable} with {node.holds} holds, not its entry"
        )
        assert node.opened or not node.schedulable, f"{name} is schedulable but was never opened"
        if node.entry is None:
            continue
        entered += 1
        want = entry_of(index.rank(node), node)
        assert node.entry == want, f"{name} is ranked by {node.entry}, not by {want}"
        assert index.numbered.get(node.number) is node, f"{name} is not found by its number"
        assert index.packing or node.entry in standing, (
            f"{name} has an entry that the shared heap lacks"
        )
    assert len(index.numbered) == entered, "nodes without an entry are found by their numbers"
    assert index.packing or is_heap(index.heap), "the shared heap of nodes is out of order"
    assert len(freed) == len(index.freed), "a node is listed twice as freed"


# Classes --------------------------------------------------------------------------------------------------------


def _takes(ask_class: AskClass, node: Node) -> bool:
    """Return whether the node can take an ask of the class now.

    The node must be open, the constraint must allow the node, and the capacity must be free.

    A pledge for the ask itself counts as free. If that pledge does not give way to claims, all other pledges on its node count
    as free, too. Return False for an ask that is placed together with other asks, or that replaces a placeholder.
    """
    held = ask_class.pledge
    if held is not None and held.commitment.together:
        return False  # the asks of such a decision are placed together, and are tried in each tick (J10)
    if held is not None and held.replaces:
        return False
    own = held is not None and held.node is node and not held.yields
    takes_own = own and (node.schedulable or node.takes_required(ask_class.constraints))
    if not takes_own and not node.is_open_to(ask_class.constraints):
        return False
    if not fits(ask_class.node_demand, _free_for(ask_class, node)):
        return False
    return ask_class.mask.allows(node)


def _free_for(ask_class: AskClass, node: Node) -> Amounts:
    held = ask_class.pledge
    if held is None or held.node is not node or held.yields:
        # An ask whose pledge yields gets its node only after asks of higher priority.
        return node.free
    free = list(node.free)
    for one in (held,) if held.reserves else node.pledges.values():
        _give(free, one.node_demand)
    return free


def _takers(ask_class: AskClass) -> Callable[[Node], bool]:
    """Return a function that says whether the class's own heap must contain a node.

    A node that is pledged to an ask of the class may be missing in the heap, because the pledge counts as free only when the ask is
    tried.
    """
    held = ask_class.pledge
    return lambda node: _takes(ask_class, node) and (held is None or held.node is not node)


def _check_heap(
    index: NodeIndex, keeper: AskClass | NodeMask, name: str, takes: Callable[[Node], bool]
) -> None:
    """Assert that each usable node has its present rank or a better one in the heap of a class or mask.

    The unread part of the log counts as part of the heap.

    ``takes`` says which nodes are usable.
    """
    assert keeper.heap is not None
    _check_all_ranked(index, keeper, name, takes, _ranked(index, keeper.heap, name))


def _ranked(index: NodeIndex, heap: list[NodeEntry], name: str) -> set[Node]:
    """Return the nodes whose rank in a heap is their present rank or a better one. Assert that the heap is in order."""
    assert is_heap(heap), f"the node heap of {name} is out of order"
    found = ((entry, index.numbered.get(entry & NUMBER_MASK)) for entry in heap)
    return {
        node
        for entry, node in found
        if node is not None and node.entry is not None and entry <= node.entry
    }


def _check_all_ranked(
    index: NodeIndex,
    reader: LogReader,
    name: str,
    takes: Callable[[Node], bool],
    ranked: set[Node],
) -> None:
    """Assert that each node that can be taken is among the ``ranked`` nodes of the reader's heap, or in the unread part of the log."""
    assert reader.cursor <= index.log_read <= len(index.log), (
        f"{name} has read further than the log is written"
    )
    known = ranked.union(index.log[reader.cursor :])
    for node in index.numbered.values():
        assert node in known or not takes(node), (
            f"node {node.node_id} fits {name}, whose heap ranks it too low"
        )


def _check_preferred(index: NodeIndex, ask_class: AskClass) -> None:
    """Assert that in the heap of a class with preferences, each node on which the class fits has its present rank or a better one.

    A heap that will be built again is exempt.
    """
    preferred, takes = ask_class.preferred, _takers(ask_class)
    assert preferred is not None
    heap = preferred.heap
    if (
        heap is None
        or preferred.log_epoch != index.epoch
        or (preferred.buckets is None and preferred.seen != preferred.steps(index.domains))
    ):
        return
    name = class_name(ask_class)
    assert is_heap(heap), f"the node heap of {name} is out of order"
    ranked: set[Node] = set()
    for key in heap:
        node = index.numbered.get(key[1] & NUMBER_MASK)
        if node is not None and key <= preferred.key(node, index.domains):
            ranked.add(node)
    for alike, bucket in (preferred.buckets or {}).items():
        found = _ranked(index, bucket, name)
        ranked |= {node for node in found if preferred.alike(node) == alike}
    _check_all_ranked(index, preferred, name, takes, ranked)


def _check_domains(partition: Partition) -> None:
    """Assert that the counts by topology domain agree with the allocations and the labels of their nodes."""
    want = DomainCounts()
    for node in partition.index.nodes.values():
        for ask in node.allocations.values():
            want.add(ask, node)
            found = partition.index.domains.places.get(ask, ())
            assert found == places_of(ask, node), f"{ask.key} counts in other domains: {found}"
    assert len(want.places) == len(partition.index.domains.places), "an ended allocation is counted"
    counts, wanted = (
        {at: one.by_domain for at, one in domains.by_group.items()}
        for domains in (partition.index.domains, want)
    )
    assert counts == wanted, f"the groups count {counts}, not {wanted}"


def _most_free(partition: Partition) -> Amounts:
    """Return, by type, the largest free capacity of an open node if pledges count as free."""
    most = [-1] * len(partition.types)
    for node in partition.index.nodes.values():
        if not node.opened:
            continue
        free = list(node.free)
        for held in node.pledges.values():
            _give(free, held.node_demand)
        most = [max(one, other) for one, other in zip(most, free, strict=True)]
    return most


def _give(free: Amounts, demand: Demand) -> None:
    for index, quantity in demand:
        free[index] += quantity


def _check_dead(index: NodeIndex, ask_class: AskClass) -> None:
    """Assert that no node can take an unschedulable class.

    There are two exceptions. First, a node whose capacity became free may take an unschedulable class until the unschedulable
    classes have been tested on this node. Second, the class of an ask with a reservation is not checked while asks of higher
    priority may use the reserved node first. In both cases, the classes are tested again in the next tick.
    """
    if ask_class.pledge is not None and ask_class.pledge.yields:
        return
    for node in index.nodes.values():
        waits = node.freed or node in index.reviving
        assert waits or not _takes(ask_class, node), (
            f"{class_name(ask_class)} is dead, but node {node.node_id} fits"
        )


# Constraints ----------------------------------------------------------------------------------------------------


def _check_mask(mask: NodeMask, index: NodeIndex) -> None:
    """Assert that the verdict of a constraint on each node agrees with the node's labels, taints and name."""
    constraints = mask.constraints
    keys = mentioned(constraints)
    by_name = bool(constraints.excluded_nodes) or any(
        term.match_fields for term in constraints.required_terms
    )
    verdicts: dict[Sight, bool] = {}
    for node in index.nodes.values():
        want = _verdict(constraints, node, keys, None if by_name else verdicts)
        assert mask.names is not None or node.slot < len(mask.allowed), (
            f"the mask of {constraints} does not reach node {node.node_id}"
        )
        assert mask.allows(node) == want, (
            f"the mask of {constraints} is wrong for node {node.node_id}"
        )


def _verdict(
    constraints: Constraints, node: Node, keys: list[str], verdicts: dict[Sight, bool] | None
) -> bool:
    if verdicts is None:
        return matches(constraints, node.labels, node.taints, node.node_id)
    seen: Sight = (tuple(node.labels.get(key) for key in keys), node.taints)
    if seen not in verdicts:
        verdicts[seen] = matches(constraints, node.labels, node.taints, node.node_id)
    return verdicts[seen]
