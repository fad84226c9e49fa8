"""A full cluster in which queues claim their guarantees, a max is lowered and DaemonSets require their nodes.

The driver answers the core's decisions as a shim would: victims end late, some are vetoed, some pods end by
themselves.
"""

import random
from collections.abc import Iterator

from server.config import load
from server.core.decider import Decider
from server.model.asks import AskSpec, Constraints
from server.model.decisions import Decision, Placed, Released, Termination
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.quota import Configuration
from tests.record.values import START
from tests.ticks import ticked

QUEUES = """\
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true, backoff: 2s, expiry: 40s, shadow: {policies: [guaranteed], equalpriority: never}}
    queues:
      - name: root
        submitacl: '*'
        properties: {quota.preemption.delay: 5s}
        queues:
          - {name: high, resources: {guaranteed: {vcore: 40}}, properties: {preemption.delay: 1s}}
          - {name: mid, resources: {guaranteed: {vcore: 6}, max: {vcore: MAX}}, properties: {preemption.delay: 1s}}
          - {name: low, properties: {preemption.delay: 1s}}
"""
LEAVES = ("high", "mid", "low")
NODES = 8


def configuration(mid_max: int) -> Configuration:
    """Return the configuration of the queues, with a max of this many cores for `mid`."""
    found, problems = load(QUEUES.replace("MAX", str(mid_max)))
    assert found is not None, problems
    return found


class Driver:
    """The driver of a random story; an equal seed and an equal core give an equal story."""

    def __init__(self, seed: int, core: Decider) -> None:
        self.dice = random.Random(seed)
        self.core = core
        self.now = START
        self.running: dict[str, Placed] = {}
        self.dying: dict[str, Released] = {}
        self.numbers = 0

    def live(self, steps: int) -> None:
        """Set up the cluster, then run this number of instants."""
        for event in self._founding():
            self._handle(event)
        self._asks("low", 18)
        self._asks("mid", 12)
        self._tick()
        for step in range(steps):
            self.now += self.dice.choice((1, 400, 1_000, 2_500, 7_000))
            if step == steps // 2:
                self._handle(ConfigurationApplied(configuration(8), "lowered"))
            self._answer()
            self.dice.choice((self._claim, self._fill, self._daemon, self._end, self._budget))()
            self._tick()

    def _founding(self) -> Iterator[Event]:
        yield ManagerRegistered("rm")
        for number in range(NODES):
            yield NodeAdded("rm", f"n{number}", (("vcore", 10_000),))
        for leaf in LEAVES:
            yield ApplicationAdded("rm", leaf, f"root.{leaf}")

    def _handle(self, event: Event) -> None:
        self._hear(self.core.take([event], self.now))

    def _tick(self) -> None:
        more = True
        while more:
            tick = ticked(self.core, self.now, 500)
            self._hear(tick.decisions)
            more = tick.more

    def _hear(self, decisions: list[Decision]) -> None:
        for one in decisions:
            if isinstance(one, Placed):
                self.running[one.key] = one
            elif (
                isinstance(one, Released) and one.termination is Termination.PREEMPTED_BY_SCHEDULER
            ):
                self.dying[one.key] = one

    def _asks(self, leaf: str, count: int, node: str = "") -> None:
        cores = self.dice.randint(1, 3)
        spec = AskSpec(
            (("vcore", cores * 1_000),),
            priority=self.dice.choice((0, 0, 5)) + (5 if leaf == "high" else 0),
            constraints=Constraints(required_node=node),
            allow_preempt_self=self.dice.random() < 0.8,
            disruption_groups=("ns/budget",) if self.dice.random() < 0.3 else (),
        )
        for _ in range(count):
            self.numbers += 1
            self._handle(AskAdded("rm", f"pod-{self.numbers}", leaf, spec))

    def _claim(self) -> None:
        self._asks("high", self.dice.randint(1, 6))

    def _fill(self) -> None:
        """Submit some asks of a random queue, as when owners recreate their evicted pods."""
        self._asks(self.dice.choice(("low", "mid")), self.dice.randint(1, 4))

    def _daemon(self) -> None:
        self._asks("mid", 1, f"n{self.dice.randrange(NODES)}")

    def _budget(self) -> None:
        self._handle(DisruptionsAllowed("rm", "ns/budget", self.dice.choice((None, 0, 1, 5))))

    def _end(self) -> None:
        for key in self.dice.sample(sorted(self.running), min(2, len(self.running))):
            self._gone(key, Termination.STOPPED_BY_RM)

    def _answer(self) -> None:
        """Confirm that some victims are gone, and veto the eviction of others."""
        for key, released in list(self.dying.items()):
            chance = self.dice.random()
            if chance < 0.6:
                self._gone(key, Termination.PREEMPTED_BY_SCHEDULER)
            elif chance < 0.7:
                del self.dying[key]
                self._handle(VictimVetoed("rm", released.decision_id, key, "a budget forbids it"))

    def _gone(self, key: str, why: Termination) -> None:
        self.dying.pop(key, None)
        placed = self.running.pop(key, None)
        if placed is not None:
            application = placed.application_id
            self._handle(ReleaseRequested("rm", application, key, termination=why))
