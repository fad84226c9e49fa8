"""Asks of many sizes that fit no node need few checks of nodes, and are placed as soon as a node has capacity."""

import random
from collections.abc import Iterable

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Placed
from server.model.events import ApplicationAdded, AskAdded, ManagerRegistered, NodeAdded
from server.model.fit import Demand
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import resource
from server.scheduling.placement import MISSES_MAX
from server.state.nodes import Node, NodeIndex

NOW = 1_800_000_000_000
TREE = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(QueueSpec("a"),))


def full_core() -> Core:
    """Return a core with more nodes than a class looks at one by one."""
    core = Core(Configuration((PartitionSpec("default", TREE),)))
    core.handle(ManagerRegistered("rm"), NOW)
    for at in range(2 * MISSES_MAX):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 4_000})), NOW)
    core.handle(ApplicationAdded("rm", "app", "root.a"), NOW)
    return core


def placed(core: Core, now: int) -> int:
    """Decide until nothing more can be; return how many asks were placed."""
    found, more = 0, True
    while more:
        tick = core.tick(now)
        found, more = found + sum(type(one) is Placed for one in tick.decisions), tick.more
    return found


def ask(core: Core, sizes: Iterable[int]) -> None:
    """Ask for each of these sizes."""
    for at, size in enumerate(sizes):
        core.handle(AskAdded("rm", f"ask-{at}", "app", AskSpec(resource({"vcore": size}))), NOW)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Demand]:
    """Collect the demands for which all nodes are looked at."""
    seen: list[Demand] = []
    with_capacity_for = NodeIndex.with_capacity_for

    def counted(index: NodeIndex, demand: Demand) -> list[Node]:
        seen.append(demand)
        return with_capacity_for(index, demand)

    monkeypatch.setattr(NodeIndex, "with_capacity_for", counted)
    return seen


def test_of_sizes_that_fit_nowhere_the_smallest_so_far_look_at_the_nodes(
    looks: list[Demand],
) -> None:
    core = full_core()
    ask(core, random.Random(1).sample(range(5_000, 50_000), 500))
    assert placed(core, NOW) == 0
    assert 1 <= len(looks) < 25


def test_all_are_placed_when_a_node_with_capacity_comes() -> None:
    core = full_core()
    sizes = range(5_000, 5_100)
    ask(core, sizes)
    assert placed(core, NOW) == 0
    core.handle(NodeAdded("rm", "large", resource({"vcore": 10**9})), NOW + 1)
    assert placed(core, NOW + 1) == len(sizes)


def test_a_smaller_size_is_tried_after_a_larger_one_failed() -> None:
    core = full_core()
    ask(core, [5_000, 3_000, 6_000, 4_000])
    assert placed(core, NOW) == 2
