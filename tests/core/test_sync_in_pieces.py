"""A sync writes its allocations to the columns while they arrive, so that its end takes no long turn (design 1.10, 6.1)."""

import numpy as np
import pytest

from server.core import core as core_module
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ManagerRegistered,
    NodeAdded,
    SyncCompleted,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import resource
from server.state import snapshotting

NOW = 1_800_000_000_000
NODES, PODS, PIECE = 20, 500, 30


def synced(monkeypatch: pytest.MonkeyPatch, most: int) -> tuple[Core, list[int]]:
    """Return a core after a sync, and how many changed allocations waited after each piece of the sync."""
    monkeypatch.setattr(core_module, "CATCH_UP_ALLOCATIONS", most)
    tree = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(QueueSpec("a"),))
    core = Core(Configuration((PartitionSpec("default", tree),)))
    core.handle(ManagerRegistered("rm", explicit_sync=True), NOW)
    for at in range(NODES):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 16_000})), NOW)
    core.handle(ApplicationAdded("rm", "app", "root.a"), NOW)
    pods = [
        AllocationAdded(
            "rm", f"p{at}", "app", f"n{at % NODES}", AskSpec(resource({"vcore": 100 + at % 7}))
        )
        for at in range(PODS)
    ]
    waiting = []
    for at in range(0, PODS, PIECE):
        core.take(pods[at : at + PIECE], NOW)
        waiting.append(len(core.state.partitions["default"].columns.changed))
    core.take([SyncCompleted("rm", NODES, 1, PODS, 0)], NOW)
    core.tick(NOW, 1_000)
    core.validate()
    return core, waiting


def test_changed_allocations_do_not_pile_up_during_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2 * PIECE
    assert max(synced(monkeypatch, most)[1]) < most
    assert max(synced(monkeypatch, 10 * PODS)[1]) == PODS


def test_the_columns_are_those_of_a_sync_that_writes_them_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces, whole = (
        snapshotting.take(
            synced(monkeypatch, most)[0].state.partitions["default"],
            NOW,
            due=snapshotting.Due(),
        )
        for most in (2 * PIECE, 10 * PODS)
    )
    assert pieces.allocations.keys == whole.allocations.keys
    assert pieces.nodes.ids == whole.nodes.ids
    for name in ("nodes", "leaves", "applications", "priorities", "flags", "resources"):
        found, wanted = getattr(pieces.allocations, name), getattr(whole.allocations, name)
        assert np.array_equal(found, wanted), name
    assert np.array_equal(pieces.nodes.free, whole.nodes.free)
