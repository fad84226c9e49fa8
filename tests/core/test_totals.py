"""The running total of a resource type stays below 2^62 on the fast path too (design 6.13)."""

import pytest

from server.core.core import Core
from server.core.events import overflow
from server.model.asks import AskSpec
from server.model.decisions import AskRejected, Decision
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import QUANTITY_LIMIT, Resource, resource
from server.state.equivalence import SMALL

NOW = 1_800_000_000_000
TREE = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(QueueSpec("a"),))


def memory(quantity: int) -> Resource:
    return resource({"memory": quantity})


SMALL_ONE = AskSpec(memory(100))
"""A template: the codec makes one spec of equal ones."""


@pytest.fixture
def core() -> Core:
    core = Core(Configuration((PartitionSpec("default", TREE),)))
    for event in (
        ManagerRegistered("rm"),
        NodeAdded("rm", "n1", memory(QUANTITY_LIMIT - 1)),
        ApplicationAdded("rm", "app", "root.a"),
    ):
        core.handle(event, NOW)
    return core


def ask(core: Core, key: str, quantity: int) -> list[Decision]:
    spec = SMALL_ONE if quantity == 100 else AskSpec(memory(quantity))
    return core.handle(AskAdded("rm", key, "app", spec), NOW)


def refused(decisions: list[Decision]) -> bool:
    return any(isinstance(one, AskRejected) and "past 2^62" in one.reason for one in decisions)


def test_a_small_ask_of_a_new_template_does_not_pass_the_limit(core: Core) -> None:
    assert not refused(ask(core, "large", QUANTITY_LIMIT - 10))
    assert refused(ask(core, "small", 100))
    assert not refused(ask(core, "smaller", 9))
    core.validate()


def test_nor_does_one_of_a_known_template(core: Core) -> None:
    assert not refused(ask(core, "before", 100))
    assert not refused(ask(core, "large", QUANTITY_LIMIT - 110))
    assert refused(ask(core, "small", 100))
    core.validate()


def test_foreign_pods_count(core: Core) -> None:
    assert not refused(ask(core, "before", 100))
    core.handle(ForeignAdded("rm", "foreign", "n1", memory(QUANTITY_LIMIT - 200)), NOW)
    assert refused(ask(core, "small", 100))


def test_once_the_total_is_low_again_asks_come_the_short_way_again(core: Core) -> None:
    ask(core, "large", QUANTITY_LIMIT - 200)
    ask(core, "small", 100)
    partition = core.state.partitions["default"]
    assert partition.classes.crowded == {"memory"}
    assert not partition.classes.plain
    core.handle(ReleaseRequested("rm", "app", "large"), NOW)
    ask(core, "second", 100)
    ask(core, "third", 100)
    assert not partition.classes.crowded
    assert SMALL_ONE in partition.classes.plain
    core.validate()


def test_as_many_small_asks_as_a_partition_takes_find_capacity_below_the_mark() -> None:
    assert overflow.CROWDED + overflow.ASKS_MAX * SMALL <= QUANTITY_LIMIT
