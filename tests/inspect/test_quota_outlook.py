"""The forecast for an armed quota run says what the run later does to each pod; making it changes nothing."""

import random
from typing import Any

import pytest

from server.core.queries.quota_outlook import QuotaOutlook, outlook
from server.model.asks import Protection
from server.model.decisions import Released, Termination
from server.model.events import ConfigurationApplied
from server.model.quota import PreemptionSettings, QueueProperties
from server.model.resources import resource
from tests.inspect.world import World, configuration, leaf, parent

DELAY = 116_000
ENFORCED = PreemptionSettings(quota_enabled=True)


def queue(name: str, most: int | None, delay: int = DELAY, **more: Any) -> Any:
    """Return a queue that is brought down to a maximum of cores, with queues below it where ``children`` has some."""
    children = more.pop("children", ())
    properties = QueueProperties(quota_delay_ms=delay, **more.pop("properties", {}))
    made = parent if children else leaf
    bound = None if most is None else (("vcore", most),)
    return made(name, *children, max=bound, properties=properties, **more)


def shrinking(before: Any, after: Any, settings: PreemptionSettings = ENFORCED) -> World:
    """Pods of several priorities in root.a or its leaves, and a configuration that lowers a maximum."""
    world = World(before, preemption=settings)
    world.node("n1", vcore=200)
    leaves = [f"root.a.{one.name}" for one in before.children] or ["root.a"]
    dice = random.Random(7)
    for number, path in enumerate(leaves):
        world.application(f"app-{number}", path)
        for pod in range(12):
            world.allocation(
                f"p-{number}-{pod:02}",
                "n1",
                f"app-{number}",
                dice.choice((1, 2, 3)),
                priority=dice.choice((0, 0, 5)),
                started_ms=world.now - dice.randrange(1_000),
                protection=dice.choice((Protection.NORMAL, Protection.PREFER_NOT)),
            )
    world.tick()
    world.say(ConfigurationApplied(configuration(after, preemption=settings), "lowered"))
    world.tick()
    return world


def told(world: World, key: str) -> list[QuotaOutlook]:
    state = world.partition
    return outlook(world.core, state, state.asks[key], world.now)


def evicted(world: World) -> set[str]:
    """Let time pass until every timer has come and every victim is gone, and return the victims."""
    every: set[str] = set()
    while world.partition.quota_due:
        world.now = min(world.partition.quota_due.values())
        done = world.core.tick(world.now)
        for one in [one for one in done.decisions if isinstance(one, Released)]:
            application = world.partition.asks[one.key].application.application_id
            world.release(one.key, application, Termination.PREEMPTED_BY_SCHEDULER)
            every.add(one.key)
        world.core.tick(world.now)
    return every


FLAT = queue("a", 40), queue("a", 9)
TREE = (
    queue("a", 60, children=(queue("x", 40), queue("y", 40))),
    queue(
        "a",
        20,
        children=(queue("x", 12, delay=5_000), queue("y", None, guaranteed=resource({"vcore": 9}))),
    ),
)
ABOVE = (
    queue("a", 60, children=(queue("x", 40), queue("y", 40))),
    queue("a", 30, children=(queue("x", 4), queue("y", 11, delay=200_000))),
)
NONE_BELOW = (
    queue("a", 60, guaranteed=resource({"vcore": 60})),
    queue("a", 20, guaranteed=resource({"vcore": 60})),
)
ABSTAINS = (
    queue("a", 60, guaranteed=resource({"vcore": 15})),
    queue("a", 9, guaranteed=resource({"vcore": 15}), properties={"quota_shortfall": "abstain"}),
)


@pytest.mark.parametrize(
    ("before", "after"), [FLAT, TREE, ABOVE, NONE_BELOW, ABSTAINS], ids=range(5)
)
def test_the_outlook_of_every_pod_is_what_the_runs_do(before: Any, after: Any) -> None:
    world = shrinking(before, after)
    keys = list(world.partition.asks)
    digest, due = world.core.digest(), dict(world.partition.quota_due)
    assert due
    found = {key: told(world, key) for key in keys}
    assert (world.core.digest(), world.partition.quota_due) == (digest, due)
    foreseen = {key for key, every in found.items() if any(one.evicted for one in every)}
    assert foreseen == evicted(world)
    for every in found.values():
        for one in every:
            assert one.due_ms == due[one.queue]
            assert 0 <= one.standing.place <= one.standing.total <= len(keys)


def test_places_are_one_order_without_gaps() -> None:
    world = shrinking(*FLAT)
    found = [one for key in world.partition.asks for one in told(world, key)]
    assert sorted(one.standing.place for one in found) == list(range(1, 13))
    victims = sum(one.evicted for one in found)
    assert {one.victims for one in found} == {victims}
    assert 0 < victims < 12
    stays = [one for one in found if not one.evicted]
    assert {one.standing.rule for one in stays} == {"not-needed"}


def test_without_a_timer_nothing_is_foretold() -> None:
    world = shrinking(queue("a", 40), queue("a", 39))
    assert not world.partition.quota_due
    assert [told(world, key) for key in world.partition.asks] == [[]] * 12


def test_an_abstaining_queue_evicts_nobody_and_says_so() -> None:
    world = shrinking(*ABSTAINS)
    (one,) = told(world, next(iter(world.partition.asks)))
    assert (one.evicted, one.victims) == (False, 0)
    assert "abstains" in one.refusal
