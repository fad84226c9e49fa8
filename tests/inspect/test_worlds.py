"""Small random clusters: the state is consistent after every event and tick, no limit is exceeded, queries change nothing."""

from collections import Counter

import pytest

from server.core.core import Core
from server.core.queries import inspect
from server.core.queries.queue_reports import share_ppm
from tests.effort import cases
from tests.inspect.overdrafts import overdrafts
from tests.simulation.worlds import World, make_world

WORLDS = cases(60)
BUDGET = 3
"""So few steps that ticks end in the middle of their work."""


def drawn(core: Core) -> dict[str, int]:
    """How far nodes and limits of all partitions are overdrawn."""
    return {
        f"{name}: {key}": amount
        for name, partition in core.state.partitions.items()
        for key, amount in overdrafts(partition).items()
    }


def used(core: Core, partition: str) -> dict[str, dict[str, int]]:
    """Return the usage of every node, added up from the pods on it."""
    found = {node: Counter[str]() for node in core.state.partitions[partition].index.nodes}
    for one in inspect.allocations(core, partition):
        if not one.foreign and one.node_id in found:
            found[one.node_id].update(one.resource)
    return {node: dict(+amounts) for node, amounts in found.items()}


def tick(core: Core, now: int) -> None:
    """Tick by small slices to the end; none may overdraw anything further."""
    before = drawn(core)
    more = True
    while more:
        more = core.tick(now, BUDGET).more
        core.validate()
        for name in core.state.partitions:
            assert {one.node_id: one.usage for one in inspect.nodes(core, name)} == used(core, name)
    worse = {key: amount for key, amount in drawn(core).items() if amount > before.get(key, 0)}
    assert worse == {}


def live(world: World) -> Core:
    """Live through a world; the message of a failure names the seed and the moment."""
    core = Core(world.configuration)
    for at, (now, event) in enumerate(world.moments):
        try:
            if event is None:
                tick(core, now)
            else:
                core.handle(event, now)
            core.validate()
        except AssertionError as fault:
            raise AssertionError(f"seed {world.seed}, moment {at}, {event}: {fault}") from fault
    return core


@pytest.mark.parametrize("seed", range(WORLDS))
def test_the_books_hold(seed: int) -> None:
    world = make_world(seed)
    core = live(world)
    now = world.moments[-1][0]
    before = core.digest()
    for name, partition in core.state.partitions.items():
        for key in (
            *partition.asks,
            *partition.applications,
            *partition.index.nodes,
            *partition.foreign.pods,
        ):
            assert inspect.explain(core, key, now, name).kind != "unknown"
        whole = [inspect.queue_tree(core, name)]
        for one in whole:
            whole += one.children
            assert inspect.queue_tree(core, name, one.path) == one
            queue = partition.queues[one.path]
            assert one.share_ppm == share_ppm(partition, queue)
            assert one.pending_asks == queue.waiting().total()
        inspect.nodes(core, name)
        inspect.allocations(core, name, asks=True)
    findings = inspect.doctor(core, now)
    assert not [one for one in findings if one.severity == "error"]
    assert core.digest() == before
