"""Small clusters with one job that waits: made at random, told to a core, and what the core decides."""

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
    """A queue as a user writes it; ``fence`` and ``max`` None where it says nothing."""

    path: str
    guaranteed: Amounts = field(default_factory=dict)
    max: Amounts | None = None
    fence: bool = False


@dataclass
class Pod:
    """What runs. ``gang`` names its job in its application, "" for none, with ``least`` members."""

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

    @property
    def owner(self) -> str:
        """Its application; the queue's own unless it says another."""
        return self.application or f"app-{self.queue}"


@dataclass
class Member:
    """A member of the job that waits."""

    key: str
    size: Amounts
    priority: int = 0


@dataclass
class World:
    """Everything that the laws look at, with one job of one queue that waits."""

    queues: list[Queue]
    nodes: dict[str, Amounts]
    pods: list[Pod]
    queue: str
    members: list[Member]
    firm: bool = False
    victim_gang: str = "whole"

    @property
    def settings(self) -> PreemptionSettings:
        """The partition's."""
        policies = ("required-node", "guaranteed", "job")
        return PreemptionSettings(policies=policies, job_victim_gang=self.victim_gang)


def _tree(queues: Iterable[Queue]) -> QueueSpec:
    known = {one.path: one for one in queues}
    paths = {path.rsplit(".", depth)[0] for path in known for depth in range(path.count("."))}

    def made(path: str) -> QueueSpec:
        below = sorted(one for one in paths | set(known) if one.rpartition(".")[0] == path)
        one = known.get(path, Queue(path))
        policy = PreemptionPolicy.FENCE if one.fence else PreemptionPolicy.DEFAULT
        return QueueSpec(
            name=path.rpartition(".")[2],
            parent=bool(below) or path == "root",
            guaranteed=resource(one.guaranteed),
            max=None if one.max is None else resource(one.max),
            properties=QueueProperties(preemption_policy=policy),
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
    """A core that knows all of it and has ticked once."""
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
            job_key=pod.gang,
            min_members=pod.least,
        )
        core.handle(AllocationAdded(RM, pod.key, pod.owner, pod.node, made), START)
    core.tick(START)
    core.validate()
    return core


def tell(world: World) -> Core:
    """The world behind a core, with the job's members told but nothing decided for them."""
    core = core_of(world.queues, world.nodes, world.pods, world.settings)
    core.handle(ApplicationAdded(RM, "job-app", world.queue), START)
    for at, one in enumerate(world.members):
        made = AskSpec(
            resource(one.size),
            one.priority,
            lendable=not world.firm,
            job_key="job",
            min_members=len(world.members),
        )
        core.handle(AskAdded(RM, one.key, "job-app", made, created_ms=START - 100 + at), START)
    return core


def decided(decisions: Iterable[Decision]) -> DecisionRecord | None:
    """The decision for the job, if there is one."""
    found = (one.record for one in decisions if isinstance(one, Decided))
    return next((one for one in found if one.policy == "job"), None)


class Dice:
    """Random small worlds, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"jobs {seed}")

    def world(self) -> World:
        """One with two to four nodes and a job of two to four members."""
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
