"""The core writes many changed allocations to the columns in parts, so that no part takes long (design 6.1)."""

import io
import random
from typing import Any, TypeVar

import numpy as np
import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision, ShadowDecided
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeRemoved,
    ReleaseRequested,
    SyncCompleted,
)
from server.model.parts import Parts
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PreemptionSettings,
    QueueProperties,
    QueueSpec,
)
from server.model.resources import resource
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from server.replication import checkpoint
from server.replication.checkpoint import Header, layout
from server.snapshot.snapshot import Snapshot
from server.state import columns, snapshotting
from server.state.columns import AllocationRows
from server.state.invariants.columns import check_columns
from tests.effort import cases

NOW = 1_800_000_000_000
LATER = NOW + RESERVE_AFTER_MS
NODES, PODS_OF_NODE, PIECE = 3_000, 7, 250
PODS = NODES * PODS_OF_NODE
MOST = 4_000
"""The largest number of rows that the core may write between two pauses."""
ONE = AskSpec(resource({"vcore": 1_000}))
WHOLE = AskSpec(resource({"vcore": 1_000 * PODS_OF_NODE}))
_T = TypeVar("_T")


class Rows:
    """Counts the rows that are written, and records how many were written between two pauses."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now = self.whole = self.most = 0
        for name in ("_write", "_forget"):
            self._count(patch, AllocationRows, name, lambda _rows, asks: len(asks))
        # This function is called once for each row of a node.
        self._count(patch, columns, "_reserved", lambda _node, _nothing: 1)

    def _count(self, patch: pytest.MonkeyPatch, where: Any, name: str, rows: Any) -> None:
        write = getattr(where, name)

        def counted(*args: Any) -> Any:
            self._now += rows(*args)
            return write(*args)

        patch.setattr(where, name, counted)

    def of(self, parts: Parts[_T]) -> _T:
        """Do all parts of some work, count the rows of each part, and return the result of the work."""
        while True:
            try:
                next(parts)
            except StopIteration as end:
                self.pause()
                found: _T = end.value
                return found
            self.pause()

    def pause(self) -> None:
        """Count the rows that were written since the last pause."""
        self.most, self.whole = max(self.most, self._now), self.whole + self._now
        self._now = 0


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(monkeypatch)


def full(**preemption: Any) -> Core:
    """Return a core whose pods were placed by ticks, so that no node has free capacity, and of which no snapshot was taken."""
    soon = QueueProperties(preemption_delay_ms=0)
    queues = QueueSpec("a"), QueueSpec("b", guaranteed=WHOLE.resource, properties=soon)
    tree = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=queues)
    settings = PreemptionSettings(**preemption)
    core = Core(Configuration((PartitionSpec("default", tree, preemption=settings),)))
    core.handle(ManagerRegistered("rm"), NOW)
    core.take([NodeAdded("rm", f"n{at}", WHOLE.resource) for at in range(NODES)], NOW)
    core.take([ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}") for leaf in "ab"], NOW)
    core.take([AskAdded("rm", f"p{at}", "app-a", ONE) for at in range(PODS)], NOW)
    while core.tick(NOW).more:
        pass
    return core


def waits(core: Core, rows: Rows, leaf: str) -> list[Decision]:
    """Let one ask wait until the core plans for it, and return the decisions."""
    core.take([AskAdded("rm", "waiting", f"app-{leaf}", WHOLE if leaf == "a" else ONE)], NOW)
    found: list[Decision] = []
    for now in (NOW, LATER):
        more = True
        while more:
            tick = rows.of(core.tick_in_parts(now, 2_000))
            more = tick.more
            found += tick.decisions
    assert rows.whole >= NODES + PODS
    check_columns(core.state.partitions["default"])
    return found


def reserves(core: Core, rows: Rows) -> bool:
    """Let one ask wait that no node has capacity for, and return whether a node is then reserved for it."""
    waits(core, rows, "a")
    return "waiting" in core.state.partitions["default"].decisions.pledges


def test_the_first_reservation_writes_its_rows_in_parts(rows: Rows) -> None:
    assert reserves(full(), rows)
    assert rows.most <= MOST


def test_the_first_turn_of_a_shadow_writes_its_rows_in_parts(rows: Rows) -> None:
    core = full(policies=(), shadow={"policies": ("guaranteed",)})
    found = waits(core, rows, "b")
    assert any(isinstance(one, ShadowDecided) for one in found)
    assert rows.most <= MOST


def test_a_sync_of_a_full_core_writes_its_rows_in_parts(rows: Rows) -> None:
    core = full()
    rows.of(core.take_in_parts(ManagerRegistered("rm", explicit_sync=True), NOW))
    nodes = [NodeAdded("rm", f"n{at}", WHOLE.resource) for at in range(NODES)]
    applications = [ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}") for leaf in "ab"]
    on = {key: ask.node for key, ask in core.state.partitions["default"].asks.items()}
    pods = [
        AllocationAdded("rm", key, "app-a", node.node_id, ONE)
        for key, node in on.items()
        if node is not None
    ]
    events: list[Event] = [*nodes, *applications, *pods, SyncCompleted("rm", NODES, 2, PODS, 0)]
    for at in range(0, len(events), PIECE):
        core.take(events[at : at + PIECE], NOW)
        rows.pause()
    assert reserves(core, rows)
    assert rows.most <= MOST


def test_a_core_from_a_checkpoint_writes_its_rows_in_parts(rows: Rows) -> None:
    header = Header(version="1", layout=layout(), position=7, decided=3, at_ms=5)
    written = b"".join(checkpoint.written(full(), header))
    _, core = checkpoint.read(io.BytesIO(written))
    rows.pause()
    rows.most = 0
    assert reserves(core, rows)
    assert rows.most <= MOST


# The size of the parts -------------------------------------------------------------------------------------------


def life(seed: int) -> tuple[list[Decision], str, Snapshot]:
    """Let pods come and go at random, and return the decisions, the digest and the last snapshot."""
    chance = random.Random(seed)
    tree = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(QueueSpec("a"),))
    core = Core(Configuration((PartitionSpec("default", tree),)))
    core.handle(ManagerRegistered("rm"), NOW)
    core.handle(ApplicationAdded("rm", "app", "root.a"), NOW)
    running, now, found = list[str](), NOW, list[Decision]()
    for step in range(30):
        core.take([NodeAdded("rm", f"n{step}", resource({"vcore": 10_000}))], now)
        specs = [AskSpec(resource({"vcore": chance.randint(500, 9_000)})) for _ in range(3)]
        keys = [f"p{step}-{at}" for at in range(chance.randint(0, 12))]
        found += core.take([AskAdded("rm", one, "app", chance.choice(specs)) for one in keys], now)
        running += keys
        chance.shuffle(running)
        for _ in range(chance.randint(0, len(running) // 2)):
            found += core.take([ReleaseRequested("rm", "app", running.pop())], now)
        if step % 7 == 6:
            found += core.take([NodeRemoved("rm", f"n{chance.randrange(step)}")], now)
        now += chance.choice((0, 500, RESERVE_AFTER_MS))
        more = True
        while more:
            tick = core.tick(now, 50)
            found, more = found + tick.decisions, tick.more
        core.validate()
    return found, core.digest(), snapshotting.take(core.state.partitions["default"], now)


@pytest.mark.parametrize("seed", range(cases(8)))
def test_the_size_of_a_part_changes_neither_decisions_nor_rows(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    wanted, digest, whole = life(seed)
    monkeypatch.setattr(columns, "ROWS_OF_PART", 3)
    decisions, other, parts = life(seed)
    assert repr(decisions) == repr(wanted)
    assert other == digest
    assert parts.allocations.keys == whole.allocations.keys
    assert parts.nodes.ids == whole.nodes.ids
    for name in ("alive", "nodes", "leaves", "priorities", "flags", "created_ms", "resources"):
        assert np.array_equal(getattr(parts.allocations, name), getattr(whole.allocations, name))
    for name in ("capacity", "free", "releasing", "reserved", "open", "held"):
        assert np.array_equal(getattr(parts.nodes, name), getattr(whole.nodes, name)), name
