"""The monitor of preemption thrashing: wrong rules are stopped, correct ones never, and a stop is reported and ends."""

from typing import Any

import pytest

from server.core.preemption import thrash_guard
from server.core.preemption.deficits import Shortage
from server.core.queries import doctor, verdicts
from server.model.events import ConfigurationApplied
from server.model.thrashing import FROZEN_MS, STRIKES_MAX, Pair, TemplateInQueue
from server.preemption import entitlement
from server.preemption.claims import eligibility, margins
from server.preemption.policy import Plan, PlannedPledge, Release, Rule
from server.preemption.rules import gate
from server.preemption.trial import Trial
from server.state import snapshotting
from server.state import thrashing as tables
from tests.preemption.replicas import TURN_MS, Replicas, configured

TWO: list[dict[str, Any]] = [
    {"name": "a", "resources": {"guaranteed": {"memory": 8}}},
    {"name": "b", "resources": {"guaranteed": {"memory": 8}}},
]
PARENT: list[dict[str, Any]] = [
    {
        "name": "p",
        "parent": True,
        "resources": {"guaranteed": {"memory": 12}},
        "queues": [{"name": "a"}, {"name": "b"}],
    }
]


def contested() -> Replicas:
    """Both are guaranteed more than there is; the one that waits is below its guarantee, as is the other."""
    found = Replicas(TWO)
    found.say("node n1 memory=10", "app x root.a", "app y root.b")
    found.say("existing x1..x2 x n1 memory=2", "existing y1..y3 y n1 memory=2")
    found.say("ask x3 x memory=2 created=-60000")
    return found


def swapping() -> Replicas:
    """Both children stand below their parent's guarantee; the one runs all that fits, the other waits."""
    found = Replicas(PARENT)
    found.say("node n1 memory=4", "app x root.p.a", "app y root.p.b")
    found.say("existing x1..x2 x n1 memory=2", "ask y1 y memory=2 created=-60000")
    return found


def small() -> Replicas:
    """Return a queue that is guaranteed one pod, beside one that has all twenty."""
    found = Replicas([{"name": "a", "resources": {"guaranteed": {"memory": 2}}}, {"name": "b"}])
    found.say("node n1 memory=40", "app x root.a", "app y root.b", "existing y1..y20 y n1 memory=2")
    return found


def asking(life: Replicas, count: int) -> None:
    """In each turn one more of the small queue asks."""
    for turn in range(count):
        life.say(f"ask x{turn} x memory=2 created=-60000")
        life.turns(1)


def nothing(trial: Trial) -> list[tuple[int, ...]]:
    """Return an entitlement to nothing for each queue."""
    return [(0,) * len(trial.snapshot.types) for _ in trial.snapshot.queues]


def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantees protect nobody, and the gate does not notice."""
    monkeypatch.setattr(eligibility, "floor", lambda trial, _path: (0,) * len(trial.snapshot.types))
    monkeypatch.setattr(margins, "_entitled", nothing)
    monkeypatch.setattr(gate, "PLAN_RULES", ())


def no_outside_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Victims may stand below the queue whose deficit lets the ask claim (G2 broken)."""
    monkeypatch.setattr(eligibility.ClaimEligibility, "_is_withheld", lambda *_: False)
    monkeypatch.setattr(gate, "PLAN_RULES", ())


def eff_for_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what is promised to a queue out of what it holds."""
    monkeypatch.setattr(Shortage, "lacking", lambda *_: 1_000)
    monkeypatch.setattr(Shortage, "may_lack", lambda *_: True)
    monkeypatch.setattr(Trial, "held", Trial.eff)


def no_trigger_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a queue that has its guarantee claim all the same (rule 4 broken)."""
    monkeypatch.setattr(Shortage, "lacking", lambda *_: 1_000)
    monkeypatch.setattr(Shortage, "may_lack", lambda *_: True)
    monkeypatch.setattr(entitlement, "_is_open", lambda *_: True)
    monkeypatch.setattr(gate, "PLAN_RULES", ())


def test_two_queues_that_push_each_other_below_their_guarantees_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_floor(monkeypatch)
    life = contested()
    life.turns(30)
    assert life.thrashing
    after = len(life.claims)
    life.turns(10)
    assert len(life.claims) == after, "the claims of frozen pairs go on"
    assert after <= 4 * STRIKES_MAX, f"{after} claims before the thrashing was stopped"


def test_two_children_that_swap_pods_under_their_parents_guarantee_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_outside_rule(monkeypatch)
    life = swapping()
    life.turns(30)
    assert life.thrashing
    assert {one.subject for one in life.thrashing} <= {"root.p.a", "root.p.b"}


def test_a_queue_whose_promises_do_not_count_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pending ask of a starving queue takes a victim of its own (held, see G2)."""
    eff_for_held(monkeypatch)
    monkeypatch.setattr(gate, "PLAN_RULES", ())
    life = small()
    life.confirming = False
    asking(life, 20)
    assert life.thrashing
    assert len(life.claims) <= 1 + STRIKES_MAX


def test_a_queue_that_has_its_guarantee_and_claims_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_trigger_rule(monkeypatch)
    life = small()
    asking(life, 20)
    assert life.thrashing
    assert len(life.claims) == 1 + STRIKES_MAX


def test_under_the_right_rules_none_of_these_ever_strikes() -> None:
    held = small()
    held.confirming = False
    for life, victims in ((contested(), 0), (swapping(), 0), (small(), 1), (held, 1)):
        asks = 20 if victims else 0
        asking(life, asks)
        life.turns(40 - asks)
        told = [one.summary for one in life.claims]
        assert sum(len(one.victims) for one in life.claims) == victims, told
        assert not life.thrashing
        assert not life.core.state.partitions["default"].thrashing.strikes


def test_a_queue_that_grows_to_its_guarantee_is_never_stopped() -> None:
    life = Replicas([{"name": "a", "resources": {"guaranteed": {"memory": 80}}}, {"name": "b"}])
    life.say("node n1 memory=80", "app x root.a", "app y root.b", "existing y1..y40 y n1 memory=2")
    for turn in range(40):
        life.say(f"ask x{turn} x memory=2 created=-60000")
        life.turns(1)
    assert len(life.claims) == 40
    assert not life.core.state.partitions["default"].thrashing.strikes


def test_a_queue_whose_pods_end_claims_again_and_is_never_stopped() -> None:
    """Two queues with equal templates thrash as long as pods of the one end and pods of the other take their place."""
    life = Replicas([{"name": "a", "resources": {"guaranteed": {"memory": 4}}}, {"name": "b"}])
    life.say("node n1 memory=8", "app x root.a", "app y root.b", "existing y1..y4 y n1 memory=2")
    for turn in range(0, 40, 2):
        life.say(f"ask x{turn}..x{turn + 1} x memory=2 created=-60000")
        life.turns(2)
        life.say(f"release x{turn}", f"release x{turn + 1}")
        life.turns(1)  # those that went come back into the freed capacity
    assert len(life.claims) == 40
    assert not life.core.state.partitions["default"].thrashing.strikes


def thrashing_life(monkeypatch: pytest.MonkeyPatch) -> Replicas:
    """Return a cluster in which a pair of queues was stopped."""
    no_trigger_rule(monkeypatch)
    life = small()
    asking(life, 8)
    assert life.thrashing
    return life


def test_what_is_frozen_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    life = thrashing_life(monkeypatch)
    found = verdicts.verdict(life.core, "x7", life.now)
    assert found is not None
    assert found.law == "frozen-pair"
    assert "frozen-pair root.b" in [f"{one.law} {one.queue}" for one in found.spared]
    told = [one for one in doctor.doctor(life.core, life.now) if one.code == "preemption-storm"]
    assert [one.subject for one in told] == ["queue root.a"]
    assert "root.b" in told[0].message


def test_only_the_pair_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another template of the queue still claims, and the same one takes from others."""
    life = thrashing_life(monkeypatch)
    before = len(life.claims)
    life.say("ask other x memory=1 created=-60000")
    life.turns(1)
    assert [one.beneficiaries[0].key for one in life.claims[before:]] == ["other"]


def test_time_ends_a_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    life = thrashing_life(monkeypatch)
    before = len(life.claims)
    life.turns(FROZEN_MS // TURN_MS - 8)
    assert len(life.claims) == before
    life.turns(10)
    assert len(life.claims) > before
    assert len(life.thrashing) >= 1


def test_another_configuration_ends_a_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    life = thrashing_life(monkeypatch)
    queues: list[dict[str, Any]] = [
        {"name": "a", "resources": {"guaranteed": {"memory": 2}}},
        {"name": "b"},
    ]
    life.core.handle(ConfigurationApplied(configured(queues), "test"), life.now)
    assert not life.core.state.partitions["default"].thrashing.frozen


@pytest.mark.parametrize("line", ["node n2 memory=2", "resize n1 memory=50", "remove n1"])
def test_another_node_ends_a_freeze(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    life = thrashing_life(monkeypatch)
    life.say(line)
    assert not life.core.state.partitions["default"].thrashing.frozen


def test_a_node_that_is_refused_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    life = thrashing_life(monkeypatch)
    before = life.core.digest()
    life.say("node n1 memory=40")
    assert life.core.digest() == before


def test_a_partition_that_only_observes_is_not_watched() -> None:
    """Nobody goes, so that every deficit stays."""
    queues: list[dict[str, Any]] = [
        {"name": "a", "resources": {"guaranteed": {"memory": 20}}},
        {"name": "b"},
    ]
    life = Replicas(queues, preemption={"observeonly": True})
    life.say("node n1 memory=40", "app x root.a", "app y root.b", "existing y1..y20 y n1 memory=2")
    for turn in range(4 * STRIKES_MAX):
        life.say(f"ask x{turn} x memory=2 priority={turn} created=-60000")
        life.turns(1)
    assert len(life.claims) > STRIKES_MAX
    assert not life.core.state.partitions["default"].thrashing.strikes


def test_the_tables_are_bounded() -> None:
    known = tables.ThrashingTables()
    for number in range(tables.ENTRIES_MAX + 10):
        pair = Pair(TemplateInQueue("root.a"), TemplateInQueue(f"root.b{number}"))
        tables.keep(known.strikes, pair, tables.Strikes(1, number))
    assert len(known.strikes) == tables.ENTRIES_MAX
    assert Pair(TemplateInQueue("root.a"), TemplateInQueue("root.b9")) not in known.strikes
    assert Pair(TemplateInQueue("root.a"), TemplateInQueue("root.b10")) in known.strikes


def test_the_digest_knows_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    life = thrashing_life(monkeypatch)
    partition, before = life.core.state.partitions["default"], life.core.digest()
    pair, one = next(iter(partition.thrashing.frozen.items()))
    partition.thrashing.frozen[pair] = one._replace(until_ms=one.until_ms + 1)
    assert life.core.digest() != before


def test_a_pod_that_takes_the_place_of_one_that_took_its_place_is_stopped() -> None:
    """Inside one queue, where no guarantee decides, preemptor and victims are alike (I2)."""
    life = Replicas([{"name": "b"}])
    life.say("node n1 memory=2", "app y root.b", "existing y1 y n1 memory=2", "ask y2 y memory=2")
    partition = life.core.state.partitions["default"]
    snapshot = snapshotting.take(
        partition, life.now, due=snapshotting.Due(claiming=[partition.asks["y2"]])
    )
    pledge = PlannedPledge(snapshot.claims[0], 0, "n1")
    row = partition.asks["y1"].row
    plan = Plan("in-queue", (pledge,), (Release(row, "y1", "root.b", "lower priority"),))
    notes = [thrash_guard.watch(partition, Trial(snapshot), plan) for _ in range(STRIKES_MAX)]
    assert [len(one) for one in notes] == [0] * (STRIKES_MAX - 1) + [1]
    refusal = thrash_guard.refusal(partition.thrashing.active(life.now), snapshot, plan)
    assert refusal is not None
    assert refusal.rule is Rule.FROZEN
