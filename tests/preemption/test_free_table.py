"""The table of free capacity: `with_capacity_for` returns the nodes that a loop over all nodes would return."""

import random

import pytest

from server.model.fit import Demand, fits
from server.state.nodes import NodeIndex
from server.state.partition import Partition
from tests.preemption.lives import partitions_after_each_tick


def plain(index: NodeIndex, demand: Demand) -> list[str]:
    """Return the nodes with capacity for the demand by a loop, in the order of slots."""
    nodes = sorted(index.numbered.values(), key=lambda one: one.slot)
    return [one.node_id for one in nodes if fits(demand, one.free)]


def demands(dice: random.Random, partition: Partition) -> list[Demand]:
    """Return demands that fit nowhere, some that fit on the emptiest nodes, and one that wants nothing."""
    width = len(partition.types)
    kinds = [dice.sample(range(width), dice.randint(0, min(3, width))) for _ in range(4)]
    return [tuple((kind, dice.choice([0, 1, 2, 4, 8, 1 << 40])) for kind in one) for one in kinds]


@pytest.mark.parametrize("chunk", range(4))
def test_the_table_finds_the_nodes_that_a_loop_finds(chunk: int) -> None:
    dice = random.Random(chunk)
    seen = [0, 0]
    for where, partition, _ in partitions_after_each_tick(range(30 * chunk, 30 * chunk + 30)):
        if dice.random() < 0.5:
            continue  # several ticks of changes are read at once, too
        for demand in demands(dice, partition):
            found = [one.node_id for one in partition.index.with_capacity_for(demand)]
            assert found == plain(partition.index, demand), (where, demand)
            seen[bool(found)] += 1
    assert min(seen) > 50, seen
