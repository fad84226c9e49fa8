"""A configuration that changes the limits of queues in use (design 6.16).

Asks that still do not fit stay parked, the others are tried, and the first tick places asks before anything is planned.
"""

import io
import random
from dataclasses import replace

import pytest

from server.core.core import Core
from server.core.events import configuration as configuration_events
from server.model.asks import AskSpec
from server.model.decisions import Decision, Noted, Placed
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    ManagerRegistered,
    NodeAdded,
)
from server.model.parts import Parts, whole
from server.model.quota import Acl, Configuration, PartitionSpec, PreemptionSettings, QueueSpec
from server.model.reasons import Code
from server.model.resources import resource
from server.replication import checkpoint
from server.scheduling import cycle
from server.state import prepared, reclassing, reranking_fast
from server.state.applications import Group
from server.state.partition import Partition
from server.state.queues import Queue
from tests.core.test_prepared_configurations import events

QUEUES = 20
SMALL, LARGE = AskSpec(resource({"vcore": 1})), AskSpec(resource({"vcore": 8}))


def limited(most: int, changed: int = QUEUES) -> Configuration:
    """Return queues with a max of 10 each, or of ``most`` for the first ``changed`` of them, and a queue without one."""
    everyone = Acl(everyone=True)
    queues = (
        QueueSpec(
            f"q{at}", max=resource({"vcore": most if at < changed else 10}), submit_acl=everyone
        )
        for at in range(QUEUES)
    )
    children = (*queues, QueueSpec("free", submit_acl=everyone))
    root = QueueSpec("root", parent=True, submit_acl=everyone, children=children)
    return Configuration((PartitionSpec("default", root),), digest=f"{most}-{changed}")


def full() -> Core:
    """Return a core in which an ask of each limited queue has a node, and another one waits."""
    core = Core(limited(10))
    core.handle(ManagerRegistered("rm"), 0)
    core.handle(NodeAdded("rm", "n", resource({"vcore": 1_000})), 0)
    for at in range(QUEUES):
        core.handle(ApplicationAdded("rm", f"app{at}", f"root.q{at}"), 0)
        for key in "ab":
            core.handle(AskAdded("rm", f"{key}{at}", f"app{at}", LARGE), 0)
    core.handle(ApplicationAdded("rm", "free", "root.free"), 0)
    ticked(core, 0)
    assert _waiting(core) == [f"b{at}" for at in range(QUEUES)]
    return core


def ticked(core: Core, now: int) -> list[str]:
    """Return the asks that are placed until nothing is left to decide."""
    placed: list[str] = []
    more = True
    while more:
        tick = core.tick(now)
        placed += [one.key for one in tick.decisions if isinstance(one, Placed)]
        more = tick.more
    core.validate()
    return placed


def _waiting(core: Core) -> list[str]:
    asks = core.state.partitions["default"].asks.values()
    return sorted((one.key for one in asks if one.node is None), key=lambda key: int(key[1:]))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the applications whose asks placement tries."""
    tried: list[str] = []
    real = cycle._node_for

    def node_for(partition: Partition, group: Group) -> object:
        tried.append(group.application.application_id)
        return real(partition, group)

    monkeypatch.setattr(cycle, "_node_for", node_for)
    return tried


@pytest.mark.parametrize("adds_job", [False, True])
def test_a_queue_with_one_group_is_visited_once(
    monkeypatch: pytest.MonkeyPatch, *, adds_job: bool
) -> None:
    """The raised `max` unblocks each queue in one visit, and only the root's heap is put in order. `job` leaves no class to unblock."""
    core = full()
    visited: list[list[str]] = []
    real = reranking_fast._unblock

    def unblock(opened: reranking_fast.Opened, changed: dict[Queue, None]) -> Parts[None]:
        visited.append(
            [limiter.queue.path for limiter, _ in opened] + [one.path for one in changed]
        )
        yield from real(opened, changed)

    monkeypatch.setattr(reranking_fast, "_unblock", unblock)
    (spec,) = limited(10 if adds_job else 16).partitions
    if adds_job:
        spec = replace(spec, preemption=PreemptionSettings(policies=("job",)))
    brought = Configuration((spec,), digest="other")
    assert not any(core.prepare(brought))
    core.handle(ConfigurationApplied(brought, "test", one_by_one=True), 1)
    placed = ticked(core, 1)
    assert visited == [[] if adds_job else ["root"]]
    assert len(placed) == (0 if adds_job else QUEUES)


@pytest.mark.parametrize("most", [9, 7, 15])
def test_asks_that_still_do_not_fit_stay_parked(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    core = full()
    tried = counted(monkeypatch)
    core.handle(ConfigurationApplied(limited(most), "test"), 1)
    assert ticked(core, 1) == []
    assert tried == []


def test_asks_that_fit_now_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    core = full()
    tried = counted(monkeypatch)
    core.handle(ConfigurationApplied(limited(16, changed=3), "test"), 1)
    assert sorted(ticked(core, 1)) == ["b0", "b1", "b2"]
    assert set(tried) <= {"app0", "app1", "app2"}
    core.handle(ConfigurationApplied(limited(16), "test"), 2)
    assert len(ticked(core, 2)) == QUEUES - 3


def test_the_first_tick_only_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration_events, "PUT_OFF_FROM", QUEUES)
    core = full()
    core.handle(ConfigurationApplied(limited(9), "test"), 1)
    core.handle(AskAdded("rm", "new", "free", SMALL), 1)
    cycles = core.state.partitions["default"].round.cycles
    other = _restored(core)
    for one in (core, other):
        tick = one.tick(1)
        assert [each.key for each in tick.decisions if isinstance(each, Placed)] == ["new"]
        assert tick.more
        assert one.state.partitions["default"].round.cycles == cycles
        assert not one.tick(1).more
        assert one.state.partitions["default"].round.cycles == cycles + 1
    assert core.digest() == other.digest()


@pytest.mark.parametrize("seed", range(2))
def test_a_checkpoint_amid_a_preparation(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(prepared, "PIECE", 2)
    core, now = Core(), 0
    for event in events(random.Random(seed)):
        now += 500
        if not isinstance(event, ConfigurationApplied):
            core.handle(event, now)
            core.tick(now)
            continue
        ahead = core.prepare(event.configuration)
        next(ahead, None)
        other = _restored(core)
        assert not any(ahead)
        mine, others = core.handle(event, now), whole(other.take_in_parts(event, now))
        assert repr(mine) == repr(others)
        assert repr(core.tick(now)) == repr(other.tick(now))
        assert core.digest() == other.digest()
        other.validate()
        assert not any(core.drop_prepared())
        assert not any(other.drop_prepared())
        other.validate()


def two(most: int) -> Configuration:
    """Return two partitions whose queues have a max of ``most`` each."""
    (first,) = limited(most).partitions
    return Configuration((first, replace(first, name="other")), digest=f"two of {most}")


def test_partitions_change_one_by_one() -> None:
    core = Core(two(10))
    core.handle(ManagerRegistered("rm"), 0)
    core.handle(NodeAdded("rm", "n", resource({"vcore": 100}), partition="other"), 0)
    core.handle(ApplicationAdded("rm", "app", "root.q0", partition="other"), 0)
    ticked(core, 0)
    default, other = core.state.partitions.values()
    refused = core.state.revision.number
    core.handle(ConfigurationApplied(two(7), "test", one_by_one=True), 1)
    assert core.state.revision.number == refused + 1
    assert default.queues["root.q0"].spec.max == resource({"vcore": 7})
    assert other.queues["root.q0"].spec.max == resource({"vcore": 10})
    copy = _restored(core)
    assert copy.digest() == core.digest()
    for one in (core, copy):
        one.handle(AskAdded("rm", "a", "app", LARGE, partition="other"), 1)
        first = one.tick(1)
        assert first.more
        assert ticked(one, 1) == []
        changed = one.state.partitions["other"].queues["root.q0"]
        assert changed.spec.max == resource({"vcore": 7})
    assert copy.digest() == core.digest()


def test_a_configuration_replaces_one_that_is_not_in_force_everywhere() -> None:
    core = Core(two(10))
    core.handle(ConfigurationApplied(two(7), "test", one_by_one=True), 1)
    core.handle(ConfigurationApplied(two(8), "test", one_by_one=True), 1)
    ticked(core, 1)
    for partition in core.state.partitions.values():
        assert partition.queues["root.q0"].spec.max == resource({"vcore": 8})
    core.handle(ConfigurationApplied(two(9), "test", one_by_one=True), 2)
    core.handle(ConfigurationApplied(two(6), "test"), 2)
    for partition in core.state.partitions.values():
        assert partition.queues["root.q0"].spec.max == resource({"vcore": 6})


def firm_by_default(*, is_firm: bool) -> Configuration:
    """Return a queue with a guarantee of two asks, in which asks that declare no class are firm or lendable."""
    queue = QueueSpec("q", guaranteed=resource({"vcore": 2}), submit_acl=Acl(everyone=True))
    root = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(queue,))
    settings = PreemptionSettings(policies=("job",), job_default_preemptible=not is_firm)
    partition = PartitionSpec("default", root, preemption=settings)
    return Configuration((partition,), digest=f"firm {is_firm}")


def classed(*, is_firm: bool) -> Core:
    """Return a core with placed asks and waiting asks, of which one declares that it is firm."""
    core = Core(firm_by_default(is_firm=is_firm))
    core.handle(ManagerRegistered("rm"), 0)
    core.handle(NodeAdded("rm", "n", resource({"vcore": 6})), 0)
    core.handle(ApplicationAdded("rm", "app", "root.q"), 0)
    for at in range(9):
        core.handle(AskAdded("rm", f"p{at}", "app", SMALL), 0)
    ticked(core, 0)
    core.handle(AskAdded("rm", "firm", "app", replace(SMALL, lendable=False, priority=1)), 0)
    ticked(core, 0)
    return core


@pytest.mark.parametrize("is_firm", [True, False])
def test_another_default_class_comes_in_steps(
    monkeypatch: pytest.MonkeyPatch, *, is_firm: bool
) -> None:
    monkeypatch.setattr(reclassing, "STEP", 2)
    core, other = classed(is_firm=is_firm), classed(is_firm=is_firm)
    changed = firm_by_default(is_firm=not is_firm)
    other.handle(ConfigurationApplied(changed, "test"), 1)
    core.handle(ConfigurationApplied(changed, "test", one_by_one=True), 1)
    partition, left, copies = core.state.partitions["default"], list[int](), list[Core]()
    while core.state.outdated:
        core.tick(1)
        core.validate()
        left.append(len(partition.unclassed))
        copy = _restored(core)
        assert copy.digest() == core.digest()
        copies.append(copy)
    assert left == [10, 8, 6, 4, 2, 0]
    placed = {ask.key for ask in partition.asks.values() if ask.node is not None}
    others = other.state.partitions["default"]
    midway = copies[2]
    for one in (core, other, midway):
        ticked(one, 1)
    assert core.digest() == midway.digest()
    for one in (core, other):
        own = one.state.partitions["default"]
        assert [ask.ask_class.firm for ask in own.asks.values()] == [
            ask.spec.lendable is False or not is_firm for ask in own.asks.values()
        ]
    assert {key for key, ask in others.asks.items() if ask.node is not None} >= placed


def test_a_firm_ask_follows_others_that_become_lendable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step gives two placed asks the other class, so that the guarantee has headroom for the ask."""
    monkeypatch.setattr(reclassing, "STEP", 2)
    core = classed(is_firm=True)
    assert "firm" in _waits(core)
    core.handle(ConfigurationApplied(firm_by_default(is_firm=False), "test", one_by_one=True), 1)
    core.tick(1)
    assert "firm" in _waits(core)
    core.tick(1)
    assert len(core.state.partitions["default"].unclassed) == 8
    assert "firm" not in _waits(core)


def _waits(core: Core) -> list[str]:
    asks = core.state.partitions["default"].asks.values()
    return [ask.key for ask in asks if ask.node is None]


def test_notes_about_limits_of_a_large_partition_come_with_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = ConfigurationApplied(limited(7), "test", one_by_one=True)
    whole_core = full()
    notes = _over(whole_core.handle(event, 1))
    assert len(notes) == QUEUES
    monkeypatch.setattr(configuration_events, "PUT_OFF_FROM", QUEUES)
    core = full()
    assert not _over(core.handle(event, 1))
    copy = _restored(core)
    for one in (core, copy):
        assert _over(one.tick(1).decisions) == notes
        assert not one.state.outdated
        ticked(one, 1)
    ticked(whole_core, 1)
    assert core.digest() == copy.digest() == whole_core.digest()


def test_another_configuration_before_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second event reports about the first one, too."""
    monkeypatch.setattr(configuration_events, "PUT_OFF_FROM", QUEUES)
    core = full()
    core.handle(ConfigurationApplied(limited(7), "test", one_by_one=True), 1)
    again = core.handle(ConfigurationApplied(limited(6), "test", one_by_one=True), 1)
    assert len(_over(again)) == QUEUES
    assert len(_over(core.tick(1).decisions)) == QUEUES


def _over(decisions: list[Decision]) -> list[Noted]:
    return [
        one for one in decisions if isinstance(one, Noted) and one.code is Code.QUOTA_NOT_ENFORCED
    ]


def test_large_partitions_plan_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration_events, "PUT_OFF_FROM", QUEUES)
    core = Core(two(10))
    ticked(core, 0)
    rounds = [one.round for one in core.state.partitions.values()]
    before = [one.cycles for one in rounds]
    core.handle(ConfigurationApplied(two(7), "test", one_by_one=True), 1)
    begun: list[list[int]] = []
    more = True
    while more:
        changes = bool(core.state.outdated)
        more = core.tick(1).more
        counts = [one.cycles - was for one, was in zip(rounds, before, strict=True)]
        assert not changes or counts == [0, 0]
        begun += [counts] if not changes else []
    assert [0, 0] in begun
    assert [1, 0] in begun
    assert begun[-1][1] == 1


def test_a_max_in_a_partition_without_resource_types() -> None:
    """Only a test or an embedding program can make such a partition: YAML has node weights."""
    root = QueueSpec("root", parent=True, children=(QueueSpec("q", max=()),))
    bare = (PartitionSpec("default", root, node_weights=()),)
    core = Core(Configuration(bare, digest="first"))
    assert core.state.partitions["default"].types.names == []
    notes = core.handle(ConfigurationApplied(Configuration(bare, digest="second"), "test"), 0)
    assert [one.code for one in notes if isinstance(one, Noted)] == [Code.CONFIGURATION_APPLIED]


def _restored(core: Core) -> Core:
    header = checkpoint.Header("test", checkpoint.layout(), 0, 0, 0)
    return checkpoint.read(io.BytesIO(b"".join(checkpoint.written(core, header))))[1]
