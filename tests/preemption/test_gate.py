"""Every rule of the gate refuses a plan that violates only that rule, and accepts the most similar valid plan.

A policy that makes an invalid plan does no harm: no pod is evicted, administrators are told once, and the state stays
unchanged.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Decisions, Noted, Released
from server.model.events import AllocationAdded, ApplicationAdded, ConfigurationApplied
from server.model.quota import Configuration, PreemptionSettings, QueueProperties
from server.model.reasons import Code
from server.model.records import Shrink, ShrinkResult
from server.model.resources import resource
from server.observe.metrics import Metrics
from server.preemption import admission
from server.preemption.claims import guarantee
from server.preemption.nodes import required_node, reservation
from server.preemption.policy import Intent, Plan, PlannedPledge, Refusal, Release, Rule
from server.preemption.quota import enforcement
from server.preemption.rules import gangs, gate
from server.preemption.trial import Trial
from server.snapshot.columns import REPLACED, VETOED
from server.snapshot.snapshot import Snapshot
from server.state import snapshotting
from tests.observe.test_metrics import Observed
from tests.preemption.claim_clusters import MANAGER, START, configuration, events, tick
from tests.preemption.claim_oracle import Ask, Cluster, Node, Pod, Queue
from tests.preemption.clusters import Cluster as Small
from tests.preemption.clusters import leaf

JOBS: Final = PreemptionSettings(policies=("required-node", "guaranteed", "job"))
NO_JOBS: Final = PreemptionSettings()
BREAKING: Final = replace(JOBS, firm_break=True)
Change = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True)
class Word:
    """A plan in words: who gets capacity where, who goes, and after which plans."""

    pledges: tuple[tuple[str, str], ...] = ()
    victims: tuple[str, ...] = ()
    policy: str = guarantee.NAME
    before: tuple["Word", ...] = ()


@dataclass(frozen=True)
class Case:
    """A plan that breaks one rule, and the nearest one that breaks none; ``legally`` is where that one stands."""

    title: str
    breaks: str
    rule: Rule
    cluster: Cluster
    broken: Word
    legal: Word
    legally: Cluster | None = None
    settings: PreemptionSettings = JOBS
    legal_settings: PreemptionSettings | None = None
    change: Change | None = None
    also: Mapping[str, Rule] = field(default_factory=dict)
    """Other rules that refuse the same plan, each with the rule that it names."""
    claims: bool = True
    """A policy of claims could make it: it is put through the core, too."""


def pod(key: str, queue: str, size: int = 10, node: str = "n1", **more: Any) -> Pod:
    return Pod(key, queue, node, {"memory": size}, **more)


def owed(
    *pods: Pod,
    size: int = 10,
    nodes: dict[str, int] | None = None,
    queues: Iterable[Queue] = (),
    **more: Any,
) -> Cluster:
    """`root.a` is guaranteed 100 and asks for x1; `root.b` runs pods on full nodes."""
    tree = [Queue("root", leaf=False), Queue("root.a", {"memory": 100}), Queue("root.b")]
    own = {each.path: each for each in queues}
    tree = [own.pop(each.path, each) for each in tree] + list(own.values())
    sizes = nodes or {"n1": 20}
    asks = [Ask("x1", more.pop("asks_in", "root.a"), {"memory": size}, more.pop("priority", 0))]
    found = [Node(name, {"memory": amount}) for name, amount in sizes.items()]
    return Cluster(tree, found, list(pods), asks, **more)


def claim(*victims: str, node: str = "n1", before: tuple[Word, ...] = ()) -> Word:
    return Word((("x1", node),), victims, before=before)


def flagged(key: str, flag: int) -> Change:
    """One allocation has a flag that nothing in the tests' words gives it."""

    def change(snapshot: Snapshot) -> Snapshot:
        flags = snapshot.allocations.flags.copy()
        flags[snapshot.allocations.keys.index(key)] |= flag
        return replace(snapshot, allocations=replace(snapshot.allocations, flags=flags, sorted={}))

    return change


B, TWO = "root.b", (pod("b1", "root.b"), pod("b2", "root.b"))
TWO_NODES: Final = owed(*TWO, pod("b3", B, node="n2"), nodes={"n1": 20, "n2": 10})
FENCED: Final = [
    Queue("root.t", leaf=False, policy="fence"),
    Queue("root.t.a", {"memory": 100}),
    Queue("root.t.b"),
]
LIMITED: Final = [
    Queue("root.p", leaf=False, max={"memory": 20}),
    Queue("root.p.a", {"memory": 15}),
    Queue("root.p.b"),
]
DAEMON: Final = Word((("x1", "n1"),), ("b1",), required_node.NAME)


def barred(**more: Any) -> Cluster:
    """One pod that may not go and one that may."""
    return owed(pod("b1", B, **more), pod("b2", B))


def daemon(cluster: Cluster, node: str = "n1") -> Cluster:
    """Return the cluster with an ask that belongs to a node."""
    return replace(cluster, asks=[Ask("x1", "root.a", {"memory": 10}, required_node=node)])


PLAIN: Final = owed(
    pod("b1", B, 8),
    pod("c1", "root.c", 8),
    pod("c2", "root.c", 14, "n2"),
    size=8,
    nodes={"n1": 16, "n2": 14},
    queues=[Queue("root.a"), Queue("root.c")],
    entitlement="proportional",
    demand_cap=False,
    trigger="after",
)
"""Three queues that deserve 10 each: `root.b` has less, `root.c` more."""

BOTH: Final = {"memory": 10, "gpu": 1}
SEVERAL: Final = Cluster(
    [
        Queue("root", leaf=False),
        Queue("root.p", {"memory": 100}, leaf=False),
        Queue("root.p.a", {"gpu": 2}),
        Queue("root.p.b"),
        Queue(B),
    ],
    [Node("n1", {"memory": 20, "gpu": 3})],
    [Pod("b1", "root.p.b", "n1", BOTH), Pod("b2", B, "n1", BOTH)],
    [Ask("x1", "root.p.a", BOTH)],
)
"""On the node the ask lacks memory alone, of which `root.p` decides; it could have a GPU from `b1`."""
CLOSED: Final = Cluster(
    [Queue("root", leaf=False), Queue("root.a", {"memory": 100, "gpu": 1}), Queue(B)],
    [Node("n1", BOTH), Node("n2", BOTH), Node("n3", {"gpu": 1})],
    [Pod("b1", B, "n1", BOTH), pod("b2", B, node="n2"), Pod("a1", "root.a", "n3", {"gpu": 1})],
    [Ask("x1", "root.a", BOTH)],
)
"""`root.a` has its GPU; the ask lacks another on n1, and finds one on n2."""

CASES: Final = (
    Case(
        "by plain weights a victim's queue has less than its share",
        "taken_for_a_lacking_type",
        Rule.NOT_OVER_GUARANTEE,
        PLAIN,
        claim("b1"),
        claim("c1"),
    ),
    Case(
        "an ask gets capacity twice",
        "each_ask_once",
        Rule.ONE_AN_ASK,
        TWO_NODES,
        Word((("x1", "n1"), ("x1", "n2")), ("b1", "b3")),
        claim("b1"),
    ),
    Case(
        "a victim is named twice",
        "each_victim_once",
        Rule.VICTIM_TWICE,
        owed(*TWO, size=20),
        claim("b1", "b1"),
        claim("b1", "b2"),
    ),
    Case(
        "a victim is dying already",
        "each_victim_once",
        Rule.VICTIM_TWICE,
        owed(pod("b1", B, dying=True), pod("b2", B), pod("b3", B), size=30, nodes={"n1": 30}),
        claim("b1", "b2"),
        claim("b2", "b3"),
    ),
    Case(
        "a victim goes for the plan before",
        "each_victim_once",
        Rule.VICTIM_TWICE,
        replace(
            owed(*TWO, pod("b3", B), size=10, nodes={"n1": 30}),
            asks=[Ask("x1", "root.a", {"memory": 10}), Ask("x2", "root.a", {"memory": 10})],
        ),
        claim("b1", before=(Word((("x2", "n1"),), ("b1",)),)),
        claim("b2", before=(Word((("x2", "n1"),), ("b1",)),)),
        claims=False,
    ),
    Case(
        "a DaemonSet's pod goes",
        "untouchables",
        Rule.UNTOUCHABLE,
        barred(belongs_to_node=True),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "an untouchable pod goes",
        "untouchables",
        Rule.UNTOUCHABLE,
        barred(protection=3),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a firm pod goes where jobs are planned for",
        "untouchables",
        Rule.UNTOUCHABLE,
        barred(protection=2),
        claim("b1"),
        claim("b1"),
        legal_settings=NO_JOBS,
    ),
    Case(
        "a firm pod goes though only required nodes may break it",
        "untouchables",
        Rule.UNTOUCHABLE,
        barred(protection=2),
        claim("b1"),
        DAEMON,
        legally=daemon(barred(protection=2)),
        settings=BREAKING,
    ),
    Case(
        "a firm pod goes for a required node that may not break it",
        "untouchables",
        Rule.UNTOUCHABLE,
        daemon(barred(protection=2)),
        DAEMON,
        DAEMON,
        legal_settings=BREAKING,
        claims=False,
    ),
    Case(
        "a vetoed pod goes",
        "untouchables",
        Rule.UNTOUCHABLE,
        barred(),
        claim("b1"),
        claim("b2"),
        change=flagged("b1", VETOED),
        claims=False,
    ),
    Case(
        "a placeholder that is being replaced goes",
        "untouchables",
        Rule.UNTOUCHABLE,
        barred(),
        claim("b1"),
        claim("b2"),
        change=flagged("b1", REPLACED),
        claims=False,
    ),
    Case(
        "a victim makes headroom from another node",
        "one_node",
        Rule.SEVERAL_NODES,
        owed(
            pod("b1", "root.p.b", node="n2"),
            pod("b2", "root.p.b"),
            asks_in="root.p.a",
            nodes={"n1": 20, "n2": 10},
            queues=LIMITED,
        ),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a victim runs in the asking queue",
        "within_the_fence",
        Rule.OWN_QUEUE,
        owed(pod("a1", "root.a"), pod("b1", B)),
        claim("a1"),
        claim("b1"),
    ),
    Case(
        "a victim runs outside the fence",
        "within_the_fence",
        Rule.FENCE,
        owed(pod("b1", B), pod("b2", "root.t.b"), asks_in="root.t.a", queues=FENCED),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a fence is no prefix of a name",
        "within_the_fence",
        Rule.FENCE,
        owed(
            pod("b1", "root.tb"),
            pod("b2", "root.t.b"),
            asks_in="root.t.a",
            queues=[*FENCED, Queue("root.tb")],
        ),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a victim runs below a deciding queue",
        "within_the_fence",
        Rule.DECIDING_QUEUE,
        owed(
            pod("b1", "root.p.b"),
            pod("b2", B),
            asks_in="root.p.a",
            queues=[
                Queue("root.p", {"memory": 100}, leaf=False),
                Queue("root.p.a"),
                Queue("root.p.b"),
            ],
        ),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "nobody decides for the ask",
        "entitled",
        Rule.NO_GUARANTEE,
        owed(*TWO, queues=[Queue("root.a")]),
        claim("b1"),
        claim("b1"),
        legally=owed(*TWO),
        also={"within_the_fence": Rule.DECIDING_QUEUE},
        claims=False,
    ),
    Case(
        "preemption is disabled for the victim's queue",
        "within_the_fence",
        Rule.CANDIDATE_DISABLED,
        owed(
            pod("b1", B),
            pod("c1", "root.c"),
            queues=[Queue(B, policy="disabled"), Queue("root.c")],
        ),
        claim("b1"),
        claim("c1"),
    ),
    Case(
        "a victim has a higher priority",
        "lower_priority",
        Rule.PRIORITY,
        owed(pod("b1", B, priority=6), pod("b2", B, priority=5), priority=5),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a victim has the same priority where it must be lower",
        "lower_priority",
        Rule.PRIORITY,
        owed(
            pod("b1", B, priority=5), pod("b2", B, priority=4), priority=5, equal_priority="never"
        ),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a victim's priority counts as seen where the paths meet",
        "lower_priority",
        Rule.PRIORITY,
        owed(
            pod("b1", B),
            pod("c1", "root.c", priority=9),
            queues=[Queue(B, offset=1), Queue("root.c", offset=-9)],
        ),
        claim("b1"),
        claim("c1"),
    ),
    Case(
        "priorities count for nothing where they are ignored",
        "lower_priority",
        Rule.PRIORITY,
        owed(pod("b1", B, priority=6), pod("b2", B)),
        claim("b1"),
        claim("b1"),
        legally=owed(pod("b1", B, priority=6), pod("b2", B), equal_priority="ignore"),
    ),
    Case(
        "a victim's queue falls below its guarantee",
        "keeps_entitlements",
        Rule.BELOW_GUARANTEE,
        owed(*TWO, queues=[Queue(B, {"memory": 11})]),
        claim("b1"),
        claim("b1"),
        legally=owed(*TWO, queues=[Queue(B, {"memory": 10})]),
    ),
    Case(
        "together the victims bring a queue below its guarantee",
        "keeps_entitlements",
        Rule.BELOW_GUARANTEE,
        owed(
            *TWO,
            pod("c1", "root.c"),
            size=20,
            nodes={"n1": 30},
            queues=[Queue(B, {"memory": 10}), Queue("root.c")],
        ),
        claim("b1", "b2"),
        claim("b1", "c1"),
    ),
    Case(
        "an ancestor of the victim falls below its guarantee",
        "keeps_entitlements",
        Rule.BELOW_GUARANTEE,
        owed(
            pod("b1", "root.p.b"),
            pod("c1", B),
            queues=[Queue("root.p", {"memory": 10}, leaf=False), Queue("root.p.b")],
        ),
        claim("b1"),
        claim("c1"),
    ),
    Case(
        "a queue with victim and asker has a net fall below its guarantee",
        "keeps_entitlements",
        Rule.BELOW_GUARANTEE,
        owed(
            pod("b1", "root.p.b", size=20),
            pod("b2", "root.p.b", size=10),
            asks_in="root.p.a",
            nodes={"n1": 30},
            queues=[
                Queue("root.p", {"memory": 30}, leaf=False),
                Queue("root.p.a", {"memory": 10}),
                Queue("root.p.b"),
            ],
        ),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a quota run goes below a guarantee",
        "keeps_entitlements",
        Rule.BELOW_GUARANTEE,
        owed(*TWO, queues=[Queue(B, {"memory": 10})]),
        Word(victims=("b1", "b2"), policy=enforcement.NAME),
        Word(victims=("b1",), policy=enforcement.NAME),
        claims=False,
    ),
    Case(
        "the ask does not fit after the releases",
        "capacity_freed",
        Rule.NO_ROOM_MADE,
        owed(*TWO, size=11),
        claim("b1"),
        claim("b1", "b2"),
    ),
    Case(
        "the ask has no headroom after the releases",
        "capacity_freed",
        Rule.NO_ROOM_MADE,
        owed(
            pod("b1", "root.p.b", size=20, node="n2"),
            pod("b2", B),
            asks_in="root.p.a",
            nodes={"n1": 10, "n2": 20},
            queues=LIMITED,
        ),
        claim("b2"),
        claim("b1", node="n2"),
    ),
    Case(
        "a victim could be given back",
        "capacity_freed",
        Rule.NOT_MINIMAL,
        owed(*TWO),
        claim("b1", "b2"),
        claim("b1"),
    ),
    Case(
        "somebody goes where what is ordered already suffices",
        "capacity_freed",
        Rule.NOT_MINIMAL,
        owed(pod("b1", B), pod("b2", B, dying=True)),
        claim("b1"),
        claim(),
        also={
            "needs_victims": Rule.NOT_MINIMAL,
            "taken_for_a_lacking_type": Rule.NOT_OVER_GUARANTEE,
        },
    ),
)


RICH: Final = pod("a1", "root.a", node="n2")
NEEDS: Final = (
    Case(
        "a queue that has its guarantee claims (G2, invariant 4)",
        "entitled",
        Rule.OVER_GUARANTEE,
        owed(*TWO, RICH, nodes={"n1": 20, "n2": 10}, queues=[Queue("root.a", {"memory": 10})]),
        claim("b1"),
        claim("b1"),
        legally=owed(*TWO),
        also={
            "no_closed_type_lacking": Rule.OVER_GUARANTEE,
            "within_the_fence": Rule.DECIDING_QUEUE,
        },
        claims=False,
    ),
    Case(
        "an ask that lacks a closed type on its node claims for an open one (G2, invariant 4)",
        "no_closed_type_lacking",
        Rule.OVER_GUARANTEE,
        CLOSED,
        claim("b1"),
        claim("b2", node="n2"),
    ),
    Case(
        "a victim below the queue that decides for what is lacking goes for another type (G2)",
        "taken_for_a_lacking_type",
        Rule.NOT_OVER_GUARANTEE,
        SEVERAL,
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "an ask that never preempts claims (G1)",
        "entitled",
        Rule.NEVER_PREEMPTS,
        replace(owed(*TWO), asks=[Ask("x1", "root.a", {"memory": 10}, may_preempt=False)]),
        claim("b1"),
        claim("b1"),
        legally=owed(*TWO),
        claims=False,
    ),
    Case(
        "a queue claims for which preemption is disabled (G3)",
        "entitled",
        Rule.DISABLED,
        owed(*TWO, queues=[Queue("root.a", {"memory": 100}, policy="disabled")]),
        claim("b1"),
        claim("b1"),
        legally=owed(*TWO),
        claims=False,
    ),
    Case(
        "somebody goes though the ask fits on another node (G8, invariant 12)",
        "needs_victims",
        Rule.NOT_MINIMAL,
        owed(*TWO, nodes={"n1": 20, "n2": 10}),
        claim("b1"),
        claim(node="n2"),
        claims=False,
    ),
    Case(
        "a node is pledged that takes no pods (G8)",
        "suitable_node",
        Rule.NO_NODE,
        replace(owed(*TWO), nodes=[Node("n1", {"memory": 20}, schedulable=False)]),
        claim("b1"),
        claim("b1"),
        legally=owed(*TWO),
    ),
    Case(
        "a pod of higher priority goes for a required node (G11, invariant 7)",
        "important_stay",
        Rule.PRIORITY,
        daemon(owed(pod("b1", B, priority=9), pod("b2", B))),
        DAEMON,
        replace(DAEMON, victims=("b2",)),
        claims=False,
    ),
    Case(
        "a node is pledged that is not the required one (G11)",
        "suitable_node",
        Rule.NO_NODE,
        daemon(TWO_NODES, "n2"),
        DAEMON,
        Word((("x1", "n2"),), ("b3",), required_node.NAME),
        claims=False,
    ),
    Case(
        "a group that allows no disruption is not respected (V5)",
        "budgets_respected",
        Rule.BUDGET,
        owed(pod("b1", B, group="g/none"), pod("b2", B), budgets="respect", allowed={"g/none": 0}),
        claim("b1"),
        claim("b2"),
    ),
    Case(
        "a victim's queue is over its guarantee by less than the dead zone (P9)",
        "beyond_the_dead_zone",
        Rule.NOT_OVER_GUARANTEE,
        owed(pod("b1", B, 2), pod("b2", B, 18), size=2, queues=[Queue(B, {"memory": 18})]),
        claim("b1"),
        claim("b1"),
        settings=replace(JOBS, deadzone_permyriad=2_000),
        legal_settings=JOBS,
    ),
)

ALL: Final = (*CASES, *NEEDS)


def core_of(cluster: Cluster, settings: PreemptionSettings = JOBS) -> Core:
    """Return the cluster behind a core that has not ticked yet."""
    core = Core(configuration(cluster, settings))
    for event in events(cluster):
        core.handle(event, START)
    return core


def trial_of(
    cluster: Cluster, settings: PreemptionSettings = JOBS, change: Change | None = None
) -> Trial:
    """Return the cluster for planning: every ask waits for everything."""
    core = core_of(cluster, settings)
    partition = core.state.partitions["default"]
    partition.disruptions = core.state.disruptions(partition)
    asks = [ask for ask in partition.asks.values() if ask.node is None]
    snapshot = snapshotting.take(partition, START, due=snapshotting.Due(asks, asks, asks))
    return Trial(change(snapshot) if change else snapshot)


def said(trial: Trial, word: Word) -> Plan:
    """Return the plan in the rows of a Trial."""
    snapshot = trial.snapshot
    waiting = {ask.key: ask for ask in (*snapshot.waiting, *snapshot.claims, *snapshot.daemons)}
    pledges = [
        PlannedPledge(waiting[key], snapshot.row_of(node), node) for key, node in word.pledges
    ]
    columns = snapshot.allocations
    rows = [columns.keys.index(key) for key in word.victims]
    paths = snapshot.leaf_paths
    releases = [
        Release(row, columns.keys[row], paths[int(columns.leaves[row])], "") for row in rows
    ]
    return Plan(word.policy, tuple(pledges), tuple(releases))


def standing(trial: Trial, word: Word) -> Plan:
    """Return the plan, after the plans before it were applied."""
    for each in word.before:
        earlier = said(trial, each)
        assert gate.gate(trial, earlier) is None
        trial.apply(earlier)
    return said(trial, word)


def broken_by(trial: Trial, plan: Plan) -> dict[str, Rule]:
    """Return all rules that the plan breaks, by the function that says so."""
    found = [(rule.__name__, rule(trial, plan)) for rule in gate.PLAN_RULES]
    for pledge in plan.pledges:
        found += [(rule.__name__, rule(trial, plan.facts, pledge.ask)) for rule in gate.ASK_RULES]
        found += [(rule.__name__, rule(trial, plan.facts, pledge)) for rule in gate.PLEDGE_RULES]
    return {name: refusal.rule for name, refusal in found if refusal is not None}


@pytest.mark.parametrize("case", ALL, ids=[case.title for case in ALL])
def test_a_plan_that_breaks_one_rule_is_refused_by_it(case: Case) -> None:
    trial = trial_of(case.cluster, case.settings, case.change)
    plan = standing(trial, case.broken)
    assert broken_by(trial, plan) == {case.breaks: case.rule, **case.also}
    refusal = gate.gate(trial, plan)
    assert refusal is not None
    assert refusal.rule is case.rule
    assert refusal.because


@pytest.mark.parametrize("case", ALL, ids=[case.title for case in ALL])
def test_the_nearest_legal_plan_passes(case: Case) -> None:
    settings = case.legal_settings or case.settings
    trial = trial_of(case.legally or case.cluster, settings, case.change)
    plan = standing(trial, case.legal)
    assert broken_by(trial, plan) == {}
    assert gate.gate(trial, plan) is None


# Rules on an ask and on a pledge ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """An ask that a rule refuses, whatever the plan for it; ``earlier`` are asks that have nodes already."""

    title: str
    breaks: str
    rule: Rule
    policy: str
    earlier: tuple[tuple[int, int], ...] = ()
    ask: int = 0
    row: int = 0
    nodes: int = 30
    most: int = 0
    stopped: str = ""
    out_of_limits: bool = False
    legal: "dict[str, Any]" = field(default_factory=dict)

    def trial(self) -> Trial:
        cluster = Small(leaf("a", **({"memory": self.most} if self.most else {})), leaf("b"))
        names = [f"n{number}" for number in range(self.nodes)]
        cluster.nodes(*names, memory=10)
        for name in names:
            cluster.foreign(f"f-{name}", name, memory=8)
        cluster.application("x")
        cluster.ask(*(f"p{number}" for number in range(10)), memory=5)
        cluster.tick()
        snapshot = cluster.snapshot()
        if self.stopped:
            queue = replace(snapshot.queues[self.stopped], stopped=True)
            snapshot = replace(snapshot, queues={**snapshot.queues, self.stopped: queue})
        if self.out_of_limits:
            asks = tuple(ask._replace(within_limits=False) for ask in snapshot.waiting)
            snapshot = replace(snapshot, waiting=asks)
        trial = Trial(snapshot)
        for ask, row in self.earlier:
            trial.apply(self.plan(trial, ask, row, reservation.NAME))
        return trial

    def plan(self, trial: Trial, ask: int, row: int, policy: str) -> Plan:
        snapshot = trial.snapshot
        return Plan(policy, (PlannedPledge(snapshot.waiting[ask], row, snapshot.nodes.ids[row]),))


MANY: Final = tuple((number, number) for number in range(reservation.RESERVATIONS_PER_LEAF))
ASKING: Final = (
    Asking(
        "an ask has a node reserved already",
        "one_an_ask",
        Rule.ONE_AN_ASK,
        reservation.NAME,
        ((0, 0),),
        row=1,
        legal={"ask": 1},
    ),
    Asking(
        "the partition has its reservations",
        "reservations_of_the_partition",
        Rule.PARTITION_FULL,
        reservation.NAME,
        ((0, 0), (1, 1)),
        ask=2,
        row=2,
        nodes=20,
        legal={"nodes": 30},
    ),
    Asking(
        "the leaf has its reservations",
        "reservations_of_a_leaf",
        Rule.LEAF_FULL,
        reservation.NAME,
        MANY,
        ask=5,
        row=5,
        nodes=100,
        legal={"earlier": MANY[:-1]},
    ),
    Asking(
        "the leaf is stopped",
        "open_queue",
        Rule.STOPPED_QUEUE,
        reservation.NAME,
        stopped="root.a",
        legal={"stopped": "root.b"},
    ),
    Asking(
        "a queue above is stopped",
        "open_queue",
        Rule.STOPPED_QUEUE,
        reservation.NAME,
        stopped="root",
        legal={"stopped": ""},
    ),
    Asking(
        "what is promised leaves no headroom",
        "headroom",
        Rule.HEAD_ROOM,
        reservation.NAME,
        ((0, 0), (1, 1)),
        ask=2,
        row=2,
        most=14,
        legal={"most": 15},
    ),
    Asking(
        "a user's limit has no headroom",
        "headroom",
        Rule.HEAD_ROOM,
        reservation.NAME,
        out_of_limits=True,
        legal={"out_of_limits": False},
    ),
    Asking(
        "the node is reserved for another",
        "reservations_one_a_node",
        Rule.ONE_A_NODE,
        reservation.NAME,
        ((0, 0),),
        ask=1,
        legal={"row": 1},
    ),
)


@pytest.mark.parametrize("case", ASKING, ids=[case.title for case in ASKING])
def test_an_ask_that_breaks_one_rule_is_refused_and_the_nearest_legal_one_is_not(
    case: Asking,
) -> None:
    trial = case.trial()
    plan = case.plan(trial, case.ask, case.row, case.policy)
    assert broken_by(trial, plan) == {case.breaks: case.rule}
    gated = gate.gate(trial, plan)
    assert gated is not None
    assert gated.rule is case.rule
    admitted = gate.admit(trial, Intent(case.policy, plan.pledges[0].ask))
    of_a_pledge = case.breaks in {rule.__name__ for rule in gate.PLEDGE_RULES}
    assert (admitted is None) == of_a_pledge
    legal = replace(case, **case.legal)
    trial = legal.trial()
    plan = legal.plan(trial, legal.ask, legal.row, legal.policy)
    assert broken_by(trial, plan) == {}
    assert gate.admit(trial, Intent(legal.policy, plan.pledges[0].ask)) is None


@pytest.mark.parametrize("policy", [guarantee.NAME, required_node.NAME])
def test_a_decision_holds_capacity_for_an_ask_once_whatever_the_policy(policy: str) -> None:
    trial = trial_of(TWO_NODES)
    trial.apply(said(trial, claim("b1")))
    refusal = gate.gate(trial, said(trial, Word((("x1", "n2"),), ("b3",), policy)))
    assert refusal is not None
    assert refusal.rule is Rule.ONE_AN_ASK


@pytest.mark.parametrize("policy", [guarantee.NAME, required_node.NAME])
def test_a_users_limit_binds_every_policy(policy: str) -> None:
    trial = trial_of(daemon(TWO_NODES) if policy == required_node.NAME else TWO_NODES)
    plan = said(trial, Word((("x1", "n1"),), ("b1",), policy))
    assert gate.gate(trial, plan) is None
    (pledge,) = plan.pledges
    outside = replace(pledge, ask=pledge.ask._replace(within_limits=False))
    refusal = gate.gate(trial, replace(plan, pledges=(outside,)))
    assert refusal is not None
    assert refusal.rule in {Rule.USER_LIMIT, Rule.HEAD_ROOM}


# Quota runs -----------------------------------------------------------------------------------------------------


def over_quota(most: int, **more: Any) -> Trial:
    """`root.b` may have so much and uses 20 in two pods."""
    return trial_of(owed(*TWO, queues=[Queue(B, max={"memory": most, **more})]))


@pytest.mark.parametrize(
    ("target", "freed", "rule"),
    [({"vcore": 1}, {}, Rule.TARGET_TYPES), ({"memory": 5}, {"memory": 20}, Rule.NOT_MINIMAL)],
    ids=["holds nothing of the target (15)", "could be given back (11)"],
)
def test_a_quota_run_takes_nobody_in_vain(
    target: dict[str, int], freed: dict[str, int], rule: Rule
) -> None:
    trial = over_quota(15, vcore=0)
    result = ShrinkResult.SHORTFALL if rule is Rule.TARGET_TYPES else ShrinkResult.COMPLETE
    shrink = Shrink(B, target, freed, {}, result, 2, "", "")
    plan = said(trial, Word(victims=("b1", "b2"), policy=enforcement.NAME))
    refusal = gate.gate(trial, replace(plan, shrink=shrink))
    assert refusal is not None
    assert refusal.rule is rule


def test_every_rule_of_the_gate_has_a_case() -> None:
    every = (*gate.ASK_RULES, *gate.PLEDGE_RULES, *gate.PLAN_RULES)
    of_jobs = {admission.admitted, *gangs.PLAN_RULES}  # see `test_gang_rules`
    known = {rule.__name__ for rule in every if rule not in of_jobs}
    assert {case.breaks for case in (*ALL, *ASKING)} | {"of_the_target"} == known


# Through the core -----------------------------------------------------------------------------------------------

CLAIMS: Final = tuple(case for case in ALL if case.claims)


def broken_rules(decisions: Iterable[Decision]) -> list[str]:
    """Return the subjects of the notes that a plan was dropped."""
    return [
        one.subject for one in decisions if isinstance(one, Noted) and one.code is Code.LAW_BROKEN
    ]


def decided_of(core: Core) -> list[str]:
    """Return the policies of all open commitments; reservations are left out, since they evict no pod."""
    held = core.state.partitions["default"].decisions.open.values()
    return [one.policy for one in held if one.policy != reservation.NAME]


def counted(core: Core, decisions: list[Decision]) -> float:
    """Return the count of broken rules that a Prometheus server would read."""
    observed = Observed()
    observed.core, observed.metrics = core, Metrics(core)
    observed.metrics.decided(Decisions(decisions), START)
    found = observed.value("evenhand_notices_total", partition="default", code=Code.LAW_BROKEN)
    return found or 0


@pytest.mark.parametrize("case", CLAIMS, ids=[case.title for case in CLAIMS])
def test_nobody_goes_for_an_illegal_claim(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def illegal(trial: Trial, intent: Intent) -> Plan:
        attempts.append(intent.ask.key)
        snapshot = replace(trial.snapshot, waiting=(intent.ask,), claims=(), daemons=())
        return said(Trial(snapshot), case.broken)

    def nothing(trial: Trial, intent: Intent) -> Refusal:
        del trial, intent
        return Refusal(case.rule, "it is not tried")

    core, twin = core_of(case.cluster, case.settings), core_of(case.cluster, case.settings)
    assert core.digest() == twin.digest()
    monkeypatch.setattr(guarantee, "plan", illegal)
    decisions = tick(core, START)
    assert attempts == ["x1"], "the case does not reach the planner"
    assert not [one for one in decisions if isinstance(one, Released | Decided)]
    assert broken_rules(decisions) == ["x1"]
    assert counted(core, decisions) == 1
    assert decided_of(core) == []
    monkeypatch.setattr(guarantee, "plan", nothing)
    tick(twin, START)
    assert core.digest() == twin.digest(), "an illegal plan left something behind"
    assert broken_rules(tick(core, START)) == [], "it is told again though nothing happened"


def quota_core() -> Core:
    """`root.b` is over a maximum that was lowered just now, and is guaranteed 10."""
    cluster = owed(*TWO, queues=[Queue(B, {"memory": 10}), Queue("root.c")])
    core = core_of(replace(cluster, asks=[]), replace(JOBS, quota_enabled=True))
    spec = core.state.configuration.partitions[0]
    most = (("memory", 10),)
    properties = QueueProperties(quota_delay_ms=1_000)
    children = tuple(
        replace(child, max=most, properties=properties) if child.name == "b" else child
        for child in spec.root.children
    )
    lowered = replace(spec, root=replace(spec.root, children=children))
    core.handle(ApplicationAdded(MANAGER, "c", "root.c"), START)
    one = AskSpec(resource({"memory": 1}))
    core.handle(AllocationAdded(MANAGER, "c1", "c", "n1", one), START)
    core.handle(ConfigurationApplied(Configuration((lowered,)), "test"), START)
    return core


@pytest.mark.parametrize(
    "victims", [("b1", "b2"), ("b1", "b1")], ids=["below a guarantee", "a victim twice"]
)
def test_nobody_goes_for_an_illegal_quota_run(
    victims: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def illegal(trial: Trial, intent: object) -> Plan:
        del intent
        return said(trial, Word(victims=victims, policy=enforcement.NAME))

    core = quota_core()
    tick(core, START)
    monkeypatch.setattr(enforcement, "plan", illegal)
    decisions = tick(core, START + 1_000)
    assert not [one for one in decisions if isinstance(one, Released | Decided)]
    assert broken_rules(decisions) == [B]
    assert counted(core, decisions) == 1
    assert decided_of(core) == []
    assert broken_rules(tick(core, START + 5_000)) == []


def test_the_same_quota_run_is_carried_out_when_its_plan_is_legal() -> None:
    core = quota_core()
    tick(core, START)
    released = [one.key for one in tick(core, START + 1_000) if isinstance(one, Released)]
    assert len(released) == 1
