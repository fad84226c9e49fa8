"""The sentence that says whether preferences of an allocation decided on which node the allocation was placed.

The module only reads the state.
"""

from collections.abc import Iterator

from server.core.wait_reasons.obstacles import is_allowed
from server.scheduling.placement import may_take
from server.state.applications import Ask
from server.state.domain_counts import Place
from server.state.nodes import Node
from server.state.partition import Partition


def preference_lines(partition: Partition, ask: Ask, node: Node) -> Iterator[str]:
    """Yield a sentence that compares the present preference score of the allocation's node with the scores of other nodes.

    Yield nothing if the allocation has no preferences.

    The node is compared with the nodes that take placements and that the constraints allow. If a preference counts pods on a
    node, the allocation itself is not counted.
    """
    if ask.ask_class.preferred is None:
        return
    here = _score(partition, ask, node)
    others = [
        (_score(partition, ask, one), one)
        for one in partition.index.nodes.values()
        if one is not node
        and one.is_open_to(ask.spec.constraints)
        and is_allowed(partition, ask, one)
    ]
    scores = [score for score, _ in others]
    most = max(scores, default=here)
    if most > here:
        best = min((one for score, one in others if score == most), key=lambda one: one.number)
        lacks = "has" if may_take(ask.ask_class, best) else "has no"
        yield (
            f"Its preferences gave way: node {best.node_id} scores {most} now and this node {here}; "
            f"node {best.node_id} {lacks} free capacity for it now."
        )
    elif min(scores, default=here) < here:
        yield f"Its preferences chose the node: it scores {here}, and no other node that it may use scores more."
    else:
        yield f"Its preferences did not decide: all nodes that it may use score {here}."


def _score(partition: Partition, ask: Ask, node: Node) -> int:
    """Return the preference score that a node would have if the allocation did not run there."""
    preferred, domains = ask.ask_class.preferred, partition.index.domains
    assert preferred is not None
    counted = domains.places.get(ask, ())
    own = sum(
        one.weight
        for one in preferred.preferences.groups
        if Place(one.group, one.topology_key, node.labels.get(one.topology_key, "")) in counted
    )
    return preferred.score(node, domains) - own
