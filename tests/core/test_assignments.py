"""A core that decides for some partitions decides the same for them as a core that has all of them (design 7.6)."""

import io
import random
from typing import Final

import pytest

from server.config import load
from server.core.core import Core
from server.core.events.moved import adopt
from server.core.queries import inspect
from server.model.asks import AskSpec
from server.model.assignment import Assignment
from server.model.decisions import (
    ApplicationRejected,
    AskRejected,
    Decided,
    Decision,
    NodeRejected,
    Noted,
    Placed,
    Released,
)
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    LeadershipTaken,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
    SyncCompleted,
)
from server.model.quota import Configuration
from server.model.resources import resource
from server.model.revisions import Beginning, Revision
from server.replication import checkpoint
from server.replication.checkpoint import Header, layout, written
from tests.effort import cases

NOW: Final = 1_700_000_000_000
NAMES: Final = ("default", "gpu", "night", "web")
OWNERS: Final = {"default": "a", "gpu": "b", "web": "b"}
"""The table of these tests; no group is named for `night`, so that it belongs to `a`."""


def configuration(*names: str, most: int = 100) -> Configuration:
    """Return a configuration in which each partition has a queue with a guarantee and a queue without."""
    parts = "".join(
        f"""
  - name: {name}
    preemption: {{enabled: true}}
    queues:
    - name: root
      submitacl: "*"
      queues:
      - {{name: prod, properties: {{preemption.delay: 1s}}, resources: {{guaranteed: {{memory: 8}}}}}}
      - {{name: free, resources: {{max: {{memory: {most}}}}}}}"""
        for name in names
    )
    found, problems = load(f"partitions:{parts}")
    assert found is not None, problems
    return found


def core_of(group: str, *names: str) -> Core:
    """Return a core of a group; without a group it decides for all partitions."""
    assignment = Assignment(group, OWNERS, "a") if group else None
    beginning = Beginning(Revision(1, "", "file"), assignment=assignment)
    return Core(configuration(*(names or NAMES)), beginning)


def where(one: Event | Decision) -> str:
    """Return the partition of an event or a decision; "" for one about no partition."""
    if isinstance(one, Decided):
        return one.record.partition
    return getattr(one, "partition", "")


def told(core: Core, events: list[Event], now: int) -> list[Decision]:
    """Return what a core answers and decides."""
    decisions = core.take(events, now)
    while True:
        tick = core.tick(now)
        decisions += tick.decisions
        if not tick.more:
            core.validate()
            return decisions


def begins() -> list[Event]:
    """Return the events with which a world begins."""
    nodes = [
        NodeAdded("rm", f"{name}-{at}", resource({"memory": 8}), partition=name)
        for name in NAMES
        for at in range(3)
    ]
    applications = [
        ApplicationAdded("rm", f"{name}-{queue}", f"root.{queue}", partition=name)
        for name in NAMES
        for queue in ("prod", "free")
    ]
    return [ManagerRegistered("rm", explicit_sync=True), *nodes, *applications, SyncCompleted("rm")]


def step(chance: random.Random, at: int, running: list[Placed]) -> list[Event]:
    """Return random events of one moment: new asks, and the ends of pods that run."""
    events: list[Event] = []
    for number in range(chance.randrange(6)):
        name, queue = chance.choice(NAMES), chance.choice(("prod", "free"))
        spec = AskSpec(resource({"memory": chance.randint(1, 4)}))
        key = f"{name}-{at}-{number}"
        events.append(AskAdded("rm", key, f"{name}-{queue}", spec, name, NOW + at))
    for one in chance.sample(running, min(len(running), chance.randrange(3))):
        running.remove(one)
        events.append(ReleaseRequested("rm", one.application_id, one.key, one.partition))
    return events


@pytest.mark.parametrize("seed", range(cases(40)))
def test_two_cores_decide_as_one(seed: int) -> None:
    chance = random.Random(seed)
    one, parts = core_of(""), {group: core_of(group) for group in "ab"}
    running: list[Placed] = []
    events, seen = begins(), 0
    for at in range(40):
        now = NOW + 400 * at
        expected = told(one, events, now)
        running += [made for made in expected if isinstance(made, Placed)]
        for group, core in parts.items():
            mine = [
                event
                for event in events
                if not where(event) or OWNERS.get(where(event), "a") == group
            ]
            found = [made for made in told(core, mine, now) if where(made)]
            assert found == [
                made for made in expected if where(made) and OWNERS.get(where(made), "a") == group
            ]
        seen += sum(isinstance(made, Released | Decided) for made in expected)
        gone = {made.key for made in expected if isinstance(made, Released)}
        running = [made for made in running if made.key not in gone]
        events = step(chance, at, running)
    assert seen, "nothing was preempted"


MOVED: Final = {"default": "a", "gpu": "a", "night": "b"}
"""The table after a move: `gpu` went from `b` to `a`, `night` and `web` belong to `b` by name or by the rest."""


@pytest.mark.parametrize("seed", range(cases(40)))
def test_partitions_that_move_go_on_as_if_they_had_not(seed: int) -> None:
    chance = random.Random(seed)
    one, parts = core_of(""), {group: core_of(group) for group in "ab"}
    running: list[Placed] = []
    events, seen = begins(), 0
    moves_at, owner = chance.randrange(5, 30), OWNERS
    for at in range(40):
        now = NOW + 400 * at
        if at == moves_at:
            parts, owner = moved(parts), MOVED
        expected = told(one, events, now)
        running += [made for made in expected if isinstance(made, Placed)]
        for group, core in parts.items():
            rest = "a" if owner is OWNERS else "b"
            mine = [
                event
                for event in events
                if not where(event) or owner.get(where(event), rest) == group
            ]
            own = [made for made in expected if owner.get(where(made), rest) == group]
            assert by_partition(told(core, mine, now)) == by_partition(own)
        seen += sum(isinstance(made, Released | Decided) for made in expected)
        gone = {made.key for made in expected if isinstance(made, Released)}
        running = [made for made in running if made.key not in gone]
        events = step(chance, at, running)
    assert seen, "nothing was preempted"


def by_partition(decisions: list[Decision]) -> dict[str, list[str]]:
    """Return the decisions of each partition as text, in their order; the order of the partitions is that of their creation."""
    found: dict[str, list[str]] = {}
    for one in decisions:
        if where(one):
            found.setdefault(where(one), []).append(repr(one))
    return found


def moved(parts: dict[str, Core]) -> dict[str, Core]:
    """Return cores with the state of these cores, by the table after the move."""
    found = {}
    for group, core in parts.items():
        after, former = copied(core), copied(parts["b" if group == "a" else "a"])
        after.state.assignment = Assignment(group, MOVED, "b")
        after.handle(ConfigurationApplied(after.state.configuration, "table"), NOW)
        names = [name for name in NAMES if name in after.state.partitions]
        for name in [name for name in names if not after.state.assignment.owns(name)]:
            del after.state.partitions[name]
        assert adopt(after.state, former.state) == {"a": ["gpu"], "b": ["night"]}[group]
        found[group] = after
    return found


def copied(core: Core) -> Core:
    """Return a core made from a checkpoint of another one."""
    header = Header("test", layout(), 0, 0, NOW)
    return checkpoint.read(io.BytesIO(b"".join(written(core, header))))[1]


def test_a_partition_that_a_core_has_is_not_taken_again() -> None:
    core, former = core_of("a"), core_of("")
    for each in (core, former):
        told(each, begins(), NOW)
    before = core.digest()
    assert adopt(core.state, copied(former).state) == []
    assert core.digest() == before


def test_what_names_a_partition_of_another_group_is_refused_with_its_owner() -> None:
    core = core_of("a")
    assert [one.name for one in inspect.partitions(core)] == ["default", "night"]
    events: list[Event] = [
        ManagerRegistered("rm"),
        NodeAdded("rm", "n", resource({"memory": 8}), partition="gpu"),
        ApplicationAdded("rm", "app", "root.prod", partition="gpu"),
        AskAdded("rm", "pod", "app", AskSpec(resource({"memory": 1})), "gpu", NOW),
        NodeAdded("rm", "m", resource({"memory": 8}), partition="nowhere"),
    ]
    kinds = (NodeRejected, ApplicationRejected, AskRejected)
    refused = [one for one in told(core, events, NOW) if isinstance(one, kinds)]
    owner = "partition 'gpu' belongs to cores 'b', this is one of cores 'a'"
    assert [one.reason for one in refused][:3] == [owner] * 3
    assert "is not configured" in refused[3].reason
    assert owner.removeprefix("p") in inspect.explain(core, "pod", NOW, "gpu").summary


def test_a_configuration_changes_only_the_partitions_of_the_core() -> None:
    core = core_of("b", "gpu")
    assert list(core.state.partitions) == ["gpu"]
    core.handle(ConfigurationApplied(configuration(*NAMES, most=7), "test"), NOW)
    assert list(core.state.partitions) == ["gpu", "web"]
    assert len(core.state.configuration.partitions) == len(NAMES)
    core.handle(ConfigurationApplied(configuration("default", "web"), "test"), NOW)
    core.tick(NOW)
    assert list(core.state.partitions) == ["web"]


def test_a_core_without_a_configuration_has_the_partition_that_the_table_gives_it() -> None:
    for group, names in (("a", ["default"]), ("b", [])):
        beginning = Beginning(
            Revision(), configured=False, assignment=Assignment(group, OWNERS, "a")
        )
        core = Core(None, beginning)
        assert list(core.state.partitions) == names
        brought = configuration(*NAMES)
        notes = core.handle(ManagerRegistered("rm", configuration=brought), NOW)
        assert any(isinstance(one, Noted) for one in notes)
        own = [name for name in NAMES if OWNERS.get(name, "a") == group]
        assert list(core.state.partitions) == own


def test_a_first_table_counts_when_a_core_leads_if_it_gives_nothing_away() -> None:
    for names, kept in ((("default", "night"), Assignment("a", OWNERS, "a")), (NAMES, None)):
        core = core_of("", *names)
        before = sorted(core.state.partitions)
        core.take([LeadershipTaken(assignment=Assignment("a", OWNERS, "a"))], NOW)
        assert core.state.assignment == kept
        assert sorted(core.state.partitions) == before
        other = LeadershipTaken(assignment=Assignment("b", {}, "b"))
        core.take([other], NOW + 1)
        assert core.state.assignment == (kept or other.assignment), "a table stays"
