"""The loop of rounds: when a round begins, what it costs, and how it continues after its budget is used up."""

from dataclasses import replace

import pytest

from server.core.preemption import due_reservations, rounds
from server.model.asks import AskSpec
from server.model.decisions import Noted
from server.model.events import VictimVetoed
from server.model.parts import whole
from server.model.quota import QueueProperties
from server.model.reasons import Code
from server.model.resources import resource
from server.preemption.nodes.reservation import RESERVE_AFTER_MS
from server.preemption.policy import Rule
from server.state import snapshotting
from tests.preemption.clusters import MANAGER, Cluster, leaf
from tests.preemption.lives import partitions_after_each_tick, without_preemption

CHECKED = AskSpec(resource=(), rm_check=True)


class Counted:
    """Counts the snapshots that the round loop takes and the groups that it looks at."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.views = 0
        self.groups = 0
        self._take, self._is_stuck = snapshotting.take, due_reservations.is_stuck
        patch.setattr(snapshotting, "take", self._count_view)
        patch.setattr(due_reservations, "is_stuck", self._count_group)

    def _count_view(self, *args: object, **options: object) -> object:
        self.views += 1
        return self._take(*args, **options)  # type: ignore[arg-type]

    def _count_group(self, *args: object) -> bool:
        self.groups += 1
        return self._is_stuck(*args)  # type: ignore[arg-type]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def full_cluster(nodes: int = 2, **most: int) -> Cluster:
    """So many nodes of 10, each with 8 taken."""
    cluster = Cluster(leaf("a", **most), leaf("b"))
    names = [f"n{number}" for number in range(nodes)]
    cluster.nodes(*names, memory=10)
    for name in names:
        cluster.foreign(f"f-{name}", name, memory=8)
    cluster.application("x")
    return cluster


def test_no_view_is_taken_while_nobody_waits_long_enough(counted: Counted) -> None:
    cluster = full_cluster()
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS - 1)
    assert counted.views == 0
    cluster.tick(wait_ms=1)
    assert counted.views == 1


def test_a_tick_in_which_nothing_changed_looks_at_nobody(counted: Counted) -> None:
    cluster = full_cluster(memory=5)
    cluster.ask("p", "q", "large", memory=11)
    cluster.ask("r", memory=6)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    before = (counted.views, counted.groups)
    for _ in range(5):
        cluster.tick(wait_ms=1_000)
    assert (counted.views, counted.groups) == before


def test_what_no_node_can_hold_is_planned_for_once_until_a_node_changes(counted: Counted) -> None:
    cluster = full_cluster()
    cluster.ask("large", memory=11)
    cluster.existing("e1", "n0", memory=1)
    cluster.existing("e2", "n0", memory=1)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert counted.views == 1
    cluster.release("e1")
    cluster.tick()
    assert counted.views == 1
    cluster.resize("n0", memory=9)
    cluster.tick()
    assert counted.views == 2
    cluster.resize("n1", memory=11)
    cluster.tick()
    assert cluster.reserved() == {"large": "n1"}


def test_all_nodes_held_is_no_verdict_for_ever() -> None:
    cluster = full_cluster(nodes=20)
    for number in range(1, 20):
        cluster.resize(f"n{number}", memory=9)
    cluster.ask("p", "q", memory=10)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert cluster.reserved() == {"p": "n0"}
    cluster.release("p")
    cluster.tick()
    assert cluster.reserved() == {"q": "n0"}


def test_a_group_that_may_not_reserve_is_walked_once() -> None:
    cluster = full_cluster()
    cluster.ask("c1", "c2", spec=CHECKED, memory=5)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert len(cluster.partition.round.ineligible) == 1
    cluster.ask("c3", spec=CHECKED, memory=5)
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert cluster.reserved() == {}
    cluster.ask("plain", memory=5)
    cluster.tick()
    assert cluster.due_in() == RESERVE_AFTER_MS
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert cluster.reserved() == {"plain": "n0"}


def test_an_ask_that_joins_a_walked_group_unseen_is_found() -> None:
    """While all reservations are taken nobody is looked at; who joined then counts when one ends."""
    cluster = full_cluster()
    cluster.ask("c1", spec=CHECKED, memory=5)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    cluster.ask("first", memory=6)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert cluster.reserved() == {"first": "n0"}
    cluster.ask("second", memory=5)
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    cluster.release("first")
    cluster.tick()
    assert cluster.reserved() == {"second": "n0"}


def test_a_raised_limit_lets_an_ask_reserve() -> None:
    cluster = full_cluster(memory=6)
    cluster.existing("e", "n0", memory=2)
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.tick(wait_ms=RESERVE_AFTER_MS)
    assert cluster.reserved() == {}
    cluster.release("e")
    cluster.tick()
    assert cluster.reserved() == {"p": "n0"}


def test_a_round_goes_on_where_its_budget_ended() -> None:
    cluster = full_cluster(nodes=30)
    for at in range(4):
        cluster.ask(f"large{at}", memory=11 + at)
    cluster.ask("p", "q", "r", memory=5)
    cluster.tick()
    cluster.now += RESERVE_AFTER_MS
    results = [whole(rounds.run(cluster.partition, cluster.now, budget=1)) for _ in range(9)]
    assert [one.more for one in results] == [True] * 7 + [False] * 2
    assert [one.spent for one in results] == [1] * 7 + [0] * 2
    assert sum(one.refused.get(Rule.NO_NODE, 0) for one in results) == 4
    assert cluster.reserved() == {"p": "n0", "q": "n1", "r": "n2"}


def test_a_tick_leaves_a_round_no_more_than_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.core.core.PLANNING", 1)
    cluster = full_cluster(nodes=30)
    for at in range(4):
        cluster.ask(f"large{at}", memory=11 + at)
    cluster.ask("p", memory=5)
    cluster.tick()
    cluster.now += RESERVE_AFTER_MS
    ticks = [cluster.core.tick(cluster.now) for _ in range(6)]
    assert [one.more for one in ticks] == [True] * 5 + [False]
    assert cluster.reserved() == {"p": "n0"}


def test_a_budget_does_not_change_who_reserves() -> None:
    whole, pieces = full_cluster(nodes=60), full_cluster(nodes=60)
    for cluster, budget in ((whole, 20_000), (pieces, 1)):
        cluster.application("y", "root.b")
        for at in range(8):
            spec = AskSpec(resource=(), priority=at % 3)
            cluster.ask(f"p{at}", application="xy"[at % 2], spec=spec, memory=4 + at)
        cluster.tick()
        cluster.tick(wait_ms=RESERVE_AFTER_MS, budget=budget)
    assert pieces.reserved() == whole.reserved()
    assert len(whole.reserved()) == 6


def test_a_round_that_was_cut_off_begins_anew_when_the_books_moved() -> None:
    cluster = full_cluster(nodes=20)
    cluster.ask("large1", "p", memory=11)
    cluster.ask("large2", memory=12)
    cluster.tick()
    cluster.now += RESERVE_AFTER_MS
    assert whole(rounds.run(cluster.partition, cluster.now, budget=1)).more
    cluster.resize("n1", memory=11)
    assert cluster.tick() == []
    assert cluster.reserved() == {"large1": "n1"}


def test_the_core_is_never_asked_to_wake_up_for_nothing_twice() -> None:
    """After a tick the next due instant lies ahead; at that instant something happens or it moves on."""
    for where, partition, now in partitions_after_each_tick(range(500, 560)):
        without_preemption(partition)
        instant, woken = now, 0
        while (following := rounds.next_due(partition, instant)) is not None:
            assert following > instant, where
            whole(rounds.run(partition, following, 10_000))
            instant = following
            woken += 1
            assert woken <= len(partition.asks), where


def test_no_ask_that_comes_of_age_is_missed() -> None:
    """Waking only at the instants given reserves what asking every millisecond would."""
    lazy, eager = full_cluster(nodes=100), full_cluster(nodes=100)
    for cluster in (lazy, eager):
        for at in range(6):
            cluster.ask(f"p{at}", memory=5, spec=replace(AskSpec(()), priority=at % 2))
            cluster.now += 3
            cluster.tick()
    aged = lazy.now + RESERVE_AFTER_MS + 10
    while (wait := lazy.due_in()) is not None and lazy.now + wait <= aged:
        lazy.tick(wait_ms=wait)
    eager.tick(wait_ms=RESERVE_AFTER_MS - 30)
    for _ in range(40):
        eager.tick(wait_ms=1)
    assert lazy.reserved() == eager.reserved()
    assert len(lazy.reserved()) == 5


def test_commitments_are_numbered_the_same_way_each_time() -> None:
    ids = []
    for _ in range(2):
        cluster = full_cluster(nodes=30)
        cluster.ask("p", "q", memory=5)
        cluster.tick()
        cluster.tick(wait_ms=RESERVE_AFTER_MS)
        ids.append(list(cluster.partition.decisions.open))
        assert cluster.noted(Code.RESERVED) == ["p", "q"]
    assert ids[0] == ids[1]
    assert all(one.startswith("r") for one in ids[0])


def test_a_run_that_cannot_go_on_is_tried_once_in_a_round_that_is_cut_off() -> None:
    cluster = full_cluster(nodes=3)
    cluster.application("y", "root.b")
    cluster.existing("x1", "n0", memory=2)
    lowered = replace(leaf("a", memory=1), properties=QueueProperties(quota_delay_ms=1_000))
    cluster.configure(lowered, replace(leaf("b"), guaranteed=resource({"memory": 50})))
    for at in range(5):
        cluster.ask(f"p{at}", application="y", memory=5 + at)
    cluster.tick(wait_ms=1_000)
    cluster.now += 30_000
    cluster.say(VictimVetoed(MANAGER, cluster.partition.asks["x1"].leaves_by, "x1"))
    ticks = [cluster.core.tick(cluster.now, 1) for _ in range(40)]
    notes = [one for tick in ticks for one in tick.decisions if isinstance(one, Noted)]
    assert sum(one.code is Code.QUOTA_RUN for one in notes) == 1
    assert sum(tick.more for tick in ticks) > 1
    assert not ticks[-1].more
