"""Reservations that asks outrank: `Ranks` finds those of the definition, and compares with none where none can be outranked."""

import random

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.events import ApplicationAdded, AskAdded, ManagerRegistered, NodeAdded
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PreemptionSettings,
    PriorityPolicy,
    QueueProperties,
    QueueSpec,
    ReservationSettings,
)
from server.model.resources import resource
from server.scheduling import outranking
from server.scheduling.outranking import Ranks, outranks
from server.state.partition import Partition
from tests.effort import cases

NODES = 6


def _queue(chance: random.Random, name: str, depth: int, *, fences: bool = True) -> QueueSpec:
    policy = chance.choice([*PriorityPolicy]) if fences else PriorityPolicy.DEFAULT
    properties = QueueProperties(priority_policy=policy, priority_offset=chance.randrange(-1, 2))
    names = "abc" if depth < 2 else ""
    children = tuple(_queue(chance, one, depth + 1, fences=fences) for one in names)
    acl = Acl(everyone=True)
    return QueueSpec(
        name, parent=bool(children), properties=properties, submit_acl=acl, children=children
    )


def _reserved(chance: random.Random, *, fences: bool = True) -> Partition:
    """Return a partition in which asks of random priorities have reserved nodes."""
    spec = PartitionSpec(
        "default",
        _queue(chance, "root", 0, fences=fences),
        preemption=PreemptionSettings(enabled=False),
        reservations=ReservationSettings(enabled=True),
    )
    core = Core(Configuration((spec,)))
    core.handle(ManagerRegistered("rm"), 0)
    for at in range(NODES):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 10})), 0)
        core.handle(ApplicationAdded("rm", f"app{at}", f"root.{'abc'[at % 3]}.{'abc'[at // 3]}"), 0)
    for key, size in (("small", 6), ("large", 8)):
        for at in range(NODES):
            ask = AskSpec(resource({"vcore": size}), priority=chance.randrange(-1, 2))
            core.handle(AskAdded("rm", f"{key}{at}", f"app{at}", ask), 0)
        for now in (0, 3_000):
            while core.tick(now).more:
                pass
    core.validate()
    return core.state.partitions["default"]


@pytest.mark.parametrize("seed", range(cases(30, 3)))
def test_ranks_are_those_of_the_definition(seed: int) -> None:
    partition = _reserved(random.Random(seed))
    held = [*partition.decisions.reservations.values()]
    assert held
    ranks = Ranks(partition)
    for leaf in partition.root.leaves():
        for priority in range(-3, 4):
            want = [one for one in held if outranks(leaf, priority, one)]
            assert [*ranks.below(leaf, priority)] == want


def test_no_reservation_is_compared_with_asks_that_outrank_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition = _reserved(random.Random(0), fences=False)
    monkeypatch.delattr(outranking, "outranks")  # a comparison fails
    ranks = Ranks(partition)
    assert partition.decisions.reservations
    assert not any(ranks.below(leaf, -10) for leaf in partition.root.leaves())
