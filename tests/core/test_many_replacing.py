"""A tick looks at a part of the groups for asks that replace others and for asks that count as gangs, and decides the same (O6, I5, J4)."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from server.core.core import Core
from server.core.preemption import beside_claims, due_gangs
from server.model.asks import AskSpec
from server.model.decisions import AskStateChanged, Decided, Decision, Noted, Placed
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.policies import GUARANTEED, IN_QUEUE, JOB
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PreemptionSettings,
    QueueSpec,
    ReservationSettings,
)
from server.model.resources import resource
from tests.effort import cases

NOW = 1_800_000_000_000
DELAY_MS = 30_000
LOTS = 1_000
SEEDS = range(cases(60))
LEAVES = ("a", "b")
REPLACING = PreemptionSettings(policies=(IN_QUEUE.name,))
KINDS = {
    "in-queue": REPLACING,
    "guaranteed and in-queue": PreemptionSettings(policies=(GUARANTEED.name, IN_QUEUE.name)),
    "gangs of one": PreemptionSettings(policies=(JOB.name,)),
    "gangs of one, rounds": PreemptionSettings(policies=(JOB.name,), rounds_interval_ms=5_000),
    "in-queue, rounds": replace(REPLACING, rounds_interval_ms=5_000),
}


def cluster(nodes: int, settings: PreemptionSettings, *, reserves: bool = False) -> Core:
    """Return a core with nodes of 4 cores and two queues of two applications each; only queue `a` has a guarantee."""
    tree = QueueSpec(
        "root",
        parent=True,
        submit_acl=Acl(everyone=True),
        children=(QueueSpec("a", guaranteed=resource({"vcore": 40_000})), QueueSpec("b")),
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
        for number in range(2):
            core.handle(ApplicationAdded("rm", f"app-{leaf}{number}", f"root.{leaf}"), NOW)
    return core


def ask(core: Core, key: str, application: str, spec: AskSpec, now: int) -> None:
    """Ask for one pod."""
    core.handle(AskAdded("rm", key, application, spec), now)


def ticks(core: Core, now: int, budget: int = LOTS) -> Sequence[Decision]:
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


def share(monkeypatch: pytest.MonkeyPatch, most: int, part: int) -> None:
    """Let a tick look at ``part`` groups if more than ``most`` wait."""
    monkeypatch.setattr(beside_claims, "SEARCH_MOST", most)
    monkeypatch.setattr(beside_claims, "PART_MOST", part)


class Told(NamedTuple):
    """What a story tells of an instant: the decisions, and the asks that have a node or are promised one."""

    decisions: list[str]
    served: list[str]


def story(seed: int, settings: PreemptionSettings) -> list[Told]:
    """Return what a core decides at each instant while asks of many sizes come to one queue and pods end."""
    chance = random.Random(seed)
    core, now, sizes = cluster(8, settings, reserves=chance.random() < 0.3), NOW, iter(range(LOTS))
    partition = core.state.partitions["default"]
    running = dict[str, str]()
    for at in range(32):
        application = "app-b0" if settings.lists(JOB) else "app-a0"
        ask(core, f"runs-{at}", application, AskSpec(resource({"vcore": 1_000})), now)
        running[f"runs-{at}"] = application
    found = [told(core, now)]
    for at in range(20):
        now += chance.choice((1, 100, 1_000, 5_000, DELAY_MS))
        for number in range(chance.randrange(6)):
            size = chance.choice((500, 2_000, 9_000)) + next(sizes)
            spec = AskSpec(resource({"vcore": size}), priority=chance.randrange(3))
            application = chance.choice(("app-a0", "app-a1"))
            running[f"{at}-{number}"] = application
            ask(core, f"{at}-{number}", application, spec, now)
        placed = [
            key for key in running if (one := partition.asks.get(key)) is not None and one.node
        ]
        leaving = list(partition.decisions.leaving)
        ends = chance.sample(placed, min(len(placed), chance.randrange(3)))
        for key in dict.fromkeys((*ends, *leaving[: chance.randrange(4)])):
            core.handle(ReleaseRequested("rm", running.pop(key), key), now)
        found.append(told(core, now))
    assert any(one.startswith(Placed.__name__) for some in found for one in some.decisions)
    return found


def told(core: Core, now: int) -> Told:
    """Decide at an instant.

    The decisions are in the order of their text, without reasons for waiting and without the numbers at the end of ids.
    """
    decided = [
        re.sub(r"([a-z]-[0-9a-f]+)-[0-9]+", r"\1", repr(one))
        for one in ticks(core, now)
        if type(one) is not AskStateChanged
    ]
    core.validate()
    assert not core.state.partitions["default"].round.open
    partition = core.state.partitions["default"]
    promised = partition.decisions.pledges
    served = [key for key, one in partition.asks.items() if one.node or key in promised]
    return Told(sorted(decided), sorted(served))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_with_all_groups_decides_the_same(
    seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = story(seed, KINDS[kind])
    share(monkeypatch, 0, LOTS)
    assert story(seed, KINDS[kind]) == whole


@pytest.mark.parametrize("part", [1, 3, 10])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_parts_serve_as_many_asks(
    seed: int, kind: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asks are placed between two parts, so that single decisions differ; the state stays consistent at each instant."""
    whole = sum(len(one.served) for one in story(seed, KINDS[kind]))
    share(monkeypatch, 0, part)
    parts = sum(len(one.served) for one in story(seed, KINDS[kind]))
    assert abs(parts - whole) * 20 <= whole


@pytest.mark.parametrize("kind", KINDS)
def test_the_stories_evict(kind: str) -> None:
    told = [one for seed in range(6) for some in story(seed, KINDS[kind]) for one in some.decisions]
    assert sum(one.startswith(Decided.__name__) for one in told) >= 10


def test_a_tick_checks_no_more_groups_than_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group is planned for once, although further asks come all the time."""
    part, checked = 40, [0]
    first = due_gangs._first

    def counted(*given: object) -> object:
        checked[-1] += 1
        return first(*given)  # type: ignore[arg-type]

    core = cluster(2, KINDS["gangs of one"])
    for at in range(8):
        ask(core, f"runs-{at}", "app-b0", AskSpec(resource({"vcore": 1_000})), NOW)
    ticks(core, NOW)
    for at in range(400):
        ask(core, f"ask-{at}", "app-a0", AskSpec(resource({"vcore": 5_000 + at})), NOW)
    share(monkeypatch, 100, part)
    monkeypatch.setattr(due_gangs, "_first", counted)
    refused = list[str]()
    for at in range(40):
        ask(core, f"more-{at}", "app-a1", AskSpec(resource({"vcore": 9_000 + at})), NOW + 1)
        tick = core.tick(NOW + 1, LOTS)
        refused += [one.subject for one in tick.decisions if type(one) is Noted]
        checked.append(0)
    assert max(checked) <= part
    assert {f"ask-{at}" for at in range(400)} <= set(refused)
    assert len(refused) == len(set(refused))


def test_the_highest_priority_replaces_first_whatever_part_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = cluster(1, REPLACING)
    ask(core, "runs", "app-b0", AskSpec(resource({"vcore": 4_000})), NOW)
    ticks(core, NOW)
    for at in range(20):
        spec = AskSpec(resource({"vcore": 2_000 + at}), priority=1 + (at == 17))
        ask(core, f"ask-{at}", "app-b1", spec, NOW)
    ticks(core, NOW)
    share(monkeypatch, 0, 1)
    decided = [one for one in ticks(core, NOW + DELAY_MS) if type(one) is Decided]
    (first, *_) = decided
    assert [one.key for one in first.record.beneficiaries] == ["ask-17"]


def test_a_group_that_left_or_was_placed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    core = cluster(1, REPLACING)
    ask(core, "runs", "app-a0", AskSpec(resource({"vcore": 4_000})), NOW)
    ticks(core, NOW)
    for at in range(20):
        ask(core, f"ask-{at}", "app-a1", AskSpec(resource({"vcore": 5_000 + at}), priority=1), NOW)
    ticks(core, NOW)
    share(monkeypatch, 0, 5)
    core.tick(NOW + DELAY_MS, LOTS)
    for at in range(10):
        core.handle(ReleaseRequested("rm", "app-a1", f"ask-{at}"), NOW + DELAY_MS)
    refused = [one.subject for one in ticks(core, NOW + DELAY_MS) if type(one) is Noted]
    assert sorted(refused) == sorted(f"ask-{at}" for at in range(10, 20))
