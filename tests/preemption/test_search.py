"""The scan and the heaps find equal nodes."""

import pytest

from server.model.quota import NodeSort
from server.scheduling.placement import pick_node
from server.snapshot import node_search
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts
from server.state import snapshotting
from server.state.equivalence import AskClass
from server.state.nodes import NodeIndex
from server.state.partition import Partition
from tests.effort import TRIES_ALL, cases
from tests.preemption.lives import partitions_after_each_tick

BATCHES = 5
BATCH = cases(40)


def classes_of(partition: Partition) -> list[AskClass]:
    """Return the classes in use whose node the scan and the heaps choose by the same order.

    A class that holds a reservation is left out: for the heaps, its own pledge counts as free. A class with preferences is left
    out, too: its node is that of the placement oracle (`tests/simulation/test_oracle.py`).
    """
    known = partition.classes.by_key.values()
    return [one for one in known if one.pledge is None and one.preferred is None]


def picked(index: NodeIndex, ask_class: AskClass) -> str:
    """Return the node that the heaps pick."""
    node = pick_node(index, ask_class)
    return node.node_id if node else ""


def scanned(snapshot: Snapshot, kind: ClassFacts) -> str:
    """Return the node that the scan finds, "" for none."""
    row = node_search.best(snapshot.nodes, snapshot.nodes.free, kind, snapshot.sort)
    return snapshot.nodes.ids[row] if row >= 0 else ""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_heaps_and_scan_choose_the_same_node(batch: int) -> None:
    seeds = range(batch * BATCH, (batch + 1) * BATCH)
    found = 0
    for where, partition, now in partitions_after_each_tick(seeds):
        snapshot = snapshotting.take(partition, now)
        for ask_class in classes_of(partition):
            kind = snapshotting.class_facts(partition, ask_class)
            best = scanned(snapshot, kind)
            assert picked(partition.index, ask_class) == best, f"{where}, {ask_class.resource}"
            found += bool(best)
    if TRIES_ALL:
        assert found > 100


@pytest.mark.parametrize("sort", list(NodeSort))
def test_heaps_and_scan_agree_after_the_order_of_nodes_changed(sort: NodeSort) -> None:
    for where, partition, now in partitions_after_each_tick(range(BATCH)):
        index = partition.index
        index.reorder(sort, index.weights)
        snapshot = snapshotting.take(partition, now)
        for ask_class in classes_of(partition):
            best = scanned(snapshot, snapshotting.class_facts(partition, ask_class))
            assert picked(index, ask_class) == best, where
