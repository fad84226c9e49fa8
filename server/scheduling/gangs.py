"""The atomic step of a gang: all waiting members get their nodes, or nothing changes (design 6.11, J8)."""

from server.scheduling.placement import pick_node
from server.state.applications import Application, Ask, Gang
from server.state.nodes import Node
from server.state.partition import Partition


def try_gang(partition: Partition, gang: Gang) -> list[tuple[Ask, Node]]:
    """Return a node for every waiting member, in ask order. Return an empty list if any member gets no node.

    The live state is unchanged afterwards. While nodes are sought, each member is charged to its node and queues, so that the
    next member sees the capacity that is left. After the last member, all charges are undone.
    """
    application = gang.application
    assignments: list[tuple[Ask, Node]] = []
    for ask in gang.members:
        node = _assign(partition, application, ask)
        if node is None:
            break
        assignments.append((ask, node))
    for ask, node in reversed(assignments):
        _take_back(partition, application, ask, node)
    return assignments if len(assignments) == len(gang.members) else []


def _assign(partition: Partition, application: Application, ask: Ask) -> Node | None:
    ask_class = ask.ask_class
    limits = application.limits_of(ask_class)
    if ask_class.dead or not all(limiter.has_headroom(ask_class) for limiter in limits):
        return None
    node = pick_node(partition.index, ask_class)
    if node is not None:
        partition.index.fill(node, ask_class.node_demand)
        if ask_class.preferred is not None:
            partition.index.domains.add(ask, node)
        for limiter in limits:
            limiter.take(ask_class.demand)
    return node


def _take_back(partition: Partition, application: Application, ask: Ask, node: Node) -> None:
    freed = node.freed
    partition.index.domains.remove(ask)
    partition.index.empty(node, ask.ask_class.node_demand)
    if not freed:
        partition.index.unmark_freed(node)
    for limiter in application.limits_of(ask.ask_class):
        limiter.give(ask.ask_class.demand)
