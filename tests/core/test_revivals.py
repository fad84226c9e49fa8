"""Sizes that a new node fits, or a limit again, are requeued over several ticks, before any ask is placed; the decisions are the same."""

import random

import pytest

from server.core.core import Core
from server.model.asks import AskSpec, Constraints
from server.model.decisions import Decision, Placed
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    ReleaseRequested,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.resources import resource
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from server.scheduling import cycle
from server.scheduling.freed_nodes import FreedNodes
from server.scheduling.placement import could_take
from server.state import pending
from server.state.constraints import NodeMask
from server.state.equivalence import AskClass
from server.state.nodes import Node
from server.state.partition import Partition
from tests.effort import cases

NOW = 1_800_000_000_000
TREE = QueueSpec(
    "root",
    parent=True,
    submit_acl=Acl(everyone=True),
    children=(QueueSpec("a"), QueueSpec("b", max=resource({"vcore": 16_000}))),
)
SEEDS = range(cases(40))
CONSTRAINTS = (
    Constraints(),
    Constraints(node_selector=(("zone", "east"),)),
    Constraints(node_selector=(("zone", "north"),)),
    Constraints(excluded_nodes=("z1", "z2", "n3")),
    Constraints(allowed_nodes=("z0", "z3", "n1")),
    Constraints(required_node="z4"),
    Constraints(required_node="n2"),
)


def cluster() -> Core:
    """Return a core with ten nodes of 4 cores and an application in each of two queues."""
    core = Core(Configuration((PartitionSpec("default", TREE),)))
    core.handle(ManagerRegistered("rm"), NOW)
    for at in range(10):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 4_000})), NOW)
    for leaf in ("a", "b"):
        core.handle(ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}"), NOW)
    return core


def ask(core: Core, key: str, application: str, spec: AskSpec, now: int) -> None:
    """Ask for one pod."""
    core.handle(AskAdded("rm", key, application, spec), now)


def ticks(core: Core, now: int, budget: int = 1_000) -> list[Decision]:
    """Return the decisions of an instant; check the state after each tick."""
    decided, more = list[Decision](), True
    while more:
        tick = core.tick(now, budget)
        core.validate()
        decided += tick.decisions
        more = tick.more
    return decided


def placed(decisions: list[Decision]) -> list[str]:
    """Return the keys of the asks that were placed, in order."""
    return [one.key for one in decisions if type(one) is Placed]


@pytest.fixture
def revived(monkeypatch: pytest.MonkeyPatch) -> list[AskClass]:
    """Collect the classes that are revived."""
    found: list[AskClass] = []
    revive = pending.revive_class

    def collected(partition: Partition, ask_class: AskClass) -> None:
        found.append(ask_class)
        revive(partition, ask_class)

    monkeypatch.setattr(pending, "revive_class", collected)
    return found


def test_a_tick_revives_only_so_many_classes_and_places_after_the_last(
    monkeypatch: pytest.MonkeyPatch, revived: list[AskClass]
) -> None:
    monkeypatch.setattr(cycle, "REVIVE_MOST", 10)
    core = cluster()
    for at in range(95):
        spec = AskSpec(resource({"vcore": 5_000 + at}), priority=at)
        ask(core, f"ask-{at}", "app-a", spec, NOW)
    assert placed(ticks(core, NOW)) == []
    core.handle(NodeAdded("rm", "large", resource({"vcore": 20_000})), NOW + 1)
    for at in range(9):
        tick = core.tick(NOW + 1)
        core.validate()
        assert tick.more
        assert tick.decisions == []
        assert len(revived) == 10 * (at + 1)
    assert placed(ticks(core, NOW + 1)) == ["ask-94", "ask-93", "ask-92"]
    assert len(revived) == 95


def test_asks_that_come_meanwhile_are_placed_in_the_order_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycle, "REVIVE_MOST", 1)
    core = cluster()
    for at in range(3):
        ask(core, f"ask-{at}", "app-a", AskSpec(resource({"vcore": 5_000 + at}), priority=5), NOW)
    ticks(core, NOW)
    core.handle(NodeAdded("rm", "large", resource({"vcore": 15_000})), NOW + 1)
    assert core.tick(NOW + 1).decisions == []
    ask(core, "low", "app-b", AskSpec(resource({"vcore": 10_000})), NOW + 1)
    ask(core, "high", "app-b", AskSpec(resource({"vcore": 10_000}), priority=9), NOW + 1)
    assert placed(ticks(core, NOW + 1)) == ["high", "ask-0"]


def test_a_node_that_goes_meanwhile_revives_nothing(
    monkeypatch: pytest.MonkeyPatch, revived: list[AskClass]
) -> None:
    monkeypatch.setattr(cycle, "REVIVE_MOST", 1)
    core = cluster()
    for at in range(9):
        ask(core, f"ask-{at}", "app-a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW)
    core.handle(NodeAdded("rm", "large", resource({"vcore": 15_000})), NOW + 1)
    assert core.tick(NOW + 1).more
    core.handle(NodeRemoved("rm", "large"), NOW + 1)
    assert placed(ticks(core, NOW + 1)) == []
    assert len(revived) == 1


def test_a_tick_unblocks_only_so_many_classes_and_places_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The max of a queue has headroom again; asks of another queue are placed in the order of all."""
    monkeypatch.setattr(cycle, "REVIVE_MOST", 10)
    core = cluster()
    ask(core, "runs", "app-b", AskSpec(resource({"vcore": 4_000})), NOW)
    for at in range(3):
        ask(core, f"more-{at}", "app-b", AskSpec(resource({"vcore": 4_000})), NOW)
    assert len(placed(ticks(core, NOW))) == 4
    for at in range(95):
        spec = AskSpec(resource({"vcore": 1_000 + at}), priority=at)
        ask(core, f"ask-{at}", "app-b", spec, NOW)
    assert placed(ticks(core, NOW)) == []
    limiter = core.state.partitions["default"].queues["root.b"].limiter
    assert limiter is not None
    assert len(limiter.blocked) == 95
    core.handle(ReleaseRequested("rm", "app-b", "runs"), NOW + 1)
    for at in range(9):
        tick = core.tick(NOW + 1)
        core.validate()
        assert tick.more
        assert not placed([*tick.decisions])
        assert len(limiter.blocked) == 95 - 10 * (at + 1)
    assert placed(ticks(core, NOW + 1)) == ["ask-94", "ask-93", "ask-92"]


def test_classes_with_one_selector_are_compared_with_the_freed_nodes_once(
    monkeypatch: pytest.MonkeyPatch, revived: list[AskClass]
) -> None:
    """Their number times the number of nodes would make a tick long."""
    compared: list[str] = []
    allows = NodeMask.allows

    def counted(mask: NodeMask, node: Node) -> bool:
        compared.append(node.node_id)
        return allows(mask, node)

    core = cluster()
    for at in range(10):
        spec = AskSpec(resource({"vcore": 4_000}))
        ask(core, f"runs-{at}", "app-a", spec, NOW)
    assert len(placed(ticks(core, NOW))) == 10
    east = Constraints(node_selector=(("zone", "east"),))
    for at in range(100):
        ask(core, f"ask-{at}", "app-a", AskSpec(resource({"vcore": 1_000 + at}), 0, east), NOW)
    assert placed(ticks(core, NOW)) == []
    for at in range(10):
        core.handle(ReleaseRequested("rm", "app-a", f"runs-{at}"), NOW + 1)
    monkeypatch.setattr(NodeMask, "allows", counted)
    assert list(core.tick(NOW + 1).decisions) == []
    assert not revived
    assert len(compared) <= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_freed_nodes_take_what_one_of_them_could_take(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of freed nodes equals the plain loop over them, with selectors, drained nodes, DaemonSets and reservations."""
    answers: list[bool] = []
    take = FreedNodes.take

    def compared(freed: FreedNodes, ask_class: AskClass) -> bool:
        found = take(freed, ask_class)
        assert found == any(could_take(ask_class, node) for node in freed.nodes)
        answers.append(found)
        return found

    monkeypatch.setattr(FreedNodes, "take", compared)
    chance = random.Random(seed)
    core, now = cluster(), NOW
    for at in range(12):
        zone = (("zone", chance.choice(("east", "west"))),)
        amounts = {"vcore": chance.choice((2_000, 6_000)), "gpu": chance.randrange(4)}
        core.handle(NodeAdded("rm", f"z{at}", resource(amounts), labels=zone), now)
    for at in range(25):
        now += chance.choice((0, 100, RESERVE_AFTER_MS))
        for number in range(12):
            amounts = {"vcore": chance.randrange(500, 7_000, 500), "gpu": chance.randrange(4)}
            spec = AskSpec(resource(amounts), chance.randrange(3), chance.choice(CONSTRAINTS))
            ask(core, f"{at}-{number}", f"app-{chance.choice('ab')}", spec, now)
        known = core.state.partitions["default"].asks
        runs = [key for key, one in known.items() if one.node is not None]
        for key in chance.sample(runs, min(len(runs), 6)):
            application = known[key].application.application_id
            core.handle(ReleaseRequested("rm", application, key), now)
        core.handle(
            chance.choice((NodeDrained, NodeEnabled))("rm", f"z{chance.randrange(12)}"), now
        )
        ticks(core, now)
    assert {*answers} == {False, True}


@pytest.mark.parametrize("share", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_are_those_of_a_core_that_revives_all_at_once(
    seed: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = story(seed)
    monkeypatch.setattr(cycle, "REVIVE_MOST", share)
    assert story(seed) == whole


def test_the_stories_take_several_ticks_to_revive(monkeypatch: pytest.MonkeyPatch) -> None:
    going_on: list[bool] = []
    refresh = cycle.refresh

    def refreshed(partition: Partition) -> object:
        freed = refresh(partition)
        going_on[-1] |= cycle.is_reviving(partition)
        return freed

    monkeypatch.setattr(cycle, "REVIVE_MOST", 1)
    monkeypatch.setattr(cycle, "refresh", refreshed)
    for seed in range(10):
        going_on.append(False)
        story(seed)
    assert sum(going_on) >= 9


def story(seed: int) -> list[str]:
    """Return what a core decides while asks of many sizes and nodes come, and pods and nodes go."""
    chance = random.Random(seed)
    core, now, decided, running = cluster(), NOW, list[Decision](), dict[str, str]()
    extra: list[str] = []
    for at in range(30):
        now += chance.choice((0, 100, 1_000, RESERVE_AFTER_MS))
        for number in range(chance.randrange(8)):
            size = chance.choice((1_000, 2_500, 3_950, 4_050, 9_000)) + chance.randrange(50)
            spec = AskSpec(resource({"vcore": size}), priority=chance.randrange(3))
            running[f"{at}-{number}"] = application = f"app-{chance.choice('ab')}"
            ask(core, f"{at}-{number}", application, spec, now)
        if chance.random() < 0.2:
            extra.append(f"extra-{at}")
            large = resource({"vcore": chance.choice((6_000, 12_000))})
            core.handle(NodeAdded("rm", extra[-1], large), now)
        if extra and chance.random() < 0.1:
            core.handle(NodeRemoved("rm", extra.pop()), now)
        gone = [key for key in placed(decided) if key in running]
        for key in chance.sample(gone, min(len(gone), chance.randrange(4))):
            core.handle(ReleaseRequested("rm", running.pop(key), key), now)
        decided += ticks(core, now)
    assert placed(decided)
    return [repr(one) for one in decided]
