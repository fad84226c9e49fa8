"""The shares by weight in placement: the order of queues, and the bounds of queues (W2, W5).

The queue with the lowest quotient of usage and entitlement is served first (W5). With plain shares (`proportion.demandcap:
false`), the deserved share of a leaf is also its bound. A share that its queue does not use therefore stays idle (W2).
Ancestors of leaves need no bound of their own, because each leaf stays within its deserved share.
"""

from typing import Final

from server.core.preemption.deficits import Shortage
from server.model.fit import Amounts, share
from server.preemption.proportion import Proportion
from server.snapshot.queues import Bounds, FrozenAmounts
from server.state import ranking, reranking, sharing, tree
from server.state.partition import Partition
from server.state.queues import Queue

NOT_SHARED: Final = 1 << 94
"""The divisor for a type of which a queue is entitled to no amount.

With this divisor, the share is 0 for any usage.
"""


def refresh(partition: Partition) -> bool:
    """Compute the order and the bounds of queues from demand, usage and capacity. The core calls this function before placement begins.

    Return whether bounds changed while the partition shares by weight. If bounds changed, promises that were within the earlier
    bounds may exceed the new bounds. If the partition no longer shares by weight, its bounds are removed, and the result is
    False, because removing a bound only adds headroom. The call takes little time if demand, usage and capacity are unchanged.
    """
    if not sharing.is_shared_out(partition):
        if partition.shared_for is not None or partition.deserved:
            partition.shared_for = None
            _bound(partition, {})
            reranking.rebuild(partition)
        return False
    before = partition.deserved
    state = _state(partition)
    if state != partition.shared_for:
        partition.shared_for = state
        shares = Shortage(partition).shares
        plain = not partition.spec.preemption.demand_cap
        _bound(partition, deserved(partition, shares) if plain else {})
        if partition.ranking_stale:
            reranking.rebuild(partition)
        _order(partition, shares)
    return partition.deserved is not before


def _state(partition: Partition) -> object:
    """Return a value that changes whenever the shares may change.

    A placement changes no share, because it turns demand into usage and leaves their sum unchanged.
    """
    pending = sharing.pending(partition)
    nothing = tuple(partition.types.zeros())
    return (
        partition.spec,
        sharing.total(partition),
        [
            (queue.path, queue.spec, *_wanted(queue, pending.get(queue.path, nothing)))
            for queue in partition.queues.values()
            if queue.leaf
        ],
    )


def _wanted(queue: Queue, pending: FrozenAmounts) -> tuple[int, ...]:
    lines = zip(queue.usage, queue.releasing, queue.promised, pending, strict=True)
    return tuple(used - going + promised + more for used, going, promised, more in lines)


def deserved(partition: Partition, shares: Proportion) -> dict[str, Bounds]:
    """Return the deserved share of each leaf, for partitions with plain shares (W2). Host ports have no bound."""
    ports = partition.types.synthetic
    return {
        path: tuple(
            None if port else one for port, one in zip(ports, shares.of(path).deserved, strict=True)
        )
        for path, queue in partition.queues.items()
        if queue.leaf
    }


def _bound(partition: Partition, bounds: dict[str, Bounds]) -> None:
    """Set the bounds of leaves to their deserved shares. If the bound of a leaf rises, the classes that the bound blocked are tried again."""
    if bounds != partition.deserved:
        partition.deserved = bounds
        tree.relimit(partition)


def _order(partition: Partition, shares: Proportion) -> None:
    for path, queue in partition.queues.items():
        if queue.parent is None:
            continue
        basis: Amounts = [amount or NOT_SHARED for amount in shares.entitled(path)]
        if basis != queue.basis:
            queue.compare(queue.measure, basis)
            queue.share = share(queue.usage, basis)
            if queue.entry is not None:
                ranking.renew_queue(queue.parent, queue)
