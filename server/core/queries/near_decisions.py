"""The rank of a running allocation in the latest decisions that evicted other pods on its node or in its queue.

The rank says why the allocation was not evicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from server.model.quota import is_below
from server.model.ranking import NOT_CHOSEN, NOT_NEEDED, Rank, Ranked, Ranking, Rival
from server.model.records import DecisionRecord
from server.state.applications import Ask
from server.state.partition import Partition

NODE_KEYS: Final = ("opted-out", "originators", "priority", "victims", "excess")
"""The names of the sort keys by which nodes are compared (G8), in the order of the fields of `Rival`."""
ALLOCATION_KEY: Final = "allocation-key"
"""The name of the last sort key of every order."""


@dataclass(frozen=True, slots=True)
class NotEvicted:
    """The reason why a decision did not evict an allocation.

    ``rule`` is the rule that protected the allocation, or "" if no rule is known. ``place`` is the allocation's rank among
    ``total`` candidates, 0 if the allocation is not ranked. ``key`` is the name of the sort key that decided: the first key in
    which the allocation differs from ``victim``, or in which the allocation's node differs from the chosen ``node``. ``own`` is
    the value of the allocation or its node for that sort key, and ``other`` is the value of ``victim`` or ``node``. ``before``
    says that the allocation ranks before every victim. In that case no sort key decided, because a set of victims without the
    allocation was better.
    """

    record: DecisionRecord
    rule: str
    place: int
    total: int
    key: str = ""
    own: Rank = 0
    other: Rank = 0
    victim: str = ""
    node: str = ""
    before: bool = False


def not_evicted(partition: Partition, ask: Ask) -> list[NotEvicted]:
    """Return why the allocation was not evicted by the latest decisions that considered it.

    There are at most two such decisions: the latest decision that considered the allocation's node, and the latest decision
    that considered the allocation's queue but not its node.

    Only decisions with victims that were made since the allocation was placed are considered. A decision that evicted the
    allocation is left out of the result.
    """
    here, queue = "", ""
    found: list[NotEvicted] = []
    for record, ranking in _rankings(partition, ask):
        on_node = ask.node is not None and ask.node.node_id in ranking.nodes
        if on_node and not here:
            here = record.decision_id
        elif not on_node and not queue and _concerns(ranking, ask.application.leaf.path):
            queue = record.decision_id
        else:
            continue
        if not any(one.key == ask.key for one in record.victims):
            found.append(_stood(record, ranking, ask))
        if here and queue:
            break
    return found


def _rankings(partition: Partition, ask: Ask) -> Iterator[tuple[DecisionRecord, Ranking]]:
    """Yield the decisions with victims that were made since the allocation was placed, the latest first."""
    for decision_id, record in reversed(partition.decisions.records.items()):
        ranking = partition.decisions.rankings.get(decision_id)
        if ranking is not None and record.victims and record.at_ms >= ask.placed_ms:
            yield record, ranking


def _concerns(ranking: Ranking, leaf: str) -> bool:
    if ranking.queue:
        return is_below(leaf, ranking.queue)
    return leaf in ranking.queues


def _stood(record: DecisionRecord, ranking: Ranking, ask: Ask) -> NotEvicted:
    assert ask.node is not None, "an allocation has a node"
    place, rule = ranking.place(ask.key), ranking.rules.get(ask.key, "")
    rule = rule or _named(record, ask.key)
    if not place or rule not in {"", NOT_NEEDED}:
        rule = rule or _of_its_queue(record, ranking, ask)
        beyond = ranking.nodes and ask.node.node_id not in ranking.nodes
        if rule == NOT_CHOSEN or (beyond and not rule):
            return _of_its_node(record, ranking, ask.node.node_id)
        return NotEvicted(record, rule, place, ranking.total)
    return _ranked(record, ranking, place)


def _named(record: DecisionRecord, key: str) -> str:
    """Return the rule that protected the allocation according to the record. Return "" if the record names no such rule."""
    return next((one.law for one in record.spared if key in one.keys), "")


def _of_its_queue(record: DecisionRecord, ranking: Ranking, ask: Ask) -> str:
    """Return the rule that all protected pods of the allocation's queue have in common. Return "" if there are several rules."""
    leaf = ask.application.leaf.path
    rules = {one.law for one in record.spared if one.queue == leaf}
    if ranking.elsewhere.get(leaf):
        rules.add(NOT_CHOSEN)
    return rules.pop() if len(rules) == 1 else ""


def _of_its_node(record: DecisionRecord, ranking: Ranking, node_id: str) -> NotEvicted:
    """Return the reason why another node was chosen.

    If both nodes are ranked, the reason has the first sort key in which they differ.
    """
    chosen = ranking.nodes[0]
    found = NotEvicted(record, NOT_CHOSEN, 0, ranking.total, node=chosen)
    rivals = {one.node_id: one for one in ranking.rivals}
    if node_id not in rivals or chosen not in rivals:
        return found
    own, other = rivals[node_id], rivals[chosen]
    at = first_difference(own, other)
    key = NODE_KEYS[at] if at < len(NODE_KEYS) else "node"
    return NotEvicted(record, NOT_CHOSEN, 0, ranking.total, key, own[at], other[at], node=chosen)


def _ranked(record: DecisionRecord, ranking: Ranking, place: int) -> NotEvicted:
    """Return a comparison of the allocation with the last victim that ranks before it.

    If every victim ranks after the allocation, the result names the first victim, and the name of the sort key is "".
    """
    victims = {one.key for one in record.victims}
    at = place - 1 - ranking.start
    taken = [number for number, one in enumerate(ranking.ranked) if one[-1] in victims]
    ahead = [number for number in taken if number < at]
    own = ranking.ranked[at]
    if not ahead:
        first = str(ranking.ranked[taken[0]][-1]) if taken else ""
        return NotEvicted(
            record, NOT_NEEDED, place, ranking.total, victim=first, before=bool(taken)
        )
    other = ranking.ranked[ahead[-1]]
    told = difference_of(ranking, own, other)
    return NotEvicted(record, NOT_NEEDED, place, ranking.total, *told, victim=str(other[-1]))


def difference_of(ranking: Ranking, own: Ranked, other: Ranked) -> tuple[str, Rank, Rank]:
    """Return the name of the first sort key in which two candidates differ, and the values of the two candidates for this key."""
    which = first_difference(own, other)
    key = ranking.keys[which] if which < len(ranking.keys) else ALLOCATION_KEY
    return key, own[which], other[which]


def first_difference(own: Ranked | Rival, other: Ranked | Rival) -> int:
    """Return the first position at which two lists of values differ. The lists must differ somewhere."""
    pairs = zip(own, other, strict=True)
    return next(at for at, (one, another) in enumerate(pairs) if one != another)
