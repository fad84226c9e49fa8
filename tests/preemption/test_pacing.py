"""Rounds over several ticks, what a core forgets, and the order among equal asks (P1, P2, P4, P5)."""

import random
from typing import Final, get_args

import pytest

from server.config import load
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.comparing import FIXED, PROPORTIONAL, TAILS, Key
from server.model.decisions import Decided, Decision, Released, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.quota import PreemptionSettings
from server.model.resources import resource
from server.preemption import victim_order

RM: Final = "rm"
START: Final = 1_800_000_000_000
QUEUES: Final = """\
partitions:
  - name: default
    preemption: {PREEMPTION}
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {name: a, resources: {guaranteed: {memory: 100}}, properties: {preemption.delay: 1ms}}
          - {name: b}
"""
SIZE: Final = AskSpec(resource({"memory": 10}))


def full(preemption: str, pods: int = 10) -> Core:
    """One node that is full with pods of b, and an application of a."""
    found, problems = load(QUEUES.replace("{PREEMPTION}", preemption))
    assert found is not None, problems
    core = Core(found)
    core.handle(ManagerRegistered(RM), START)
    core.handle(NodeAdded(RM, "n1", resource({"memory": 10 * pods})), START)
    core.handle(ApplicationAdded(RM, "x", "root.a"), START)
    core.handle(ApplicationAdded(RM, "y", "root.b"), START)
    for at in range(pods):
        core.handle(AllocationAdded(RM, f"y{at}", "y", "n1", SIZE, created_ms=START - at), START)
    return core


def ask(core: Core, key: str, now: int, created: int = START - 60_000) -> None:
    core.handle(AskAdded(RM, key, "x", SIZE, created_ms=created), now)


def served(decisions: list[Decision]) -> list[str]:
    """Return the preemptors of evictions, in order."""
    return [one.beneficiary for one in decisions if isinstance(one, Released)]


def slowly(core: Core, now: int, budget: int, ticks: int = 40) -> list[str]:
    """Run ticks of a small budget, a millisecond apart, while there is more to do; return the preemptors."""
    found: list[str] = []
    for at in range(ticks):
        tick = core.tick(now + at, budget)
        found += served(tick.decisions)
        if not tick.more:
            break
    return found


def began_ms(core: Core) -> int:
    """When the last round began."""
    found = core.state.partitions["default"].round.began_ms
    assert found is not None
    return found


def test_a_round_that_its_steps_cut_off_goes_on_and_takes_nobody_in() -> None:
    core = full("{rounds: {interval: 10s}}")
    for at in range(4):
        ask(core, f"x{at}", START)
    first = slowly(core, START, budget=2, ticks=2)
    assert 0 < len(first) < 4
    ask(core, "late", START + 2)
    assert first + slowly(core, START + 2, budget=2) == ["x0", "x1", "x2", "x3"]
    following = began_ms(core) + 10_000
    assert core.next_due() in {following, START + 2_000}
    core.tick(START + 2_000)
    assert core.next_due() == following
    assert served(core.tick(following - 1).decisions) == []
    assert served(core.tick(following).decisions) == ["late"]


def test_a_cut_off_round_has_one_budget() -> None:
    core = full("{rounds: {interval: 10s}, pace: {perround: 30%}}")
    for at in range(6):
        ask(core, f"x{at}", START)
    assert slowly(core, START, budget=2) == ["x0", "x1", "x2"]
    assert slowly(core, began_ms(core) + 10_000, budget=2) == ["x3", "x4", "x5"]


def test_a_round_goes_on_with_its_budget_when_the_books_moved() -> None:
    core = full("{rounds: {interval: 10s}, pace: {perround: 20%}}")
    for at in range(4):
        ask(core, f"x{at}", START)
    found = slowly(core, START, budget=2, ticks=1)
    assert found == ["x0"]
    gone = Termination.PREEMPTED_BY_SCHEDULER
    core.handle(ReleaseRequested(RM, "y", "y0", termination=gone), START + 1)
    assert found + slowly(core, START + 1, budget=2) == ["x0", "x1"]


def test_a_cut_off_round_takes_a_share_of_what_there_was_when_it_began() -> None:
    """P9: 30 of 100, 21 of the 70 that are left, and of 49 the first decision alone."""
    core = full("{rounds: {interval: 10s}, pace: {perround: 0, naturaltermination: 30%}}")
    for at in range(8):
        ask(core, f"x{at}", START)
    assert slowly(core, START, budget=2) == ["x0", "x1", "x2"]
    assert slowly(core, began_ms(core) + 10_000, budget=2) == ["x3", "x4"]
    assert slowly(core, began_ms(core) + 10_000, budget=2) == ["x5"]


def test_what_a_veto_has_planned_anew_belongs_to_the_share_of_its_round() -> None:
    """P9: the vetoed pod stays counted, so that the third one waits for the next round."""
    core = full("{rounds: {interval: 10s}, pace: {perround: 0, naturaltermination: 20%}}")
    for at in range(4):
        ask(core, f"x{at}", START)
    first = core.tick(START).decisions
    assert served(first) == ["x0", "x1"]
    gone = next(one for one in first if isinstance(one, Released))
    core.handle(VictimVetoed(RM, gone.key, gone.decision_id, "a budget"), START + 1)
    assert served(core.tick(START + 1).decisions) == []
    assert served(core.tick(START + 10_000).decisions) == ["x2"]


def test_a_core_that_was_restarted_has_forgotten_its_rounds() -> None:
    preemption = "{rounds: {interval: 1m}, pace: {perround: 10%, window: 1h}}"
    for core in (full(preemption), full(preemption)):
        ask(core, "x1", START)
        ask(core, "x2", START)
        assert served(core.tick(START + 1_000).decisions) == ["x1"]
        assert served(core.tick(START + 2_000).decisions) == []


def test_the_end_of_a_window_is_sharp() -> None:
    core = full("{rounds: {interval: 1s}, pace: {perround: 20%, window: 3s}}")
    for at in range(9):
        ask(core, f"x{at}", START)
    found = [served(core.tick(START + at).decisions) for at in range(0, 6_001, 1_000)]
    assert found[:4] == [["x0", "x1"], ["x2"], ["x3"], ["x4"]]
    assert [len(each) for each in found[4:]] == [1, 1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_equal_asks_have_their_turn_by_missed_opportunities_then_age(seed: int) -> None:
    """Also where they come in disorder, in any order of ages, with passes of placement in between."""
    chance = random.Random(seed)
    core = full("{rounds: {interval: 1s}, pace: {perround: 1%}}", pods=12)
    core.handle(NodeDrained(RM, "n1"), START)
    order: list[tuple[int, int, int, str]] = []
    cycle = 0
    for at in range(8):
        created = START - 60_000 - chance.randint(0, 3) * 1_000
        ask(core, f"x{at}", START + at, created)
        order.append((cycle, created, at, f"x{at}"))
        if chance.random() < 0.4:
            core.tick(START + at)
            cycle += 1
    core.handle(NodeEnabled(RM, "n1"), START + 10)
    found = [
        key
        for second in range(1, 30)
        for key in served(core.tick(START + 20_000 + second * 1_000).decisions)
    ]
    assert found == [key for *_, key in sorted(order)], f"seed {seed}"


def test_an_observed_decision_is_remembered_no_longer_than_its_ask() -> None:
    core = full("{observeonly: true, backoff: 1ms}")
    for at in range(200):
        now = START + 10 * at
        ask(core, f"x{at}", now)
        decisions = core.tick(now).decisions
        assert sum(isinstance(one, Decided) for one in decisions) == 1
        core.handle(ReleaseRequested(RM, "x", f"x{at}"), now + 5)
        core.tick(now + 5)
    assert len(core.state.partitions["default"].round.observed) < 20


# Words of the comparator ----------------------------------------------------------------------------------------


def test_every_list_is_made_of_known_words_and_begins_with_what_is_fixed() -> None:
    settings = PreemptionSettings(order_claim=("fit",), order_required_node=("lost-work",))
    assert victim_order.order(settings, "claim") == ("protection", "originator", "priority", "fit")
    assert victim_order.order(settings, "required-node") == ("kind", "priority", "lost-work")
    for what, fixed in FIXED.items():
        assert victim_order.order(PreemptionSettings(), what) == (*fixed, *TAILS[what])
        assert {*fixed, *TAILS[what]} <= {*get_args(Key)}


def test_claims_in_proportion_spare_what_runs_longest() -> None:
    settings = PreemptionSettings(entitlement="proportional")
    assert victim_order.tail(settings, "claim") == PROPORTIONAL == ("not-running", "running-time")
    assert victim_order.tail(settings, "quota") == ("age",)


def test_the_words_of_the_configuration_are_those_of_the_comparator() -> None:
    for what, fixed in FIXED.items():
        free = [key for key in get_args(Key) if key not in fixed]
        text = f"{{order: {{{what}: [{', '.join(free)}]}}}}"
        found, problems = load(QUEUES.replace("{PREEMPTION}", text))
        assert found is not None, problems
        settings = found.partitions[0].preemption
        assert victim_order.tail(settings, what) == tuple(free)
