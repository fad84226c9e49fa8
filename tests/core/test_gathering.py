"""Jobs whose size no label says: at each instant they gather the members that a plain count gives (J1)."""

import random
from dataclasses import dataclass, field, replace

from evenhand_cli.story import play
from server.config import load
from server.core.core import Core
from server.model.asks import UNSIZED, AskSpec
from server.model.decisions import Decision, Placed, Released
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
    SyncCompleted,
)
from server.state.gang_sizes import present
from tests.effort import TRIES_ALL, cases

RM, START = "rm", 1_800_000_000_000
QUEUES = """
partitions:
  - name: default
    preemption: {policies: [guaranteed, job], backoff: 1s, expiry: 60s}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {guaranteed: {memory: 40}}, properties: {preemption.delay: 1s}}
          - {name: b}
"""
GATHERING_MS = 2_000
WORLDS = cases(12)
STEPS = 60
MEMBER = AskSpec((("memory", 10),), gang_key="j")


def begun(nodes: int, size: int = 40) -> Core:
    """Return a core with nodes and one application in each queue."""
    configuration, _ = load(QUEUES, "test")
    core = Core(configuration)
    core.handle(ManagerRegistered(RM), START)
    for number in range(nodes):
        core.handle(NodeAdded(RM, f"n{number}", (("memory", size),)), START)
    for name, queue in (("x", "root.a"), ("y", "root.b")):
        core.handle(ApplicationAdded(RM, name, queue), START)
    return core


def ticked(core: Core, now: int) -> list[Decision]:
    """Everything that is decided at one instant."""
    found = play.run(core, now)
    core.validate()
    return found


def placed(decisions: list[Decision]) -> list[str]:
    return [one.key for one in decisions if isinstance(one, Placed)]


# What is looked at alone ----------------------------------------------------------------------------------------------


def test_the_digest_knows_since_when_a_job_gathers() -> None:
    early, late = begun(1), begun(1)
    for core, instants in ((early, (0, 500)), (late, (0, 900))):
        for number, instant in enumerate(instants):
            core.handle(AskAdded(RM, f"x{number}", "x", MEMBER, created_ms=START), START + instant)
    assert early.digest() != late.digest()


def test_the_same_ask_again_changes_nothing() -> None:
    core = begun(1, size=15)
    for key in ("x0", "x1"):
        core.handle(AskAdded(RM, key, "x", MEMBER), START)
    for now in (START, START + GATHERING_MS):
        ticked(core, now)
        before = core.digest()
        core.handle(AskAdded(RM, "x1", "x", replace(MEMBER)), now)
        assert core.digest() == before


def test_a_placed_member_sent_again_stays_one_of_those_that_are_needed() -> None:
    core = begun(1)
    for key in ("x0", "x1"):
        core.handle(AskAdded(RM, key, "x", MEMBER), START)
    assert placed(ticked(core, START + GATHERING_MS)) == ["x0", "x1"]
    core.handle(AllocationAdded(RM, "x1", "x", "n0", MEMBER), START + GATHERING_MS)
    ticked(core, START + GATHERING_MS)
    partition = core.state.partitions["default"]
    assert {ask.spec.min_members for ask in partition.asks.values()} == {2}
    assert core.next_due() is None


def test_nothing_is_due_before_the_sync_is_over() -> None:
    core = Core(load(QUEUES, "test")[0])
    core.handle(ManagerRegistered(RM, explicit_sync=True), START)
    core.handle(NodeAdded(RM, "n0", (("memory", 40),)), START)
    core.handle(ApplicationAdded(RM, "x", "root.a"), START)
    core.handle(AskAdded(RM, "x0", "x", MEMBER), START)
    ticked(core, START)
    assert core.next_due() is None
    core.handle(SyncCompleted(RM, 1, 1, 0, 1), START + 9_000)
    assert placed(ticked(core, START + 9_000)) == ["x0"]


def test_who_is_taken_from_another_job_is_a_further_member() -> None:
    core = begun(1)
    core.handle(AskAdded(RM, "x0", "x", MEMBER), START)
    core.handle(AskAdded(RM, "x1", "x", replace(MEMBER, gang_key="k")), START)
    core.handle(AskAdded(RM, "x1", "x", MEMBER), START + 1_000)
    assert placed(ticked(core, START + 2_999)) == []
    assert placed(ticked(core, START + 3_000)) == ["x0", "x1"]


def test_another_configuration_counts_for_who_gathers_already() -> None:
    core = begun(1)
    core.handle(AskAdded(RM, "x0", "x", MEMBER), START)
    text = QUEUES.replace("backoff: 1s", "backoff: 1s, job: {gathering: 500ms}")
    configuration, problems = load(text, "test")
    assert configuration is not None, problems
    core.handle(ConfigurationApplied(configuration, "test"), START)
    assert core.next_due() == START + 500
    assert placed(ticked(core, START + 500)) == ["x0"]


# Random worlds --------------------------------------------------------------------------------------------------------


@dataclass
class Plain:
    """A job of which nobody ran yet, by the letter of the rule."""

    members: set[str] = field(default_factory=set)
    size: int = 0
    since_ms: int | None = None

    def came(self, key: str, now: int) -> None:
        gathers = self.since_ms is not None or not self.size
        self.members.add(key)
        if gathers:
            self.since_ms = None if self.size and len(self.members) >= self.size else now

    def went(self, key: str, now: int) -> None:
        self.members.discard(key)
        if self.since_ms is None and len(self.members) < self.size:
            self.since_ms = now

    def passed(self, now: int) -> None:
        if self.since_ms is not None and self.since_ms + GATHERING_MS <= now:
            self.size, self.since_ms = len(self.members), None


@dataclass
class World:
    """Random members of a few jobs, and beside the core the plain record of those of which nobody ran."""

    chance: random.Random
    core: Core = field(default_factory=lambda: begun(4))
    now: int = START
    number: int = 0
    asks: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By key of an ask that is known its application and job."""
    plain: dict[tuple[str, str], Plain] = field(default_factory=dict)
    begun: set[tuple[str, str]] = field(default_factory=set)
    """Jobs of which the plain record says nothing any more: members ran, have capacity promised, or were one alone."""

    def step(self) -> None:
        act = self.chance.choices((self.ask, self.end, self.change, self.wait), (5, 2, 1, 3))[0]
        act()
        self.tick()

    def ask(self) -> None:
        self.number += 1
        key, name = f"p{self.number}", (self.chance.choice("xy"), f"j{self.number // 12}")
        self.asks[key] = name
        self.say(key)
        if name not in self.begun:
            self.plain.setdefault(name, Plain()).came(key, self.now)

    def say(self, key: str) -> None:
        application, job = self.asks[key]
        spec = AskSpec((("memory", self.chance.choice((5, 10, 20))),), gang_key=job)
        self.core.handle(AskAdded(RM, key, application, spec), self.now)

    def change(self) -> None:
        """Update a waiting ask."""
        state = self.core.state.partitions["default"]
        waiting = [key for key in self.asks if state.asks[key].node is None]
        if waiting:
            self.say(self.chance.choice(waiting))

    def end(self) -> None:
        if self.asks:
            self.gone(self.chance.choice(sorted(self.asks)))

    def gone(self, key: str) -> None:
        name = self.asks.pop(key)
        self.core.handle(ReleaseRequested(RM, name[0], key), self.now)
        record = self.plain.get(name)
        if record is not None:
            record.went(key, self.now)
            if not record.members:
                del self.plain[name]

    def wait(self) -> None:
        self.now += self.chance.choice((1, 500, 1_000, 2_000, 5_000))

    def tick(self) -> None:
        """Members come to run all at once, when their job is whole; and whose job gathers is told so."""
        for record in self.plain.values():
            record.passed(self.now)
        decisions = ticked(self.core, self.now)
        new = {*placed(decisions)}
        for name in {self.asks[key] for key in new} & self.plain.keys():
            assert self.plain[name].since_ms is None, f"{name} did not gather"
            assert self.plain[name].members <= new, f"{name} was placed in part"
        self.begun |= {self.asks[key] for key in new}
        # Who comes when its job has a decision already goes by itself: that is for the others.
        pledged = self.core.state.partitions["default"].decisions.pledges
        self.begun |= {self.asks[key] for key in pledged.keys() & self.asks.keys()}
        self.begun |= {name for name, record in self.plain.items() if record.size == 1}
        self.plain = {name: one for name, one in self.plain.items() if name not in self.begun}
        for key in [one.key for one in decisions if isinstance(one, Released)]:
            if key in self.asks:
                self.gone(key)
        self.compare()

    def compare(self) -> None:
        state = self.core.state.partitions["default"]
        watched = {(one.application.application_id, one.key) for one in state.gangs.gathering}
        gathering = {name for name, one in self.plain.items() if one.since_ms is not None}
        assert watched - self.begun == gathering
        dues = [self.plain[name].since_ms or 0 for name in gathering]
        due = self.core.next_due()
        assert not dues or (due is not None and due <= min(dues) + GATHERING_MS)

    def settle(self) -> None:
        """Time goes by and nobody comes: all gathering ends."""
        for _ in range(200):
            due = self.core.next_due()
            if due is None:
                break
            self.now = max(self.now + 1, due)
            self.tick()
        partition = self.core.state.partitions["default"]
        assert not partition.gangs.gathering
        assert all(ask.spec.min_members != UNSIZED for ask in partition.asks.values())
        jobs = [job for one in partition.applications.values() for job in one.gangs.values()]
        for job in [job for job in jobs if job.members]:
            assert present(partition, job) >= job.min_members, f"{job.key} waits for nobody"


def run(seed: int) -> World:
    print(f"seed {seed}")  # noqa: T201
    world = World(random.Random(seed))
    for _ in range(STEPS):
        world.step()
    world.settle()
    return world


def test_no_job_is_placed_in_part_or_early_and_none_gathers_for_ever(seed: int) -> None:
    ran = sum(bool(run(seed + number).begun) for number in range(WORLDS))
    if TRIES_ALL:
        assert ran > WORLDS / 2, "hardly any job ran: the worlds show nothing"


def test_the_same_events_give_the_same_state() -> None:
    assert run(7).core.digest() == run(7).core.digest()
