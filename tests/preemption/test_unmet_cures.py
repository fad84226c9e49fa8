"""Every remedy of the unmet-guarantee report, applied to the real core, gives the ask a node or a claim.

Clusters are random or made by hand. The change is applied as a user would do it: by a configuration that `config
apply` accepts, a node that joins, a pod from another template, or by waiting.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from evenhand_cli.story.words import MANAGER
from server.core.core import Core
from server.core.queries.unmet.report import report
from server.model.decisions import Decided, Decision, Placed, Released, Termination
from server.model.events import (
    AskAdded,
    ConfigurationApplied,
    NodeAdded,
    NodeEnabled,
    ReleaseRequested,
)
from server.model.quota import Configuration, PreemptionPolicy, QueueSpec, UserLimit
from server.model.resources import limit, resource
from server.model.unmet import Change, Cure, UnmetAsks
from tests.effort import TRIES_ALL, cases
from tests.preemption import claim_clusters, job_clusters, test_unmet
from tests.preemption.replicas import Replicas

CLUSTERS: Final = cases(150)
CLUSTERS_SOAK: Final = 6_000
CHUNK: Final = 500
ROUNDS: Final = 4
ROUND_MS: Final = 31_000
RESERVED_ROUNDS: Final = 600_000 // ROUND_MS + 1
"""Rounds after which every reservation of `reservations.timeout` has ended."""
"""Longer than a claim's delay and its back-off."""

_QUEUE_CHANGES: Final = {
    Change.RAISE_MAX,
    Change.RAISE_GUARANTEE,
    Change.LOWER_GUARANTEE,
    Change.LIFT_FENCE,
    Change.ENABLE_QUEUE,
    Change.RAISE_USER_LIMIT,
}
_SETTINGS: Final = {
    "policies": "policies",
    "enabled": "enabled",
    "observeonly": "observe_only",
    "disruptionbudgets": "disruption_budgets",
    "crossnode": "cross_node",
    "equalpriority": "equal_priority",
    "job.victimgang": "job_victim_gang",
}


# The change, as a user makes it ---------------------------------------------------------------------------------------


def applied(before: Configuration, cure: Cure) -> Configuration:
    """Return the configuration with the change of a cure in it."""
    (partition,) = before.partitions
    if cure.change is Change.SETTING:
        field = _SETTINGS[cure.subject]
        text = cure.text.rpartition(": ")[2]
        value: Any = {"true": True, "false": False}.get(text, text)
        if field == "policies":
            value = tuple(text.strip("[]").split(", "))
        preemption = replace(partition.preemption, **{field: value})
        return Configuration((replace(partition, preemption=preemption),))
    assert cure.change in _QUEUE_CHANGES, cure
    path = cure.subject.rpartition(" in queue ")[2]
    root = _changed(partition.root, path.split(".")[1:], cure)
    return Configuration((replace(partition, root=root),))


def _changed(queue: QueueSpec, names: list[str], cure: Cure) -> QueueSpec:
    if names:
        children = (
            _changed(one, names[1:], cure) if one.name == names[0] else one
            for one in queue.children
        )
        return replace(queue, children=tuple(children))
    match cure.change:
        case Change.RAISE_MAX:
            assert queue.max is not None
            most = dict(queue.max)
            return replace(
                queue, max=limit({k: n + cure.amounts.get(k, 0) for k, n in most.items()})
            )
        case Change.RAISE_GUARANTEE | Change.LOWER_GUARANTEE:
            sign = 1 if cure.change is Change.RAISE_GUARANTEE else -1
            owed = dict(queue.guaranteed)
            owed |= {k: owed.get(k, 0) + sign * n for k, n in cure.amounts.items()}
            assert min(owed.values()) >= 0, cure
            return replace(queue, guaranteed=resource({k: n for k, n in owed.items() if n}))
        case Change.RAISE_USER_LIMIT:
            return replace(queue, limits=tuple(_raised(one, cure) for one in queue.limits))
        case _:
            properties = replace(queue.properties, preemption_policy=PreemptionPolicy.DEFAULT)
            return replace(queue, properties=properties)


def _raised(one: UserLimit, cure: Cure) -> UserLimit:
    """Return the limit with more in it, if the cure names it."""
    kind, name = cure.subject.partition(" in queue ")[0].split()
    if name not in (one.users if kind == "user" else one.groups):
        return one
    most = {key: n + cure.amounts.get(key, 0) for key, n in dict(one.max_resources or ()).items()}
    return replace(one, max_resources=limit(most))


def contradictions(queue: QueueSpec, above: dict[str, int] | None = None) -> set[tuple[str, ...]]:
    """Return the places where numbers of queues contradict each other, so that `config check` refuses them."""
    found, _ = _contradictions(queue, above or {}, "")
    return found


def _contradictions(
    queue: QueueSpec, above: dict[str, int], path: str
) -> tuple[set[tuple[str, ...]], dict[str, int]]:
    path, own = f"{path}.{queue.name}", dict(queue.max or ())
    owed, found = dict(queue.guaranteed), set[tuple[str, ...]]()
    sums: Counter[str] = Counter()
    found |= {(path, kind, "max above") for kind, n in own.items() if n > above.get(kind, n)}
    found |= {(path, kind, "own max") for kind, n in owed.items() if n > own.get(kind, n)}
    for child in queue.children:
        wrong, needs = _contradictions(child, {**above, **own}, path)
        found |= wrong
        sums.update(needs)
    for bounds in (owed, own):
        found |= {(path, kind, "sum") for kind, n in bounds.items() if sums[kind] > n}
    return found, {**sums, **owed}


# A core before and after ----------------------------------------------------------------------------------------------


@dataclass
class Life:
    """A core that is driven on. ``helped`` are the asks that got a node or a claim."""

    core: Core
    manager: str
    now: int
    helped: set[str]

    def tell(self, *events: Any) -> None:
        """Tell the core what happens."""
        for event in events:
            self.take(self.core.handle(event, self.now))

    def drive(self, rounds: int = ROUNDS) -> None:
        """Let time pass; victims end as soon as they are told to."""
        for _ in range(rounds):
            self.take(claim_clusters.tick(self.core, self.now))
            self.now += ROUND_MS

    def take(self, decisions: list[Decision]) -> None:
        """Remember who is helped, and confirm what is released."""
        for one in decisions:
            if isinstance(one, Placed):
                self.helped.add(one.key)
            if isinstance(one, Decided):
                self.helped |= {each.key for each in one.record.beneficiaries}
            if isinstance(one, Released) and one.termination is Termination.PREEMPTED_BY_SCHEDULER:
                self.tell(
                    ReleaseRequested(
                        self.manager, one.application_id, one.key, termination=one.termination
                    )
                )

    def end_dying(self) -> None:
        """Confirm the end of every pod that was ordered to end before the core knew of it."""
        asks = self.core.state.partitions["default"].asks.values()
        self.tell(
            *(
                ReleaseRequested(self.manager, one.application.application_id, one.key)
                for one in [*asks]
                if one.releasing
            )
        )

    def waiting(self) -> list[Any]:
        """Return the asks of the partition without a node."""
        asks = self.core.state.partitions["default"].asks.values()
        return [one for one in asks if one.node is None]


def cured(make: Callable[[], Life], asks: UnmetAsks, where: str, *, alone: bool = True) -> None:
    """Assert that the cure of an entry helps its asks, once no other kind of ask takes what it frees.

    Where queues share by weight the others have to stay, because shares depend on what they wait for (``alone`` False):
    then the cure helps if any ask is helped, since another one may come first.
    """
    assert asks.cure is not None
    life = make()
    same = [one for one in life.waiting() if _is_of(one, asks)]
    keys = {one.key for one in same}
    others = [one for one in life.waiting() if one.key not in keys] if alone else []
    life.tell(
        *(ReleaseRequested(life.manager, one.application.application_id, one.key) for one in others)
    )
    life.helped.clear()
    if asks.cure.change is Change.WAIT:
        _assert_not_yet(make(), asks, where)
    _apply(life, asks.cure, same, where)
    life.drive(1 if asks.cure.change is Change.WAIT else ROUNDS)
    helped = keys & life.helped if alone else life.helped
    if not helped and asks.cure.change is not Change.WAIT:
        assert not keys & _helped_later(make()), f"{where}: {asks} needs no cure"
        helped = keys & _helped_later(life)
    assert helped, f"{where}: {asks} is not cured"


def _helped_later(life: Life) -> set[str]:
    """Return the asks that are helped once pods that were ordered to end are gone, and reservations have come to their bound.

    The report counts such pods as gone, and a maximum does not. A reservation of another ask may keep what is left of a
    maximum.
    """
    life.end_dying()
    life.drive(RESERVED_ROUNDS)
    return life.helped


def _assert_not_yet(life: Life, asks: UnmetAsks, where: str) -> None:
    """Assert that an instant before the one that the cure names nothing helps."""
    assert asks.cure is not None
    life.now = asks.cure.until_ms - 1
    life.helped.clear()
    life.take(claim_clusters.tick(life.core, life.now))
    assert asks.key not in life.helped, f"{where}: {asks} need not wait for so long"


def _is_of(ask: Any, asks: UnmetAsks) -> bool:
    """Return whether the ask is the first of the entry, or of the same job."""
    return ask.key == asks.key or bool(asks.gang and ask.spec.gang_key == asks.gang)


def _apply(life: Life, cure: Cure, asks: list[Any], where: str) -> None:
    match cure.change:
        case Change.WAIT:
            life.now = max(life.now, cure.until_ms)
        case Change.ADD_NODE:
            labels = next(iter(asks)).spec.constraints.node_selector
            life.tell(NodeAdded(life.manager, "new", resource(cure.amounts), labels=labels))
        case Change.UNCORDON:
            life.tell(NodeEnabled(life.manager, cure.subject))
        case Change.RAISE_PRIORITY | Change.ALLOW_PREEMPTION | Change.DROP_CHECK:
            life.tell(*_made_again(life, cure, asks))
        case _:
            before = _configuration(life)
            after = applied(before, cure)
            new = contradictions(after.partitions[0].root) - contradictions(
                before.partitions[0].root
            )
            assert not new, f"{where}: config apply refuses {cure.text}: {new}"
            life.tell(ConfigurationApplied(after, "cure", life.manager))


def _configuration(life: Life) -> Configuration:
    return Configuration((life.core.state.partitions["default"].spec,))


def _made_again(life: Life, cure: Cure, asks: list[Any]) -> Iterator[Any]:
    for one in asks:
        spec = one.spec
        if cure.change is Change.RAISE_PRIORITY:
            spec = replace(spec, priority=max(spec.priority, cure.amounts["priority"]))
        elif cure.change is Change.DROP_CHECK:
            spec = replace(spec, rm_check=False)
        else:
            spec = replace(spec, allow_preempt_other=True, may_trigger=True)
        application = one.application.application_id
        yield ReleaseRequested(life.manager, application, one.key)
        yield AskAdded(life.manager, one.key, application, spec, created_ms=life.now)


def check(make: Callable[[], Life], where: str, *, alone: bool = True) -> Counter[str]:
    """Apply each cure that the report prints; count them by kind."""
    life = make()
    found: Counter[str] = Counter()
    for queue in report(life.core, "default", life.now).queues:
        for asks in queue.asks:
            if asks.cure is not None:
                cured(make, asks, where, alone=alone)
                found[asks.cure.change.value] += 1
    return found


# Random clusters ------------------------------------------------------------------------------------------------------


def of_claims(seed: int, dice: type[claim_clusters.Dice] = claim_clusters.Dice) -> Life:
    """Return a random cluster with single asks, after everything was decided that can be."""
    cluster = dice(seed, pods_most=6).cluster()
    core = Core(claim_clusters.configuration(cluster))
    life = Life(core, claim_clusters.MANAGER, claim_clusters.START, set())
    life.tell(*claim_clusters.events(cluster))
    life.drive(2)
    return life


def of_jobs(seed: int) -> Life:
    """Return a random cluster with one job, after everything was decided that can be."""
    world = job_clusters.Dice(seed).plain()
    life = Life(job_clusters.tell(world), job_clusters.RM, job_clusters.START, set())
    life.drive(2)
    return life


def judge(seed: int) -> Counter[str]:
    """Check one cluster of each kind."""
    return check(lambda: of_claims(seed), f"asks, seed {seed}") + check(
        lambda: of_jobs(seed), f"job, seed {seed}"
    )


def test_every_cure_of_random_clusters_cures() -> None:
    found: Counter[str] = Counter()
    for seed in range(CLUSTERS):
        found += judge(seed)
    if TRIES_ALL:
        assert {
            "raise-guarantee",
            "lower-guarantee",
            "raise-max",
            "lift-fence",
            "raise-priority",
            "add-node",
        } <= found.keys(), found


def judge_by_weight(seed: int) -> Counter[str]:
    """Check one cluster whose queues share by weight."""
    return check(
        lambda: of_claims(seed, claim_clusters.WeightedDice), f"by weight, seed {seed}", alone=False
    )


def test_every_cure_of_random_clusters_that_share_by_weight_cures() -> None:
    found: Counter[str] = Counter()
    for seed in range(CLUSTERS):
        found += judge_by_weight(seed)
    if TRIES_ALL:
        assert {"raise-guarantee", "raise-max", "add-node"} <= found.keys(), found


# By hand --------------------------------------------------------------------------------------------------------------


def owed(name: str, *queues: Any, most: Any = None, policy: str = "", **guaranteed: int) -> Any:
    """Return a queue with a guarantee, in whole units of each type."""
    resources = {"guaranteed": guaranteed} if guaranteed else {}
    if most:
        resources["max"] = most
    below = {"parent": True, "queues": list(queues)} if queues else {}
    properties = {"preemption.policy": policy} if policy else {}
    return {"name": name, "resources": resources, "properties": properties, **below}


GPU_NODE = "node n1 vcore=64000 gpu=8"
TEAM = ["app x root.team.a", "app y root.team.b", "existing y1..y8 y n1 vcore=1000 gpu=1"]
FOUR = "ask x1..x4 x vcore=1000 gpu=1 created=-60000"
BUSY = "existing c1..c4 c n2 vcore=8000"


@dataclass(frozen=True)
class Case:
    """A cluster in the words of stories; what binds its first entry, and the text of the cure."""

    title: str
    binding: str
    cure: str
    queues: list[Any]
    lines: list[str]
    policies: tuple[str, ...] = ("guaranteed",)

    def __str__(self) -> str:
        return self.title


CASES: Final = [
    Case(
        "a team guarantees GPUs, its queues none: siblings hold all of them",
        "closed-type",
        "raise the guarantee of queue root.team.a by 1 gpu",
        [owed("team", owed("a"), owed("b"), vcore=32, gpu=8)],
        [GPU_NODE, *TEAM, FOUR],
    ),
    Case(
        "a queue has its GPUs, and its team lacks cores",
        "closed-type",
        "raise the guarantee of queue root.team.a by 1 gpu",
        [owed("team", owed("a", gpu=2), owed("b", gpu=4), vcore=32, gpu=8)],
        [
            GPU_NODE,
            *TEAM[:2],
            "existing x0..x1 x n1 vcore=1000 gpu=1",
            "existing y1..y6 y n1 vcore=1000 gpu=1",
            FOUR,
        ],
    ),
    Case(
        "its queue may not be guaranteed more, because the team's GPUs are all given away",
        "closed-type",
        "add a node with 1 core and 1 gpu free",
        [owed("team", owed("a", gpu=2), owed("b", gpu=6), vcore=32, gpu=8)],
        [
            GPU_NODE,
            *TEAM[:2],
            "existing x0..x1 x n1 vcore=1000 gpu=1",
            "existing y1..y6 y n1 vcore=1000 gpu=1",
            FOUR,
        ],
    ),
    Case(
        "nobody guarantees GPUs, and a sibling holds them",
        "undecided-type",
        "raise the guarantee of queue root.team.a by 1 gpu",
        [owed("team", owed("a"), owed("b"), vcore=32)],
        [GPU_NODE, *TEAM, FOUR],
    ),
    Case(
        "cores are raised in whole cores",
        "closed-type",
        "raise the guarantee of queue root.web by 3 cores",
        [owed("web", vcore=4, memory=8), owed("batch")],
        [
            "node n1 vcore=12000 memory=100",
            "app x root.web",
            "app y root.batch",
            "existing x0..x2 x n1 vcore=2000 memory=1",
            "existing y1..y3 y n1 vcore=2000 memory=1",
            "ask x3 x vcore=2000 memory=1 created=-60000",
        ],
    ),
    Case(
        "a fence keeps it from the victims",
        "fence",
        "lift the fence of queue root.team (preemption.policy: default)",
        [owed("team", owed("a"), owed("b"), policy="fence", vcore=32), owed("batch")],
        [
            "node n2 vcore=32000",
            "app x root.team.a",
            "app c root.batch",
            BUSY,
            "ask x1 x vcore=8000 created=-60000",
        ],
    ),
    Case(
        "a gang's queue is over its max",
        "own-max",
        "raise the max of queue root.team.a by 8 cores",
        [owed("team", owed("a", most={"vcore": 8}), owed("b"), vcore=32), owed("batch")],
        [
            "node n2 vcore=32000",
            "app x root.team.a",
            "app c root.batch",
            BUSY,
            "ask x1..x2 x vcore=8000 job=train/2 created=-60000",
        ],
        ("guaranteed", "job"),
    ),
    Case(
        "policy job is not listed",
        "preemption-off",
        "set preemption.policies: [guaranteed, job]",
        [owed("team", owed("a"), owed("b"), vcore=32), owed("batch")],
        [
            "node n2 vcore=32000",
            "app x root.team.a",
            "app c root.batch",
            BUSY,
            "ask x1..x2 x vcore=8000 job=train/2 created=-60000",
        ],
    ),
]


def by_hand(case: Case) -> Life:
    """Return the cluster of a case after everything was decided that can be."""
    life = Replicas(case.queues, preemption={"policies": list(case.policies)})
    life.say(*case.lines)
    made = Life(life.core, MANAGER, life.now, set())
    made.drive(2)
    return made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_cure_of_a_known_cluster_cures(case: Case) -> None:
    life = by_hand(case)
    asks = report(life.core, "default", life.now).queues[0].asks[0]
    assert (asks.binding.value, asks.cure and asks.cure.text) == (case.binding, case.cure), asks
    check(lambda: by_hand(case), case.title)


def test_a_queue_gets_the_gpus_that_it_is_guaranteed_beside_cores_of_its_team() -> None:
    """The team guarantees cores and GPUs, its queues GPUs alone: nothing is left to cure."""
    queues = [owed("team", owed("a", gpu=4), owed("b", gpu=4), vcore=32, gpu=8)]
    life = by_hand(Case("", "", "", queues, [GPU_NODE, *TEAM, FOUR]))
    assert life.helped >= {"x1", "x2", "x3", "x4"}
    assert not life.waiting()


# Every kind of cure ---------------------------------------------------------------------------------------------------

WITH_CURE: Final = [
    *(case for case in test_unmet.CASES if case.cure),
    test_unmet.Case(
        "its volumes are not the core's to judge",
        "rm-check",
        "use a pod template that the core can judge: without volumes, pod affinity or topology spread",
        [*test_unmet.FULL, f"{test_unmet.ASK} rm-check"],
    ),
    test_unmet.Case(
        "a group may not have more",
        "user-limit",
        "raise the limit of group staff in queue root.a by 2 B memory",
        [
            "node n1 memory=10",
            "app x root.a user=ann groups=staff",
            "app y root.b",
            "existing x0 x n1 memory=2",
            "existing y1..y4 y n1 memory=2",
            test_unmet.ASK,
        ],
        queues=[
            {
                **test_unmet.OWED,
                "limits": [{"limit": "staff", "groups": ["staff"], "maxresources": {"memory": 2}}],
            },
            test_unmet.FREE,
        ],
    ),
]


def undecided(case: test_unmet.Case) -> Life:
    """Return the cluster of a case before the first tick."""
    life = Replicas(case.queues, **case.partition)
    life.say(*case.lines)
    return Life(life.core, MANAGER, life.now, set())


@pytest.mark.parametrize("case", WITH_CURE, ids=str)
def test_every_cure_that_is_told_cures(case: test_unmet.Case) -> None:
    test_unmet.assert_told(case)
    assert check(lambda: undecided(case), case.title)


def test_every_kind_of_cure_is_tried() -> None:
    tried = {
        asks.cure.change
        for case in WITH_CURE
        for queue in test_unmet.told(case).queues
        for asks in queue.asks
        if asks.cure is not None
    }
    assert tried == set(Change)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_every_cure_of_very_many_clusters_cures(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        judge(seed)
        judge_by_weight(seed)
