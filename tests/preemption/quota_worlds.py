"""Queues and running pods for quota runs, equal for the planner and for the oracle."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from server.model.asks import AskSpec, Constraints, Protection
from server.model.events import AllocationAdded
from server.model.quota import PreemptionSettings, QueueProperties, QueueSpec
from server.model.resources import limit, resource
from server.preemption.policy import Plan, Refusal, ShrinkIntent
from server.preemption.quota import enforcement
from server.preemption.trial import Trial
from server.state import journal, snapshotting
from server.state.commitments import Commitment
from tests.preemption.clusters import MANAGER, START, Cluster
from tests.preemption.quota_oracle import Pod, QuotaRun, Tree

PLENTY: Final = 1 << 50


@dataclass
class World:
    """The state when a run is due: queues by path below root; `options` are properties of the queue whose max was lowered."""

    maxima: dict[str, dict[str, int] | None]
    pods: list[Pod]
    queue: str
    guaranteed: dict[str, dict[str, int]] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    overshoot: str = "last"
    shortfall: str = "proceed"
    miss_permyriad: int = 0
    budgets: str = "ignore"
    allowed: dict[str, int] = field(default_factory=dict)

    def oracle(self) -> QuotaRun:
        """Return the oracle's quota run."""
        maxima = {"root": None, **self.maxima}
        guaranteed = {path: self.guaranteed.get(path, {}) for path in maxima}
        tree = Tree(guaranteed, maxima, self.busy)
        return QuotaRun(
            tree, self.pods, self.queue, self.overshoot, self.budgets, dict(self.allowed)
        )

    def trial(self) -> Trial:
        """Return the state as a Trial."""
        return trial_of(self.cluster())

    def cluster(self) -> Cluster:
        """Return a cluster with these queues and pods in the state."""
        children = [self._spec(path) for path in self.maxima if path.count(".") == 1]
        cluster = Cluster(*children)
        partition = cluster.partition
        settings = PreemptionSettings(
            quota_enabled=True,
            policies=("required-node", "guaranteed", "job"),
            disruption_budgets=self.budgets,
        )
        partition.spec = replace(partition.spec, preemption=settings)
        partition.disruptions.update(self.allowed)
        cluster.nodes("n1", memory=PLENTY, vcore=PLENTY, gpu=PLENTY)
        for leaf in sorted({pod.leaf for pod in self.pods}):
            cluster.application(f"app-{leaf}", leaf)
        for pod in self.pods:
            self._add(cluster, pod)
        for path in sorted(self.busy):
            run = Commitment(f"q-{path}", enforcement.NAME, START - 1_000, queue=path)
            partition.decisions.open[run.commitment_id] = run
        return cluster

    def _spec(self, path: str) -> QueueSpec:
        below = [one for one in self.maxima if one.rpartition(".")[0] == path]
        most = self.maxima[path]
        properties = QueueProperties()
        if path == self.queue:
            properties = QueueProperties(
                quota_overshoot=self.overshoot,
                quota_shortfall=self.shortfall,
                quota_miss_permyriad=self.miss_permyriad,
            )
        return QueueSpec(
            name=path.rpartition(".")[2],
            parent=bool(below),
            guaranteed=resource(self.guaranteed.get(path, {})),
            max=None if most is None else limit(most),
            properties=properties,
            children=tuple(self._spec(one) for one in below),
        )

    def _add(self, cluster: Cluster, pod: Pod) -> None:
        spec = spec_of(pod)
        created = START - 1_000_000 + pod.created
        application = f"app-{pod.leaf}"
        cluster.say(AllocationAdded(MANAGER, pod.key, application, "n1", spec, created_ms=created))
        ask = cluster.partition.asks[pod.key]
        if pod.bar == "already-releasing":
            journal.set_releasing(cluster.partition, ask, releasing=True)


PROTECTIONS: Final[Mapping[str, Protection]] = {
    "firm": Protection.FIRM,
    "untouchable": Protection.UNTOUCHABLE,
}


def spec_of(pod: Pod) -> AskSpec:
    """Return the specification of the pod's ask."""
    return AskSpec(
        resource=resource(pod.size),
        priority=pod.priority,
        originator=pod.originator,
        allow_preempt_self=not pod.opted_out,
        protection=PROTECTIONS.get(pod.bar, Protection.NORMAL),
        constraints=Constraints(required_node="n1" if pod.bar == "required-node" else ""),
        disruption_groups=pod.groups,
    )


def trial_of(cluster: Cluster) -> Trial:
    """Return the present state as a Trial, for planning."""
    return Trial(snapshotting.take(cluster.partition, cluster.now))


def planned(world: World) -> Plan | Refusal:
    """Return the planner's answer."""
    return enforcement.plan(world.trial(), ShrinkIntent("quota", world.queue))


def victims(answer: Plan | Refusal) -> list[str]:
    """Return the victims, least important first."""
    return [one.key for one in answer.releases] if isinstance(answer, Plan) else []


def spared(answer: Plan | Refusal) -> dict[str, str]:
    """Return the pods that are not evicted, each with the rule that spares it."""
    return {key: each.rule.value for each in answer.spared for key in each.keys}


# Random worlds --------------------------------------------------------------------------------------------------

KINDS: Final = ("memory", "vcore", "gpu")


def random_world(dice: random.Random) -> World:
    """Return a small tree with anything in it: inconsistent guarantees, odd sizes, all protections."""
    maxima: dict[str, dict[str, int] | None] = {}
    top = "root.p"
    maxima[top] = None
    _grow(dice, maxima, top, depth=dice.randint(0, 2))
    if dice.random() < 0.3:
        maxima["root.q"] = None
    leaves = [path for path in maxima if not any(one.startswith(path + ".") for one in maxima)]
    kinds = KINDS[: dice.randint(1, 3)]
    pods = [_pod(dice, number, leaves, kinds) for number in range(_count(dice))]
    queue = dice.choice([path for path in maxima if path != "root.q"])
    world = World(maxima, pods, queue)
    world.guaranteed = {path: _amounts(dice, kinds, 18) for path in maxima if dice.random() < 0.4}
    used = world.oracle().eff(queue)
    maxima[queue] = {
        kind: dice.randint(0, max(1, used.get(kind, 0))) for kind in kinds if dice.random() < 0.8
    }
    others = [path for path in maxima if path.startswith(queue + ".")]
    world.busy = frozenset(path for path in others if dice.random() < 0.1)
    world.overshoot = dice.choice(["last", "last", "none"])
    world.miss_permyriad = dice.choice([0, 0, 1_000, 5_000])
    world.budgets = dice.choice(["ignore", "prefer", "respect"])
    world.allowed = {group: dice.randint(0, 3) for group in "uvw" if dice.random() < 0.8}
    return world


def _grow(
    dice: random.Random, maxima: dict[str, dict[str, int] | None], path: str, depth: int
) -> None:
    for name in "abcd"[: dice.randint(1, 4)] if depth else "":
        maxima[f"{path}.{name}"] = None
        if dice.random() < 0.5:
            _grow(dice, maxima, f"{path}.{name}", depth - 1)


def _count(dice: random.Random) -> int:
    """Return a number of pods: few enough for a search, or too many."""
    return dice.choice([dice.randint(0, 8), dice.randint(17, 40)])


def _pod(dice: random.Random, number: int, leaves: Iterable[str], kinds: Iterable[str]) -> Pod:
    bar = dice.choices(
        ["", "required-node", "firm", "untouchable", "already-releasing"], [30, 1, 1, 1, 2]
    )[0]
    return Pod(
        key=f"pod-{dice.randint(0, 99):02}-{number}",
        leaf=dice.choice(list(leaves)),
        size=_amounts(dice, kinds, 9) or {"memory": 1},
        priority=dice.choice([-5, 0, 0, 0, 7, 2_000_000_000]),
        created=dice.randint(0, 3) * 10,
        originator=dice.random() < 0.1,
        opted_out=dice.random() < 0.2,
        bar=bar,
        groups=tuple(group for group in "uvw" if dice.random() < 0.15),
    )


def _amounts(dice: random.Random, kinds: Iterable[str], most: int) -> dict[str, int]:
    drawn = {kind: dice.randint(0, most) for kind in kinds if dice.random() < 0.8}
    return {kind: amount for kind, amount in drawn.items() if amount}
