"""The best replacement within a queue by brute force: rules I1 to I5 for one ask, applied to each node and each set of victims.

The module is written from the rules alone (V1 to V5 and G5 to G8 for victims; J4 and J12 when the policy `job` is
listed). When a replacement of the core differs, the core or a rule is wrong.
"""

from itertools import combinations

from tests.preemption.claim_oracle import (
    Amounts,
    Ask,
    Claim,
    Cluster,
    Node,
    Pod,
    bounds,
    claim_order,
    cost,
    entitled,
    free_on,
    is_disabled,
    is_open,
    is_within_guarantee,
    keeps_gangs,
    less,
    may_go_at_all,
    promised_to,
    staying,
    use_of,
)
from tests.preemption.paths import path_up

NAME = "in-queue"


def best(cluster: Cluster, ask: Ask) -> Claim | None:
    """Return the replacement that the rules prefer; None when they allow none."""
    if refused(cluster, ask):
        return None
    found = [
        (cost(cluster, ask, node, victims), node.name, victims)
        for node in cluster.nodes
        if is_open(cluster, node)
        for victims in [_best_on(cluster, ask, node)]
        if victims is not None
    ]
    if not found:
        return None
    _, name, chosen = min(found, key=lambda one: one[:2])
    return Claim(name, tuple(pod.key for pod in chosen))


def refused(cluster: Cluster, ask: Ask) -> str:
    """Return the rule that forbids every eviction for the ask; "" when there is none."""
    if NAME not in cluster.policies:
        return "I1"
    if not ask.may_preempt or ask.required_node:
        return "G1"
    if is_disabled(cluster, ask.queue):
        return "G3"
    if (
        ask.waited < cluster.queue(ask.queue).delay
    ):  # This also holds with weights, because W6 is only about claims.
        return "I5"
    if not is_within_guarantee(cluster, ask, staying(cluster)):
        return "J4"
    return ""


def may_go(cluster: Cluster, ask: Ask, pod: Pod) -> bool:
    """Return whether the rules on single candidates allow the eviction of the pod (I2 and I3)."""
    return (
        pod.queue == ask.queue
        and pod.priority < ask.priority
        and pod.owner != ask.owner
        and any(pod.size.get(kind) for kind in ask.size)
        and may_go_at_all(cluster, pod)
    )


def _best_on(cluster: Cluster, ask: Ask, node: Node) -> tuple[Pod, ...] | None:
    """Return the best valid set of victims of one node (G8); among equal sets the first in claim order."""
    here = [pod for pod in cluster.pods if pod.node == node.name and may_go(cluster, ask, pod)]
    ordered = claim_order(cluster, here)
    sets = [
        chosen
        for size in range(len(ordered) + 1)
        for chosen in combinations(ordered, size)
        if is_legal(cluster, ask, chosen) and covers(cluster, ask, node, chosen)
    ]
    if not sets:
        return None
    places = {pod.key: place for place, pod in enumerate(ordered)}
    return min(
        sets,
        key=lambda one: (cost(cluster, ask, node, one), [places[pod.key] for pod in one]),
    )


def is_legal(cluster: Cluster, ask: Ask, victims: tuple[Pod, ...]) -> bool:
    """Return whether no gang is broken (J12) and no queue, including the ask, falls below its entitlement in victims' types (G4)."""
    return keeps_gangs(cluster, victims) and all(
        _keeps_floor(cluster, ask, path, kind, victims)
        for path in path_up(ask.queue)
        for kind in {kind for pod in victims for kind in pod.size}
    )


def _keeps_floor(
    cluster: Cluster, ask: Ask, path: str, kind: str, victims: tuple[Pod, ...]
) -> bool:
    if path == "root" and cluster.by_weight:
        return True  # The root has no siblings and deserves nothing.
    before = use_of(path, staying(cluster)).get(kind, 0)
    after = use_of(path, staying(cluster, victims)).get(kind, 0) + ask.size.get(kind, 0)
    return after >= min(before, entitled(cluster, path, kind))


def covers(cluster: Cluster, ask: Ask, node: Node, victims: tuple[Pod, ...]) -> bool:
    """Return whether the ask fits on the node and no queue then exceeds its limits (I4, J4)."""
    left = staying(cluster, victims)
    free = free_on(cluster, node, left)
    return all(much <= free.get(kind, 0) for kind, much in ask.size.items()) and all(
        ask.size[kind] <= most
        for path, limit in bounds(cluster, ask, left)
        for kind, most in _headroom(cluster, path, limit, left).items()
        if kind in ask.size
    )


def _headroom(cluster: Cluster, path: str, limit: Amounts, left: list[Pod]) -> Amounts:
    return less(limit, use_of(path, left), promised_to(cluster, path))


def is_minimal(cluster: Cluster, ask: Ask, claim: Claim) -> bool:
    """Return whether every victim is needed (invariant 11)."""
    node = next(one for one in cluster.nodes if one.name == claim.node)
    victims = tuple(pod for pod in cluster.pods if pod.key in claim.victims)
    return not any(
        covers(cluster, ask, node, tuple(pod for pod in victims if pod is not spared))
        for spared in victims
    )
