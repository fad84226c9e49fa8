"""Shadows in random runs: they change nothing, equal settings give equal decisions, and memory is limited."""

import random
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from server.core.core import Core
from server.core.queries import shadow_records
from server.core.shadow import turn
from server.model.asks import AskSpec
from server.model.decisions import ShadowDecided
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
)
from server.model.quota import Configuration
from server.model.shadow import Difference, is_on, settings_of
from server.state import shadow as partition
from tests.preemption.replicas import Replicas
from tests.preemption.shadows import Shadowed, with_shadow
from tests.record.preempting import Driver, configuration
from tests.record.values import START

STEPS = 60
LIVE: tuple[dict[str, Any], ...] = (
    {},
    {"observe_only": True},
    {"policies": ()},
    {"rounds_interval_ms": 3_000, "pace_permyriad": 300, "natural_permyriad": 2_000},
    {"entitlement": "proportional"},
    {"entitlement": "proportional", "demand_cap": False, "trigger": "after"},
    {"policies": ("required-node", "guaranteed", "job", "in-queue")},
)
SHADOWS: tuple[dict[str, Any], ...] = (
    {"policies": ()},
    {"policies": ("required-node", "guaranteed"), "backoff_ms": 500},
    {"equal_priority": "never", "deadzone_permyriad": 2_000, "natural_permyriad": 3_000},
    {"pace_permyriad": 200, "rounds_interval_ms": 5_000},
    {"entitlement": "proportional"},
    {"entitlement": "proportional", "demand_cap": False, "trigger": "after"},
    {"disruption_budgets": "respect", "order_claim": ("size",)},
    {"policies": ("job", "in-queue")},
    {"entitlement": "guaranteed", "demand_cap": True, "trigger": "before"},
)
CLAIMS: dict[str, Any] = {"policies": ("required-node", "guaranteed")}
"""What a shadow plans of its own where the partition lists nothing."""
SEEDS = range(3, 5)


def life(seed: int, shadow: dict[str, Any], live: dict[str, Any], steps: int = STEPS) -> Shadowed:
    """One life, asked whenever the core wants to be asked."""
    found = Shadowed(configuration(40), shadow, **live)
    Driver(seed, found).live(steps)
    return found


@pytest.mark.parametrize("live", LIVE, ids=str)
def test_a_shadow_changes_nothing(live: dict[str, Any]) -> None:
    """The live side decides the same at the same instants, byte for byte, whatever shadows say beside it."""
    told = 0
    for seed in SEEDS:
        plain = life(seed, {}, live)
        assert not plain.beside
        for one in random.Random(f"{seed} {live}").sample(SHADOWS, 2):
            shadow = one if live.get("policies") != () else {**CLAIMS, **one}
            found = life(seed, shadow, live)
            assert found.live == plain.live, f"seed {seed}, live {live}, shadow {shadow}"
            told += len(found.beside)
    assert told, "no shadow said anything"


def test_they_do_say_something_else() -> None:
    """Else the test above would prove nothing."""
    told = Counter(
        one.difference
        for shadow in SHADOWS
        for one in life(2, shadow, {"backoff_ms": 2_000}).beside
    )
    told += Counter(
        one.difference for one in life(4, SHADOWS[4], {"policies": ("required-node",)}).beside
    )
    assert {Difference.SAME, Difference.ONLY_LIVE, Difference.ONLY_SHADOW} <= told.keys()


class Founded(Shadowed):
    """A life under one configuration: another one would begin another shadow, which tries at once."""

    def handle(self, event: Event, now: int) -> Any:
        """One event, unless it is another configuration."""
        return [] if isinstance(event, ConfigurationApplied) else super().handle(event, now)


@pytest.mark.parametrize("live", [one for one in LIVE if one.get("policies") != ()], ids=str)
def test_the_same_settings_decide_the_same(live: dict[str, Any]) -> None:
    """A shadow that differs in nothing never differs: both sides plan by the same code on the same facts."""
    told = 0
    for seed in range(1, 4):
        found = Founded(configuration(40), {"backoff_ms": 2_000}, **live)
        Driver(seed, found).live(STEPS)
        others = [one for one in found.beside if one.difference is not Difference.SAME]
        assert not others, f"seed {seed}, live {live}: {others[:2]}"
        told += len(found.beside)
    assert told >= 5, "the shadow said next to nothing"


def test_fields_without_effect_make_no_shadow() -> None:
    live = replace(configuration(40).partitions[0].preemption, shadow={})
    idle = replace(live, shadow={"expiry_ms": 5, "observe_only": True, "quota_enabled": False})
    assert not is_on(idle)
    assert is_on(replace(live, shadow={"expiry_ms": 5, "trigger": "after"}))
    assert settings_of(replace(live, shadow={"expiry_ms": 5, "trigger": "after"})) == replace(
        live, trigger="after"
    )


def test_a_shadow_pauses_while_more_kinds_of_asks_wait_than_it_examines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the live side decides then, as without a shadow, and each difference says why."""
    plain = life(3, {}, {})
    monkeypatch.setattr(turn, "SEARCH_MOST", 0)
    found = life(3, SHADOWS[1], {})
    assert found.live == plain.live
    assert {one.difference for one in found.beside} == {Difference.ONLY_LIVE}
    assert {one.because for one in found.beside} == {
        "it pauses while asks of more than 0 kinds wait"
    }


# Memory -------------------------------------------------------------------------------------------------------------


def starving(asks: int, pods: int) -> Core:
    """Return a queue that is guaranteed everything, beside one that has it; only the shadow would evict."""
    known = with_shadow(configuration(40), {"policies": ("guaranteed",)}, policies=())
    core = Core(known)
    small, owed = AskSpec((("vcore", 100),)), AskSpec((("vcore", 100),), priority=9)
    founding: list[Event] = [
        ManagerRegistered("rm"),
        NodeAdded("rm", "n0", (("vcore", 100 * pods),)),
        ApplicationAdded("rm", "low", "root.low"),
        ApplicationAdded("rm", "high", "root.high"),
        *(AllocationAdded("rm", f"low-{one}", "low", "n0", small) for one in range(pods)),
        *(
            AskAdded("rm", f"high-{one}", "high", owed, created_ms=START - 60_000)
            for one in range(asks)
        ),
    ]
    for event in founding:
        core.handle(event, START)
    return core


def run(core: Core, now: int, budget: int = 20_000) -> list[ShadowDecided]:
    """Everything that its shadow says at this instant."""
    told: list[ShadowDecided] = []
    more = True
    while more:
        tick = core.tick(now, budget)
        core.validate()
        told += [one for one in tick.decisions if isinstance(one, ShadowDecided)]
        more = tick.more
    return told


def test_what_stands_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.core.shadow.turn.HELD_MAX", 5)
    core = starving(20, 40)
    assert len(run(core, START, budget=8)) <= 5 + 8
    held = core.state.partitions["default"].shadow
    assert held is not None
    before = len(held.held)
    assert before >= 5
    assert not run(core, START + 60_000)
    assert len(held.held) == before


def test_records_are_bounded_and_those_that_ended_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "RECORDS_MAX", 6)
    core = starving(20, 40)
    assert len(run(core, START)) == 20
    (report,) = shadow_records.reports(core)
    assert len(report.records) == 6
    assert report.forgotten == 14
    assert report.told == {Difference.ONLY_SHADOW: 20}
    assert report.sums["guaranteed", "shadow"].decisions == 20
    assert report.sums["guaranteed", "shadow"].lost.victims == 20


def test_a_turn_that_its_budget_cuts_off_goes_on_and_uses_nobody_twice() -> None:
    whole, cut = starving(30, 60), starving(30, 60)
    said, parts = run(whole, START), run(cut, START, budget=7)
    assert [one.record.key for one in parts] == [one.record.key for one in said]
    victims = [one.key for told in parts for one in told.record.shadow.victims]  # type: ignore[union-attr]
    assert len(set(victims)) == len(victims) == 30


def test_a_partition_that_stopped_asks_for_no_more_ticks() -> None:
    """The turn of the shadow was cut off, and it gets no other one."""
    core = starving(30, 60)
    assert core.tick(START, budget=7).more
    core.handle(ConfigurationApplied(renamed(configuration(40)), "file"), START)
    assert not core.tick(START).more
    assert (
        core.next_due() == START + 600_000
    )  # the bound of the reservation that it had, and nothing before
    assert not core.tick(START + 60_000).more
    assert not core.tick(START + 600_000).more
    assert core.next_due() is None


def test_an_equal_configuration_goes_on_with_the_shadow_and_another_one_does_not() -> None:
    core = starving(30, 60)
    core.tick(START)
    partition = core.state.partitions["default"]
    before = partition.shadow
    assert before is not None
    assert before.since_ms == START
    core.handle(ConfigurationApplied(deepcopy(core.state.configuration), "again"), START + 1_000)
    core.tick(START + 1_000)
    assert partition.shadow is before
    other = core.state.configuration.partitions[0]
    changed = replace(other, preemption=replace(other.preemption, backoff_ms=1_234))
    core.handle(ConfigurationApplied(Configuration((changed,)), "other"), START + 2_000)
    core.tick(START + 2_000)
    assert partition.shadow is not None
    assert partition.shadow.since_ms == START + 2_000


def renamed(known: Configuration) -> Configuration:
    """Return the configuration for a partition of another name."""
    return replace(known, partitions=(replace(known.partitions[0], name="other"),))


def test_what_it_says_again_is_nothing() -> None:
    core = starving(5, 10)
    assert len(run(core, START)) == 5
    for number in range(1, 6):
        core.handle(NodeAdded("rm", f"tiny-{number}", (("vcore", 1),)), START + number)
        assert not run(core, START + number)


def test_what_stands_for_a_job_stands() -> None:
    """The rules are asked of the job again, and it is not replanned (J8)."""
    life = Replicas(
        [{"name": "a", "resources": {"guaranteed": {"memory": 50}}}, {"name": "b"}],
        preemption={"policies": [], "shadow": {"policies": ["job"]}},
    )
    life.say("node n1 memory=20", "app x root.a", "app y root.b", "existing y1..y2 y n1 memory=10")
    life.say("ask j1..j2 x memory=10 job=train/2")
    for _ in range(4):
        life.tick()
        life.now += 2_000
        life.say(f"node tiny{life.now} vcore=1")
    (report,) = shadow_records.reports(life.core)
    assert report.sums["job", "shadow"].decisions == 1


def test_only_asking_changes_nothing() -> None:
    core = starving(3, 6)
    run(core, START)
    before = core.digest()
    found = shadow_records.would(core, "high-0", START)
    assert found is not None
    assert not found.law
    assert shadow_records.would(core, "nobody", START) is None
    core.handle(AskAdded("rm", "late", "high", AskSpec((("vcore", 100),))), START)
    before = core.digest()
    late = shadow_records.would(core, "late", START)
    assert late is not None
    assert late.law == "preemption-delay"
    assert core.digest() == before
    core.validate()


def test_a_partition_without_a_shadow_remembers_nothing() -> None:
    core = Core(with_shadow(configuration(40), {}))
    core.handle(ManagerRegistered("rm"), START)
    run(core, START)
    assert core.state.partitions["default"].shadow is None
    assert not shadow_records.reports(core)
