"""The atomic step of a gang: all waiting members get their nodes, or nothing changes (design 6.11, J8)."""

from server.books import usage
from server.books.applications import Application, Ask, Job
from server.books.nodes import Node
from server.books.partition import Partition
from server.model.reasons import Code
from server.scheduling.placement import pick_node


def try_job(partition: Partition, job: Job) -> tuple[list[tuple[Ask, Node]], Code | None]:
    """A node for every waiting member, in ask order, or nothing and what stood in the way.

    The books are as before afterwards: members are charged one after another to find the next one's node,
    and all of it is taken back.
    """
    application = job.application
    placed: list[tuple[Ask, Node]] = []
    failure: Code | None = None
    for ask in job.members:
        node, failure = _seat(partition, application, ask)
        if node is None:
            break
        placed.append((ask, node))
    for ask, node in reversed(placed):
        _take_back(partition, application, ask, node)
    return ([], failure) if failure else (placed, None)


def _seat(
    partition: Partition, application: Application, ask: Ask
) -> tuple[Node | None, Code | None]:
    ask_class = ask.ask_class
    for limiter in application.limiters:
        if not limiter.has_room(ask_class):
            return None, Code.GANG_PARTIAL
    node = None if ask_class.dead else pick_node(partition.index, ask_class)
    if node is None:
        return None, Code.GANG_PARTIAL
    usage.fill(partition, node, ask_class.node_demand)
    for limiter in application.limiters:
        limiter.take(ask_class.demand)
    return node, None


def _take_back(partition: Partition, application: Application, ask: Ask, node: Node) -> None:
    freed = node.freed
    usage.empty(partition, node, ask.ask_class.node_demand)
    if not freed:
        partition.index.unmark_freed(node)
    for limiter in application.limiters:
        limiter.give(ask.ask_class.demand)
