"""The number of nodes for each reason why nodes cannot take a waiting ask, and the node that lacks least.

The module only reads the state.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from server.model.asks import Constraints, Toleration
from server.model.fit import Amounts, fits, shortfall
from server.state.applications import Ask
from server.state.constraints import matches
from server.state.nodes import Node
from server.state.partition import Partition

ANY_TAINT: Final = (Toleration(operator="Exists"),)
FITS: Final = "fits"
NOT_SCHEDULABLE: Final = "not-schedulable"
AVOIDED: Final = "avoided"
TOO_SMALL: Final = "too-small"
PORT: Final = "host-port"
RESERVED: Final = "reserved"
EXAMPLES_MAX: Final = 3
SHORT: Final = "short-"
"""The prefix of reasons about missing capacity.

After the prefix comes the name of the type of which the most is missing, relative to the node's capacity.
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of nodes for each reason why nodes cannot take a waiting ask, the most frequent reason first.

    A node counts only for the first reason that applies to the node. The reason FITS counts the nodes that can take the ask.

    ``examples`` names up to EXAMPLES_MAX nodes of each reason. ``nearest`` is the node that lacks least among the nodes that
    the constraints allow, or None if they allow no node. ``missing`` has the amounts that the nearest node lacks, by type.
    """

    counts: dict[str, int]
    examples: dict[str, tuple[str, ...]]
    nearest: Node | None
    missing: dict[str, int]


Part = tuple[str, Constraints]
_NO_PART: Final = Constraints(tolerations=ANY_TAINT)


def parts(constraints: Constraints) -> list[Part]:
    """Return the parts of a constraint that an explanation names, each with its name and as a separate constraint.

    Parts that exclude no node are left out.
    """
    names = Constraints(
        tolerations=ANY_TAINT,
        node_name=constraints.node_name,
        allowed_nodes=constraints.allowed_nodes,
        excluded_nodes=constraints.excluded_nodes,
        required_node=constraints.required_node,
    )
    every = [
        ("taint", Constraints(tolerations=constraints.tolerations)),
        ("node-selector", replace(_NO_PART, node_selector=constraints.node_selector)),
        ("node-affinity", replace(_NO_PART, required_terms=constraints.required_terms)),
        ("node-name", names),
    ]
    return [part for part in every if part[1] != _NO_PART]


def tally(partition: Partition, ask: Ask) -> Tally:
    """Return the number of nodes for each reason why nodes cannot take the ask."""
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    named = parts(ask.spec.constraints)
    nearest: tuple[bool, int, int, Node] | None = None
    for node in partition.index.nodes.values():
        why = _constraint(partition, named, ask, node)
        if not why:
            distance = _distance(ask, node)
            why = _capacity_reason(partition, ask, node)
            if nearest is None or distance[:3] < nearest[:3]:
                nearest = distance
        counts[why] += 1
        if counts[why] <= EXAMPLES_MAX:
            examples.setdefault(why, []).append(node.node_id)
    ordered = dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
    shown = {why: tuple(names) for why, names in examples.items()}
    if nearest is None:
        return Tally(ordered, shown, None, {})
    return Tally(ordered, shown, nearest[3], missing(partition, ask, nearest[3]))


def constraint_on(partition: Partition, ask: Ask, node: Node) -> str:
    """Return the part of the ask's constraints that excludes a node, or "" if no part excludes it."""
    return _constraint(partition, parts(ask.spec.constraints), ask, node)


def _constraint(partition: Partition, named: list[Part], ask: Ask, node: Node) -> str:
    """Return why a node does not take the ask, if the reason is not capacity.

    Return "" if only capacity is missing, or if the node takes the ask.
    """
    if not node.is_open_to(ask.spec.constraints):
        return NOT_SCHEDULABLE
    for name, part in named:
        if not matches(part, node.labels, node.taints, node.node_id):
            return name
    return AVOIDED if node.node_id in partition.avoided.get(ask.key, ()) else ""


def _distance(ask: Ask, node: Node) -> tuple[bool, int, int, Node]:
    """Return the sort key of a node, with the node at its end.

    Nodes on which the ask would fit if no pod ran there come first. Nodes that are too small for the ask come after them.
    Within these two sets, the node that lacks least comes first.
    """
    demand = ask.ask_class.node_demand
    free = free_for(ask, node)
    # If pledges exceed the free capacity, the excess is missing as well.
    wanted = [(index, quantity - min(free[index], 0)) for index, quantity in demand]
    misses = shortfall(tuple(wanted), node.capacity, free)
    return not fits(demand, node.capacity), misses, node.number, node


def _capacity_reason(partition: Partition, ask: Ask, node: Node) -> str:
    """Return why a node that the constraints allow lacks capacity for the ask. Return FITS if the ask fits."""
    demand = ask.ask_class.node_demand
    if not fits(demand, node.capacity):
        return TOO_SMALL
    free = free_for(ask, node)
    if fits(demand, free):
        return FITS
    if fits(demand, _unpledged(node)):
        return RESERVED
    lacks = [
        (((wanted - free[at]) << 20) // node.capacity[at], partition.types.names[at], at)
        for at, wanted in demand
        if free[at] < wanted
    ]
    _, kind, at = max(lacks)
    return PORT if partition.types.synthetic[at] else f"{SHORT}{kind}"


def free_for(ask: Ask, node: Node) -> Amounts:
    """Return a node's free capacity as the ask sees it: the ask's own pledge counts as free. The caller must not change the result."""
    held = node.pledges.get(ask.key)
    if held is None:
        return node.free
    free = list(node.free)
    for index, quantity in held.node_demand:
        free[index] += quantity
    return free


def _unpledged(node: Node) -> Amounts:
    free = list(node.free)
    for held in node.pledges.values():
        for index, quantity in held.node_demand:
            free[index] += quantity
    return free


def missing(partition: Partition, ask: Ask, node: Node) -> dict[str, int]:
    """Return the amounts that a node lacks now for the ask, by type.

    A missing port counts as 1 of the resource type that represents it.
    """
    free = free_for(ask, node)
    types = partition.types
    lacks = (
        (types.names[at], 1 if types.synthetic[at] else wanted - free[at])
        for at, wanted in ask.ask_class.node_demand
        if free[at] < wanted
    )
    return dict(sorted(lacks))
