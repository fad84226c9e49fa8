"""Small random clusters with one waiting job, and the decisions of a core for them."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    DisruptionsAllowed,
    ManagerRegistered,
    NodeAdded,
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
from server.model.records import DecisionRecord
from server.model.resources import resource

START: Final = 1_800_000_000_000
RM: Final = "rm"
Amounts = dict[str, int]


@dataclass
class Queue:
    """A queue as a user writes it; `fence` and `max` are None when they are not set."""

    path: str
    guaranteed: Amounts = field(default_factory=dict)
    max: Amounts | None = None
    fence: bool = False
    weight: int = 1
    disabled: bool = False
    offset: int = 0
    priority_fence: bool = False
    min_runtime: int = 0

    @property
    def properties(self) -> QueueProperties:
        """Return the queue's properties of preemption and priorities."""
        policy = PreemptionPolicy.FENCE if self.fence else PreemptionPolicy.DEFAULT
        return QueueProperties(
            preemption_policy=PreemptionPolicy.DISABLED if self.disabled else policy,
            preemption_minruntime_ms=self.min_runtime,
            priority_offset=self.offset,
            priority_policy=PriorityPolicy.FENCE if self.priority_fence else PriorityPolicy.DEFAULT,
        )


@dataclass
class Pod:
    """A pod that runs. `gang` is the name of its job in its application, "" for none; the job needs `least` members.

    `group` is its disruption budget, "" for none; `ran` is how long it has been running, in milliseconds.
    """

    key: str
    queue: str
    node: str
    size: Amounts
    priority: int = 0
    firm: bool = False
    opted_out: bool = False
    gang: str = ""
    least: int = 0
    application: str = ""
    group: str = ""
    ran: int = 3_600_000

    @property
    def owner(self) -> str:
        """Return the application of the pod: the one that it names, otherwise the application of its queue."""
        return self.application or f"app-{self.queue}"


@dataclass
class Member:
    """A member of the waiting job."""

    key: str
    size: Amounts
    priority: int = 0


@dataclass
class Waiting:
    """A single firm ask that fits no node: it waits, and a part of its queues' guarantee is kept for it (J4)."""

    key: str
    queue: str
    size: Amounts


@dataclass
class World:
    """All facts that the rules use, with one waiting job of one queue.

    `allowed` says how many pods each disruption group may still lose.
    """

    queues: list[Queue]
    nodes: dict[str, Amounts]
    pods: list[Pod]
    queue: str
    members: list[Member]
    firm: bool = False
    victim_gang: str = "whole"
    waiting: list[Waiting] = field(default_factory=list)
    budgets: str = "prefer"
    equal_priority: str = "allow"
    entitlement: str = "guaranteed"
    allowed: dict[str, int] = field(default_factory=dict)
    dead_zone: int = 0
    """The dead zone in hundredths of a percent (P9)."""

    @property
    def settings(self) -> PreemptionSettings:
        """Return the preemption settings of the partition."""
        policies = ("required-node", "guaranteed", "job")
        return PreemptionSettings(
            policies=policies,
            job_victim_gang=self.victim_gang,
            disruption_budgets=self.budgets,
            equal_priority=self.equal_priority,
            entitlement=self.entitlement,
            deadzone_permyriad=self.dead_zone,
        )


def _tree(queues: Iterable[Queue]) -> QueueSpec:
    known = {one.path: one for one in queues}
    paths = {path.rsplit(".", depth)[0] for path in known for depth in range(path.count("."))}

    def made(path: str) -> QueueSpec:
        below = sorted(one for one in paths | set(known) if one.rpartition(".")[0] == path)
        one = known.get(path, Queue(path))
        return QueueSpec(
            name=path.rpartition(".")[2],
            parent=bool(below) or path == "root",
            guaranteed=resource(one.guaranteed),
            max=None if one.max is None else resource(one.max),
            weight=one.weight,
            properties=one.properties,
            submit_acl=Acl(everyone=True),
            children=tuple(made(each) for each in below),
        )

    return made("root")


def core_of(
    queues: Iterable[Queue],
    nodes: Mapping[str, Amounts],
    pods: Iterable[tuple[str, str, str, Amounts]] | Iterable[Pod],
    settings: PreemptionSettings | None = None,
) -> Core:
    """Return a core that has received these objects and has ticked once."""
    settings = settings or PreemptionSettings(policies=("required-node", "guaranteed", "job"))
    partition = PartitionSpec(
        "default", _tree(queues), (PlacementRule("provided"),), preemption=settings
    )
    core = Core(Configuration((partition,)))
    core.handle(ManagerRegistered(RM), START)
    for name, size in nodes.items():
        core.handle(NodeAdded(RM, name, resource(size)), START)
    for one in pods:
        pod = one if isinstance(one, Pod) else Pod(*one)
        core.handle(ApplicationAdded(RM, pod.owner, pod.queue), START)
        made = AskSpec(
            resource(pod.size),
            pod.priority,
            allow_preempt_self=not pod.opted_out,
            lendable=not pod.firm,
            gang_key=pod.gang,
            min_members=pod.least,
            disruption_groups=(pod.group,) if pod.group else (),
        )
        began = START - pod.ran
        placed = AllocationAdded(
            RM, pod.key, pod.owner, pod.node, made, created_ms=began, started_ms=began
        )
        core.handle(placed, START)
    core.tick(START)
    core.validate()
    return core


def tell(world: World) -> Core:
    """Return a core that has received the cluster and the job's members, but has made no decision for them."""
    core = core_of(world.queues, world.nodes, world.pods, world.settings)
    for group, most in world.allowed.items():
        core.handle(DisruptionsAllowed(RM, group, most), START)
    for one in world.waiting:
        core.handle(ApplicationAdded(RM, one.key, one.queue), START)
        firm = AskSpec(resource(one.size), lendable=False, allow_preempt_other=False)
        core.handle(AskAdded(RM, one.key, one.key, firm, created_ms=START), START)
    core.handle(ApplicationAdded(RM, "job-app", world.queue), START)
    for at, member in enumerate(world.members):
        made = AskSpec(
            resource(member.size),
            member.priority,
            lendable=not world.firm,
            gang_key="job",
            min_members=len(world.members),
        )
        core.handle(AskAdded(RM, member.key, "job-app", made, created_ms=START - 100 + at), START)
    return core


def decided(decisions: Iterable[Decision]) -> DecisionRecord | None:
    """Return the decision for the job, if there is one."""
    found = (one.record for one in decisions if isinstance(one, Decided))
    return next((one for one in found if one.policy == "job"), None)


class Dice:
    """A generator of small random clusters; an equal seed gives equal clusters."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"jobs {seed}")
        self._odd = random.Random(f"odd jobs {seed}")
        self._rest = random.Random(f"jobs at rest {seed}")
        self._levels = random.Random(f"jobs by level {seed}")
        self._mixed = random.Random(f"jobs of mixed types {seed}")

    def world(self) -> World:
        """Return a cluster; every second one has special settings: budgets, switches, offsets, running times, firm asks."""
        world = self.plain()
        if self._odd.random() < 0.5:
            self._make_odd(world)
        elif len(self._types(world)) > 1 and self._levels.random() < 0.8:
            self._guarantee_by_level(world)
        if self._odd.random() < 0.25:
            self._share_out(world)
        world.dead_zone = self._rest.choice((0, 0, 5_000, 20_000))
        return world

    def mixed(self) -> World:
        """Return a cluster in which the job's queue has guarantees for some types only, on full nodes shared with other queues (J7)."""
        chance, types = self._mixed, ("gpu", "memory", "vcore")
        nodes = {f"n{at}": dict.fromkeys(types, 8) for at in range(chance.randint(1, 3))}
        own = {kind: chance.randint(4, 24) for kind in types if chance.random() < 0.45}
        above = {kind: chance.randint(10, 40) for kind in types if chance.random() < 0.3}
        above = {kind: max(much, own.get(kind, 0)) for kind, much in above.items()}
        leaves = ["root.p.a", "root.p.a", "root.p.b", "root.q.a"]
        queues = [
            Queue("root.p", above),
            Queue("root.p.a", own or {"vcore": chance.randint(4, 24)}),
            Queue("root.p.b"),
            Queue("root.q"),
            Queue("root.q.a", {"memory": chance.randint(0, 3)}),
        ]
        if chance.random() < 0.2:
            queues[1].max = {kind: chance.randint(24, 30) for kind in own}
        pods = []
        for name, whole in nodes.items():
            free = dict(whole)
            for at in range(chance.randint(2, 6)):
                size = {k: min(chance.choice((0, 1, 2, 2, 3)), left) for k, left in free.items()}
                pod = Pod(f"{name}-{at}", chance.choice(leaves), name, {}, chance.randint(0, 3))
                pod.size = {kind: much for kind, much in size.items() if much}
                pod.opted_out = chance.random() < 0.1
                if chance.random() < 0.25:
                    pod.gang, pod.least, pod.application = "k", 2, f"gang-{pod.queue}"
                if pod.size:
                    pods.append(pod)
                    free = {kind: free[kind] - size[kind] for kind in types}
        members = [
            Member(f"g{at}", {kind: chance.randint(1, 4) for kind in types}, 4)
            for at in range(chance.choice((2, 2, 3)))
        ]
        gang = chance.choice(("whole", "whole", "avoid"))
        return World(queues, nodes, pods, "root.p.a", members, victim_gang=gang)

    def _guarantee_by_level(self, world: World) -> None:
        """Guarantee different types at different levels above the job, and some types at no level (G2, J7)."""
        chance, types = self._levels, self._types(world)
        world.firm = False
        for queue in world.queues:
            if f"{world.queue}.".startswith(f"{queue.path}."):
                most = chance.randint(4, 16) if queue.path == world.queue else chance.randint(8, 40)
                queue.guaranteed = {chance.choice(types): most} if chance.random() < 0.8 else {}
                queue.max = None
            elif chance.random() < 0.6:
                queue.guaranteed = {}
        for member in world.members:
            member.size = {kind: chance.randint(1, 4) for kind in types}
            member.priority = max(member.priority, chance.randint(0, 4))

    def _share_out(self, world: World) -> None:
        """Set weights; the job's queue and its parents get the largest weights."""
        world.entitlement = "proportional"
        for queue in world.queues:
            owned = f"{world.queue}.".startswith(f"{queue.path}.")
            queue.weight = self._odd.choice((3, 5, 8) if owned else (1, 1, 2))
            queue.guaranteed = {} if self._odd.random() < 0.7 else queue.guaranteed
            queue.max = queue.max if self._odd.random() < 0.3 else None

    def _make_odd(self, world: World) -> None:
        odd = self._odd
        world.budgets = odd.choice(("prefer", "respect", "respect", "ignore"))
        world.equal_priority = odd.choice(("allow", "never", "ignore"))
        few = 1 if world.budgets == "respect" else 0
        world.allowed = {"g/none": 0, "g/few": few, "g/many": 100}
        for queue in world.queues:
            self._say(queue, leaf=queue.path.count(".") == 2)
        self._let_claim(world)
        for pod in world.pods:
            pod.ran = odd.choice((100_000, 500_000, 500_000))
            pod.group = odd.choice(("", "g/none", "g/few", "g/few", "g/few", "g/many"))
        if odd.random() < 0.5:
            leaves = [one.path for one in world.queues if one.path.count(".") == 2]
            at = odd.choice((world.queue, world.queue, odd.choice(leaves)))
            world.waiting.append(Waiting("firm", at, dict.fromkeys(self._types(world), 30)))
            own = next(one for one in world.queues if one.path == world.queue)
            own.max = {kind: most + odd.randint(0, 20) for kind, most in own.guaranteed.items()}

    def _let_claim(self, world: World) -> None:
        """Give the job a high guarantee and others low ones, so that only rules other than guarantees protect pods."""
        types = self._types(world)
        for queue in world.queues:
            owned = f"{world.queue}.".startswith(f"{queue.path}.")
            if owned and self._odd.random() < 0.8:
                queue.guaranteed = dict.fromkeys(types, 40 if queue.path == world.queue else 60)
                queue.max = None
            elif not owned and self._odd.random() < 0.7:
                queue.guaranteed = {}
        del world.members[2:]
        for member in world.members:
            member.priority = self._odd.choice((2, 2, 3))
            member.size = {kind: min(much, 5) for kind, much in member.size.items()}

    def _types(self, world: World) -> list[str]:
        return sorted(next(iter(world.nodes.values())))

    def _say(self, queue: Queue, *, leaf: bool) -> None:
        odd = self._odd
        if odd.random() < 0.3:
            queue.offset, queue.priority_fence = odd.randint(-3, 3), odd.random() < 0.4
        if leaf:
            queue.min_runtime = odd.choice((0, 300_000))
            queue.disabled = odd.random() < 0.1
            queue.fence = not queue.disabled and odd.random() < 0.05

    def plain(self) -> World:
        """Return a cluster with two to four nodes and a job of two to four members."""
        chance = self._chance
        types = ["vcore", "memory"][: chance.choice((1, 1, 2))]
        queues = self._queues(types)
        nodes = {f"n{at}": dict.fromkeys(types, 8) for at in range(chance.randint(2, 4))}
        leaves = [one.path for one in queues if one.path.count(".") == 2]
        pods = self._pods(nodes, leaves, types)
        size, priority = chance.randint(2, 4), chance.randint(0, 4)
        members = [
            Member(f"g{at}", self._size(types, 6), priority + chance.choice((0, 0, 0, 1)))
            for at in range(size)
        ]
        return World(
            queues,
            nodes,
            pods,
            chance.choice(leaves),
            members,
            chance.random() < 0.3,
            chance.choice(("whole", "whole", "avoid")),
        )

    def _size(self, types: list[str], most: int) -> Amounts:
        found = {kind: self._chance.randint(0, most) for kind in types}
        return {kind: much for kind, much in found.items() if much} or {types[0]: 1}

    def _queues(self, types: list[str]) -> list[Queue]:
        chance, found = self._chance, []
        for parent in ("root.p", "root.q"):
            fence = chance.random() < 0.15
            found.append(Queue(parent, self._some(types, 16), None, fence))
            for name in ("a", "b"):
                least = self._some(types, 12)
                most = self._some(types, 24) if chance.random() < 0.4 else None
                if most is not None:
                    most = {kind: max(much, least.get(kind, 0)) for kind, much in most.items()}
                found.append(Queue(f"{parent}.{name}", least, most))
        for above in found:
            below = [one for one in found if one.path.startswith(f"{above.path}.")]
            for kind in list(above.guaranteed) if below else ():
                parts = sum(one.guaranteed.get(kind, 0) for one in below)
                above.guaranteed[kind] = max(above.guaranteed[kind], parts)
        return found

    def _some(self, types: list[str], most: int) -> Amounts:
        return {
            kind: self._chance.randint(1, most) for kind in types if self._chance.random() < 0.6
        }

    def _pods(self, nodes: Mapping[str, Amounts], leaves: list[str], types: list[str]) -> list[Pod]:
        chance, pods = self._chance, []
        gangs = [(f"k{at}", chance.choice(leaves), chance.randint(2, 3)) for at in range(2)]
        for name, whole in nodes.items():
            free = dict(whole)
            for at in range(chance.randint(1, 4)):
                size = {kind: min(much, free[kind]) for kind, much in self._size(types, 5).items()}
                size = {kind: much for kind, much in size.items() if much}
                if not size:
                    continue
                pod = Pod(f"{name}-{at}", chance.choice(leaves), name, size, chance.randint(0, 4))
                pod.firm, pod.opted_out = chance.random() < 0.1, chance.random() < 0.15
                if chance.random() < 0.4:
                    gang, queue, least = chance.choice(gangs)
                    pod = replace(pod, queue=queue, gang=gang, least=least, priority=1, firm=False)
                for kind, much in size.items():
                    free[kind] -= much
                pods.append(pod)
        return pods
