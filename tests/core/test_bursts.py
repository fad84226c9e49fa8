"""Which asks that arrive together are placed together, and which one by one.

`test_twins` and the oracle check that both ways have equal results.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Placed, Termination
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PreemptionSettings,
    QueueProperties,
    QueueSpec,
)
from server.model.resources import limit, resource
from server.scheduling import batch_fast
from server.state import pending
from server.state.applications import Ask
from server.state.partition import Partition

NOW = 1_800_000_000_000
MANY = 2 * batch_fast.LEAST
SPEC = AskSpec(resource({"vcore": 10}))
A = QueueSpec("a")
B = QueueSpec("b", parent=True, children=(QueueSpec("c"),))
TREE = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(A, B))
LEAVES = ("root.a", "root.b.c")


def core_of(tree: QueueSpec = TREE, settings: PreemptionSettings | None = None) -> Core:
    spec = PartitionSpec("default", tree, preemption=settings or PreemptionSettings())
    core = Core(Configuration((spec,)))
    founding: list[Event] = [
        ManagerRegistered("rm"),
        NodeAdded("rm", "n", resource({"vcore": 10**6})),
    ]
    founding += [ApplicationAdded("rm", leaf, leaf) for leaf in LEAVES]
    for event in founding:
        core.handle(event, NOW)
    core.tick(NOW)
    return core


def asks(count: int = MANY, first: int = 0, spec: AskSpec = SPEC) -> list[AskAdded]:
    return [AskAdded("rm", f"k{at:03}", LEAVES[at % 2], spec) for at in range(first, first + count)]


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Provide the keys of the asks that the backlog has seen."""
    seen: list[str] = []
    enqueue = pending.enqueue

    def heard(partition: Partition, ask: Ask) -> None:
        seen.append(ask.key)
        enqueue(partition, ask)

    monkeypatch.setattr(pending, "enqueue", heard)
    return seen


def placed(core: Core, events: Iterable[Event], now: int = NOW) -> list[str]:
    core.take(list(events), now)
    found = [one.key for one in core.tick(now).decisions if isinstance(one, Placed)]
    core.validate()
    return found


def test_many_are_placed_without_waiting_anywhere(waited: list[str]) -> None:
    core = core_of()
    assert sorted(placed(core, asks())) == [one.key for one in asks()]
    assert not waited


def test_few_are_placed_by_the_cycle(waited: list[str]) -> None:
    few = asks(batch_fast.LEAST - 1)
    assert len(placed(core_of(), few)) == len(waited) == len(few)


OTHERWISE = {
    "a limit is near": core_of(
        replace(TREE, children=(replace(A, max=limit({"vcore": 10 * MANY // 2 - 1})), B))
    ),
    "a queue changes priorities": core_of(
        replace(TREE, children=(replace(A, properties=QueueProperties(priority_offset=1)), B))
    ),
    "shared by weight": core_of(
        TREE, PreemptionSettings(entitlement="proportional", trigger="after")
    ),
    "asks have classes": core_of(TREE, PreemptionSettings(policies=("job",))),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_is_not_simple_is_left_to_the_cycle(case: str, waited: list[str]) -> None:
    core = OTHERWISE[case]
    assert len(placed(core, asks())) >= MANY - 1
    assert len(waited) == MANY


def test_priorities_are_left_to_the_cycle(waited: list[str]) -> None:
    urgent = asks(1, MANY, replace(SPEC, priority=5))
    assert placed(core_of(), [*asks(), *urgent])[0] == urgent[0].key
    assert len(waited) == MANY + 1


def test_those_who_wait_go_first(waited: list[str]) -> None:
    core = core_of()
    for event in asks(1):
        core.handle(event, NOW)
    placed(core, asks(MANY, 1))
    assert len(waited) == MANY + 1


def test_who_waits_in_vain_stops_nobody(waited: list[str]) -> None:
    core = core_of()
    placed(core, asks(1, 0, AskSpec(resource({"vcore": 10**9}))))
    waited.clear()
    huge = asks(1, 1, AskSpec(resource({"vcore": 10**9}), priority=3))
    assert len(placed(core, [*huge, *asks(MANY, 2)])) == MANY
    assert waited == [huge[0].key]


def test_a_new_template_and_an_end_among_them_change_nothing(waited: list[str]) -> None:
    core = core_of()
    placed(core, asks(MANY))
    end = ReleaseRequested("rm", LEAVES[0], asks(1)[0].key)
    new = asks(3, 3 * MANY, AskSpec(resource({"vcore": 11})))
    assert len(placed(core, [*asks(MANY, MANY), end, *new, *asks(MANY, 2 * MANY)])) == 2 * MANY + 3
    assert not waited


def test_who_comes_back_waits_with_all_others(waited: list[str]) -> None:
    core = core_of()
    placed(core, asks(MANY))
    failed = Termination.SCHEDULING_FAILED_ON_RM
    back = ReleaseRequested("rm", LEAVES[0], asks(1)[0].key, termination=failed)
    found = placed(core, [*asks(MANY, MANY), back, *asks(MANY, 2 * MANY)])
    assert len(found) == 2 * MANY  # it avoids the only node for a while
    assert len(waited) == 2 * MANY + 1


def test_a_release_finds_an_ask_that_came_just_now() -> None:
    gone = asks(1)[0]
    found = placed(core_of(), [*asks(), ReleaseRequested("rm", gone.application_id, gone.key)])
    assert gone.key not in found
    assert len(found) == MANY - 1


def test_a_burst_stops_where_nodes_are_full(waited: list[str]) -> None:
    core = core_of()
    core.handle(NodeAdded("rm", "m", resource({"vcore": 5})), NOW)
    partition = core.state.partitions["default"]
    big = AskSpec(resource({"vcore": 10**6 // MANY + 1}))
    found = placed(core, asks(MANY, 0, big))
    assert len(found) == MANY - 1
    assert len(partition.root.waiting()) == 1
    assert len(waited) == 1


def test_whoever_looks_in_between_finds_them_waiting() -> None:
    core = core_of()
    core.take(asks(), NOW)
    core.validate()
    one_by_one = core_of()
    for event in asks():
        one_by_one.handle(event, NOW)
    assert core.digest() == one_by_one.digest()
    assert len(placed(core, [])) == MANY
