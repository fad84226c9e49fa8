"""The nodes on which an ask could not be bound: the ask avoids them for a while, or until the node changes (design 1.8)."""

from server.state import journal
from server.state.partition import Partition


def over(partition: Partition, key: str, now: int) -> None:
    """Let an ask use those nodes again that it had to avoid until ``now`` or earlier."""
    avoided = partition.avoided.get(key)
    if avoided is None:
        return
    _avoid_only(partition, key, {node: until for node, until in avoided.items() if until > now})


def forget(partition: Partition, node_id: str) -> None:
    """Let all asks that avoid a node use it again, because the node has changed."""
    for key, avoided in list(partition.avoided.items()):
        if node_id in avoided:
            _avoid_only(
                partition, key, {node: until for node, until in avoided.items() if node != node_id}
            )


def _avoid_only(partition: Partition, key: str, avoided: dict[str, int]) -> None:
    if avoided:
        partition.avoided[key] = avoided
    else:
        partition.avoided.pop(key, None)
    ask = partition.asks.get(key)
    if ask is not None and ask.node is None:
        journal.reclassify(partition, ask)
        partition.relief += 1
