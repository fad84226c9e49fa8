"""A Trial has the state of the snapshot after the plans so far, and can take plans back (design 6.2)."""

import random
from collections.abc import Iterator

import pytest

from server.core.preemption import rounds, takeover
from server.model.parts import whole
from server.preemption.nodes import reservation
from server.preemption.policy import Intent, Plan, PlannedPledge, Release
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.scheduling.outranking import in_order
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk
from server.state import snapshotting
from tests.preemption.clusters import Cluster
from tests.preemption.lives import partitions_after_each_tick, without_preemption

SEEDS = range(400, 460)


def planned_free(trial: Trial, row: int) -> list[int]:
    """Return the amounts that a node will have free once all pods that were ordered to end are gone."""
    coming = trial.snapshot.nodes.releasing if trial._coming is None else trial._coming
    found: list[int] = (trial._free_now[row] + coming[row]).tolist()
    return found


def everything(trial: Trial) -> list[object]:
    """Return what a Trial answers to all that can be asked."""
    snapshot = trial.snapshot
    rows, keys = range(len(snapshot.nodes.ids)), range(len(snapshot.allocations.keys))
    asks = snapshot.waiting
    return [
        [(planned_free(trial, row), trial.free_for_claim(row)) for row in rows],
        [trial.fits_claim(ask.kind) for ask in asks],
        [trial.is_held(row) for row in rows],
        [trial.stands(row) for row in keys],
        [(trial.eff(path), trial.promised(path), trial.held(path)) for path in snapshot.queues],
        [(trial.best(ask.kind), trial.least_short(ask.kind)) for ask in asks],
        [(trial.is_served(ask.key), trial.has_headroom(ask.leaf, ask.kind.demand)) for ask in asks],
        [(trial.open_for("test", path), trial.open_for("test")) for path in snapshot.queues],
    ]


def random_plans(snapshot: Snapshot, dice: random.Random) -> Iterator[Plan]:
    """Plans that nobody would make: any asks, any nodes, any victims, each once."""
    asks, rows = (
        list(snapshot.waiting),
        [row for row, name in enumerate(snapshot.nodes.ids) if name],
    )
    victims = [row for row, key in enumerate(snapshot.allocations.keys) if key]
    dice.shuffle(asks)
    dice.shuffle(victims)
    paths = {queue.number: path for path, queue in snapshot.queues.items()}
    while rows and (asks or victims):
        taken = [asks.pop() for _ in range(min(len(asks), dice.randint(0, 2)))]
        gone = [victims.pop() for _ in range(min(len(victims), dice.randint(0, 3)))]
        yield Plan(
            "test",
            tuple(_pledge(snapshot, ask, dice.choice(rows)) for ask in taken),
            tuple(
                Release(
                    row,
                    snapshot.allocations.keys[row],
                    paths[int(snapshot.allocations.leaves[row])],
                    "",
                )
                for row in gone
            ),
        )


def _pledge(snapshot: Snapshot, ask: WaitingAsk, row: int) -> PlannedPledge:
    return PlannedPledge(ask, row, snapshot.nodes.ids[row])


def all_views(seeds: range) -> Iterator[tuple[str, Snapshot]]:
    """Yield views of random partitions with all their waiting asks that hold nothing."""
    for where, partition, now in partitions_after_each_tick(seeds):
        free = [one for one in partition.asks.values() if one.node is None and not one.pledge]
        yield where, snapshotting.take(partition, now, free)


def test_rolling_back_undoes_everything_since_the_mark() -> None:
    for where, snapshot in all_views(range(400, 410)):
        dice = random.Random(where)
        trial = Trial(snapshot)
        marks = []
        for plan in random_plans(snapshot, dice):
            marks.append((trial.mark(), everything(trial)))
            trial.apply(plan)
        for mark, before in reversed(marks):
            trial.rollback(mark)
            assert everything(trial) == before, where
        assert trial.plans == ()


def test_what_a_trial_keeps_is_what_another_works_out() -> None:
    for where, snapshot in all_views(range(410, 420)):
        trial = Trial(snapshot)
        for plan in random_plans(snapshot, random.Random(where)):
            assert everything(trial) == everything(trial), where
            trial.apply(plan)
            other = Trial(snapshot)
            for one in trial.plans:
                other.apply(one)
            assert everything(trial) == everything(other), where


def test_a_trial_is_the_view_after_its_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans on top of a snapshot give the answers that the state give once the plans are written.

    A takeover follows the plans of a round and is none of them.
    """
    monkeypatch.setattr(takeover, "find", lambda partition, now: None)  # noqa: ARG005
    planned = 0
    for where, partition, now in partitions_after_each_tick(SEEDS):
        later = now + 60_000
        without_preemption(partition)
        waiting = [one for one in partition.asks.values() if one.node is None]
        trial = Trial(snapshotting.take(partition, later, in_order(waiting)))
        for intent in reservation.intents(trial):
            plan = reservation.plan(trial, intent)
            if isinstance(plan, Plan) and gate.gate(trial, plan) is None:
                trial.apply(plan)
                planned += 1
        expected = _standing(trial)
        whole(rounds.run(partition, later, 10_000))
        keys = {pledge.ask.key for plan in trial.plans for pledge in plan.pledges}
        assert keys <= set(partition.decisions.pledges), where
        assert _standing(Trial(snapshotting.take(partition, later))) == expected, where
    assert planned > 20


def _standing(trial: Trial) -> list[object]:
    snapshot = trial.snapshot
    rows = range(len(snapshot.nodes.ids))
    return [
        [(planned_free(trial, row), trial.is_held(row)) for row in rows],
        {path: (trial.promised(path), trial.held(path)) for path in snapshot.queues},
        [trial.open_for(reservation.NAME, path) for path in snapshot.queues],
    ]


def test_plans_leave_the_view_as_it_is() -> None:
    cluster = Cluster()
    cluster.nodes("n1", memory=10)
    cluster.application("x")
    cluster.existing("e", "n1", memory=8)
    cluster.ask("p", memory=5)
    cluster.tick()
    snapshot = cluster.snapshot()
    trial = Trial(snapshot)
    before = everything(Trial(snapshot))
    ask = snapshot.waiting[0]
    release = Release(snapshot.allocations.keys.index("e"), "e", "root.a", "")
    trial.apply(Plan("test", (PlannedPledge(ask, 0, "n1"),), (release,)))
    memory = snapshot.types.index("memory")
    assert planned_free(trial, 0)[memory] == 5
    assert (trial.eff("root.a")[memory], trial.held("root.a")[memory]) == (0, 5)
    assert not trial.stands(release.row)
    assert everything(Trial(snapshot)) == before


def test_planning_changes_nothing() -> None:
    for where, snapshot in all_views(range(400, 420)):
        trial = Trial(snapshot)
        before = everything(trial)
        for ask in snapshot.waiting:
            reservation.plan(trial, Intent("test", ask))
        assert everything(trial) == before, where
