"""The amounts by which nodes and limits of a partition are overdrawn."""

from server.state.invariants.capacity import all_limiters, limit_name
from server.state.partition import Partition


def overdrafts(partition: Partition) -> dict[str, int]:
    """Return how far nodes and limits are overdrawn, without pledges and promises; keys are of the form "node NAME: TYPE".

    Resized and recovered pods, foreign pods, smaller nodes and lowered limits may overdraw, and the state does not
    remember the cause. The core itself must not overdraw in a tick: no number may appear or grow during a tick.
    """
    found: dict[str, int] = {}
    names = partition.types.names
    for node in partition.index.nodes.values():
        free = list(node.free)
        for held in node.pledges.values():
            for index, quantity in held.node_demand:
                free[index] += quantity
        found |= {
            f"node {node.node_id}: {names[i]}": -free[i] for i in range(len(free)) if free[i] < 0
        }
    for limiter in all_limiters(partition):
        promised = limiter.queue.promised if limiter.kind == "queue" else [0] * len(names)
        headroom = [one + other for one, other in zip(limiter.headroom, promised, strict=True)]
        found |= {
            f"{limit_name(limiter)}: {names[i]}": -headroom[i]
            for i in range(len(headroom))
            if headroom[i] < 0
        }
    return found
