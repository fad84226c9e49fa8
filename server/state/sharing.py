"""The amounts that a partition divides among its queues, and the amounts that its leaves request beyond their usage (W1, W2)."""

from server.model.fit import Amounts
from server.snapshot.queues import FrozenAmounts
from server.state.partition import Partition
from server.state.queues import Queue


def is_shared_out(partition: Partition) -> bool:
    """Return whether the queues of the partition are entitled to shares by weight."""
    return partition.spec.preemption.entitlement == "proportional"


def total(partition: Partition) -> FrozenAmounts:
    """Return the allocatable amounts of the nodes that take placements, minus the amounts that foreign pods use there (W2).

    Host ports are left out.
    """
    sums = _whole(partition)
    for node in partition.index.nodes.values():
        if not node.schedulable:
            for index, quantity in enumerate(node.capacity):
                sums[index] -= quantity
            for pod in node.foreign.values():
                for index, quantity in pod.demand:
                    sums[index] += quantity
    return _without_ports(partition, sums)


def whole(partition: Partition) -> FrozenAmounts:
    """Return the result of `total` plus the amounts of drained nodes (W3).

    The amounts of drained nodes are included because pods on drained nodes keep running there.
    """
    return _without_ports(partition, _whole(partition))


def _whole(partition: Partition) -> Amounts:
    pairs = zip(partition.capacity, partition.foreign.usage, strict=True)
    return [capacity - foreign for capacity, foreign in pairs]


def _without_ports(partition: Partition, sums: Amounts) -> FrozenAmounts:
    ports = partition.types.synthetic
    return tuple(0 if port else amount for amount, port in zip(sums, ports, strict=True))


def is_too_much_used(partition: Partition) -> bool:
    """Return whether usage exceeds capacity in some type.

    Usage can exceed capacity after a race between placements and reports, or if nodes became smaller (W3). The usage of victims
    that are being released does not count. The compared capacity is the result of `whole`.
    """
    root = partition.root
    lines = zip(root.usage, root.releasing, whole(partition), strict=True)
    return any(used - going > there for used, going, there in lines)


def pending(partition: Partition) -> dict[str, FrozenAmounts]:
    """Return, for each leaf, the amounts that its waiting asks request (W1).

    The amounts of pledges for these asks are subtracted, but not those of pledges that give way to claims.

    Leaves without waiting asks are left out.
    """
    leaves = [queue for queue in partition.queues.values() if queue.leaf and queue.pending_asks]
    sums = {leaf.path: _pending(partition, leaf) for leaf in leaves}
    for held in partition.decisions.pledges.values():
        line = sums.get(held.ask.application.leaf.path)
        if line is not None and not held.reserves:
            for index, quantity in held.demand:
                line[index] -= quantity
    return {path: tuple(line) for path, line in sums.items()}


def _pending(partition: Partition, leaf: Queue) -> Amounts:
    sums = partition.types.zeros()
    for ask_class, count in leaf.pending.items():
        for index, quantity in ask_class.demand:
            sums[index] += quantity * count
    return sums
