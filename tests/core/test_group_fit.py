"""How many members of a gang fit now and what the others lack, compared with a plain count and with placement."""

import random

import pytest

from server.core.queries import inspect, next_steps, simulate
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.asks import AskSpec, Taint
from server.model.events import AskAdded
from server.model.quota import UserLimit
from server.model.reports import GroupFit
from server.model.resources import resource
from tests.inspect.world import MANAGER, World, leaf, parent

CORE = 1_000


def gang_of(world: World, key: str) -> GroupFit:
    found = inspect.explain(world.core, key, world.now).gang
    assert found is not None
    return found


def members(world: World, count: int, size: int = 0, key: str = "sweep", **rest: int) -> None:
    wanted = {"vcore": CORE, "memory": 2_000, **rest}
    for number in range(count):
        spec = AskSpec(resource(wanted), gang_key=key, min_members=size or count)
        world.say(AskAdded(MANAGER, f"{key}-{number}", "app", spec))


@pytest.fixture
def world() -> World:
    """Two nodes of 8 cores with 4 free each, as in examples/clusters/gang once the training runs."""
    world = World(leaf("a"), leaf("b"))
    world.application("app")
    for name in ("n1", "n2"):
        world.node(name, vcore=8 * CORE, memory=32_000)
        world.allocation(f"runs-{name}", name, vcore=4 * CORE, extra={"memory": 8_000})
    return world


def test_the_answer_counts_those_that_fit_and_what_the_others_lack(world: World) -> None:
    members(world, 12)
    world.tick()
    fit = gang_of(world, "sweep-0")
    assert (fit.name, fit.members, fit.size, fit.running) == ("gang sweep", 12, 12, 0)
    assert (fit.fitting, fit.left, dict(fit.missing)) == (8, 4, {"vcore": 4 * CORE})
    assert dict(fit.rest) == {"vcore": 4 * CORE, "memory": 8_000}
    assert [(one.node_id, one.members, one.rest, dict(one.missing)) for one in fit.nodes] == [
        ("n1", 4, 4, {"vcore": 4 * CORE}),
        ("n2", 4, 0, {}),
    ]
    assert (fit.limits, fit.without_node, fit.nodes_left_out) == ((), 0, 0)


def test_members_that_no_node_could_hold_lack_all_that_they_ask_for(world: World) -> None:
    members(world, 18)
    world.tick()
    fit = gang_of(world, "sweep-0")
    assert (fit.fitting, fit.without_node) == (8, 2)
    assert dict(fit.missing) == {"vcore": 10 * CORE, "memory": 4_000}


def test_nodes_that_are_large_enough_for_a_member_and_excluded_are_named(world: World) -> None:
    taint = Taint("nvidia.com/gpu", "present", "NoSchedule")
    world.node("g1", vcore=8 * CORE, memory=32_000, extra={"gpu": 4}, taints=(taint,))
    members(world, 4, gpu=1)
    world.tick()
    found = inspect.explain(world.core, "sweep-0", world.now)
    why = "g1 is, but it does not tolerate its taint nvidia.com/gpu"
    assert found.summary.endswith(f"; no node that it may run on is large enough; {why}.")
    (step,) = next_steps.of_ask(found, None, world.now)
    assert step.startswith("tolerate the taint nvidia.com/gpu of g1, or add nodes with 4 cores")
    spec = AskSpec(resource({"vcore": CORE, "gpu": 1}))
    asked = [SimulatedAsk("root.a", "app", spec), SimulatedAsk("root.a", "app", spec)]
    prepared = simulate.prepared(world.core, "default", asked, world.now)
    first, _ = prepared.answers()
    assert first.lines[0] == f"It would wait: no node that it may run on is large enough; {why}."
    counted = "1 node is, but it does not tolerate its taint"
    assert first.brief == f"no node that it may run on is large enough; {counted}"
    assert (
        prepared.groups[0].next_steps[0].startswith("tolerate the taint nvidia.com/gpu of g1, or")
    )


def test_a_limit_counts_for_the_gang_as_a_whole() -> None:
    limit = UserLimit(users=("ann",), max_resources=(("vcore", 5 * CORE),))
    world = World(parent("p", leaf("a", limits=(limit,)), max=(("vcore", 3 * CORE),)))
    world.node("n1", vcore=8 * CORE, memory=32_000)
    world.application("app", "root.p.a", user="ann")
    members(world, 6)
    world.tick()
    fit = gang_of(world, "sweep-0")
    assert (fit.fitting, fit.on_nodes, dict(fit.missing)) == (3, 6, {})
    assert [(one.kind, one.name, one.queue, one.members) for one in fit.limits] == [
        ("queue", "root.p", "root.p", 3),
        ("user", "ann", "root.p.a", 5),
    ]
    assert [dict(one.missing) for one in fit.limits] == [{"vcore": 3 * CORE}, {"vcore": CORE}]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_is_what_placement_does(seed: int) -> None:
    """A gang of as many members as are said to fit is placed; a larger one is, once what is missing is free."""
    chance = random.Random(seed)
    capacities = {f"n{number}": chance.randint(2, 9) for number in range(chance.randint(1, 6))}
    used = {name: chance.randint(0, most) for name, most in capacities.items()}
    wanted, count = chance.randint(1, 4), chance.randint(2, 12)

    def cluster(free: dict[str, int], size: int) -> World:
        world = World(leaf("a"))
        world.application("other")
        for name, most in capacities.items():
            world.node(name, vcore=most, memory=1_000)
            if most > free[name]:
                world.allocation(f"x-{name}", name, "other", vcore=most - free[name])
        world.application("app")
        for number in range(size):
            world.ask(f"m-{number:02}", vcore=wanted, gang_key="g", min_members=size)
        return world

    free = {name: most - used[name] for name, most in capacities.items()}
    fit = gang_of(cluster(free, count), "m-00")
    plain = sum(left // wanted for left in free.values())
    assert fit.fitting == min(plain, count)
    if fit.fitting > 1:
        assert len(cluster(free, fit.fitting).tick()) == fit.fitting
    if fit.left:
        assert not cluster(free, count).tick()
        assert (
            sum(one.missing.get("vcore", 0) for one in fit.nodes) + (wanted * fit.without_node)
            == fit.missing["vcore"]
            or fit.nodes_left_out
        )
        if not fit.without_node and not fit.nodes_left_out:
            freed = {one.node_id: one.missing.get("vcore", 0) for one in fit.nodes}
            later = {name: left + freed.get(name, 0) for name, left in free.items()}
            assert len(cluster(later, count).tick()) == count
