"""Columns and snapshots: filled from logs, shared when nothing has changed, frozen (design 6.1)."""

from dataclasses import replace

import pytest

from server.model.asks import AskSpec, Constraints, HostPort, Protection, ReleaseMark
from server.model.events import AllocationAdded, NodeRemoved
from server.model.resources import resource
from server.snapshot import columns
from server.snapshot.snapshot import Snapshot
from server.state import snapshotting
from server.state.invariants.columns import check_columns
from tests.preemption.clusters import MANAGER, START, Cluster
from tests.preemption.lives import partitions_after_each_tick

PLAIN = AskSpec(resource=resource({"memory": 3}), lendable=True)


def small_cluster() -> Cluster:
    """Two nodes of 10 and an application."""
    cluster = Cluster()
    cluster.nodes("n1", "n2", memory=10)
    cluster.application("x")
    return cluster


def free_memory(snapshot: Snapshot) -> dict[str, int]:
    """Return what is free on each node."""
    at = snapshot.types.index("memory")
    ids, free = snapshot.nodes.ids, snapshot.nodes.free
    return {name: int(free[row, at]) for row, name in enumerate(ids) if name}


def test_a_view_does_not_see_what_happens_later() -> None:
    cluster = small_cluster()
    cluster.ask("p", memory=4)
    cluster.tick()
    before = cluster.snapshot()
    cluster.release("p")
    cluster.ask("q", memory=5)
    cluster.tick()
    after = cluster.snapshot()
    assert (free_memory(before), before.allocations.keys[0]) == ({"n1": 6, "n2": 10}, "p")
    assert (free_memory(after), after.allocations.keys[0]) == ({"n1": 5, "n2": 10}, "q")


def test_nobody_writes_to_a_view() -> None:
    snapshot = small_cluster().snapshot()
    for array in (
        snapshot.nodes.free,
        snapshot.nodes.held,
        snapshot.allocations.flags,
        snapshot.nodes.releasing,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_what_did_not_change_is_shared_with_the_view_before() -> None:
    cluster = small_cluster()
    cluster.ask("p", memory=4)
    cluster.tick()
    before, again = cluster.snapshot(), cluster.snapshot()
    assert again.nodes is before.nodes
    assert again.allocations is before.allocations
    assert again.queues is before.queues
    cluster.foreign("f", "n1", memory=1)
    after = cluster.snapshot()
    assert after.nodes is not before.nodes
    assert after.allocations is before.allocations
    cluster.ask("q", memory=1)
    cluster.tick()
    last = cluster.snapshot()
    assert last.allocations is not before.allocations
    assert last.queues["root.b"] is before.queues["root.b"]
    assert last.queues["root.a"] is not before.queues["root.a"]


def test_rows_are_used_again() -> None:
    cluster = small_cluster()
    for turn in range(300):
        cluster.ask(f"p{turn}", memory=4)
        cluster.tick()
        cluster.snapshot()
        cluster.release(f"p{turn}")
    assert len(cluster.snapshot().allocations.keys) <= 2


def test_the_row_of_a_lost_node_is_empty_until_another_joins() -> None:
    cluster = small_cluster()
    cluster.snapshot()
    cluster.say(NodeRemoved(MANAGER, "n1"))
    assert (cluster.snapshot().nodes.ids, cluster.snapshot().nodes.open.tolist()) == (
        ("", "n2"),
        [False, True],
    )
    cluster.nodes("n3", memory=7)
    assert free_memory(cluster.snapshot()) == {"n3": 7, "n2": 10}


def test_new_resource_types_widen_the_columns() -> None:
    cluster = small_cluster()
    cluster.ask("p", memory=4)
    cluster.tick()
    cluster.snapshot()
    port = replace(PLAIN, constraints=Constraints(host_ports=(HostPort(80),)))
    cluster.ask("q", spec=port, memory=3)
    cluster.tick()
    snapshot = cluster.snapshot()
    assert snapshot.nodes.free.shape == (2, len(snapshot.types))
    check_columns(cluster.partition)


@pytest.mark.parametrize(
    ("spec", "flags"),
    [
        (PLAIN, 0),
        (replace(PLAIN, originator=True), columns.ORIGINATOR),
        (replace(PLAIN, allow_preempt_self=False), columns.OPTED_OUT),
        (replace(PLAIN, protection=Protection.PREFER_NOT), columns.OPTED_OUT),
        (replace(PLAIN, protection=Protection.FIRM), columns.FIRM),
        (replace(PLAIN, lendable=False), columns.FIRM),
        (replace(PLAIN, lendable=None), columns.UNSAID),
        (replace(PLAIN, protection=Protection.UNTOUCHABLE), columns.UNTOUCHABLE),
        (replace(PLAIN, placeholder=True), columns.PLACEHOLDER),
        (replace(PLAIN, gang_key="j", min_members=2), columns.GANG),
        (replace(PLAIN, constraints=Constraints(required_node="n1")), columns.REQUIRED_NODE),
    ],
)
def test_an_allocation_has_the_flags_of_its_ask(spec: AskSpec, flags: int) -> None:
    cluster = small_cluster()
    cluster.say(AllocationAdded(MANAGER, "e", "x", "n1", spec))
    assert cluster.snapshot().allocations.flags.tolist() == [flags]


def test_what_is_being_released_will_be_free_and_does_not_stand() -> None:
    cluster = small_cluster()
    cluster.existing("e", "n1", memory=4)
    assert cluster.snapshot().nodes.releasing.sum() == 0
    spec = AskSpec(resource=resource({"memory": 4}))
    mark = ReleaseMark(3, "d1", "p", "n2")
    cluster.say(AllocationAdded(MANAGER, "e", "x", "n1", spec, started_ms=START, releasing=mark))
    snapshot = cluster.snapshot()
    assert snapshot.allocations.standing.tolist() == [False]
    assert snapshot.allocations.started_ms.tolist() == [START]
    assert snapshot.nodes.releasing[:, snapshot.types.index("memory")].tolist() == [4, 0]
    assert snapshot.queues["root.a"].releasing[snapshot.types.index("memory")] == 4
    cluster.release("e")
    assert cluster.snapshot().nodes.releasing.sum() == 0


def test_changes_are_bounded_by_what_runs_when_nobody_takes_a_view() -> None:
    cluster = small_cluster()
    cluster.ask("stays", memory=1)
    for turn in range(200):
        cluster.ask(f"p{turn}", memory=4)
        cluster.tick()
        cluster.release(f"p{turn}")
        assert [ask.key for ask in cluster.partition.columns.changed] == ["stays"]
    snapshot = cluster.snapshot()
    assert [key for key in snapshot.allocations.keys if key] == ["stays"]


def test_the_slots_of_changed_nodes_are_bounded_by_the_nodes() -> None:
    cluster = small_cluster()
    for turn in range(50):
        cluster.nodes(f"extra{turn}", memory=1)
        cluster.say(NodeRemoved(MANAGER, f"extra{turn}"))
    assert len(cluster.partition.index.unread) <= 3


def test_columns_agree_with_the_objects_whenever_a_view_is_taken() -> None:
    """A snapshot now and then: the logs are short here, long there."""
    for turn, (where, partition, now) in enumerate(partitions_after_each_tick(range(60))):
        if turn % 3 == 0:
            snapshotting.take(partition, now)
            assert not partition.columns.changed, where
            assert not partition.index.unread, where
        check_columns(partition)


def test_a_row_that_lies_is_found() -> None:
    cluster = small_cluster()
    cluster.ask("p", memory=4)
    cluster.tick()
    cluster.snapshot()
    check_columns(cluster.partition)
    cluster.partition.asks["p"].created_ms += 1
    with pytest.raises(AssertionError, match="row 0 of p"):
        check_columns(cluster.partition)
    cluster.partition.asks["p"].created_ms -= 1
    cluster.partition.index.nodes["n2"].free[0] += 1
    with pytest.raises(AssertionError, match="row 1 of n2: free"):
        check_columns(cluster.partition)
