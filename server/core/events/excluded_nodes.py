"""The nodes on which an ask could not be bound.

The ask avoids each of these nodes for some time, or until the node changes (design 1.8).
"""

from typing import Final

from server.core.state import State
from server.model.asks import AVOIDED_NODES_MAX
from server.state import journal
from server.state.applications import Ask
from server.state.partition import Partition

AVOID_MS: Final = 60_000
"""The time for which an ask avoids a node that its manager refused (design 1.8)."""
TIMER: Final = "avoid"


def note(state: State, partition: Partition, ask: Ask, node_id: str, now: int) -> None:
    """Record that an ask avoids a node from this instant on. The caller must then give the ask its new equivalence class."""
    avoided = partition.avoided.setdefault(ask.key, {})
    avoided.pop(node_id, None)
    while len(avoided) >= AVOIDED_NODES_MAX:
        del avoided[next(iter(avoided))]
    avoided[node_id] = now + AVOID_MS
    state.at(now + AVOID_MS, TIMER, partition.name, ask.key)


def avoid(state: State, partition: Partition, ask: Ask, node_id: str, now: int) -> None:
    """Record that a waiting ask avoids a node for some time."""
    note(state, partition, ask, node_id, now)
    journal.reclassify(partition, ask)


def over(partition: Partition, key: str, now: int) -> None:
    """Let an ask use those nodes again that it has avoided for AVOID_MS."""
    avoided = partition.avoided.get(key)
    if avoided is None:
        return
    _avoid_only(partition, key, {node: until for node, until in avoided.items() if until > now})


def forget(partition: Partition, node_id: str) -> None:
    """Allow all asks that avoid a node to use the node again, because the node has changed."""
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
        # G11: tried again although the node did not change.
        if ask.spec.constraints.required_node not in avoided:
            partition.round.tries.see_node(ask, -1)
        journal.reclassify(partition, ask)
        partition.relief += 1
