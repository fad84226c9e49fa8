"""A round of claims reads no more asks than its budget can try, looks at no more groups than its share, and decides the same (G1, P3).

A round reads fewer claims of each leaf where many leaves claim.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from server.core.core import Core
from server.core.preemption import claim_chunks, due_claims, rounds
from server.core.preemption.claim_chunks import Claims
from server.core.preemption.deficits import Shortage
from server.core.wait_reasons import notices
from server.model.asks import AskSpec
from server.model.decisions import Decided, Decision, Noted, Placed
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PreemptionSettings,
    QueueSpec,
    ReservationSettings,
    UserLimit,
)
from server.model.resources import resource
from server.preemption.claims import candidate_pool
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import WaitingAsk
from server.state import snapshotting
from server.state.applications import Ask, Group
from server.state.partition import Partition
from server.state.queues import Queue
from tests.effort import cases

NOW = 1_800_000_000_000
DELAY_MS = 30_000
BUDGET = 50
LEAVES = ("a", "b", "c", "d")
SEEDS = range(cases(60))
PLAIN = PreemptionSettings()
"""The settings of a partition that says nothing."""
KINDS = (
    PLAIN,
    replace(PLAIN, trigger="after"),
    replace(PLAIN, entitlement="proportional"),
    replace(PLAIN, entitlement="proportional", demand_cap=False),
    replace(PLAIN, rounds_interval_ms=5_000),
)


VCORE = resource({"vcore": 1})


def cluster(
    nodes: int,
    settings: PreemptionSettings = PLAIN,
    *,
    reserves: bool = False,
    limits: tuple[UserLimit, ...] = (),
) -> Core:
    """Return a core with nodes of 4 cores and four queues, of which three have guarantees. The first one has limits of users."""
    tree = QueueSpec(
        "root",
        parent=True,
        submit_acl=Acl(everyone=True),
        children=(
            QueueSpec("a", guaranteed=resource({"vcore": 20_000}), limits=limits),
            QueueSpec("b", guaranteed=resource({"vcore": 12_000})),
            QueueSpec("c", guaranteed=resource({"vcore": 8_000})),
            QueueSpec("d"),
        ),
    )
    spec = PartitionSpec(
        "default",
        tree,
        reservations=ReservationSettings(enabled=reserves),
        preemption=settings,
    )
    core = Core(Configuration((spec,)))
    core.handle(ManagerRegistered("rm"), NOW)
    for at in range(nodes):
        core.handle(NodeAdded("rm", f"n{at}", resource({"vcore": 4_000})), NOW)
    for leaf in LEAVES:
        core.handle(ApplicationAdded("rm", f"app-{leaf}", f"root.{leaf}", user="ann"), NOW)
    return core


def ask(core: Core, key: str, leaf: str, spec: AskSpec, now: int) -> None:
    """Ask for one pod."""
    core.handle(AskAdded("rm", key, f"app-{leaf}", spec), now)


def ticks(core: Core, now: int, budget: int) -> Sequence[Decision]:
    """Return the decisions of an instant."""
    decided: list[Decision] = []
    more, number = True, 0
    while more:
        tick = core.tick(now, budget)
        decided += tick.decisions
        more = tick.more
        number += 1
        assert number < 5_000, "the ticks of an instant end"
    return decided


def full(
    nodes: int,
    settings: PreemptionSettings = PLAIN,
    size: int = 4_000,
    limits: tuple[UserLimit, ...] = (),
) -> Core:
    """Return a core whose nodes are full of pods of a queue without a guarantee."""
    core = cluster(nodes, settings, limits=limits)
    for at in range(nodes * 4_000 // size):
        ask(core, f"runs-{at}", "d", AskSpec(resource({"vcore": size})), NOW)
    ticks(core, NOW, 1_000)
    return core


def test_a_tick_reads_no_more_claims_of_a_leaf_than_its_budget_can_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = full(2)
    for at in range(20 * BUDGET):
        ask(core, f"ask-{at}", "a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    read = watched(monkeypatch)
    ticks(core, NOW + DELAY_MS, BUDGET)
    assert len(read) >= 20
    assert max(read) == BUDGET + 2


def test_a_tick_reads_few_claims_of_each_leaf_where_many_leaves_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tick reads no more than one claim of each leaf at first, and the next claims of a leaf when their turn comes."""
    core = full(2)
    for at in range(3 * BUDGET):
        ask(core, f"ask-{at}", LEAVES[at % 3], AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    read = watched(monkeypatch)
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", 2)
    ticks(core, NOW + DELAY_MS, BUDGET)
    assert len(read) >= 3
    assert max(read) == 3


def test_a_claim_behind_many_that_no_longer_may_claim_is_planned_before_those_of_other_leaves() -> (
    None
):
    """With `trigger: after` an ask that exceeds the guarantee of its leaf costs no step (G2)."""
    core = full(10, replace(PLAIN, trigger="after"))
    for at in range(10 * BUDGET):
        ask(core, f"large-{at}", "c", AskSpec(resource({"vcore": 8_001 + at})), NOW)
    ask(core, "small", "c", AskSpec(resource({"vcore": 4_000})), NOW)
    for at in range(20):
        ask(core, f"other-{at}", "b", AskSpec(resource({"vcore": 1_000 + at})), NOW + 1)
    ticks(core, NOW + 1, 1_000)
    decided = ticks(core, NOW + 1 + DELAY_MS, BUDGET)
    held = [one.ask.key for one in core.state.partitions["default"].decisions.pledges.values()]
    assert "small" in held
    assert held.index("small") == 0
    assert any(type(one) is Decided for one in decided)


def test_claims_of_many_leaves_are_read_when_the_leaves_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The budget is for one claim. The leaf that is furthest below its guarantee is read, and not the others."""
    core = full(2)
    for at, leaf in enumerate(("c", "b", "a")):
        ask(core, f"ask-{at}", leaf, AskSpec(resource({"vcore": 4_000})), NOW)
    ticks(core, NOW, 1_000)
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    monkeypatch.setattr(claim_chunks, "READ_MOST", 0)
    read = watched(monkeypatch)
    core.tick(NOW + DELAY_MS, 1)
    assert read == [1]
    assert [*core.state.partitions["default"].decisions.pledges] == ["ask-0"]
    ticks(core, NOW + DELAY_MS, 1)
    assert [*core.state.partitions["default"].decisions.pledges] == ["ask-0", "ask-1"]


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of claims in each snapshot."""
    read: list[int] = []
    take = snapshotting.take

    def counted(partition: Partition, now: int, *, due: snapshotting.Due) -> Snapshot:
        taken = take(partition, now, due=due)
        read.append(len(taken.claims))
        return taken

    monkeypatch.setattr(snapshotting, "take", counted)
    return read


@pytest.mark.parametrize("first", [1, 5, claim_chunks.FIRST_MOST])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_are_those_of_rounds_that_read_every_claim(
    seed: int, kind: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", first)
    few = story(seed, KINDS[kind])
    monkeypatch.setattr(claim_chunks, "Claims", AtOnce)
    assert few == story(seed, KINDS[kind])


class AtOnce(Claims):
    """The plain twin of `Claims`: every claim is in the snapshot, those refused earlier in the round, too."""

    def first(self) -> list[Ask]:
        """Return all claims."""
        return [*self.due]

    def further(self, _leaf: str) -> tuple[WaitingAsk, ...]:
        """Return no further claims."""
        return ()


def story(seed: int, settings: PreemptionSettings, budget: int = 0) -> list[list[str]]:
    """Return what a core decides at each instant while asks of many sizes come and pods end; without a budget, ticks have small ones."""
    chance = random.Random(seed)
    core, now = cluster(12, settings, reserves=chance.random() < 0.3), NOW
    running = dict[str, str]()
    for at in range(48):
        ask(core, f"runs-{at}", "d", AskSpec(resource({"vcore": 1_000})), now)
        running[f"runs-{at}"] = "app-d"
    found = [ticks(core, now, 100)]
    for at in range(30):
        now += chance.choice((0, 100, 1_000, 5_000, DELAY_MS))
        for number in range(chance.randrange(9)):
            size = chance.choice((500, 1_000, 2_500, 3_950, 9_000)) + chance.randrange(5)
            spec = AskSpec(resource({"vcore": size}), priority=chance.randrange(3))
            leaf = chance.choice(LEAVES)
            running[f"{at}-{number}"] = f"app-{leaf}"
            ask(core, f"{at}-{number}", leaf, spec, now)
        known = core.state.partitions["default"].asks
        placed = [key for key in running if key in known and known[key].node is not None]
        leaving = list(core.state.partitions["default"].decisions.leaving)
        ends = chance.sample(placed, min(len(placed), chance.randrange(3)))
        for key in dict.fromkeys((*ends, *leaving[: chance.randrange(4)])):
            core.handle(ReleaseRequested("rm", running.pop(key), key), now)
        found.append(ticks(core, now, budget or chance.randint(1, 6)))
    assert any(type(one) is Placed for some in found for one in some)
    return [[repr(one) for one in some] for some in found]


def test_a_tick_checks_no_more_groups_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search continues while further asks come, and the claims of the groups that it had found are tried."""
    share, checked = 4 * BUDGET, [0]
    is_stuck = due_claims.is_stuck

    def counted(group: Group) -> bool:
        checked[-1] += 1
        return is_stuck(group)

    core = full(2)
    for at in range(20 * BUDGET):
        ask(core, f"ask-{at}", "a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", share)
    monkeypatch.setattr(claim_chunks, "SHARE_MOST", share)
    monkeypatch.setattr(due_claims, "is_stuck", counted)
    refused = set[str]()
    for at in range(100):
        ask(core, f"more-{at}", "a", AskSpec(resource({"vcore": 3_000 - at})), NOW + DELAY_MS)
        tick = core.tick(NOW + DELAY_MS, BUDGET)
        refused |= {one.subject for one in tick.decisions if type(one) is Noted}
        checked.append(0)
    assert max(checked) <= share + BUDGET + 2
    assert len(refused) == 20 * BUDGET


@pytest.mark.parametrize("first", [1, claim_chunks.FIRST_MOST])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_tries_the_claims_of_a_look_over_several_ticks_in_the_same_order(
    seed: int, kind: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search itself takes no further tick here, so that the ticks of both stories have the same budgets."""
    every = story(seed, KINDS[kind])
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", first)
    monkeypatch.setattr(claim_chunks, "READ_MOST", 0 if first == 1 else 100)
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    assert unnumbered(story(seed, KINDS[kind])) == unnumbered(every)


@pytest.mark.parametrize("share", [1, 4, 15])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("seed", SEEDS)
def test_looks_of_several_ticks_decide_the_same_at_each_instant(
    seed: int, kind: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round has a budget for all of its claims. Reasons for waiting may be sent while a search continues."""
    whole = story(seed, KINDS[kind], budget=1_000)
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", share)
    monkeypatch.setattr(claim_chunks, "SHARE_MOST", share)
    monkeypatch.setattr(claim_chunks, "FIRST_MOST", 1 + seed % 3)
    monkeypatch.setattr(claim_chunks, "READ_MOST", 0 if seed % 2 else 100)
    several = story(seed, KINDS[kind], budget=1_000)
    assert without_reasons(several) == without_reasons(whole)


def without_reasons(found: list[list[str]]) -> list[list[str]]:
    return [
        [one for one in some if not one.startswith("AskStateChanged")] for some in unnumbered(found)
    ]


def unnumbered(found: list[list[str]]) -> list[list[str]]:
    """Return the decisions of each instant in the order of their text, without the numbers at the end of ids."""
    return [sorted(re.sub(r"(g-[0-9a-f]+)-[0-9]+", r"\1", one) for one in some) for some in found]


def test_rounds_of_the_stories_read_further_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    further = Claims.further

    def counted(claims: Claims, leaf: str) -> tuple[WaitingAsk, ...] | None:
        found = further(claims, leaf)
        read.append(len(found or ()))
        return found

    monkeypatch.setattr(Claims, "further", counted)
    for seed in range(10):
        story(seed, KINDS[seed % len(KINDS)])
    assert sum(map(bool, read)) >= 10


def test_groups_that_were_searched_are_searched_again_only_after_a_change_that_may_add_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asks that come and are placed add no claim of another group. A pod that ends may add claims of all groups.

    The search of all groups ends before the reasons of all groups are sent.
    """
    checked = [0]
    is_stuck = due_claims.is_stuck

    def counted(group: Group) -> bool:
        checked[-1] += 1
        return is_stuck(group)

    core = full(2)
    core.handle(NodeAdded("rm", "small", resource({"vcore": 1_000})), NOW)
    for at in range(20 * BUDGET):
        ask(core, f"ask-{at}", "a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", 1)
    monkeypatch.setattr(claim_chunks, "SHARE_MOST", BUDGET)
    monkeypatch.setattr(notices, "TELL_MAX", BUDGET // 2)
    monkeypatch.setattr(due_claims, "is_stuck", counted)
    ticks(core, NOW, 1_000)
    assert sum(checked) >= 20 * BUDGET
    assert max(checked) <= 20 * BUDGET
    checked.append(0)
    for at in range(20):
        ask(core, f"placed-{at}", "d", AskSpec(resource({"vcore": 1})), NOW)
        ticks(core, NOW, 1_000)
        ask(core, f"waits-{at}", "d", AskSpec(resource({"vcore": 9_000 + at})), NOW)
        ticks(core, NOW, 1_000)
    assert checked[-1] <= 40
    checked.append(0)
    core.handle(ReleaseRequested("rm", "app-d", "placed-0"), NOW)
    ticks(core, NOW, 1_000)
    assert checked[-1] >= 20 * BUDGET


def test_groups_that_did_not_wait_for_preemption_are_searched_again_in_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit of a user blocks these groups. They stay known for the next change, also while reasons are still sent."""
    core, checked, paths = full(2, limits=(UserLimit(("ann",), (), VCORE),)), [0], [0]
    is_stuck, is_open = due_claims.is_stuck, due_claims.is_open

    def counted(group: Group) -> bool:
        checked[-1] += 1
        return is_stuck(group)

    def seen(leaf: Queue) -> bool:
        paths[-1] += 1
        return is_open(leaf)

    for at in range(20 * BUDGET):
        ask(core, f"ask-{at}", "a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", 1)
    monkeypatch.setattr(claim_chunks, "SHARE_MOST", BUDGET)
    monkeypatch.setattr(notices, "TELL_MAX", BUDGET // 2)
    ticks(core, NOW, 10_000)
    monkeypatch.setattr(due_claims, "is_stuck", counted)
    monkeypatch.setattr(due_claims, "is_open", seen)
    ask(core, "waits", "d", AskSpec(resource({"vcore": 9_000})), NOW)
    while core.tick(NOW, 1_000).more:
        checked.append(0)
        paths.append(0)
    assert sum(checked) >= 20 * BUDGET
    assert max(checked) <= BUDGET
    assert max(paths) <= 3 * BUDGET


def test_queues_that_have_their_guarantee_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """All asks of a leaf are left out while no queue on its path is below its guarantee."""
    core = full(10, size=1_000)
    for at in range(8):
        core.handle(NodeAdded("rm", f"more-{at}", resource({"vcore": 4_000})), NOW)
    for at in range(8):
        ask(core, f"has-{at}", "c", AskSpec(resource({"vcore": 1_000})), NOW)
    for at in range(6):
        ask(core, f"lacks-{at}", "b", AskSpec(resource({"vcore": 1_000})), NOW)
    ticks(core, NOW, 1_000)
    for leaf in "abcd":
        for at in range(BUDGET):
            ask(core, f"waits-{leaf}-{at}", leaf, AskSpec(resource({"vcore": 5_000 + at})), NOW)
    searched: list[str] = []
    of_group = due_claims.of_group

    def counted(partition: Partition, group: Group, shortage: Shortage, now: int) -> Iterator[Ask]:
        searched.append(group.application.application_id)
        return of_group(partition, group, shortage, now)

    monkeypatch.setattr(due_claims, "of_group", counted)
    ticks(core, NOW + DELAY_MS, 1_000)
    assert set(searched) == {"app-a", "app-b"}
    searched.clear()
    monkeypatch.setattr(claim_chunks, "SEARCH_MOST", 1)
    core.handle(ReleaseRequested("rm", "app-d", "runs-0"), NOW + DELAY_MS)
    ticks(core, NOW + DELAY_MS, 1_000)
    assert set(searched) == {"app-a", "app-b"}


@pytest.mark.parametrize("seed", range(cases(10)))
def test_claims_cost_steps_for_the_leaves_that_they_examine(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of claims only divide a round among other ticks: the decisions of each instant are the same."""
    kind = KINDS[seed % len(KINDS)]
    cheap = story(seed, kind, budget=4)
    monkeypatch.setattr(candidate_pool, "LEAVES_A_STEP", 1)
    tried = attempts(monkeypatch)
    costly = story(seed, kind, budget=4)
    assert without_reasons(cheap) == without_reasons(costly)
    assert any(tried)


@pytest.mark.parametrize(("leaves", "most"), [(1, 2), (100, 4)])
def test_a_tick_tries_fewer_claims_where_each_examines_many_leaves(
    leaves: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods run in one leaf. A claim without a node costs one step, and one for every ``leaves`` leaves."""
    core = full(8)
    for at in range(6):
        ask(core, f"a-{at}", "a", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    ticks(core, NOW, 1_000)
    monkeypatch.setattr(candidate_pool, "LEAVES_A_STEP", leaves)
    tried = attempts(monkeypatch)
    core.tick(NOW + DELAY_MS, 4)
    assert tried == [most]


def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of intents that each round tries."""
    tried: list[int] = []
    run, attempt = rounds.decide, rounds._attempt

    def decide(*given: object, **named: object) -> None:
        tried.append(0)
        run(*given, **named)  # type: ignore[arg-type]

    def counted(*given: object) -> object:
        tried[-1] += 1
        return attempt(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(rounds, "decide", decide)
    monkeypatch.setattr(rounds, "_attempt", counted)
    return tried
