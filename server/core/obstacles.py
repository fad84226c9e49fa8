"""What stands in the way of a waiting ask: the first rule that fails, as a code. Looks only, touches no heap."""

from server.books.applications import Ask, Group, Job
from server.books.classes import AskClass
from server.books.commitments import Pledge
from server.books.constraints import matches
from server.books.nodes import Node
from server.books.partition import Partition
from server.books.queues import QueueState
from server.books.reserves import Hold, is_reserving
from server.books.snapshot import first_blocker
from server.core.state import State
from server.model.fit import fits
from server.model.reasons import Code


class Obstacles:
    """The obstacles of one partition's asks, each group and class looked at once while this lives."""

    def __init__(self, state: State, partition: Partition) -> None:
        self._partition = partition
        self._synced = state.synced(partition)
        self._groups: dict[Group | Job, Code] = {}
        self._classes: dict[AskClass, Code] = {}

    def code(self, ask: Ask) -> Code:
        """Why the ask waits; NOT_TRIED when nothing is known against it."""
        if not self._synced:
            return Code.NOT_SYNCED
        group = ask.group
        assert group is not None, f"ask {ask.key} waits"
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = self._of_group(group, ask)
        return found

    def _of_group(self, group: Group | Job, ask: Ask) -> Code:
        if is_stopped(self._partition, ask):
            return Code.QUEUE_STOPPED
        if isinstance(group, Job):
            return _of_job(self._partition, group)
        if ask.pledge is not None and ask.pledge.replaces:
            return Code.PLACEHOLDER_GOING
        limiter = first_blocker(ask)
        if limiter is not None:
            return limiter.code
        if not group.ask_class.dead and ask.pledge is None:
            return Code.NOT_TRIED
        return self._of_nodes(ask)

    def _of_nodes(self, ask: Ask) -> Code:
        """Asks that avoid nodes are judged by the constraints that they came with."""
        ask_class = ask.ask_class
        if ask.key in self._partition.avoided or ask.pledge is not None:
            return node_code(self._partition, ask)
        found = self._classes.get(ask_class)
        if found is None:
            found = self._classes[ask_class] = node_code(self._partition, ask)
        return found


def is_stopped(partition: Partition, ask: Ask) -> bool:
    """Does a queue on the ask's path, or the whole partition, place nothing any more?"""
    path = ask.application.leaf.path_up()
    return partition.retired or any(queue.state is QueueState.STOPPED for queue in path)


def _of_job(partition: Partition, job: Job) -> Code:
    if isinstance(job, Hold):
        reserving = is_reserving(job.application)
        return Code.PLACEHOLDERS_GATHERING if reserving else Code.PLACEHOLDER_AWAITED
    if not job.gathered:
        return Code.GANG_COUNTING if job in partition.gathering else Code.GANG_GATHERING
    return Code.GANG_PARTIAL if job.parked else Code.NOT_TRIED


def is_allowed(partition: Partition, ask: Ask, node: Node) -> bool:
    """Do the constraints that the ask came with allow the node? Nodes that it only avoids for now are allowed."""
    if ask.key not in partition.avoided:
        return ask.ask_class.mask.allows(node)
    return matches(ask.spec.constraints, node.labels, node.taints, node.node_id)


def node_code(partition: Partition, ask: Ask) -> Code:
    """Why no node takes the ask: there are none, none allows it, none is large enough, or none has free capacity now that is not reserved."""
    constraints = ask.spec.constraints
    found = {Code.NO_NODES}
    for node in partition.index.nodes.values():
        if node.is_open_to(constraints):
            found.add(Code.NO_NODE_CONSTRAINTS)
            if is_allowed(partition, ask, node):
                if fits(ask.ask_class.node_demand, node.capacity):
                    kept = any(True for _ in in_the_way(partition, ask))
                    return Code.CAPACITY_RESERVED if kept else Code.NO_NODE
                found.add(Code.NO_NODE_CAPACITY)
    return next(code for code in _NEAREST_FIRST if code in found)


def in_the_way(partition: Partition, ask: Ask) -> list[Pledge]:
    """The reservations without which the ask would fit on their nodes now, the first to end first."""
    found = [held for held in partition.reservations.values() if _keeps_off(partition, held, ask)]
    return sorted(found, key=lambda held: (held.commitment.expires_ms or 1 << 62, held.node.number))


def _keeps_off(partition: Partition, held: Pledge, ask: Ask) -> bool:
    node = held.node
    if held.ask is ask or not node.is_open_to(ask.spec.constraints):
        return False
    free = list(node.free)
    for index, quantity in held.node_demand:
        free[index] += quantity
    return fits(ask.ask_class.node_demand, free) and is_allowed(partition, ask, node)


_NEAREST_FIRST = (Code.NO_NODE_CAPACITY, Code.NO_NODE_CONSTRAINTS, Code.NO_NODES)
