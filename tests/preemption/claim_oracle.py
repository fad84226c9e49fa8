"""The best claim by brute force: the rules for one ask, applied to each node and each set of victims.

It is written from the rules alone, on plain data: queues with their numbers, nodes, running pods, one waiting ask.
When a claim of the core differs, the core or a rule is wrong. The rules are G2 to G8, W2, W6, W8 and W9 for shares by
weight, V1 to V5, and J4 and J12 for firm pods and running gangs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Final

from tests.preemption import proportion_oracle
from tests.preemption.paths import is_below, path_up, queue_of, seen_from
from tests.preemption.proportion_oracle import Outcome

Amounts = dict[str, int]
"""Amounts by resource type; a missing type means zero, in a max no limit."""

NEVER: Final = -(1 << 63)
"""A priority below all others: the highest priority of an empty set of victims."""


@dataclass
class Queue:
    """A queue as a user writes it. `policy` is `preemption.policy`, "" when it is not set."""

    path: str
    guaranteed: Amounts = field(default_factory=dict)
    max: Amounts | None = None
    policy: str = ""
    priority_fence: bool = False
    offset: int = 0
    leaf: bool = True
    weight: int = 1
    delay: int = 30_000
    min_runtime: int = 0


@dataclass
class Node:
    """A node with its size."""

    name: str
    capacity: Amounts
    schedulable: bool = True


@dataclass
class Pod:
    """A pod that runs. `protection` is its level of protection; `group` its disruption budget, "" for none.

    Level 2, firm, protects only when the policy `job` is listed (J4), as the class `firm` does. `gang` is the name of
    its job in its application, "" for none; the job needs `least` members.
    """

    key: str
    queue: str
    node: str
    size: Amounts
    priority: int = 0
    created: int = 0
    opted_out: bool = False
    originator: bool = False
    protection: int = 0
    belongs_to_node: bool = False
    dying: bool = False
    group: str = ""
    application: str = ""
    firm: bool = False
    gang: str = ""
    least: int = 0

    @property
    def owner(self) -> str:
        """Return the application of the pod: the one that it names, otherwise the application of its queue."""
        return self.application or f"app-{self.queue}"


@dataclass
class Ask:
    """An ask that waits, usually for longer than every delay."""

    key: str
    queue: str
    size: Amounts
    priority: int = 0
    may_preempt: bool = True
    opted_out: bool = False
    originator: bool = False
    protection: int = 0
    group: str = ""
    required_node: str = ""
    application: str = ""
    firm: bool = False
    waited: int = 3_600_000
    """Waiting time in milliseconds, as all times here."""

    @property
    def owner(self) -> str:
        """Return the application of the ask: the one that it names, otherwise the application of its queue."""
        return self.application or f"app-{self.queue}"

    def placed(self, node: str, now: int = 0) -> "Pod":
        """Return the pod that the ask becomes on this node."""
        return Pod(
            self.key,
            self.queue,
            node,
            self.size,
            self.priority,
            now,
            opted_out=self.opted_out,
            originator=self.originator,
            protection=self.protection,
            belongs_to_node=bool(self.required_node),
            group=self.group,
            application=self.application,
            firm=self.firm,
        )


@dataclass
class Promise:
    """Capacity that an earlier decision keeps for another ask; the whole node for a pod that requires it (G11)."""

    ask: Ask
    node: str

    @property
    def is_exclusive(self) -> bool:
        """Return whether no other ask gets any capacity of the node."""
        return bool(self.ask.required_node)


@dataclass
class Cluster:
    """All facts that the rules use. `allowed` says how many pods each disruption group may still lose.

    `shares` has the shares of all queues by type as of the last `look`, because a round plans on one snapshot.
    """

    queues: list[Queue]
    nodes: list[Node]
    pods: list[Pod]
    asks: list[Ask]
    trigger: str = "before"
    equal_priority: str = "allow"
    budgets: str = "prefer"
    allowed: dict[str, int] = field(default_factory=dict)
    promises: list[Promise] = field(default_factory=list)
    dead_zone: int = 0
    """The dead zone in hundredths of a percent (P9)."""
    entitlement: str = "guaranteed"
    demand_cap: bool = True
    overshoot: str = "none"
    policies: tuple[str, ...] = ("required-node", "guaranteed")
    now: int = 1 << 62
    shares: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    @property
    def by_weight(self) -> bool:
        """Return whether the partition is shared in proportion to weights (design 1.6)."""
        return self.entitlement == "proportional"

    @property
    def knows_classes(self) -> bool:
        """Return whether the policy `job` is listed, so that pods are firm or lendable (J4)."""
        return "job" in self.policies

    @property
    def is_plain(self) -> bool:
        """Return whether shares depend only on weights, whatever the demand (W2)."""
        return self.by_weight and not self.demand_cap

    def queue(self, path: str) -> Queue:
        """Return the queue of this path."""
        return queue_of(self.queues, path)


@dataclass(frozen=True)
class Claim:
    """The victims, in claim order, and the node."""

    node: str
    victims: tuple[str, ...]


def best(cluster: Cluster, ask: Ask) -> Claim | None:
    """Return the claim that the rules prefer; None when they allow none."""
    if refused(cluster, ask):
        return None
    found = [
        (key, node.name, chosen)
        for node in cluster.nodes
        if is_open(cluster, node)
        for key, chosen in _best_on(cluster, ask, node)
    ]
    if not found:
        return None
    _, name, victims = min(found, key=lambda one: (one[0], one[1]))
    return Claim(name, tuple(victim.key for victim in victims))


def is_open(cluster: Cluster, node: Node) -> bool:
    """Return whether a claim may consider this node: it takes pods and is not kept for one ask (G8)."""
    held = any(one.is_exclusive and one.node == node.name for one in cluster.promises)
    return node.schedulable and not held


def fits_now(cluster: Cluster, ask: Ask) -> bool:
    """Return whether the ask fits without any preemption: on a node and under every maximum."""
    running = cluster.pods
    within_limits = all(
        _within(ask.size, less(limit, use_of(path, running), promised_to(cluster, path)))
        for path, limit in bounds(cluster, ask, running)
    )
    return (
        within_limits
        and is_within_guarantee(cluster, ask, running)
        and any(
            node.schedulable and _has_capacity(ask.size, free_on(cluster, node, running))
            for node in cluster.nodes
        )
    )


def fits_on(cluster: Cluster, ask: Ask, name: str) -> bool:
    """Return whether an ask with promised capacity on this node now fits there and under every max."""
    node = next(each for each in cluster.nodes if each.name == name)
    return _has_capacity(ask.size, free_on(cluster, node, cluster.pods)) and all(
        _within(ask.size, less(limit, use_of(path, cluster.pods)))
        for path, limit in maxima(cluster, ask)
    )


def refused(cluster: Cluster, ask: Ask) -> str:
    """Return the rule that forbids the ask any claim; "" when there is none (G1, G2, G3, G9)."""
    if not ask.may_preempt or ask.required_node:
        return "G1"
    if is_disabled(cluster, ask.queue):
        return "G3"
    if not deciding_queues(cluster, ask):
        return "G2: nobody decides"
    if not open_types(cluster, ask):
        return "G2: has its guarantee"
    if any(
        _held(cluster, path).get(kind, 0) > limit.get(kind, 1 << 62)
        for path, limit in maxima(cluster, ask)
        for kind in ask.size
    ):
        return "G9"
    if not is_within_guarantee(cluster, ask, staying(cluster)):
        return "J4"
    return "" if _is_within_share(cluster, ask) else "W2"


def _is_within_share(cluster: Cluster, ask: Ask) -> bool:
    """Return whether the ask fits its plain share minus what is kept for firm asks; no victim frees more (W2, J4)."""
    if not cluster.is_plain:
        return True
    *_, (path, deserved) = bounds(cluster, ask, staying(cluster))
    held = _held(cluster, path)
    return _within(ask.size, less(deserved, held))


# -- J4: firm and lendable ------------------------------------------------------------------------------------------


def is_firm(cluster: Cluster, one: Pod | Ask) -> bool:
    """Return whether a pod or ask is firm, so that it is never evicted: by its class or its protection (J2, V3)."""
    return cluster.knows_classes and (one.firm or one.protection == 2)


def firm_held(cluster: Cluster, path: str, pods: list[Pod]) -> Amounts:
    """Return what firm pods use below a queue, and what firm asks were promised there, when these pods run."""
    holders: list[Pod | Ask] = [*pods, *(one.ask for one in cluster.promises)]
    firm = [one for one in holders if is_firm(cluster, one)]
    return _sum(one.size for one in firm if is_below(one.queue, path))


def is_within_guarantee(cluster: Cluster, ask: Ask, pods: list[Pod]) -> bool:
    """Return whether firm use with a firm ask is within the guarantees on its path (J4); types without one do not count."""
    return not is_firm(cluster, ask) or all(
        firm_held(cluster, path, pods).get(kind, 0) + much <= least
        for path in path_up(ask.queue)
        for kind, much in ask.size.items()
        for least in [cluster.queue(path).guaranteed.get(kind, 0)]
        if least
    )


def kept(cluster: Cluster, path: str, kind: str, pods: list[Pod]) -> int:
    """Return how much of a guarantee is kept for waiting firm asks: max(held, min(guarantee, wanted)) - held (J4)."""
    served = {one.ask.key for one in cluster.promises}
    waiting = [
        one
        for one in cluster.asks
        if is_firm(cluster, one) and one.key not in served and is_below(one.queue, path)
    ]
    held = firm_held(cluster, path, pods).get(kind, 0)
    wanted = held + sum(one.size.get(kind, 0) for one in waiting)
    return max(held, min(cluster.queue(path).guaranteed.get(kind, 0), wanted)) - held


def maxima(cluster: Cluster, ask: Ask) -> Iterator[tuple[str, Amounts]]:
    """Yield the queues with a max from the ask's leaf up to the root, each with its max."""
    for path in path_up(ask.queue):
        limit = cluster.queue(path).max
        if limit is not None:
            yield path, limit


def limits(cluster: Cluster, ask: Ask, pods: list[Pod]) -> Iterator[tuple[str, Amounts]]:
    """Yield the limits of the queues with the ask, when these pods run; a lendable ask leaves firm asks their part (J4)."""
    lends = cluster.knows_classes and not is_firm(cluster, ask)
    for path, limit in maxima(cluster, ask):
        yield (
            path,
            {
                kind: most - kept(cluster, path, kind, pods) if lends else most
                for kind, most in limit.items()
            },
        )


def bounds(cluster: Cluster, ask: Ask, pods: list[Pod]) -> Iterator[tuple[str, Amounts]]:
    """Yield the queues and limits of an ask that is placed without evictions: unused plain shares stay idle (W2)."""
    yield from limits(cluster, ask, pods)
    if cluster.is_plain:
        lends = cluster.knows_classes and not is_firm(cluster, ask)
        yield (
            ask.queue,
            {
                kind: by[ask.queue].deserved
                - (kept(cluster, ask.queue, kind, pods) if lends else 0)
                for kind, by in cluster.shares.items()
            },
        )


# -- G2, G3: who decides, and how far an ask may look --------------------------------------------------------------


def is_disabled(cluster: Cluster, leaf: str) -> bool:
    """Return whether the nearest queue that sets preemption says `disabled`; the root does not count (G3)."""
    said = [cluster.queue(path).policy for path in path_up(leaf)[:-1] if cluster.queue(path).policy]
    return said[:1] == ["disabled"]


def scope_root(cluster: Cluster, leaf: str) -> str:
    """Return the nearest fence from the leaf upwards, else root (G3)."""
    fences = [path for path in path_up(leaf)[:-1] if cluster.queue(path).policy == "fence"]
    return fences[0] if fences else "root"


def deciding_queues(cluster: Cluster, ask: Ask) -> dict[str, str]:
    """Return, for each requested type, the lowest queue within the scope that decides for it (G2, W6)."""
    scope = scope_root(cluster, ask.queue)
    within = [path for path in path_up(ask.queue) if is_below(path, scope)]
    return {
        kind: deciding[0]
        for kind in ask.size
        if (deciding := [path for path in within if _decides(cluster, path, kind)])
    }


def _decides(cluster: Cluster, path: str, kind: str) -> bool:
    """Return whether the type is guaranteed to the queue; with weights, whether it is contended or below its floor."""
    if not cluster.by_weight:
        return cluster.queue(path).guaranteed.get(kind, 0) > 0
    share = cluster.shares[kind][path]
    return share.contended or _held(cluster, path).get(kind, 0) < share.floor


def open_types(cluster: Cluster, ask: Ask) -> dict[str, str]:
    """Return the types whose deciding queue is below its entitlement, each with that queue (G2)."""
    return {
        kind: path
        for kind, path in deciding_queues(cluster, ask).items()
        if _has_less(cluster, path, kind, ask.size[kind])
    }


def _has_less(cluster: Cluster, path: str, kind: str, wanted: int) -> bool:
    """Return whether the queue has less than its entitlement: without the ask or, with `trigger: after`, including the ask."""
    held, least = _held(cluster, path).get(kind, 0), entitled(cluster, path, kind)
    return held + wanted <= least if cluster.trigger == "after" else held < least


def closed_types(cluster: Cluster, ask: Ask) -> set[str]:
    """Return the types for which the deciding queue has its whole entitlement (G2)."""
    return set(deciding_queues(cluster, ask)) - set(open_types(cluster, ask))


def is_viable(cluster: Cluster, ask: Ask, node: Node) -> bool:
    """Return whether no closed type is missing for the ask, neither on the node nor under a max (G2)."""
    return not _wanted(cluster, ask, node) & closed_types(cluster, ask)


def is_outside(cluster: Cluster, ask: Ask, kind: str, leaf: str) -> bool:
    """Return whether pods of this leaf may be evicted for the type, if the ask lacks it (G2, W6).

    For an open type the pod must run outside the queue that decides. For a type without a deciding queue it must run
    outside the lowest queue that decides for an open type. For a closed type no pod is evicted.
    """
    open_, decided = open_types(cluster, ask), deciding_queues(cluster, ask)
    if kind in open_:
        return not is_below(leaf, open_[kind])
    if kind in decided or not open_:
        return False
    return not is_below(leaf, max(open_.values(), key=len))


# -- 7.1, W1, W2: what a queue is entitled to -----------------------------------------------------------------------


def look(cluster: Cluster) -> None:
    """Recompute all shares from the present use and demand."""
    if cluster.by_weight:
        cluster.shares = {
            kind: proportion_oracle.shares(
                _tree(cluster, "root", kind), total(cluster, kind), demand_cap=cluster.demand_cap
            )
            for kind in kinds(cluster)
        }


def kinds(cluster: Cluster) -> list[str]:
    """Return every resource type that occurs."""
    sizes = [each.capacity for each in cluster.nodes]
    sizes += [each.size for each in cluster.pods]
    sizes += [each.size for each in cluster.asks]
    sizes += [each.ask.size for each in cluster.promises]
    sizes += [amounts for each in cluster.queues for amounts in (each.guaranteed, each.max or {})]
    return sorted({kind for size in sizes for kind in size})


def total(cluster: Cluster, kind: str) -> int:
    """Return the amount that the root shares: the capacity of nodes that take pods (W2)."""
    return sum(each.capacity.get(kind, 0) for each in cluster.nodes if each.schedulable)


def _tree(cluster: Cluster, path: str, kind: str) -> proportion_oracle.Node:
    queue = cluster.queue(path)
    served = {one.ask.key for one in cluster.promises}
    waiting = [each for each in cluster.asks if each.queue == path and each.key not in served]
    children = [each.path for each in cluster.queues if each.path.rpartition(".")[0] == path]
    return proportion_oracle.Node(
        path,
        queue.weight,
        queue.guaranteed.get(kind, 0),
        None if path == "root" else (queue.max or {}).get(kind),
        _held(cluster, path).get(kind, 0),
        sum(each.size.get(kind, 0) for each in waiting),
        [_tree(cluster, child, kind) for child in children],
    )


def entitled(cluster: Cluster, path: str, kind: str) -> int:
    """Return the entitlement: the guarantee; with weights the deserved share of a contended type, else the floor (W2)."""
    if not cluster.by_weight:
        return cluster.queue(path).guaranteed.get(kind, 0)
    return cluster.shares[kind][path].entitled


# -- G3, G5, G6, 7.6: who may be taken -----------------------------------------------------------------------------


def may_go(cluster: Cluster, ask: Ask, pod: Pod) -> bool:
    """Return whether the rules about single candidates allow the eviction of the pod."""
    return (
        pod.queue != ask.queue
        and is_below(pod.queue, scope_root(cluster, ask.queue))
        and bool(taken_for(cluster, ask, pod))
        and not is_disabled(cluster, pod.queue)
        and _priority_allows(cluster, ask, pod)
        and may_go_at_all(cluster, pod)
    )


def may_go_at_all(cluster: Cluster, pod: Pod) -> bool:
    """Return whether nothing protects the pod from all preemptors (G6, V3, J12)."""
    return (
        not (pod.belongs_to_node or pod.dying)
        and pod.protection < 3
        and not is_firm(cluster, pod)
        and cluster.now - pod.created >= cluster.queue(pod.queue).min_runtime
        and not (cluster.budgets == "respect" and _without_allowance(cluster, pod))
    )


def keeps_gangs(cluster: Cluster, victims: tuple[Pod, ...]) -> bool:
    """Return whether no gang that has its minimum of members is left with fewer (J12)."""
    for one in victims if cluster.knows_classes else ():
        gang = [pod for pod in staying(cluster) if _is_kin(pod, one)]
        left = [pod for pod in gang if pod not in victims]
        if one.gang and len(gang) >= one.least > len(left):
            return False
    return True


def _is_kin(one: Pod, other: Pod) -> bool:
    return bool(one.gang) and (one.gang, one.owner) == (other.gang, other.owner)


def taken_for(cluster: Cluster, ask: Ask, pod: Pod) -> set[str]:
    """Return the types that the pod uses and for which it may be evicted if the ask lacks them (G2, G6, W6)."""
    return {
        kind
        for kind in ask.size
        if pod.size.get(kind) and is_outside(cluster, ask, kind, pod.queue)
    }


def frees_lacking_type(
    cluster: Cluster, ask: Ask, node: Node, pod: Pod, others: tuple[Pod, ...] = ()
) -> bool:
    """Return whether the pod uses a type that the ask lacks and of which its queues have too much (rule 5, W9).

    The queues are those that do not contain the preemptor; `others` are no longer counted in them.
    """
    left = staying(cluster, others)
    queues = [path for path in path_up(pod.queue) if not is_below(ask.queue, path)]
    return any(
        all(use_of(path, left).get(kind, 0) > entitled(cluster, path, kind) for path in queues)
        for kind in lacks(cluster, ask, node, pod) & taken_for(cluster, ask, pod)
        if _is_clearly_over(cluster, queues, kind)
    )


def _is_clearly_over(cluster: Cluster, queues: list[str], kind: str) -> bool:
    """Return whether all of these queues have more than their entitlement plus the dead zone (P9)."""
    standing = staying(cluster)
    return not cluster.dead_zone or all(
        use_of(path, standing).get(kind, 0) * 10_000
        > entitled(cluster, path, kind) * (10_000 + cluster.dead_zone)
        for path in queues
    )


def lacks(cluster: Cluster, ask: Ask, node: Node, pod: Pod) -> set[str]:
    """Return the types that the ask lacks on the pod's node or below a max (G9)."""
    left = staying(cluster)
    free = free_on(cluster, node, left)
    found = {
        kind for kind in ask.size if pod.node == node.name and ask.size[kind] > free.get(kind, 0)
    }
    for path, limit in limits(cluster, ask, left):
        if is_below(pod.queue, path):
            left_over = less(limit, use_of(path, left), promised_to(cluster, path))
            found |= {
                kind for kind in ask.size if kind in left_over and ask.size[kind] > left_over[kind]
            }
    return found


def may_go_for_node(pod: Pod, ask: Ask) -> bool:
    """Return whether the pod may be evicted for a pod that requires its node; queues and guarantees do not count (G11)."""
    return (
        pod.node == ask.required_node
        and not (pod.belongs_to_node or pod.dying)
        and pod.priority <= ask.priority
        and pod.protection < 3
    )


def _priority_allows(cluster: Cluster, ask: Ask, pod: Pod) -> bool:
    if cluster.equal_priority == "ignore":
        return True
    meeting = next(path for path in path_up(ask.queue) if is_below(pod.queue, path))
    asks = seen_from(meeting, ask.queue, ask.priority, cluster.queue)
    goes = seen_from(meeting, pod.queue, pod.priority, cluster.queue)
    return goes < asks if cluster.equal_priority == "never" else goes <= asks


def _without_allowance(cluster: Cluster, pod: Pod) -> bool:
    return bool(pod.group) and cluster.allowed.get(pod.group, 0) == 0


def _is_opted_out(cluster: Cluster, pod: Pod) -> bool:
    prefers = cluster.budgets == "prefer" and _without_allowance(cluster, pod)
    return pod.opted_out or pod.protection == 1 or prefers


def claim_order(cluster: Cluster, pods: list[Pod]) -> list[Pod]:
    """Return the pods in claim order (V2): not opted out first, originators last, then low priority, young age, key."""
    return sorted(
        pods,
        key=lambda pod: (
            _is_opted_out(cluster, pod),
            pod.originator,
            pod.priority,
            -pod.created,
            pod.key,
        ),
    )


# -- G4, G8: which set, and where ----------------------------------------------------------------------------------

Key = tuple[int, int, int, int, Fraction, tuple[int, ...]]


def _best_on(cluster: Cluster, ask: Ask, node: Node) -> Iterator[tuple[Key, tuple[Pod, ...]]]:
    """Yield the best valid set of victims of one node, if any, with its key; the last part of the key does not compare nodes."""
    if not is_viable(cluster, ask, node):
        return
    here = [
        pod
        for pod in cluster.pods
        if pod.node == node.name
        and may_go(cluster, ask, pod)
        and frees_lacking_type(cluster, ask, node, pod)
    ]
    ordered = claim_order(cluster, here)
    rank = {pod.key: place for place, pod in enumerate(ordered)}
    covering = [
        chosen
        for size in range(len(ordered) + 1)
        for chosen in combinations(ordered, size)
        if keeps_gangs(cluster, chosen) and covers(cluster, ask, node, chosen)
    ]
    sets = [chosen for chosen in covering if keeps_guarantees(cluster, ask, chosen)]
    if not sets:
        sets = [chosen for chosen in covering if crosses_once(cluster, ask, node, chosen)]
    keyed = [
        ((*cost(cluster, ask, node, chosen), tuple(rank[pod.key] for pod in chosen)), chosen)
        for chosen in sets
    ]
    if keyed:
        key, chosen = min(keyed, key=lambda one: one[0])
        yield (*key[:5], ()), chosen


def _wanted(cluster: Cluster, ask: Ask, node: Node) -> set[str]:
    """Return the types that the ask lacks, on the node or under a max."""
    left = staying(cluster)
    free = free_on(cluster, node, left)
    lacking = {kind for kind, amount in ask.size.items() if free.get(kind, 0) < amount}
    for path, limit in limits(cluster, ask, left):
        left_over = less(limit, use_of(path, left), promised_to(cluster, path))
        lacking |= {
            kind for kind, much in ask.size.items() if kind in left_over and left_over[kind] < much
        }
    return lacking


def is_beyond_dead_zone(cluster: Cluster, ask: Ask, pod: Pod, wanted: set[str]) -> bool:
    """Return whether the pod's queues that do not contain the preemptor exceed guarantee and dead zone in a missing type (P9)."""
    if not cluster.dead_zone:
        return True
    own = [path for path in path_up(pod.queue) if not is_below(ask.queue, path)]
    return any(_is_clearly_over(cluster, own, kind) for kind in wanted if pod.size.get(kind))


def covers(cluster: Cluster, ask: Ask, node: Node, victims: tuple[Pod, ...]) -> bool:
    """Return whether the ask fits on the node and under every max without the victims and terminating pods (G8, G9).

    A victim counts for all types that it frees (G2, W6).
    """
    left = staying(cluster, victims)
    return _has_capacity(ask.size, free_on(cluster, node, left)) and all(
        _within(ask.size, less(limit, use_of(path, left), promised_to(cluster, path)))
        for path, limit in limits(cluster, ask, left)
    )


def crosses_once(cluster: Cluster, ask: Ask, node: Node, victims: tuple[Pod, ...]) -> bool:
    """Return whether exactly one victim brings queues from above to below their entitlement (W8, W9, `overshoot: last`)."""
    return (
        cluster.by_weight
        and cluster.overshoot == "last"
        and any(
            keeps_guarantees(cluster, ask, rest)
            and _had_its_share(cluster, ask, one, rest)
            and frees_lacking_type(cluster, ask, node, one, rest)
            for one in victims
            for rest in [tuple(pod for pod in victims if pod is not one)]
        )
    )


def _had_its_share(cluster: Cluster, ask: Ask, one: Pod, rest: tuple[Pod, ...]) -> bool:
    """Return whether the pod's queues have their deserved shares of its types until it is evicted; partial plain shares don't count."""
    left, all_ = staying(cluster, rest), staying(cluster)
    return all(
        use_of(path, left).get(kind, 0) >= entitled(cluster, path, kind)
        or (cluster.is_plain and use_of(path, all_).get(kind, 0) < entitled(cluster, path, kind))
        for path in path_up(one.queue)
        if not is_below(ask.queue, path)
        for kind in one.size
    )


def keeps_guarantees(cluster: Cluster, ask: Ask, victims: tuple[Pod, ...]) -> bool:
    """Return whether no queue from a victim's leaf to root falls below its entitlement in a type that a victim uses (G4)."""
    return all(
        _keeps_guarantee(cluster, ask, path, [pod for pod in victims if is_below(pod.queue, path)])
        for path in {path for pod in victims for path in path_up(pod.queue)}
        if path != "root" or not cluster.by_weight  # The root has no siblings and deserves nothing.
    )


def _keeps_guarantee(cluster: Cluster, ask: Ask, path: str, victims: list[Pod]) -> bool:
    before = use_of(path, staying(cluster))
    for kind in {kind for pod in victims for kind in pod.size}:
        has = before.get(kind, 0)
        after = has - sum(pod.size.get(kind, 0) for pod in victims)
        if is_below(ask.queue, path):
            after += ask.size.get(kind, 0)
            if after >= has:
                continue
        least = entitled(cluster, path, kind)
        if after < least and not (cluster.is_plain and has < least):  # W8, demandcap false
            return False
    return True


def cost(
    cluster: Cluster, ask: Ask, node: Node, victims: tuple[Pod, ...]
) -> tuple[int, int, int, int, Fraction]:
    """Return the cost of a set of victims: opt-outs, originators, highest priority, number, excess (G8)."""
    return (
        sum(_is_opted_out(cluster, pod) for pod in victims),
        sum(pod.originator for pod in victims),
        max((pod.priority for pod in victims), default=NEVER),
        len(victims),
        excess(cluster, ask, node, victims),
    )


def excess(cluster: Cluster, ask: Ask, node: Node, victims: tuple[Pod, ...]) -> Fraction:
    """Return what victims free beyond what the ask lacks on the node, as the dominant share of the partition (G8)."""
    free = free_on(cluster, node, staying(cluster))
    shares = [Fraction(0)]
    for kind in {kind for pod in victims for kind in pod.size}:
        lacks = max(0, ask.size[kind] - free.get(kind, 0)) if kind in ask.size else 0
        freed = sum(pod.size.get(kind, 0) for pod in victims)
        total = sum(each.capacity.get(kind, 0) for each in cluster.nodes)
        shares.append(Fraction(max(0, freed - lacks), total))
    return max(shares)


# -- amounts -------------------------------------------------------------------------------------------------------


def staying(cluster: Cluster, victims: tuple[Pod, ...] = ()) -> list[Pod]:
    """Return the pods that run when the victims and all terminating pods are gone."""
    gone = {pod.key for pod in victims}
    return [pod for pod in cluster.pods if not pod.dying and pod.key not in gone]


def _sum(sizes: Iterator[Amounts]) -> Amounts:
    total: Amounts = {}
    for size in sizes:
        for kind, amount in size.items():
            total[kind] = total.get(kind, 0) + amount
    return total


def use_of(path: str, pods: list[Pod]) -> Amounts:
    """Return the sum of the pods that run below a queue."""
    return _sum(pod.size for pod in pods if is_below(pod.queue, path))


def promised_to(cluster: Cluster, path: str) -> Amounts:
    """Return the capacity that earlier decisions hold for asks below a queue."""
    return _sum(one.ask.size for one in cluster.promises if is_below(one.ask.queue, path))


def _held(cluster: Cluster, path: str) -> Amounts:
    eff = use_of(path, staying(cluster))
    return _sum(iter((eff, promised_to(cluster, path))))


def free_on(cluster: Cluster, node: Node, pods: list[Pod]) -> Amounts:
    """Return the capacity of a node without these pods and without what is promised."""
    used = _sum(pod.size for pod in pods if pod.node == node.name)
    promised = _sum(one.ask.size for one in cluster.promises if one.node == node.name)
    return less(node.capacity, used, promised)


def less(amounts: Amounts, *taken: Amounts) -> Amounts:
    """Return the amounts minus others; types that occur only in the others are left out."""
    return {
        kind: amount - sum(each.get(kind, 0) for each in taken) for kind, amount in amounts.items()
    }


def _has_capacity(size: Amounts, free: Amounts) -> bool:
    """Return whether a node has enough of every requested type; a type that the node lacks counts as zero."""
    return all(amount <= free.get(kind, 0) for kind, amount in size.items())


def _within(size: Amounts, most: Amounts) -> bool:
    """Return whether the request is within the limit of every limited type."""
    return all(amount <= most.get(kind, amount) for kind, amount in size.items())
