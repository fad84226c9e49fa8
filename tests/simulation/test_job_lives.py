"""Random runs of clusters that list the policies `job` and `in-queue`, and at random others.

Gangs and single asks come and go; victims end late, are created again, or stay by a veto; nodes are cordoned. Every
event gets its correct answer. After every tick the state is consistent, no plan was dropped, no node holds more than
it has, and no member of a gang was placed before the gang's minimum. In the end nothing changes any more.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import (
    ApplicationRejected,
    ApplicationState,
    ApplicationUpdated,
    AskRejected,
    Decision,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    Event,
    NodeDrained,
    NodeEnabled,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.quota import PreemptionSettings
from server.model.reasons import Code
from server.model.resources import resource
from tests.effort import TRIES_ALL, cases
from tests.preemption.claim_clusters import slices
from tests.preemption.job_clusters import RM, START, Queue, core_of

LIVES: Final = cases(30)
LIVES_SOAK: Final = 1_000
STEPS: Final = 50
CORES: Final = 8
"""Of each node."""
QUIET_MS: Final = 60_000
REST_MOST: Final = 30
"""Quiet minutes after which nothing may happen any more."""
LEAVES: Final = ("root.p.a", "root.p.b", "root.q")
LISTS: Final = (
    ("job",),
    ("job", "in-queue"),
    ("required-node", "guaranteed", "job"),
    ("required-node", "guaranteed", "job", "in-queue"),
    ("guaranteed", "in-queue"),
)


@dataclass
class Life:
    """A core and what the outside knows of it."""

    seed: int
    now: int = START
    counted: int = 0
    going: dict[str, Released] = field(default_factory=dict)
    running: dict[str, Placed] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    applications: set[str] = field(default_factory=set)
    """Those that the core knows; it forgets one that has had nothing for a while."""
    specs: dict[str, tuple[str, AskSpec]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"job lives {self.seed}")
        chance = self.dice
        settings = PreemptionSettings(
            policies=chance.choice(LISTS),
            job_victim_gang=chance.choice(("whole", "avoid")),
            job_default_preemptible=chance.random() < 0.8,
            entitlement=chance.choice(("guaranteed", "guaranteed", "proportional")),
            backoff_ms=1_000,
            expiry_ms=120_000,
        )
        queues = [
            Queue(path, {"vcore": chance.randint(4, 12)}, most)
            for path in LEAVES
            for most in [{"vcore": 24} if chance.random() < 0.5 else None]
        ]
        nodes = {f"n{at}": {"vcore": CORES} for at in range(chance.randint(2, 4))}
        self.nodes = list(nodes)
        self.core: Core = core_of(queues, nodes, [], settings)

    def live(self) -> None:
        """Run some events with a tick after each, then rest."""
        for _ in range(STEPS):
            self.now += self.dice.choice((0, 10, 1_000, 31_000))
            for event in self._events():
                self._say(event)
            self._tick()
        for node in self.nodes:
            self._say(NodeEnabled(RM, node))
        self._rest()

    def _say(self, event: Event) -> None:
        """Something happens, and is answered as it should be."""
        if isinstance(event, AskAdded) and event.application_id not in self.applications:
            queue = event.application_id.rpartition("-")[0]
            self._say(ApplicationAdded(RM, event.application_id, queue))
            self.applications.add(event.application_id)
        if isinstance(event, NodeDrained):
            self.closed.add(event.node_id)
        elif isinstance(event, NodeEnabled):
            self.closed.discard(event.node_id)
        replies = self.core.take([event], self.now)
        self._judge(event, replies)
        self._look(replies)

    def _judge(self, event: Event, replies: list[Decision]) -> None:
        """Nothing is refused or unknown; who ended what runs hears of it, and a veto is heard."""
        where = f"seed {self.seed}: {event} is answered {replies}"
        notes = {one.code for one in replies if isinstance(one, Noted)}
        assert not any(isinstance(one, AskRejected | ApplicationRejected) for one in replies), where
        assert Code.RELEASE_UNKNOWN not in notes, where
        if isinstance(event, ReleaseRequested):
            echoed = [one.key for one in replies if isinstance(one, Released)]
            ran = self.running.pop(event.key, None) is not None
            ours = event.termination is Termination.PREEMPTED_BY_SCHEDULER
            assert echoed == ([event.key] if ran and not ours else []), where
        if isinstance(event, VictimVetoed):
            assert Code.VICTIM_VETOED in notes, where
            self.counts["vetoed"] += 1

    def _events(self) -> list[Event]:
        roll = self.dice.random()
        if roll < 0.6:
            return self._asks()
        if roll < 0.8 and self.going:
            return self._end(self.dice.choice(sorted(self.going)))
        if roll < 0.86 and self.going:
            key = self.dice.choice(sorted(self.going))
            one = self.going.pop(key)
            return [VictimVetoed(RM, one.decision_id, key, "no")]
        if roll < 0.93 and self.specs:
            key = self.dice.choice(sorted(self.specs))
            self.going.pop(key, None)
            return [ReleaseRequested(RM, self.specs.pop(key)[0], key)]
        closed = self.dice.random() < 0.5
        node = self.dice.choice(self.nodes)
        return [NodeDrained(RM, node) if closed else NodeEnabled(RM, node)]

    def _asks(self) -> list[Event]:
        self.counted += 1
        size = self.dice.choice((1, 1, 2, 3, 4))
        spec = AskSpec(
            resource({"vcore": self.dice.randint(1, 5)}),
            self.dice.randint(0, 3),
            lendable=self.dice.choice((None, None, True, False)),
            allow_preempt_self=self.dice.random() < 0.9,
            gang_key=f"job-{self.counted}" if size > 1 else "",
            min_members=size if size > 1 else 0,
        )
        application = f"{self.dice.choice(LEAVES)}-{self.dice.randint(0, 1)}"
        return [self._ask(f"x{self.counted}-{at}", application, spec) for at in range(size)]

    def _ask(self, key: str, application: str, spec: AskSpec) -> AskAdded:
        self.specs[key] = (application, spec)
        return AskAdded(RM, key, application, spec, created_ms=self.now)

    def _end(self, key: str) -> list[Event]:
        """Return the events of a victim that is gone and whose controller makes another pod of the same gang."""
        one = self.going.pop(key)
        application, spec = self.specs.pop(key)
        gone = ReleaseRequested(RM, application, key, termination=one.termination)
        self.counted += 1
        return [gone, self._ask(f"x{self.counted}-again", application, spec)]

    def _tick(self) -> None:
        for decisions in slices(self.core, self.now):
            self._look(decisions)

    def _look(self, decisions: list[Decision]) -> None:
        """Look at gangs when all were placed and before any eviction: a claim may follow in the same tick."""
        placed: set[tuple[str, str]] = set()
        for one in decisions:
            if isinstance(one, Released):
                self._check_gangs(placed)
                placed.clear()
            if isinstance(one, Noted):
                assert one.code is not Code.LAW_BROKEN, f"seed {self.seed}: {one.message}"
            elif isinstance(one, Placed):
                self._placed(one)
                placed.add((one.application_id, one.spec.gang_key))
            elif isinstance(one, Released) and one.decision_id:
                self._released(one)
            elif isinstance(one, ApplicationUpdated) and one.state is ApplicationState.COMPLETED:
                self.applications.discard(one.application_id)
                self.counts["completed"] += 1
        self._check_gangs(placed)

    def _placed(self, one: Placed) -> None:
        """Assert that the ask waited, and that its node is open and has capacity for it."""
        where = f"seed {self.seed}: {one.key} on {one.node_id}"
        assert one.key in self.specs, where
        assert one.key not in self.running, where
        assert one.node_id not in self.closed, where
        self.running[one.key] = one
        here = [each.spec for each in self.running.values() if each.node_id == one.node_id]
        assert sum(dict(spec.resource)["vcore"] for spec in here) <= CORES, where
        self.counts["placed"] += 1

    def _released(self, one: Released) -> None:
        """Assert that the pod runs and is evicted for one decision; after expiry it may be sent once more (`expired`)."""
        where = f"seed {self.seed}: {one}"
        assert one.key in self.running, where
        known = self.going.get(one.key)
        assert known is None or known.decision_id == one.decision_id, where
        self.going[one.key] = one
        self.counts[one.decision_id[0]] += known is None

    def _check_gangs(self, placed: set[tuple[str, str]]) -> None:
        for application, job in placed:
            self._check_gang(application, job)

    def _check_gang(self, application: str, job: str) -> None:
        """Nobody of a gang gets a place before as many as its size have one that they keep."""
        mine = [
            one.spec
            for key, one in self.running.items()
            if job and one.spec.gang_key == job and one.application_id == application
            if key not in self.going
        ]
        assert not mine or len(mine) >= mine[0].min_members, f"seed {self.seed}: part of {job}"

    def _rest(self) -> None:
        quiet = 0
        for _ in range(REST_MOST):
            self.now += QUIET_MS
            for key in sorted(self.going):
                for event in self._end(key):
                    self._say(event)
            before = self.counts.total()
            self._tick()
            quiet = 0 if self.counts.total() > before else quiet + 1
        assert quiet >= REST_MOST // 4, f"seed {self.seed}: it does not come to rest"


def lives(seeds: range) -> Counter[str]:
    """Return the counts of what happened in all scenarios."""
    found: Counter[str] = Counter()
    for seed in seeds:
        life = Life(seed)
        life.live()
        found += life.counts
    return found


def test_lives_with_jobs_and_replacements() -> None:
    found = lives(range(LIVES))
    if TRIES_ALL:
        assert found["j"] >= LIVES, found
        assert min(found[letter] for letter in ("g", "i", "vetoed", "completed")) >= LIVES // 10, (
            found
        )


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, LIVES_SOAK, 100))
def test_many_lives_with_jobs_and_replacements(first: int) -> None:
    lives(range(first, first + 100))
