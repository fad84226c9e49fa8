"""Random tiny clusters for claims, and the core's decisions about each."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from server.core.core import Core
from server.model.asks import AskSpec, Constraints, Protection, ReleaseMark
from server.model.decisions import Decided, Decision, Placed, Released, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    DisruptionsAllowed,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeUpdated,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PlacementRule,
    PreemptionPolicy,
    PreemptionSettings,
    PriorityPolicy,
    QueueProperties,
    QueueSpec,
)
from server.model.resources import limit, resource
from tests.preemption.claim_oracle import (
    Amounts,
    Ask,
    Cluster,
    Node,
    Pod,
    Queue,
    is_disabled,
)
from tests.preemption.paths import is_below

START: Final = 1_800_000_000_000
LONG_AGO: Final = START - 3_600_000
MANAGER: Final = "rm"
KINDS: Final = ("memory", "vcore", "gpu")


class Dice:
    """A generator of clusters from a seed. Numbers are small, so that ties, full nodes and tight guarantees are frequent."""

    few: tuple[int, ...] = (1, 1, 2, 3)
    """The possible numbers of nodes and of asks."""

    def __init__(self, seed: int, pods_most: int = 8) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.kinds = KINDS[: self.random.choice((1, 1, 2, 3))]
        self.pods_most = pods_most
        self.plain = self.random.random() < 0.5
        """Whether the cluster has no flags, offsets or policies; claims then succeed more often."""
        self.poor = ""
        """The leaf that uses little and has most of the waiting asks."""

    def cluster(self) -> Cluster:
        """Return a cluster with one to three asks."""
        queues = self.queues()
        leaves = [queue.path for queue in queues if queue.leaf]
        self.poor = self.random.choice(leaves)
        names = [f"n{number}" for number in range(self.random.choice(self.few))]
        pods = [pod for name in names for pod in self.pods(name, leaves)]
        self.guarantee(queues, pods)
        asks = [self.ask(number, leaves) for number in range(self.random.choice(self.few))]
        return Cluster(
            queues,
            [self.node(name, pods) for name in names],
            pods,
            asks,
            trigger=self.rarely("after", "before"),
            equal_priority=self.rarely(self.random.choice(("never", "ignore")), "allow"),
            budgets=self.rarely(self.random.choice(("respect", "ignore")), "prefer"),
            allowed={"g/none": 0, "g/many": 100},
            dead_zone=self.dead_zone(),
        )

    def dead_zone(self) -> int:
        """Return the dead zone, which one cluster in five has; it has its own generator, so that it does not change other values."""
        return random.Random(f"dead zone {self.seed}").choice((0, 0, 0, 0, 2_500))

    def rarely(self, seldom: str, usual: str) -> str:
        """Return `seldom` with probability 0.1 in clusters that are not plain, otherwise `usual`."""
        return seldom if not self.plain and self.random.random() < 0.1 else usual

    def seldom(self, chance: float = 0.15) -> bool:
        """Return True with this probability in clusters that are not plain, otherwise False."""
        return not self.plain and self.random.random() < chance

    # -- queues ----------------------------------------------------------------------------------------------------

    def queues(self) -> list[Queue]:
        """Return a tree with leaves at depths of one to three below root."""
        tree = [Queue("root", leaf=False)]
        for number in range(self.random.randint(2, 4)):
            tree += self.below(f"root.q{number}", self.random.choice((0, 0, 1, 2)))
        return tree

    def below(self, path: str, depth: int) -> list[Queue]:
        """Return a queue with the queues below it."""
        queue = Queue(path, leaf=depth == 0)
        if self.seldom():
            queue.policy = self.random.choice(("fence", "fence", "disabled", "default"))
        if self.seldom():
            queue.offset = self.random.randint(-2, 2)
            queue.priority_fence = self.random.random() < 0.4
        children = [
            each
            for number in range(self.random.randint(1, 3) if depth else 0)
            for each in self.below(f"{path}.{'abc'[number]}", depth - 1)
        ]
        return [queue, *children]

    def guarantee(self, queues: list[Queue], pods: list[Pod]) -> None:
        """Set guarantees and maxima close to what the queues use, whether or not they are consistent."""
        for queue in queues[1:]:
            used = self.used(queue.path, pods)
            asking = is_below(self.poor, queue.path)
            if self.random.random() < (0.7 if asking else 0.5):
                queue.guaranteed = self.near(used, *((-1, 9) if asking else (-9, 2)))
            if self.random.random() < 0.2:
                queue.max = self.near(used, -1, 5)

    def used(self, path: str, pods: list[Pod]) -> Amounts:
        """Return what runs below a queue."""
        below = [pod for pod in pods if is_below(pod.queue, path)]
        return {kind: sum(pod.size.get(kind, 0) for pod in below) for kind in self.kinds}

    def near(self, used: Amounts, least: int, most: int) -> Amounts:
        """Return some resource types, each with an amount close to its usage."""
        return {
            kind: max(0, amount + self.random.randint(least, most))
            for kind, amount in used.items()
            if self.random.random() < 0.7
        }

    # -- nodes and pods --------------------------------------------------------------------------------------------

    def node(self, name: str, pods: list[Pod]) -> Node:
        """Return a node that is full or nearly full."""
        here = [pod for pod in pods if pod.node == name]
        spare = self.random.choice((0, 0, 0, 1, 2, 4))
        capacity = {
            kind: max(1, sum(pod.size.get(kind, 0) for pod in here) + spare) for kind in self.kinds
        }
        return Node(name, capacity, schedulable=not self.seldom(0.05))

    def pods(self, node: str, leaves: list[str]) -> Iterator[Pod]:
        """Yield the pods that run on a node."""
        for number in range(self.random.randint(0, self.pods_most)):
            yield Pod(
                f"{node}-{number}",
                self.leaf(leaves, poor=0.05),
                node,
                self.size(5),
                priority=self.random.choice((0, 0, 0, 1, -1)),
                created=START - 1000 * self.random.randint(1, 5),
                opted_out=self.seldom(),
                originator=self.seldom(),
                protection=self.random.choice((1, 2, 3)) if self.seldom(0.1) else 0,
                belongs_to_node=self.seldom(0.05),
                dying=self.seldom(0.05),
                group=self.random.choice(("g/none", "g/many")) if self.seldom(0.1) else "",
            )

    def ask(self, number: int, leaves: list[str], required_node: str = "") -> Ask:
        """Return an ask, for any node or for the given one."""
        return Ask(
            f"x{number}",
            self.leaf(leaves, poor=0.8),
            self.size(8),
            priority=self.random.choice((0, 0, 1, 2)),
            may_preempt=not self.seldom(0.03),
            required_node=required_node,
        )

    def leaf(self, leaves: list[str], poor: float) -> str:
        """Return the poor leaf with this probability, otherwise any leaf."""
        return self.poor if self.random.random() < poor else self.random.choice(leaves)

    def size(self, most: int) -> Amounts:
        """Return a random size with at least one resource type."""
        first = self.random.choice(self.kinds)
        chosen = [kind for kind in self.kinds if kind == first or self.random.random() < 0.6]
        return {kind: self.random.randint(1, most) for kind in chosen}


class LayeredDice(Dice):
    """A generator of clusters with two or three types, which different levels guarantee (G2).

    For example, a team guarantees cores and its queues guarantee GPUs. A type is guaranteed at one level of a queue's
    path, at several, or at none; trees are two to four levels deep.
    """

    def __init__(self, seed: int, pods_most: int = 8) -> None:
        super().__init__(seed, pods_most)
        self.kinds = KINDS[: self.random.choice((2, 3, 3))]

    def queues(self) -> list[Queue]:
        """Return a tree with leaves at depths of two to four; the root is counted."""
        tree = [Queue("root", leaf=False)]
        for number in range(self.random.randint(1, 3)):
            tree += self.below(f"root.q{number}", self.random.choice((0, 1, 1, 2)))
        if len([queue for queue in tree if queue.leaf]) < 2:
            tree += self.below("root.r", 1)
        return tree

    def guarantee(self, queues: list[Queue], pods: list[Pod]) -> None:
        """Set guarantees on each level for some types, seldom for all; a queue may be above one and below another."""
        for queue in queues[1:]:
            used = self.used(queue.path, pods)
            wanted = is_below(self.poor, queue.path)
            layer = set(self.random.sample(self.kinds, self.random.choice((0, 1, 1, 2))))
            queue.guaranteed = {
                kind: max(0, used[kind] + self.random.randint(*((-3, 6) if wanted else (-9, 2))))
                for kind in self.kinds
                if kind in layer
            }
            if self.random.random() < 0.15:
                queue.max = self.near(used, -1, 6)

    def size(self, most: int) -> Amounts:
        """Return a small size with two types or more, so that one type can be scarce while another is not."""
        size = super().size(min(most, 4))
        other = self.random.choice(self.kinds)
        return {**size, other: size.get(other, self.random.randint(1, 3))}


class WeightedDice(Dice):
    """A generator of clusters that are shared in proportion to weights; many asks wait, and some amounts are guaranteed."""

    def __init__(self, seed: int, pods_most: int = 8) -> None:
        super().__init__(seed, pods_most)
        self.other = random.Random(f"weights {seed}")

    def size(self, most: int) -> Amounts:
        """Return a smaller size, so that more pods fit into the surplus of a queue."""
        return super().size(min(most, 4))

    def cluster(self) -> Cluster:
        """Return a cluster with one to five asks."""
        other = self.other
        cluster = super().cluster()
        leaves = [queue.path for queue in cluster.queues if queue.leaf]
        for queue in cluster.queues[1:]:
            queue.weight = other.choice((1, 1, 2, 3, 5)) + 3 * is_below(self.poor, queue.path)
            if other.random() < 0.6:
                queue.guaranteed = {}
        for number in range(10, 10 + other.choice((0, 0, 1, 2))):
            cluster.asks.append(self.ask(number, leaves))
        cluster.entitlement = "proportional"
        cluster.demand_cap = other.random() < 0.6
        cluster.trigger = other.choice(("before", "after")) if cluster.demand_cap else "after"
        if cluster.trigger == "after" and other.random() < 0.4:
            cluster.overshoot = "last"
        if other.random() < 0.5:
            cluster.equal_priority = "ignore"
        return cluster


class AlikeDice(WeightedDice):
    """A generator of clusters in which many equal asks consider many nodes, and claims evict others (W8)."""

    few = (4, 6, 8)

    def cluster(self) -> Cluster:
        """Return a cluster with four to ten asks of one size or two."""
        cluster = super().cluster()
        sizes = [one.size for one in cluster.asks][: self.other.choice((1, 2))]
        for one in cluster.asks:
            one.size = dict(self.other.choice(sizes))
            if self.other.random() < 0.7:
                one.priority = cluster.asks[0].priority
        if cluster.overshoot == "none" and self.other.random() < 0.7:
            cluster.demand_cap, cluster.trigger = False, "after"
        return cluster


# -- the same cluster in the core -------------------------------------------------------------------------------------


@dataclass
class Told:
    """A core that has received a cluster, and its decisions."""

    core: Core
    slices: list[list[Decision]]

    @property
    def decisions(self) -> list[Decision]:
        """Return all decisions, in order."""
        return [one for each in self.slices for one in each]

    @property
    def claims(self) -> list["Claimed"]:
        """Return each claim, in order."""
        return [claim for each in self.slices for claim in claims_of(each)]

    @property
    def plans(self) -> list["Planned"]:
        """Return each decision for an ask, in order."""
        return [plan for each in self.slices for plan in plans_of(each)]

    @property
    def released(self) -> list[str]:
        """Return the pods that were ordered to end."""
        return [one.key for one in self.decisions if isinstance(one, Released)]


Claimed = tuple[str, str, tuple[str, ...]]
"""Ask, node and victims."""
Planned = tuple[str, str, str, tuple[str, ...]]
"""Policy, ask, node and victims."""


def claims_of(decisions: Iterable[Decision]) -> list[Claimed]:
    """Return the claims among the decisions, in order."""
    return [one[1:] for one in plans_of(decisions) if one[0] == "guaranteed"]


def plans_of(decisions: Iterable[Decision]) -> list[Planned]:
    """Return the decisions for an ask among the decisions, in order, of all policies."""
    records = [one.record for one in decisions if isinstance(one, Decided)]
    return [
        (record.policy, record.beneficiaries[0].key, record.beneficiaries[0].node_id, victims)
        for record in records
        for victims in [tuple(victim.key for victim in record.victims)]
    ]


def placed_of(decisions: Iterable[Decision]) -> list[tuple[str, str]]:
    """Return ask and node of each placement among the decisions, in order."""
    return [(one.key, one.node_id) for one in decisions if isinstance(one, Placed)]


def tell(cluster: Cluster) -> Told:
    """Return the decisions of a core for the cluster, from one tick with all its slices."""
    core = Core(configuration(cluster))
    for event in events(cluster):
        core.handle(event, START)
    return Told(core, slices(core, START))


def tick(core: Core, now: int, budget: int = 20_000) -> list[Decision]:
    """Tick until the core has nothing left to do at this instant."""
    return [one for each in slices(core, now, budget) for one in each]


def slices(core: Core, now: int, budget: int = 20_000) -> list[list[Decision]]:
    """Return the decisions slice by slice: each slice places first, and then plans on one snapshot."""
    found: list[list[Decision]] = []
    more = True
    while more:
        slice_ = core.tick(now, budget)
        found.append(slice_.decisions)
        more = slice_.more
    core.validate()
    return found


def look_again(core: Core, cluster: Cluster, now: int) -> None:
    """Send an event that changes nothing but causes a round; the core's own decisions do not cause one."""
    for node in cluster.nodes[:1]:
        core.handle(NodeUpdated(MANAGER, node.name, resource(node.capacity)), now)


def configuration(cluster: Cluster, settings: PreemptionSettings | None = None) -> Configuration:
    """Return the queues as the core's configuration, with inherited properties resolved."""
    chosen = replace(
        settings
        or PreemptionSettings(policies=cluster.policies, deadzone_permyriad=cluster.dead_zone),
        trigger=cluster.trigger,
        equal_priority=cluster.equal_priority,
        disruption_budgets=cluster.budgets,
        entitlement=cluster.entitlement,
        demand_cap=cluster.demand_cap,
        proportion_overshoot=cluster.overshoot,
    )
    return Configuration(
        (
            PartitionSpec(
                "default",
                replace(_spec(cluster, cluster.queue("root")), submit_acl=Acl(everyone=True)),
                (PlacementRule("provided"),),
                preemption=chosen,
            ),
        )
    )


def _spec(cluster: Cluster, queue: Queue) -> QueueSpec:
    children = [
        each
        for each in cluster.queues
        if each.path.startswith(f"{queue.path}.")
        and each.path.count(".") == queue.path.count(".") + 1
    ]
    return QueueSpec(
        queue.path.rpartition(".")[2],
        parent=not queue.leaf,
        guaranteed=resource(queue.guaranteed),
        max=None if queue.max is None else limit(queue.max),
        weight=queue.weight,
        properties=_properties(cluster, queue),
        children=tuple(_spec(cluster, child) for child in children),
    )


def _properties(cluster: Cluster, queue: Queue) -> QueueProperties:
    policy = (
        PreemptionPolicy.DISABLED if is_disabled(cluster, queue.path) else PreemptionPolicy.DEFAULT
    )
    if queue.policy == "fence":
        policy = PreemptionPolicy.FENCE
    return QueueProperties(
        preemption_policy=policy,
        preemption_delay_ms=queue.delay,
        preemption_minruntime_ms=queue.min_runtime,
        priority_offset=queue.offset,
        priority_policy=PriorityPolicy.FENCE if queue.priority_fence else PriorityPolicy.DEFAULT,
    )


def events(cluster: Cluster) -> Iterator[Event]:
    """Yield the events by which a shim would report the cluster."""
    yield ManagerRegistered(MANAGER)
    yield from (DisruptionsAllowed(MANAGER, *group) for group in cluster.allowed.items())
    for node in cluster.nodes:
        yield NodeAdded(MANAGER, node.name, resource(node.capacity), node.schedulable)
    for queue in cluster.queues:
        if queue.leaf:
            yield ApplicationAdded(MANAGER, f"app-{queue.path}", queue.path)
    others = {one.application: one.queue for one in cluster.pods}
    others |= {one.application: one.queue for one in cluster.asks}
    for application, path in others.items():
        if application:
            yield ApplicationAdded(MANAGER, application, path)
    for pod in cluster.pods:
        yield running(pod)
    for ask in cluster.asks:
        yield waiting(ask)


def running(pod: Pod, mark: ReleaseMark | None = None) -> AllocationAdded:
    """Return a pod that runs already; a pod that terminates for no known preemptor has an empty mark."""
    if pod.dying and mark is None:
        mark = ReleaseMark(Termination.UNKNOWN, "", "", "")
    return AllocationAdded(
        MANAGER,
        pod.key,
        pod.owner,
        pod.node,
        replace(
            _ask_spec(pod, pod.node if pod.belongs_to_node else ""),
            gang_key=pod.gang,
            min_members=pod.least,
        ),
        created_ms=pod.created,
        started_ms=pod.created,
        releasing=mark,
    )


def waiting(ask: Ask, created: int | None = None) -> AskAdded:
    """Return an ask that has waited for the given time, or since another instant."""
    created = START - ask.waited if created is None else created
    spec = replace(_ask_spec(ask, ask.required_node), allow_preempt_other=ask.may_preempt)
    return AskAdded(MANAGER, ask.key, ask.owner, spec, created_ms=created)


def _ask_spec(one: Pod | Ask, required_node: str) -> AskSpec:
    return AskSpec(
        resource(one.size),
        one.priority,
        constraints=Constraints(required_node=required_node),
        originator=one.originator,
        allow_preempt_self=not one.opted_out,
        protection=Protection(one.protection),
        lendable=False if one.firm else None,
        disruption_groups=(one.group,) if one.group else (),
    )
