"""A partition moves to another group of cores while both run (design 7.9)."""

import random
from base64 import b85decode
from collections.abc import Iterator
from itertools import repeat
from typing import Final
from zlib import compress

import pytest

from server.config import load
from server.core.core import Core
from server.core.events import moving
from server.core.events.moving import PART_BYTES, TIMER, copy_of, encoded, parts_of
from server.core.queries import inspect
from server.core.queries.explain import explain
from server.core.state import Left
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Noted, Placed, Released
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeEnabled,
    PartitionMoving,
    SyncCompleted,
)
from server.model.moves import CHANGES_MAX, MoveStep
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.resources import resource
from server.state.applications import Ask
from server.state.digest import digest
from tests.core.test_assignments import (
    NAMES,
    NOW,
    OWNERS,
    begins,
    configuration,
    copied,
    core_of,
    step,
    told,
    where,
)
from tests.effort import cases

GPU: Final = "gpu"


def export(source: Core, now: int, until: int = NOW * 2) -> list[str]:
    """Let a core stop deciding for `gpu`, and return the parts of its copy."""
    told(source, [PartitionMoving(MoveStep.LEAVE, GPU, "a", until_ms=until)], now)
    return [encoded(one) for one in parts_of(copy_of(source.state, GPU))]


def arrive(target: Core, parts: list[str], now: int) -> list[Decision]:
    """Give a core the copy of `gpu`, for revision 1 of its group."""
    events: list[Event] = [
        PartitionMoving(MoveStep.PART, GPU, "b", number=at, content=part)
        for at, part in enumerate(parts)
    ]
    return told(target, [*events, PartitionMoving(MoveStep.ARRIVED, GPU, "b", revision=1)], now)


def leave(source: Core, now: int) -> list[Decision]:
    """Let a core drop `gpu`."""
    event = PartitionMoving(MoveStep.LEFT, GPU, "a", revision=1, group_revision=1)
    return told(source, [event], now)


def reported(core: Core, revision: int = 0) -> Iterator[Event]:
    """Yield a registration and the report of everything that a core has."""
    yield ManagerRegistered("rm", explicit_sync=True, table_revision=revision)
    mine = list(core.state.partitions.values())
    nodes = [(node, one.name) for one in mine for node in one.index.nodes.values()]
    for node, name in nodes:
        yield NodeAdded(
            "rm", node.node_id, resource({"memory": 8}), schedulable=False, partition=name
        )
    for one in mine:
        for app in one.applications.values():
            yield ApplicationAdded("rm", app.application_id, app.leaf.path, partition=one.name)
    for one in mine:
        yield from map(of_pod, one.asks.values(), repeat(one.name))
    for node, name in nodes:
        yield NodeEnabled("rm", node.node_id, name)
    yield SyncCompleted("rm")


def of_pod(ask: Ask, partition: str) -> Event:
    """Return the report of a pod."""
    app = ask.application.application_id
    if ask.node is None:
        return AskAdded("rm", ask.key, app, ask.spec, partition, ask.pending_since)
    return AllocationAdded("rm", ask.key, app, ask.node.node_id, ask.spec, partition)


def about(decisions: list[Decision], name: str) -> list[str]:
    """Return the decisions about a partition as text, without the notes about the move itself."""
    return [
        repr(one)
        for one in decisions
        if where(one) == name and not (isinstance(one, Noted) and one.code is Code.PARTITION_MOVED)
    ]


def move(one: Core, parts: dict[str, Core], now: int) -> None:
    """Move `gpu` from `b` to `a`, and report everything to `a` and to the core that has all partitions."""
    arrive(parts["a"], export(parts["b"], now), now)
    copy, former = parts["a"].state.arrivals[GPU].moved, parts["b"].state
    assert digest(copy.partition) == digest(former.partitions[GPU])
    timers = [each for each in former.timers if each[3] == GPU and each[2] != TIMER]
    assert copy.timers == sorted(timers)
    leave(parts["b"], now)
    again = [*reported(one)]
    expected = told(one, again, now)
    mine = [each for each in again if where(each) in ("", "default", GPU, "night")]
    mine[0] = ManagerRegistered("rm", explicit_sync=True, table_revision=1)
    found = told(parts["a"], mine, now)
    for name in ("default", GPU, "night"):
        assert about(found, name) == about(expected, name)


@pytest.mark.parametrize("seed", range(cases(30)))
def test_a_partition_goes_on_at_its_new_owner_as_at_a_core_that_had_it_always(seed: int) -> None:
    """The other core gets the same reports at the same instant, because a new owner compares them."""
    chance = random.Random(seed)
    one, parts = core_of(""), {group: core_of(group) for group in "ab"}
    running: list[Placed] = []
    events, seen, owners = begins(), 0, dict(OWNERS)
    moves_at = chance.randrange(5, 30)
    for at in range(40):
        now = NOW + 400 * at
        if at == moves_at:
            move(one, parts, now)
            owners[GPU] = "a"
        expected = told(one, events, now)
        running += [made for made in expected if isinstance(made, Placed)]
        for group, core in parts.items():
            mine = [
                each for each in events if not where(each) or owners.get(where(each), "a") == group
            ]
            found = told(core, mine, now)
            for name in NAMES:
                if owners.get(name, "a") == group and not (name == "web" and at >= moves_at):
                    assert about(found, name) == about(expected, name), (at, name)
        seen += sum(isinstance(made, Released | Decided) for made in expected)
        gone = {made.key for made in expected if isinstance(made, Released)}
        running = [made for made in running if made.key not in gone]
        events = step(chance, at, running)
    assert seen, "nothing was preempted"
    for core in parts.values():
        core.validate()


def ask(key: str) -> AskAdded:
    return AskAdded("rm", key, "gpu-free", AskSpec(resource({"memory": 1})), GPU, NOW)


def begun() -> tuple[Core, Core]:
    """Return cores of the groups `b`, which has `gpu`, and `a`; both know their nodes and applications."""
    found = []
    for group in "ba":
        core = core_of(group)
        mine = [one for one in begins() if not where(one) or OWNERS.get(where(one), "a") == group]
        told(core, mine, NOW)
        found.append(core)
    return found[0], found[1]


def placed(decisions: list[Decision]) -> list[str]:
    return [one.key for one in decisions if isinstance(one, Placed)]


def test_nothing_is_placed_in_a_partition_that_leaves_until_it_stays() -> None:
    source, _ = begun()
    export(source, NOW)
    assert placed(told(source, [ask("x")], NOW + 1)) == []
    assert [one.synced for one in inspect.partitions(source) if one.name == GPU] == [False]
    why = "; ".join(explain(source, "x", NOW + 1).lines)
    assert "nothing is placed while partition gpu moves to cores a" in why
    stays = told(source, [PartitionMoving(MoveStep.STAY, GPU)], NOW + 2)
    assert placed(stays) == ["x"]


def test_a_move_that_is_not_completed_is_given_up_in_time() -> None:
    source, _ = begun()
    export(source, NOW, until=NOW + 60_000)
    told(source, [ask("x")], NOW + 1)
    assert source.next_due() is not None
    assert placed(told(source, [], NOW + 59_999)) == []
    assert placed(told(source, [], NOW + 60_000)) == ["x"]
    assert leave(source, NOW + 60_001) == []
    assert GPU in source.state.partitions


def test_a_repeated_export_puts_the_end_of_the_move_off() -> None:
    source, _ = begun()
    export(source, NOW, until=NOW + 60_000)
    export(source, NOW + 50_000, until=NOW + 110_000)
    assert placed(told(source, [ask("x")], NOW + 60_000)) == []
    assert placed(told(source, [], NOW + 110_000)) == ["x"]


def test_the_new_owner_decides_only_when_the_manager_has_the_new_table() -> None:
    source, target = begun()
    arrive(target, export(source, NOW), NOW)
    assert GPU not in target.state.partitions
    told(target, [*reported(target)], NOW + 1)
    assert GPU not in target.state.partitions
    told(target, [*reported(target, revision=2)], NOW + 2)
    assert GPU not in target.state.partitions
    other = ManagerRegistered("other", explicit_sync=True, table_revision=1)
    told(target, [other], NOW + 2)
    assert GPU not in target.state.partitions
    leave(source, NOW + 3)
    again = [*reported(target, revision=1)]
    told(target, again[:-1], NOW + 3)
    assert placed(told(target, [ask("x")], NOW + 3)) == []
    assert placed(told(target, [again[-1]], NOW + 4)) == []
    assert not target.state.partitions[GPU].index.nodes
    for core, owner in ((source, "a"), (target, "a")):
        assert core.state.assignment is not None
        assert (core.state.assignment.owner(GPU), core.state.assignment.revision) == (owner, 1)
        assert [one.partition for one in core.state.changes] == [GPU]


def test_the_former_owner_refuses_what_names_the_partition() -> None:
    source, target = begun()
    arrive(target, export(source, NOW), NOW)
    leave(source, NOW)
    assert [one.name for one in inspect.partitions(source)] == ["web"]
    assert source.state.why_absent(GPU).startswith("partition 'gpu' belongs to cores 'a'")
    assert not any(one[3] == GPU for one in source.state.timers)


def test_a_damaged_incomplete_or_too_large_copy_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = begun()
    parts = export(source, NOW)
    for wrong in ([], ["~~~~~\x00"], [parts[0][: len(parts[0]) // 2]], [encoded(b"x" * 100)]):
        arrive(target, wrong, NOW)
        assert not target.state.arrivals
        assert not target.state.copies
    data = b85decode(parts[0])
    for bytes_of in (data[:-4] + bytes(4), data[:-4], data + b"more", compress(bytes(1 << 20))):
        with monkeypatch.context() as limits:
            limits.setattr(moving, "UNPACKED_BYTES_MAX", 1 << 19)
            arrive(target, [encoded(bytes_of)], NOW)
        assert not target.state.arrivals
    told(target, [PartitionMoving(MoveStep.PART, GPU, "b", number=7, content=parts[0])], NOW)
    assert not target.state.copies
    arrive(target, parts, NOW)
    assert list(target.state.arrivals) == [GPU]
    told(target, [PartitionMoving(MoveStep.STAY, GPU)], NOW)
    assert not target.state.arrivals


def test_a_checkpoint_holds_a_move_and_the_digest_counts_it() -> None:
    source, target = begun()
    quiet = source.digest(), target.digest()
    arrive(target, export(source, NOW), NOW)
    for core, before in zip((source, target), quiet, strict=True):
        again = copied(core)
        assert again.digest() == core.digest() != before
    assert list(copied(target).state.arrivals) == [GPU]
    assert copied(source).state.leaving[GPU].group == "a"


def test_a_large_copy_has_parts_of_a_limited_size() -> None:
    source, target = begun()
    for at in range(3_000):
        key = random.Random(at).randbytes(60).hex()
        source.take([ask(key)], NOW)
    told(source, [PartitionMoving(MoveStep.LEAVE, GPU, "a", until_ms=NOW * 2)], NOW)
    parts = [*parts_of(copy_of(source.state, GPU))]
    assert len(parts) > 1
    assert max(map(len, parts)) == PART_BYTES
    arrive(target, [encoded(one) for one in parts], NOW)
    assert len(target.state.arrivals[GPU].moved.partition.asks) == 3_000


def test_the_known_moves_are_limited() -> None:
    source, target = begun()
    for at in range(CHANGES_MAX + 2):
        revision = at + 1
        owner, other = (source, target) if at % 2 == 0 else (target, source)
        name = "a" if owner is source else "b"
        leaving = PartitionMoving(MoveStep.LEAVE, GPU, name, until_ms=NOW * 2)
        told(owner, [leaving], NOW)
        content = encoded(copy_of(owner.state, GPU))
        events = [PartitionMoving(MoveStep.PART, GPU, "", number=0, content=content)]
        arrived = PartitionMoving(MoveStep.ARRIVED, GPU, "", revision=revision)
        told(other, [*events, arrived], NOW)
        left = PartitionMoving(MoveStep.LEFT, GPU, name, revision, revision)
        told(owner, [left], NOW)
        told(other, [*reported(other, revision)], NOW)
        assert (GPU in owner.state.partitions, GPU in other.state.partitions) == (False, True)
    assert len(source.state.changes) == CHANGES_MAX
    assert source.state.changes[-1].revision == CHANGES_MAX + 2


def test_a_copy_has_the_configuration_in_force_although_partitions_change_one_by_one() -> None:
    source = core_of("b")
    told(source, begins(), NOW)
    changed = configuration("default", "web", "night", GPU, most=50)
    source.take([ConfigurationApplied(changed, "test", one_by_one=True)], NOW)
    assert source.state.outdated == {GPU: Left()}
    source.take([PartitionMoving(MoveStep.LEAVE, GPU, "a", until_ms=NOW * 2)], NOW)
    assert not source.state.outdated
    assert source.state.partitions[GPU].spec == next(
        one for one in changed.partitions if one.name == GPU
    )
    leave(source, NOW)
    told(source, [], NOW + 1)


def test_a_partition_that_leaves_while_it_has_another_configuration_is_not_changed_any_more() -> (
    None
):
    source = core_of("b")
    told(source, begins(), NOW)
    source.take([PartitionMoving(MoveStep.LEAVE, GPU, "a", until_ms=NOW * 2)], NOW)
    changed = configuration("default", "web", "night", GPU, most=50)
    source.take([ConfigurationApplied(changed, "test", one_by_one=True)], NOW)
    assert source.state.outdated == {GPU: Left()}
    leave(source, NOW)
    assert not source.state.outdated


WITHOUT: Final = ConfigurationApplied(configuration("default", "night", "web"), "test")
"""The application of a configuration without `gpu`."""


def empty(group: str) -> Core:
    """Return a core of a group with a manager that has reported nothing."""
    core = core_of(group)
    told(core, [ManagerRegistered("rm", explicit_sync=True), SyncCompleted("rm")], NOW)
    return core


def test_a_partition_that_a_configuration_removes_does_not_move() -> None:
    source = empty("b")
    export(source, NOW, until=NOW + 60_000)
    told(source, [WITHOUT], NOW + 1)
    assert leave(source, NOW + 2) == []
    again = ConfigurationApplied(configuration(*NAMES), "test")
    told(source, [again], NOW + 3)
    assert source.state.synced(source.state.partitions[GPU])


def test_a_copy_is_retired_if_the_new_owner_has_no_such_partition_any_more() -> None:
    source, target = begun()
    arrive(target, export(source, NOW), NOW)
    told(target, [WITHOUT], NOW + 1)
    target.take([ManagerRegistered("rm", explicit_sync=True, table_revision=1)], NOW + 2)
    assert target.state.partitions[GPU].retired
    told(target, [SyncCompleted("rm")], NOW + 3)
    assert GPU not in target.state.partitions


def test_a_retired_copy_begins_again_if_the_new_owner_has_the_partition() -> None:
    source, target = begun()
    told(source, [WITHOUT], NOW)
    arrive(target, export(source, NOW), NOW)
    told(target, [*reported(target, revision=1)], NOW + 1)
    assert not target.state.partitions[GPU].retired


def quotas(most: int) -> Configuration:
    """Return a configuration in which the maximum of a queue of `gpu` is enforced a minute after it was lowered."""
    found, problems = load(
        f"""
partitions:
- name: gpu
  preemption: {{quotapreemptionenabled: true}}
  queues:
  - name: root
    submitacl: "*"
    queues: [{{name: free, resources: {{max: {{memory: {most}}}}}, properties: {{quota.preemption.delay: 1m}}}}]
"""
    )
    assert found is not None, problems
    return found


def test_a_maximum_that_is_lowered_during_a_move_is_enforced_if_the_partition_stays() -> None:
    source = core_of("b")
    told(source, [ConfigurationApplied(quotas(8), "test")], NOW)
    world = [one for one in begins() if where(one) in ("", GPU) and "prod" not in repr(one)]
    told(source, [*world, *map(ask, "xyz")], NOW)
    export(source, NOW, until=NOW + 60_000)
    told(source, [ConfigurationApplied(quotas(1), "test")], NOW + 1)
    assert source.state.partitions[GPU].quota_due
    assert not any(isinstance(one, Released) for one in told(source, [], NOW + 59_999))
    told(source, [PartitionMoving(MoveStep.STAY, GPU)], NOW + 59_999)
    assert any(isinstance(one, Released) for one in told(source, [], NOW + 60_001))


def test_a_group_has_one_move_at_a_time() -> None:
    """Two moves at once would have the same revision: a shim with one of them would bring the other partition, too."""
    source, target = begun()
    arrive(target, export(source, NOW), NOW)
    before = [core.digest() for core in (source, target)]
    leaving = (
        (source, PartitionMoving(MoveStep.LEAVE, "web", "a", until_ms=NOW * 2)),
        (source, PartitionMoving(MoveStep.LEAVE, GPU, "c", until_ms=NOW * 2)),
        (target, PartitionMoving(MoveStep.LEAVE, "default", "c", until_ms=NOW * 2)),
        (source, PartitionMoving(MoveStep.PART, "night", "a", content="x")),
        (target, PartitionMoving(MoveStep.PART, "web", "b", content="x")),
        (target, PartitionMoving(MoveStep.ARRIVED, "web", "b", revision=1)),
    )
    for core, event in leaving:
        told(core, [event], NOW)
    assert [core.digest() for core in (source, target)] == before


def test_a_copy_of_an_older_revision_is_not_taken() -> None:
    """The move was given up, and the new owner has given another partition away since then."""
    source, target = begun()
    arrive(target, export(source, NOW), NOW)
    table = target.state.assignment
    assert table is not None
    target.state.assignment = table._replace(revision=1)
    told(target, [*reported(target, revision=1)], NOW + 1)
    assert GPU not in target.state.partitions


def test_a_manager_of_an_older_epoch_does_not_bring_a_partition() -> None:
    """The new owner does not know the manager yet. The copy says in which epoch it had registered."""
    source = core_of("b")
    told(source, [ManagerRegistered("rm", epoch=7), NodeAdded("rm", "n", (), partition=GPU)], NOW)
    target = core_of("a")
    arrive(target, export(source, NOW), NOW)
    old = ManagerRegistered("rm", explicit_sync=True, epoch=5, table_revision=1)
    codes = [one.code for one in told(target, [old], NOW + 1) if isinstance(one, Noted)]
    assert (codes, list(target.state.arrivals)) == ([Code.EPOCH_OLD], [GPU])
    told(target, [old._replace(epoch=8)], NOW + 2)
    assert GPU in target.state.partitions


def test_a_core_without_a_table_moves_nothing() -> None:
    alone = core_of("")
    told(alone, begins(), NOW)
    export(alone, NOW)
    assert leave(alone, NOW) == []
    assert GPU in alone.state.partitions
