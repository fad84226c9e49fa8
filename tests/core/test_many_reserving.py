"""A round of reservations reads no more waiting asks than its budget can try, and decides the same."""

import random
from collections.abc import Sequence

import pytest

from server.core.core import Core
from server.core.preemption import due_reservations, rounds
from server.model.asks import AskSpec
from server.model.decisions import Decision, Placed
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec, ReservationSettings
from server.model.resources import resource
from server.preemption.nodes import reservation
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from server.snapshot.snapshot import Snapshot
from server.state import snapshotting
from server.state.applications import Ask
from server.state.partition import Partition
from tests.effort import cases

NOW = 1_800_000_000_000
LATER = NOW + RESERVE_AFTER_MS
BUDGET = 50
TREE = QueueSpec(
    "root",
    parent=True,
    submit_acl=Acl(everyone=True),
    children=(QueueSpec("a"), QueueSpec("b")),
)
SEEDS = range(cases(30))


def cluster(nodes: int, timeout_ms: int = 600_000) -> Core:
    """Return a core with nodes of 4 cores and an application in each of two queues."""
    reservations = ReservationSettings(timeout_ms=timeout_ms)
    core = Core(Configuration((PartitionSpec("default", TREE, reservations=reservations),)))
    core.handle(ManagerRegistered("rm"), NOW)
    for at in range(nodes):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 4_000})), NOW)
    for leaf in ("a", "b"):
        core.handle(ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}"), NOW)
    return core


def ask(core: Core, key: str, application: str, spec: AskSpec, now: int) -> None:
    """Ask for one pod."""
    core.handle(AskAdded("rm", key, application, spec), now)


def test_a_tick_reads_no_more_asks_than_its_budget_can_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = cluster(2)
    for at in range(20 * BUDGET):
        ask(core, f"ask-{at}", "app-a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    while core.tick(NOW).more:
        pass
    read: list[int] = []
    take = snapshotting.take

    def counted(partition: Partition, now: int, *, due: snapshotting.Due) -> Snapshot:
        taken = take(partition, now, due=due)
        read.append(len(taken.waiting))
        return taken

    monkeypatch.setattr(snapshotting, "take", counted)
    while core.tick(LATER, BUDGET).more:
        pass
    assert len(read) >= 20
    assert max(read) <= BUDGET + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_are_those_of_rounds_that_read_every_ask(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = story(seed)
    monkeypatch.setattr(rounds, "within", lambda _partition, asks, _budget: asks)
    assert few == story(seed)


def story(seed: int) -> list[str]:
    """Return what a core with a small budget decides while asks of many sizes come and pods end."""
    chance = random.Random(seed)
    core, now, decided, running = cluster(12), NOW, list[Decision](), dict[str, str]()
    for at in range(40):
        now += chance.choice((0, 100, 1_000, RESERVE_AFTER_MS))
        for number in range(chance.randrange(6)):
            size = chance.choice((1_000, 2_500, 3_000, 3_950, 9_000)) + chance.randrange(50)
            spec = AskSpec(resource({"vcore": size}), priority=chance.randrange(3))
            running[f"{at}-{number}"] = application = f"app-{chance.choice('ab')}"
            ask(core, f"{at}-{number}", application, spec, now)
        placed = [one.key for one in decided if type(one) is Placed and one.key in running]
        for key in chance.sample(placed, min(len(placed), chance.randrange(3))):
            core.handle(ReleaseRequested("rm", running.pop(key), key), now)
        decided += ticks(core, now, chance.randint(1, 6))
    assert any(type(one) is Placed for one in decided)
    return [repr(one) for one in decided]


def ticks(core: Core, now: int, budget: int) -> Sequence[Decision]:
    """Return the decisions of an instant."""
    decided: list[Decision] = []
    more = True
    while more:
        tick = core.tick(now, budget)
        decided += tick.decisions
        more = tick.more
    return decided


@pytest.mark.parametrize("share", [1, 3, 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_looks_of_several_ticks_decide_the_same_at_each_instant(
    seed: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = story(seed)
    monkeypatch.setattr(due_reservations, "SEARCH_MOST", share)
    assert sorted(story(seed)) == sorted(whole)


def test_looks_of_the_stories_take_several_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    going_on: list[bool] = []
    settle = due_reservations.settle

    def settled(partition: Partition, now: int, *, all_tried: bool) -> bool:
        going_on[-1] |= due_reservations.is_searching(partition)
        return settle(partition, now, all_tried=all_tried)

    monkeypatch.setattr(due_reservations, "SEARCH_MOST", 1)
    monkeypatch.setattr(due_reservations, "settle", settled)
    for seed in range(10):
        going_on.append(False)
        story(seed)
    assert sum(going_on) >= 9


def test_an_ask_that_a_look_found_waits_once_a_reservation_of_its_application_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timeout ends between the ticks of a search (C7)."""
    monkeypatch.setattr(due_reservations, "SEARCH_MOST", 1)
    lasts = 2 * RESERVE_AFTER_MS
    core = cluster(30, timeout_ms=lasts)
    for at in range(30):
        ask(core, f"runs-{at}", "app-b", AskSpec(resource({"vcore": 3_000})), NOW)
    assert len(ticks(core, NOW, 1_000)) >= 30
    for at in range(2):
        ask(core, f"first-{at}", "app-a", AskSpec(resource({"vcore": 3_500 + at})), NOW)
    ticks(core, LATER, 1_000)
    assert reserved(core) == {"first-0", "first-1"}
    for at in range(20):
        ask(core, f"next-{at}", "app-a", AskSpec(resource({"vcore": 3_600 + at})), LATER)
    ticks(core, LATER, 1_000)
    ends = LATER + lasts
    found = False
    while not found:
        assert core.tick(ends - 1).more
        search = core.state.partitions["default"].round.reservation_search
        found = search is not None and bool(search.found)
    assert reserved(core) == {"first-0", "first-1"}
    ticks(core, ends, 1_000)
    assert reserved(core) == set()
    ticks(core, ends + lasts, 1_000)
    assert reserved(core)


def reserved(core: Core) -> set[str]:
    """Return the keys of the asks for which nodes are reserved."""
    pledges = core.state.partitions["default"].decisions.reservations.values()
    return {one.ask.key for one in pledges}


@pytest.mark.parametrize("share", [5, 5_000])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_ask_that_a_round_left_out_counts_as_tried_only_where_no_more_nodes_may_be_reserved(
    seed: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, all_tried = watched(monkeypatch)
    monkeypatch.setattr(due_reservations, "SEARCH_MOST", share)
    story(seed)
    assert True in all_tried


def test_asks_that_a_round_left_out_reserve_once_the_reservation_before_them_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition with all of its reservations ends a round at once, before the budget does."""
    left_out, all_tried = watched(monkeypatch)
    monkeypatch.setattr(due_reservations, "SEARCH_MOST", 10)
    core = cluster(1)
    ask(core, "runs", "app-b", AskSpec(resource({"vcore": 3_000})), NOW)
    ticks(core, NOW, 1_000)
    for at in range(20):
        ask(core, f"ask-{at:02}", "app-a", AskSpec(resource({"vcore": 2_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    ticks(core, LATER, 5)
    assert any(every and left for every, left in zip(all_tried, left_out, strict=True))
    for at in range(20):
        assert reserved(core) == {f"ask-{at:02}"}
        core.handle(ReleaseRequested("rm", "app-a", f"ask-{at:02}"), LATER)
        ticks(core, LATER, 5)
    assert reserved(core) == set()


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[list[set[str]], list[bool]]:
    """Return the asks that each round leaves out, and whether it counts all as tried; check that none of them could reserve."""
    within, settle = rounds.within, due_reservations.settle
    left_out, all_are_tried = list[set[str]](), list[bool]()

    def offered(partition: Partition, asks: Sequence[Ask], budget: int) -> Sequence[Ask]:
        found, masked = within(partition, asks, budget), partition.round.masked
        waits = {one.key for one in asks if (reservation.NAME, one.key) not in masked}
        left_out.append(waits - {one.key for one in found})
        return found

    def settled(partition: Partition, now: int, *, all_tried: bool) -> bool:
        all_are_tried.append(all_tried)
        if all_tried and left_out[-1]:
            assert not due_reservations.may_reserve_more(partition)
        return settle(partition, now, all_tried=all_tried)

    monkeypatch.setattr(rounds, "within", offered)
    monkeypatch.setattr(due_reservations, "settle", settled)
    return left_out, all_are_tried
