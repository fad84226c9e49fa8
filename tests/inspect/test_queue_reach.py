"""From which queues a queue may claim, and which queues may claim from it: fences act in one direction.

A queue with `disabled` takes no part in claims. A queue without a guarantee up to its fence claims nothing; with a
guarantee at a queue above it, it takes nothing inside that queue.
"""

import random

import pytest

from server.core.queries import inspect
from server.core.queries.unmet import needs
from server.model.events import ConfigurationApplied
from server.model.quota import (
    PreemptionPolicy,
    PreemptionSettings,
    PriorityPolicy,
    QueueProperties,
    QueueSpec,
)
from server.model.resources import resource
from tests.inspect.world import World, configuration, leaf, parent, pledge

FENCE = QueueProperties(preemption_policy=PreemptionPolicy.FENCE)
DISABLED = QueueProperties(preemption_policy=PreemptionPolicy.DISABLED)
CORES = resource({"vcore": 4000})


def fence_tree() -> World:
    """Return the tree of the rules: a system queue, and two tenants behind fences, one with a fence inside."""
    return World(
        leaf("system", guaranteed=CORES),
        parent(
            "tenant1",
            leaf("a", guaranteed=CORES, properties=FENCE),
            leaf("b", guaranteed=CORES),
            properties=FENCE,
        ),
        parent(
            "tenant2",
            leaf("one", guaranteed=CORES),
            leaf("two", guaranteed=CORES),
            properties=FENCE,
        ),
    )


@pytest.mark.parametrize(
    ("path", "scope", "claims_from", "claimed_by"),
    [
        ("root.tenant1.a", "root.tenant1.a", (), ("root.system", "root.tenant1.b")),
        ("root.tenant1.b", "root.tenant1", ("root.tenant1.a",), ("root.system",)),
        ("root.tenant2.one", "root.tenant2", ("root.tenant2.two",), ("root.system", "root.tenant2.two")),
        ("root.system", "root", ("root.tenant1", "root.tenant2"), ()),
        ("root.tenant1", "root.tenant1", (), ("root.system",)),
    ],
)  # fmt: skip
def test_a_fence_is_one_way(
    path: str, scope: str, claims_from: tuple[str, ...], claimed_by: tuple[str, ...]
) -> None:
    found = inspect.queue_reach(fence_tree().core, "default", path)
    assert (found.scope, found.may_claim_from, found.may_be_claimed_by) == (
        scope,
        claims_from,
        claimed_by,
    )


def test_disabled_takes_part_in_nothing() -> None:
    off_queue = leaf("off", guaranteed=CORES, properties=DISABLED)
    core = World(leaf("a", guaranteed=CORES), leaf("b"), off_queue).core
    off = inspect.queue_reach(core, "default", "root.off")
    assert (off.disabled, off.may_claim_from, off.may_be_claimed_by) == (True, (), ())
    assert inspect.queue_reach(core, "default", "root.a").may_claim_from == ("root.b",)


def test_a_parent_without_queues_below_is_looked_at_as_a_leaf() -> None:
    world = World(leaf("a", guaranteed=CORES), parent("empty", guaranteed=CORES))
    found = inspect.queue_reach(world.core, "default", "root.empty")
    assert (found.may_claim_from, found.may_be_claimed_by) == (("root.a",), ("root.a",))


def by_offset(offset: int) -> QueueProperties:
    """Properties of a queue whose pods all have this priority outside it."""
    return QueueProperties(priority_policy=PriorityPolicy.FENCE, priority_offset=offset)


@pytest.mark.parametrize(
    ("rule", "expected"), [("allow", True), ("never", False), ("ignore", True)]
)
def test_a_priority_fence_decides_who_may_claim(rule: str, *, expected: bool) -> None:
    tree = configuration(
        leaf("low", guaranteed=CORES, properties=by_offset(1)),
        leaf("same", guaranteed=CORES, properties=by_offset(5)),
        leaf("high", guaranteed=CORES, properties=by_offset(5)),
        preemption=PreemptionSettings(equal_priority=rule),
    )
    world = World(leaf("low"), leaf("same"), leaf("high"))
    world.say(ConfigurationApplied(tree, "test"))
    found = inspect.queue_reach(world.core, "default", "root.high").may_be_claimed_by
    assert ("root.same" in found) is expected
    assert ("root.low" in found) is (rule == "ignore")


def test_by_weight_every_queue_may_claim() -> None:
    tree = configuration(
        leaf("a"), leaf("b"), preemption=PreemptionSettings(entitlement="proportional")
    )
    world = World(leaf("a"), leaf("b"))
    world.say(ConfigurationApplied(tree, "test"))
    found = inspect.queue_reach(world.core, "default", "root.a")
    assert (found.may_claim_from, found.may_be_claimed_by) == (("root.b",), ("root.b",))


# Against a plain model, leaf by leaf ----------------------------------------------------------------------------


def random_queue(chance: random.Random, name: str, depth: int) -> QueueSpec:
    policy = chance.choice(
        (*[PreemptionPolicy.DEFAULT] * 3, FENCE.preemption_policy, DISABLED.preemption_policy)
    )
    properties = QueueProperties(preemption_policy=policy)
    owed = resource({chance.choice(("vcore", "gpu")): chance.choice((0, 4000))})
    if depth == 0 or chance.random() < 0.4:
        return leaf(name, guaranteed=owed, properties=properties)
    children = [random_queue(chance, f"{name}{n}", depth - 1) for n in range(chance.randint(1, 3))]
    return parent(name, *children, guaranteed=owed, properties=properties)


def specs(spec: QueueSpec, path: str) -> dict[str, QueueSpec]:
    found = {path: spec}
    for child in spec.children:
        found |= specs(child, f"{path}.{child.name}")
    return found


def prefixes(path: str) -> list[str]:
    """Return the queues of a path, the deepest first."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


@pytest.mark.parametrize("seed", range(60))
def test_reach_equals_the_plain_model(seed: int) -> None:
    chance = random.Random(seed)
    tops = [random_queue(chance, name, 2) for name in "abc"]
    core = World(*tops).core
    known = {path: one for top in tops for path, one in specs(top, f"root.{top.name}").items()}
    leaves = [path for path in known if not any(other.startswith(f"{path}.") for other in known)]

    def policy(path: str) -> PreemptionPolicy:
        return (
            known[path].properties.preemption_policy if path in known else FENCE.preemption_policy
        )

    def may_claim(asker: str, victim: str) -> bool:
        scope = next(one for one in prefixes(asker) if policy(one) is PreemptionPolicy.FENCE)
        deciding = [
            next((one for one in prefixes(asker) if one.startswith(scope) and one in known
                  and dict(known[one].guaranteed).get(kind)), None)
            for kind in ("vcore", "gpu")
        ]  # fmt: skip
        off = PreemptionPolicy.DISABLED in (policy(asker), policy(victim))
        outside = any(one is not None and one not in prefixes(victim) for one in deciding)
        return not off and asker != victim and scope in prefixes(victim) and outside

    def listed(paths: tuple[str, ...]) -> set[str]:
        return {one for one in leaves if set(paths) & set(prefixes(one))}

    for path in known:
        own = {one for one in leaves if path in prefixes(one)}
        found = inspect.queue_reach(core, "default", path)
        outside = [one for one in leaves if one not in own]
        assert listed(found.may_claim_from) == {
            one for one in outside if any(may_claim(mine, one) for mine in own)
        }
        assert listed(found.may_be_claimed_by) == {
            one for one in outside if any(may_claim(one, mine) for mine in own)
        }
        assert found.claims_inside == any(may_claim(one, two) for one in own for two in own)


# In sentences ---------------------------------------------------------------------------------------------------


def explained(world: World, path: str) -> list[str]:
    found = inspect.explain(world.core, path, world.now)
    assert (found.kind, found.queue, found.lines[0]) == ("queue", path.lower(), found.summary)
    assert all(line.endswith(".") and line[0].isupper() for line in found.lines)
    return list(found.lines)


def test_a_queue_says_how_it_stands_to_its_guarantee() -> None:
    world = World(leaf("a", guaranteed=resource({"vcore": 4000, "gpu": 2})), leaf("b"))
    world.node("n1", vcore=10_000, extra={"gpu": 8})
    world.application("app")
    world.allocation("one", "n1", vcore=5_000)
    assert explained(world, "root.A")[0] == (
        "It is below its guarantee by 2 gpu and over it by 1 core; nothing waits."
    )
    world.ask("huge", vcore=99_000)
    assert explained(world, "root.a")[0].endswith("1 ask waits.")
    assert (
        explained(world, "root.b")[0]
        == "It has no guarantee of its own; it holds nothing, nothing waits."
    )
    assert explained(world, "root")[0].startswith("It is the root and has what the nodes have")


def test_by_weight_a_queue_says_how_it_stands_to_its_share() -> None:
    by_weight = PreemptionSettings(entitlement="proportional")
    world = World(leaf("a", guaranteed=CORES), leaf("b"))
    tree = configuration(leaf("a", guaranteed=CORES), leaf("b"), preemption=by_weight)
    world.say(ConfigurationApplied(tree, "test"))
    world.node("n1", vcore=12_000)
    for name in ("a", "b"):
        world.application(name, f"root.{name}")
    world.allocation("one", "n1", "a", vcore=9_000)
    world.ask("two", "b", vcore=6_000)
    assert (
        explained(world, "root.a")[0] == "It is over its share by weight by 3 cores; nothing waits."
    )
    assert (
        explained(world, "root.b")[0] == "It is below its share by weight by 6 cores; 1 ask waits."
    )


def promised_world() -> World:
    """Queue root.a uses 2 of the 4 cores that it is guaranteed, and an ask of 3 cores waits in it."""
    world = World(leaf("a", guaranteed=resource({"vcore": 4000})))
    world.node("n1", vcore=10_000)
    world.application("app")
    world.allocation("one", "n1", vcore=2_000)
    world.ask("next", vcore=3_000)
    return world


def test_what_reservations_keep_is_not_held() -> None:
    world = promised_world()
    before = explained(world, "root.a")
    pledge(world, "next", "n1")
    lines = explained(world, "root.a")
    assert lines[0] == before[0] == "It is below its guarantee by 2 cores; 1 ask waits."
    assert lines[1] == "Not counted as held: 3 cores reserved for it."
    (unmet,) = needs.read(world.core.state, world.partition, "root.a", world.now).queues
    assert [(one.resource_type, one.missing) for one in unmet.types] == [("vcore", 2_000)]


def test_what_decisions_promise_is_called_promised() -> None:
    world = promised_world()
    pledge(world, "next", "n1", policy="guaranteed", victims=("one",))
    lines = explained(world, "root.a")
    assert lines[0] == "It is below its guarantee by 1 core; 1 ask waits."
    assert lines[1] == (
        "Counted as held: 3 cores that decisions promise it; not counted as held: 2 cores being released."
    )


def test_a_queue_says_what_is_guaranteed_above_it() -> None:
    world = World(parent("p", leaf("a"), guaranteed=resource({"vcore": 4000})))
    assert "Queue root.p guarantees 4 cores to all queues below it together." in explained(
        world, "root.p.a"
    )


def test_a_queue_says_from_whom_it_may_claim_and_what_passes_its_fence() -> None:
    world = fence_tree()
    lines = explained(world, "root.tenant1.b")
    assert (
        "Its asks may claim pods of root.tenant1.a only, because root.tenant1 is a fence." in lines
    )
    assert "Its pods may be claimed by asks of root.system." in lines
    assert any(line.startswith("Fences stop neither pods of DaemonSets") for line in lines)
    assert (
        "Its asks may claim pods of no other queue, because root.tenant1.a is a fence."
        in explained(world, "root.tenant1.a")
    )


def company() -> World:
    """Two queues with a guarantee, one of them above its leaves, and one without."""
    return World(
        leaf("prod", guaranteed=CORES),
        parent("batch", leaf("etl"), leaf("adhoc"), guaranteed=CORES),
        leaf("system"),
    )


def test_a_queue_without_a_guarantee_claims_nothing() -> None:
    lines = explained(company(), "root.system")
    assert "Its asks may claim no pods: no queue from there up to root has a guarantee." in lines
    assert "Its pods may be claimed by asks of root.batch and root.prod." in lines


def test_a_guarantee_above_takes_nothing_from_below_it() -> None:
    assert "Its asks may claim pods of root.prod and root.system; no fence is above it." in (
        explained(company(), "root.batch.etl")
    )
    assert (
        "Asks below it may claim pods of root.prod and root.system; no fence is above it, "
        "and none of each other."
    ) in explained(company(), "root.batch")


def test_only_queues_with_a_guarantee_are_listed() -> None:
    lines = explained(company(), "root.prod")
    assert "Its pods may be claimed by asks of root.batch." in lines
    lines = explained(World(leaf("prod", guaranteed=CORES), leaf("a")), "root.prod")
    assert (
        "Its pods may be claimed by asks of no other queue: no fence keeps them out, "
        "but none has a guarantee."
    ) in lines


def test_a_partition_without_claims_says_so() -> None:
    world = fence_tree()
    off = configuration(leaf("system"), preemption=PreemptionSettings(enabled=False))
    world.say(ConfigurationApplied(off, "test"))
    assert any("preemption.enabled is false" in line for line in explained(world, "root.system"))


def test_a_queue_over_its_max_says_when_it_is_enforced() -> None:
    world = World(leaf("a"))
    world.node("n1", vcore=10_000)
    world.application("app")
    world.allocation("one", "n1", vcore=5_000)
    world.say(ConfigurationApplied(configuration(leaf("a", max=(("vcore", 2000),))), "test"))
    (line,) = [one for one in explained(world, "root.a") if "more than its max" in one]
    assert line.startswith("It holds 3 cores more than its max; its max is not enforced: ")


def test_a_queue_that_does_not_exist_has_near_matches() -> None:
    found = inspect.explain(World(leaf("research")).core, "root.reserch", 0)
    assert found.kind == "unknown"
    assert "root.research" in found.lines[-1]


def test_a_parent_behind_a_fence_says_that_its_queues_claim_from_each_other() -> None:
    lines = explained(fence_tree(), "root.tenant1")
    assert (
        "Asks below it may claim each other's pods, and outside it those of no other queue, "
        "because root.tenant1 is a fence." in lines
    )
