"""Lost work: the work of victims, compared with a plain Python sum over random runs, and in single cases."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from evenhand_cli.story.words import MANAGER
from server.core.queries import known_decisions
from server.core.queries.lost_work import lost_owners, lost_work
from server.model.decisions import Decision, Released, Termination
from server.model.events import ReleaseRequested
from server.model.records import Lost
from server.model.records import lost_work as of_record
from server.state import lost_work as partition
from server.state.lost_work import LINES_MAX, OTHERS, LossKey, LostWork
from tests.effort import TRIES_ALL, cases
from tests.preemption.replicas import Replicas
from tests.simulation.termination import Life

TWO: list[dict[str, Any]] = [
    {"name": "a", "resources": {"guaranteed": {"memory": 8}}},
    {"name": "b"},
]
LIVES = cases(120)


class Accountant(Life):
    """A scenario that records when each pod began to run and was evicted, and adds up those that are gone."""

    def __init__(self, seed: int) -> None:
        self.placed: dict[str, int] = {}
        self.told: dict[str, tuple[str, str, int]] = {}
        self.sums: dict[tuple[str, str, str], Counter[str]] = {}
        super().__init__(seed)

    def _take_over(self, decisions: list[Decision]) -> None:
        super()._take_over(decisions)
        records = {one.decision_id: one for one in known_decisions.decisions(self.core)}
        for one in decisions:
            if isinstance(one, Released) and one.decision_id:
                record = records[one.decision_id]
                self.told[one.key] = (record.policy, record.beneficiaries[0].queue, self.now)

    def _confirm(self) -> None:
        for at, key in self.confirmations:
            if at <= self.now and key in self.told:
                self._count(key)
        super()._confirm()

    def _count(self, key: str) -> None:
        policy, claimant, told_ms = self.told.pop(key)
        pod = self.account.pod(key)
        ran = told_ms - pod.created
        counts = {"victims": 1, "ran": ran, "cores": pod.size.get("vcore", 0) * ran}
        self.sums.setdefault((policy, claimant, pod.queue), Counter()).update(counts)


def test_the_sums_are_those_of_a_plain_account() -> None:
    counted = 0
    for seed in range(LIVES):
        life = Accountant(seed)
        life.run()
        found = {
            (one.policy, one.claimant, one.victim): one.lost
            for one in lost_work(life.core, "default")
        }
        expected = {
            line: Lost(one["victims"], one["ran"], one["cores"]) for line, one in life.sums.items()
        }
        assert found == expected, f"seed {seed}"
        counted += len(found)
    if TRIES_ALL:
        assert counted > LIVES // 5, "hardly anybody went"


def claimed(*lines: str, **options: Any) -> Replicas:
    """Return a scenario in which a pod is evicted for x1, and nothing is confirmed."""
    life = Replicas(TWO, **options)
    life.confirming = False
    life.say("node n1 memory=10 vcore=10", "app x root.a", "app y root.b", *lines)
    life.say("ask x1 x memory=2 created=-60000")
    life.tick()
    return life


FULL = "existing y1..y5 y n1 memory=2 vcore=2 started=-60000"


def gone(life: Replicas, key: str, why: Termination = Termination.PREEMPTED_BY_SCHEDULER) -> None:
    """Report that the victim's pod is gone."""
    life.core.handle(ReleaseRequested(MANAGER, "y", key, termination=why), life.now)


def victim(life: Replicas) -> str:
    """Return the key of the victim."""
    return life.claims[0].victims[0].key


def test_nothing_is_lost_before_the_victim_is_gone() -> None:
    life = claimed(FULL)
    assert lost_work(life.core, "default") == []
    life.now += 5_000
    gone(life, victim(life))
    (line,) = lost_work(life.core, "default")
    assert (line.policy, line.claimant, line.victim) == ("guaranteed", "root.a", "root.b")
    assert line.lost == Lost(1, 60_000, 2 * 60_000), "what it did after it was told does not count"


def test_a_record_says_what_its_victims_had_done() -> None:
    life = claimed(FULL)
    assert [one.ran_ms for one in life.claims[0].victims] == [60_000]
    assert of_record(life.claims[0]) == Lost(1, 60_000, 120_000)


def test_one_that_nobody_says_to_run_counts_since_it_was_placed() -> None:
    life = Replicas(TWO)
    life.confirming = False
    life.say("node n1 memory=10 vcore=10", "app x root.a", "app y root.b")
    life.say("ask y1..y5 y memory=2 vcore=1")
    life.tick()
    life.now += 7_000
    life.say("ask x1 x memory=2 created=-60000")
    life.tick()
    assert life.claims[0].victims[0].ran_ms == 7_000


def test_a_victim_that_stays_loses_nothing() -> None:
    life = claimed(FULL)
    key = victim(life)
    life.known.decisions[key] = life.claims[0].decision_id
    life.say(f"veto {key}")
    record = known_decisions.decision(life.core, life.claims[0].decision_id)
    assert record is not None
    gone(life, key, Termination.STOPPED_BY_RM)
    assert lost_work(life.core, "default") == []
    assert of_record(replace(record, vetoed=(key,), victims=record.victims[:1])) == Lost()


@pytest.mark.parametrize("why", [Termination.STOPPED_BY_RM, Termination.PREEMPTED_BY_SCHEDULER])
def test_however_it_goes_it_counts(why: Termination) -> None:
    life = claimed(FULL)
    gone(life, victim(life), why)
    assert len(lost_work(life.core, "default")) == 1


def test_a_node_that_is_lost_takes_the_work_with_it() -> None:
    life = claimed(FULL)
    life.say("remove n1")
    assert [one.lost.victims for one in lost_work(life.core, "default")] == [1]


def test_a_decision_that_ended_counts_its_victims_all_the_same() -> None:
    life = claimed(FULL)
    life.say("release x1")
    gone(life, victim(life))
    assert [one.claimant for one in lost_work(life.core, "default")] == ["root.a"]


def test_a_quota_run_counts_for_the_queue_that_it_shrinks() -> None:
    queues: list[dict[str, Any]] = [
        {
            "name": "b",
            "resources": {"max": {"memory": 6}},
            "properties": {"quota.preemption.delay": "1s"},
        }
    ]
    life = Replicas(queues, preemption={"quotapreemptionenabled": True})
    life.say("node n1 memory=10 vcore=10", "app y root.b", FULL)
    life.confirming = False
    life.turns(2)
    for one in life.claims[0].victims:
        gone(life, one.key)
    (line,) = lost_work(life.core, "default")
    assert (line.policy, line.claimant, line.victim) == ("quota", "root.b", "root.b")
    assert line.lost.victims == 2


def test_a_queue_that_goes_away_folds_into_one_line() -> None:
    table = LostWork()
    table.add(LossKey("guaranteed", "root.a", "root.b"), Lost(1, 10, 100))
    table.add(LossKey("guaranteed", "root.a", "root.c"), Lost(2, 20, 200))
    table.add(LossKey("guaranteed", "root.b", "root.c"), Lost(4, 40, 400))
    table.forget(["root.b", "root.c"])
    assert table.lines == {
        LossKey("guaranteed", "root.a", OTHERS): Lost(3, 30, 300),
        LossKey("guaranteed", OTHERS, OTHERS): Lost(4, 40, 400),
    }


def test_the_table_is_bounded_and_loses_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "LINES_MAX", 10)
    table = LostWork()
    for number in range(30):
        table.add(LossKey("guaranteed", "root.a", f"root.b{number}"), Lost(1, 2, 3))
    assert len(table.lines) == 11
    assert table.lines[LossKey("guaranteed", OTHERS, OTHERS)] == Lost(20, 40, 60)
    assert LINES_MAX == 4_096


def test_owners_are_bounded_applications_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "LINES_MAX", 10)
    table = LostWork()
    for number in range(30):
        line = LossKey("guaranteed", "root.a", "root.b", "ada", f"app-{number}")
        table.add(line, Lost(1, 2, 3), 60_000 * number)
    named = [one.application for one in table.lines]
    assert named == [*(f"app-{number}" for number in range(5)), OTHERS]
    assert table.lines[LossKey("guaranteed", "root.a", "root.b", "ada", OTHERS)].victims == 25
    recent, _ = table.since(60_000 * 29)
    assert [one.application for one in recent] == ["app-29"]
    for number in range(30):
        table.add(LossKey("quota", f"root.c{number}", "root.b", "bob", "app"), Lost(1, 2, 3))
    assert len(table.lines) == 11
    assert table.lines[LossKey("quota", OTHERS, OTHERS, OTHERS, OTHERS)].victims == 26
    assert sum(one.victims for one in table.lines.values()) == 60


def test_the_owner_of_a_victim_is_counted() -> None:
    life = claimed(FULL)
    one = victim(life)
    ask = life.core.state.partitions["default"].asks[one]
    gone(life, one)
    (line,) = lost_owners(life.core, "default")
    (by_queue,) = lost_work(life.core, "default")
    assert (line.user, line.application) == (
        ask.application.user,
        ask.application.application_id,
    )
    assert (line.policy, line.claimant, line.victim) == ("guaranteed", "root.a", "root.b")
    assert (line.lost, line.amounts) == (by_queue.lost, by_queue.amounts)
    assert (by_queue.user, by_queue.application) == ("", "")


def test_the_digest_knows_lost_work() -> None:
    life = claimed(FULL)
    gone(life, victim(life))
    before = life.core.digest()
    table = life.core.state.partitions["default"].lost.by_queue
    table.add(next(iter(table.lines)), Lost(0, 1, 0))
    assert life.core.digest() != before


def test_what_was_lost_is_known_by_minute_and_type() -> None:
    table, line = LostWork(), LossKey("guaranteed", "root.a", "root.b")
    table.add(line, Lost(1, 10, 100), 59_999, {"gpu": 40, "vcore": 100})
    table.add(line, Lost(2, 20, 200), 60_000, {"gpu": 80})
    assert table.amounts == {line: {"gpu": 120, "vcore": 100}}
    assert table.since(0) == (
        {line: (Lost(3, 30, 300), {"gpu": 120, "vcore": 100})},
        0,
    )
    assert table.since(119_999) == ({line: (Lost(2, 20, 200), {"gpu": 80})}, 60_000)
    assert table.since(120_000) == ({}, 120_000)


def test_minutes_are_bounded_and_say_since_when_they_are_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition, "MINUTES_MAX", 3)
    table, line = LostWork(), LossKey("guaranteed", "root.a", "root.b")
    for minute in range(5):
        table.add(line, Lost(1, 1, 1), minute * 60_000)
    table.add(line, Lost(1, 1, 1), 0)
    assert table.lines == {line: Lost(6, 6, 6)}
    assert table.since(0) == ({line: (Lost(3, 3, 3), {})}, 120_000)


def test_a_queue_that_goes_away_is_folded_by_minute_too() -> None:
    table, line = LostWork(), LossKey("guaranteed", "root.a", "root.b")
    table.add(line, Lost(1, 1, 1), 60_000, {"gpu": 5})
    table.forget(["root.b"])
    folded = LossKey("guaranteed", "root.a", OTHERS)
    assert table.since(0) == ({folded: (Lost(1, 1, 1), {"gpu": 5})}, 0)
    assert table.amounts == {folded: {"gpu": 5}}
