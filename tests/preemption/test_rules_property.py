"""Rules on random snapshots: the gate accepts what policies plan, and agrees with the invariants in plain Python.

Invariants 3, 5, 6, 7, 8, 10, 11 and 12 are stated here once more, with the functions of the brute force and none of
the core's. Both judge random plans, most of which are invalid.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from server.core.core import Core
from server.model.events import NodeDrained
from server.model.records import Shrink, ShrinkResult
from server.preemption.claims import guarantee
from server.preemption.nodes import required_node
from server.preemption.policy import Plan, PlannedPledge, Policy, Release, ShrinkIntent
from server.preemption.quota import enforcement
from server.preemption.rules import claims, gangs, gate
from server.preemption.trial import Trial
from server.state import snapshotting
from tests.effort import TRIES_ALL, cases
from tests.preemption import quota_oracle
from tests.preemption.claim_clusters import (
    MANAGER,
    START,
    Dice,
    LayeredDice,
    WeightedDice,
    configuration,
    events,
)
from tests.preemption.claim_oracle import (
    Ask,
    Cluster,
    Node,
    Pod,
    covers,
    crosses_once,
    frees_lacking_type,
    is_beyond_dead_zone,
    is_disabled,
    is_open,
    is_outside,
    is_viable,
    keeps_guarantees,
    lacks,
    look,
    refused,
    scope_root,
    taken_for,
)
from tests.preemption.paths import is_below, path_up
from tests.preemption.quota_worlds import World, random_world, trial_of

VIEWS: Final = cases(200)
WORLDS: Final = cases(100)
PLANS_OF_A_VIEW: Final = 12
SOAK: Final = 10_000
LAYERED_SOAK: Final = 100_000
CHUNK: Final = 1_000


def cluster_of(seed: int, by: type[Dice] = Dice) -> Cluster:
    """Return a random cluster; in some of them pods belong to nodes and wait for these."""
    dice = by(seed, pods_most=6)
    cluster = dice.cluster()
    leaves = [queue.path for queue in cluster.queues if queue.leaf]
    for number in range(100, 100 + dice.random.choice((0, 0, 1, 2))):
        cluster.asks.append(dice.ask(number, leaves, dice.random.choice(cluster.nodes).name))
    strain(cluster, random.Random(f"strained {seed}"))
    look(cluster)
    return cluster


def strain(cluster: Cluster, chance: random.Random) -> None:
    """Respect budgets and close nodes: rules that random plans break too seldom otherwise."""
    if chance.random() < 0.3:
        cluster.budgets = "respect"
        for pod in cluster.pods:
            pod.group = pod.group or chance.choice(("", "", "g/none", "g/many"))
    for node in cluster.nodes:
        node.schedulable = node.schedulable and chance.random() < 0.9


def trial(cluster: Cluster) -> Trial:
    """Return the cluster for planning: every ask is due; only an ask that requires a closed node may start there."""
    core = Core(configuration(cluster))
    cordoned = (NodeDrained(MANAGER, node.name) for node in cluster.nodes if not node.schedulable)
    for event in (*events(cluster), *cordoned):
        core.handle(event, START)
    partition = core.state.partitions["default"]
    partition.disruptions = core.state.disruptions(partition)
    asks = [ask for ask in partition.asks.values() if ask.node is None]
    daemons = [ask for ask in asks if ask.spec.constraints.required_node]
    claims = [ask for ask in asks if ask not in daemons]
    return Trial(snapshotting.take(partition, START, due=snapshotting.Due((), claims, daemons)))


# What policies plan ---------------------------------------------------------------------------------------------


def plans_on(seed: int, by: type[Dice] = Dice) -> Counter[str]:
    """Both policies in their order on one view; every plan passes the gate and is applied."""
    on = trial(cluster_of(seed, by))
    found: Counter[str] = Counter()
    policies: tuple[Policy, ...] = (required_node, guarantee)
    for policy in policies:
        for intent in policy.intents(on):
            if gate.admit(on, intent) is not None:
                continue
            plan = policy.plan(on, intent)
            if not isinstance(plan, Plan):
                continue
            refusal = gate.gate(on, plan)
            assert refusal is None, f"seed {seed}: {refusal} for {plan}"
            on.apply(plan)
            found[policy.NAME if plan.releases else "pledge"] += 1
    return found


def quota_plan(seed: int) -> Counter[str]:
    """Assert that a quota run passes the gate and evicts only for what is beyond the maximum; return counts."""
    world = random_world(random.Random(seed))
    on = world.trial()
    plan = enforcement.plan(on, ShrinkIntent(enforcement.NAME, world.queue))
    if not isinstance(plan, Plan):
        return Counter(refused=1)
    refusal = gate.gate(on, plan)
    assert refusal is None, f"seed {seed}: {refusal} for {plan}"
    check_run(world, plan, f"seed {seed}")
    return Counter(victims=len(plan.releases))


def check_run(world: World, plan: Plan, where: str) -> None:
    """Target types are types of the maximum, every victim holds one of them (invariant 15), none can be spared (11)."""
    target = target_of(world)
    assert plan.shrink is not None, where
    assert plan.shrink.target == target, f"{where}: invariant 15"
    pods = {pod.key: pod for pod in world.pods}
    victims = [pods[release.key] for release in plan.releases]
    left = {kind: amount - taken(victims, kind) for kind, amount in target.items()}
    for victim in victims:
        helps = {kind for kind in target if victim.size.get(kind, 0) > 0}
        assert helps, f"{where}: {victim} holds nothing of {target} (invariant 15)"
        needed = any(left[kind] + victim.size[kind] > 0 for kind in helps)
        assert needed, f"{where}: {victim} could be given back (invariant 11)"
    assert keeps_floors(world, victims), f"{where}: invariant 3"


def eff(world: World, path: str) -> Counter[str]:
    """Return what a queue uses, without what terminates already."""
    found: Counter[str] = Counter()
    for pod in world.pods:
        if is_below(pod.leaf, path) and pod.bar != "already-releasing":
            found.update(pod.size)
    return found


def taken(victims: list[quota_oracle.Pod], kind: str) -> int:
    """Return what victims hold of one type together."""
    return sum(pod.size.get(kind, 0) for pod in victims)


def keeps_floors(world: World, victims: list[quota_oracle.Pod]) -> bool:
    """No queue from a victim's leaf to the root falls below its guarantee in a type that the victim uses (3)."""
    for path in {path for pod in victims for path in path_up(pod.leaf)}:
        below = [pod for pod in victims if is_below(pod.leaf, path)]
        least, used = world.guaranteed.get(path, {}), eff(world, path)
        for kind in {kind for pod in below for kind in pod.size}:
            if used[kind] - taken(below, kind) < least.get(kind, 0):
                return False
    return True


def test_what_claims_and_required_nodes_plan_passes_the_gate() -> None:
    found = sum((plans_on(seed) for seed in range(VIEWS)), Counter[str]())
    if TRIES_ALL:
        assert (
            min(found[name] for name in ("guaranteed", "required-node", "pledge")) >= VIEWS // 50
        ), found


def test_what_quota_runs_plan_passes_the_gate() -> None:
    found = sum((quota_plan(seed) for seed in range(WORLDS)), Counter[str]())
    if TRIES_ALL:
        assert found["victims"] >= WORLDS, found


# The invariants in plain words ----------------------------------------------------------------------------------


class Draft:
    """A plan that somebody could think of: an ask, a node, and anybody as a victim."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.policy = chance.choice(("guaranteed", "guaranteed", "required-node"))
        self.ask: Ask = chance.choice(cluster.asks)
        self.node: Node = chance.choice(cluster.nodes)
        here = [pod for pod in cluster.pods if pod.node == self.node.name]
        pool = here if chance.random() < 0.9 else cluster.pods
        count = min(len(pool), chance.choice((0, 1, 1, 1, 2, 2, 3, 4)))
        self.victims: list[Pod] = chance.sample(pool, count)
        if self.victims and chance.random() < 0.05:
            self.victims.append(self.victims[0])

    @property
    def claims(self) -> bool:
        """Return whether the draft is a claim under a guarantee."""
        return self.policy == "guaranteed"

    @property
    def sound(self) -> bool:
        """Return whether the victims are different pods that do not terminate yet; else no other rule applies."""
        return not any(pod.dying for pod in self.victims) and len(self.victims) == len(
            {pod.key for pod in self.victims}
        )

    def said(self, on: Trial) -> Plan:
        """Return the draft in rows of a Trial."""
        snapshot = on.snapshot
        waiting = {ask.key: ask for ask in (*snapshot.claims, *snapshot.daemons)}
        columns = snapshot.allocations
        rows = [columns.keys.index(pod.key) for pod in self.victims]
        releases = [
            Release(row, columns.keys[row], snapshot.leaf_paths[int(columns.leaves[row])], "")
            for row in rows
        ]
        row = snapshot.row_of(self.node.name)
        pledge = PlannedPledge(
            waiting[self.ask.key], row, self.node.name, exclusive=not self.claims
        )
        return Plan(self.policy, (pledge,), tuple(releases))

    def __str__(self) -> str:
        keys = [pod.key for pod in self.victims]
        return f"{self.policy} for {self.ask} on {self.node.name} from {keys} in {self.cluster}"


def each_victim_once(draft: Draft) -> bool:
    """Invariant 10: a victim is in one open decision at the most."""
    return draft.sound


def untouchables(draft: Draft) -> bool:
    """G6 and 7.6: DaemonSet pods and untouchable ones stay (no jobs are planned for here, J4)."""
    return not any(pod.belongs_to_node or pod.protection == 3 for pod in draft.victims)


def one_node(draft: Draft) -> bool:
    """Invariant 8: the victims share the node of the beneficiary."""
    return all(pod.node == draft.node.name for pod in draft.victims)


def within_the_fence(draft: Draft) -> bool:
    """Invariants 5 and 6, and G2's outside rule; an application of these clusters is in one leaf."""
    if not draft.claims or not draft.victims:
        return True
    cluster, ask = draft.cluster, draft.ask
    scope = scope_root(cluster, ask.queue)
    return all(
        pod.queue != ask.queue
        and is_below(pod.queue, scope)
        and any(is_outside(cluster, ask, kind, pod.queue) for kind in ask.size)
        and not is_disabled(cluster, pod.queue)
        for pod in draft.victims
    )


def lower_priority(draft: Draft) -> bool:
    """Invariant 7: as seen where the paths meet, a victim's priority is not higher (G5)."""
    cluster, ask = draft.cluster, draft.ask
    if not draft.claims or cluster.equal_priority == "ignore":
        return True
    for pod in draft.victims:
        top = next(path for path in path_up(ask.queue) if is_below(pod.queue, path))
        asks, goes = _seen(cluster, ask, top), _seen(cluster, pod, top)
        if goes > asks or (goes == asks and cluster.equal_priority == "never"):
            return False
    return True


def _seen(cluster: Cluster, one: Ask | Pod, top: str) -> int:
    seen = one.priority
    for path in path_up(one.queue):
        if path == top:
            return seen
        queue = cluster.queue(path)
        seen = queue.offset if queue.priority_fence else seen + queue.offset
    return seen


def keeps_entitlements(draft: Draft) -> bool:
    """Invariant 3, required nodes excepted; one may cross where the administrator lets one (W8)."""
    cluster, victims = draft.cluster, tuple(draft.victims)
    return (
        not draft.claims
        or keeps_guarantees(cluster, draft.ask, victims)
        or crosses_once(cluster, draft.ask, draft.node, victims)
    )


def beyond_the_dead_zone(draft: Draft) -> bool:
    """Return whether victims that hold what is asked for come from queues clearly above their entitlement in it (P9)."""
    cluster, ask = draft.cluster, draft.ask
    return not draft.claims or all(
        pod.queue == ask.queue
        or not any(pod.size.get(kind) for kind in ask.size)
        or is_beyond_dead_zone(cluster, ask, pod, set(ask.size))
        for pod in draft.victims
    )


def no_closed_type_lacking(draft: Draft) -> bool:
    """Invariant 4: the ask lacks nothing of which its deciding queue has its share (G2)."""
    return not draft.claims or is_viable(draft.cluster, draft.ask, draft.node)


def taken_for_a_lacking_type(draft: Draft) -> bool:
    """G2, W9 and rule 5: a victim holds something that the ask lacks and its queues have too much of."""
    cluster, ask = replace(draft.cluster, dead_zone=0), draft.ask  # see `beyond_the_dead_zone`
    return not draft.claims or all(
        frees_lacking_type(cluster, ask, draft.node, pod)
        if cluster.by_weight  # else rule 2 says more
        else bool(lacks(cluster, ask, draft.node, pod) & taken_for(cluster, ask, pod))
        for pod in draft.victims
        if any(is_outside(cluster, ask, kind, pod.queue) for kind in ask.size)
    )


def entitled(draft: Draft) -> bool:
    """Invariant 4 and G1, G3, G9: the ask may claim; for its node it may have others go."""
    if draft.claims:
        return not refused(draft.cluster, draft.ask)
    return draft.ask.may_preempt


def important_stay(draft: Draft) -> bool:
    """Invariant 7 for required nodes (G11)."""
    return draft.claims or all(pod.priority <= draft.ask.priority for pod in draft.victims)


def budgets_respected(draft: Draft) -> bool:
    """7.6: where budgets are respected a group without allowance loses nobody for a claim."""
    cluster = draft.cluster
    return (
        not draft.claims
        or cluster.budgets != "respect"
        or not any(pod.group and not cluster.allowed[pod.group] for pod in draft.victims)
    )


def needs_victims(draft: Draft) -> bool:
    """Assert that no pod is evicted for a claim that fits once what was ordered is gone (invariant 12)."""
    cluster, ask = draft.cluster, draft.ask
    return not (draft.claims and draft.victims) or not any(
        _suits(draft, node) and covers(cluster, ask, node, ()) for node in cluster.nodes
    )


def suitable_node(draft: Draft) -> bool:
    """G8 and G11: the node takes pods, and is the required one."""
    return _suits(draft, draft.node)


def _suits(draft: Draft, node: Node) -> bool:
    cluster, ask = draft.cluster, draft.ask
    holds = all(amount <= node.capacity.get(kind, 0) for kind, amount in ask.size.items())
    if not draft.claims:
        return ask.required_node == node.name and holds
    return is_open(cluster, node) and ask.required_node in {"", node.name}


def capacity_freed(draft: Draft) -> bool:
    """Invariants 11 and 12, on the node of the plan: the ask fits then, and not with one victim less."""
    cluster, ask, node = draft.cluster, draft.ask, draft.node
    victims = tuple(draft.victims)
    spared = (tuple(pod for pod in victims if pod is not one) for one in victims)
    return covers(cluster, ask, node, victims) and not any(
        covers(cluster, ask, node, rest) for rest in spared
    )


Invariant = Callable[[Draft], bool]
INVARIANTS: Final[dict[str, Invariant]] = {
    each.__name__: each
    for each in (
        each_victim_once,
        untouchables,
        one_node,
        within_the_fence,
        lower_priority,
        keeps_entitlements,
        beyond_the_dead_zone,
        no_closed_type_lacking,
        taken_for_a_lacking_type,
        capacity_freed,
        entitled,
        important_stay,
        budgets_respected,
        needs_victims,
        suitable_node,
    )
}


def judge(seed: int, by: type[Dice] = Dice) -> Counter[str]:
    """Judge some random plans on one view, rule by rule and as a whole; return which rules were broken."""
    cluster = cluster_of(seed, by)
    if not cluster.asks or not cluster.nodes:
        return Counter()
    chance, on = random.Random(f"plans {seed}"), trial(cluster)
    found: Counter[str] = Counter()
    for _ in range(PLANS_OF_A_VIEW):
        found += compare(Draft(cluster, chance), on, f"seed {seed}")
    return found


def compare(draft: Draft, on: Trial, where: str) -> Counter[str]:
    """Return the verdicts of the gate and of the plain rules on one plan."""
    plan = draft.said(on)
    broken: Counter[str] = Counter()
    for rule in gate.PLAN_RULES:
        name = rule.__name__
        if name not in INVARIANTS or (not draft.sound and name != "each_victim_once"):
            continue
        holds = INVARIANTS[name](draft)
        assert (rule(on, plan) is None) == holds, f"{where}: {name} holds: {holds}, for {draft}"
        broken[name] += not holds
    suits = claims.suitable_node(on, plan.facts, plan.pledges[0]) is None
    assert suits == suitable_node(draft), f"{where}: the node suits: {suits}, for {draft}"
    broken["suitable_node"] += not suits
    legal = draft.sound and all(invariant(draft) for invariant in INVARIANTS.values())
    assert (gate.gate(on, plan) is None) == legal, f"{where}: legal: {legal}, for {draft}"
    broken["none"] += legal
    broken["none, with victims"] += legal and bool(draft.victims)
    return +broken


def test_the_gate_agrees_with_the_invariants_on_random_plans() -> None:
    found = sum((judge(seed) for seed in range(VIEWS)), Counter[str]())
    assert set(found) == {*INVARIANTS, "none", "none, with victims"}, found
    if TRIES_ALL:
        assert min(found.values()) >= VIEWS // 25, found


def test_the_gate_agrees_where_levels_guarantee_different_types() -> None:
    found = sum((plans_on(seed, LayeredDice) for seed in range(VIEWS // 2)), Counter[str]())
    if TRIES_ALL:
        assert min(found[name] for name in ("guaranteed", "pledge")) >= VIEWS // 100, found
    broken = sum((judge(seed, LayeredDice) for seed in range(VIEWS // 2)), Counter[str]())
    layered = ("no_closed_type_lacking", "taken_for_a_lacking_type", "within_the_fence")
    if TRIES_ALL:
        assert min(broken[name] for name in layered) >= VIEWS // 25, broken


def test_what_claims_for_a_share_by_weight_plan_passes_the_gate() -> None:
    found = sum((plans_on(seed, WeightedDice) for seed in range(VIEWS)), Counter[str]())
    if TRIES_ALL:
        assert min(found[name] for name in ("guaranteed", "pledge")) >= VIEWS // 50, found


def test_the_gate_agrees_with_the_invariants_on_random_plans_by_weight() -> None:
    found = sum((judge(seed, WeightedDice) for seed in range(VIEWS)), Counter[str]())
    assert set(found) == {*INVARIANTS, "none", "none, with victims"}, found
    if TRIES_ALL:
        assert min(found.values()) >= VIEWS // 25, found


def test_every_rule_of_plans_is_stated_in_plain_words() -> None:
    elsewhere = {"each_ask_once"}
    plans = [
        rule for rule in gate.PLAN_RULES if rule not in gangs.PLAN_RULES
    ]  # see `test_job_oracle`
    known = {rule.__name__ for rule in (*plans, *gate.PLEDGE_RULES)}
    assert known == {*INVARIANTS, *elsewhere, "of_the_target", "reservations_one_a_node"}


def judge_quota(seed: int) -> Counter[str]:
    """Random victims of a quota run: the gate says what invariants 3, 10, 11 and 15 and the ladder say."""
    chance = random.Random(f"quota {seed}")
    world = random_world(random.Random(seed))
    on = trial_of(world.cluster())
    found: Counter[str] = Counter()
    for _ in range(PLANS_OF_A_VIEW):
        victims = chance.sample(world.pods, min(len(world.pods), chance.randint(0, 4)))
        if victims and chance.random() < 0.05:
            victims.append(victims[0])
        found += compare_run(world, victims, on, f"seed {seed}")
    return +found


def compare_run(
    world: World, victims: list[quota_oracle.Pod], on: Trial, where: str
) -> Counter[str]:
    """Return the verdicts of gate and plain rules on one run; what a victim named twice frees is not compared."""
    once = len({pod.key for pod in victims}) == len(victims)
    sound = once and not any(pod.bar == "already-releasing" for pod in victims)
    holds = {
        "each_victim_once": sound,
        "untouchables": not any(pod.bar not in {"", "already-releasing"} for pod in victims),
        "of_the_target": for_the_target(world, victims),
    }
    if sound:
        holds["keeps_entitlements"] = keeps_floors(world, victims)
        holds["budgets_respected"] = respects(world, victims)
    unclear = set() if sound else {"keeps_entitlements", "budgets_respected"}
    plan, found = _said_of_run(world, on, victims), Counter[str]()
    for rule in gate.PLAN_RULES:
        if rule.__name__ not in unclear:
            expected = holds.get(rule.__name__, True)
            said = f"{where}: {rule.__name__} holds: {expected}, for {victims} in {world}"
            assert (rule(on, plan) is None) == expected, said
            found[rule.__name__] += not expected
    legal = all(holds.values())
    assert (gate.gate(on, plan) is None) == legal, f"{where}: legal: {legal}, for {victims}"
    found["none, with victims"] += legal and bool(victims)
    return found


def target_of(world: World) -> dict[str, int]:
    """Return what the shrinking queue uses beyond its maximum (Q9)."""
    used, most = eff(world, world.queue), world.maxima[world.queue] or {}
    over = {kind: used.get(kind, 0) - bound for kind, bound in most.items()}
    return {kind: amount for kind, amount in over.items() if amount > 0}


def for_the_target(world: World, victims: list[quota_oracle.Pod]) -> bool:
    """Each victim holds something of it (15), and without any of them something of it would be missing (11)."""
    target = target_of(world)
    helps = [{kind for kind in target if pod.size.get(kind, 0) > 0} for pod in victims]
    return not target or all(
        any(taken(victims, kind) - pod.size[kind] < target[kind] for kind in own)
        for pod, own in zip(victims, helps, strict=True)
    )


def respects(world: World, victims: list[quota_oracle.Pod]) -> bool:
    """Where budgets are respected no group loses more than it allows (V5)."""
    taken = Counter(group for pod in victims for group in pod.groups)
    return world.budgets != "respect" or all(
        count <= world.allowed.get(group, 0) for group, count in taken.items()
    )


def _said_of_run(world: World, on: Trial, victims: list[quota_oracle.Pod]) -> Plan:
    columns = on.snapshot.allocations
    rows = [columns.keys.index(pod.key) for pod in victims]
    releases = [
        Release(row, columns.keys[row], pod.leaf, "")
        for row, pod in zip(rows, victims, strict=True)
    ]
    target = target_of(world)
    freed = {kind: taken(victims, kind) for kind in target}
    missing = {kind: max(0, amount - freed[kind]) for kind, amount in target.items()}
    result = ShrinkResult.SHORTFALL if any(missing.values()) else ShrinkResult.COMPLETE
    shrink = Shrink(world.queue, target, freed, missing, result, len(world.pods))
    return Plan(enforcement.NAME, (), tuple(releases), shrink=shrink if target else None)


def test_the_gate_agrees_with_the_invariants_on_random_quota_runs() -> None:
    found = sum((judge_quota(seed) for seed in range(WORLDS)), Counter[str]())
    assert set(found) == {
        "each_victim_once",
        "untouchables",
        "keeps_entitlements",
        "budgets_respected",
        "of_the_target",
        "none, with victims",
    }
    if TRIES_ALL:
        assert min(found.values()) >= WORLDS // 10, found


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10_000, 10_000 + LAYERED_SOAK, CHUNK))
def test_many_views_whose_levels_guarantee_different_types(start: int) -> None:
    for seed in range(start, start + CHUNK):
        plans_on(seed, LayeredDice)
        judge(seed, LayeredDice)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10_000, 10_000 + SOAK, CHUNK))
def test_many_views(start: int) -> None:
    for seed in range(start, start + CHUNK):
        plans_on(seed)
        judge(seed)
        plans_on(seed, WeightedDice)
        judge(seed, WeightedDice)
        quota_plan(seed)
        judge_quota(seed)
