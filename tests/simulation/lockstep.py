"""A configuration that is simulated and then applied: one life of a core as in `everything_life`, cut off in the middle.

The live core takes the same configuration at the same instant, and time passes as its own `next_due` says; what it orders to
end is gone at once. The forecast has to name the same decisions, at the same instants, with the same victims in the same order.
"""

import random
from collections import Counter
from typing import Final, NamedTuple

from server.core.core import BUDGET, Core
from server.core.forecast import forecast
from server.model.decisions import Decided, Decision, Placed, Released, Termination, Withdrawn
from server.model.events import ConfigurationApplied, DisruptionsAllowed, Event, ReleaseRequested
from server.model.forecast import Forecast
from server.model.quota import Configuration
from tests.simulation.everything import Section
from tests.simulation.everything_life import Everything

TICKS_MOST: Final = 20_000
AFTERWARDS_MS: Final = 3_600_000
"""For so long nothing may happen after what a forecast calls complete."""


class Happened(NamedTuple):
    """A decision as people would compare it."""

    after_ms: int
    partition: str
    policy: str
    beneficiaries: tuple[tuple[str, str], ...]
    victims: tuple[str, ...]
    observed: bool


class Life(Everything):
    """A life that stops anywhere, and its next configuration."""

    silent = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.budget = BUDGET  # what cuts ticks off is judged in `test_everything`; a forecast is cut off by nothing

    def _partition(self, name: str) -> Section:
        """As in any life; reservations end soon or do not exist, so that a period of them is short."""
        found = super()._partition(name)
        timeout = random.Random(f"reservations {self.seed}").choice(("", "", "0s", "10s"))
        found["reservations"] = {"timeout": timeout} if timeout else {"enabled": False}
        return found

    def look(self) -> None:
        """Nothing: what only looks is judged elsewhere."""

    def middle(self) -> None:
        """Live up to some instant."""
        self.found()
        actions, weights = zip(*self._attacks(), strict=True)
        for action in self.dice.choices(actions, weights, k=self.dice.randint(8, 40)):
            action()
            if self.dice.random() < 0.6:
                self.tick()
        self.tick()

    def tell(self, event: Event) -> None:
        """An event reaches the core, unless it is the configuration that is to be simulated first."""
        if not self.silent:
            super().tell(event)

    def changed(self) -> Configuration:
        """Another configuration, without telling the core."""
        before, self.silent = self.configuration, True
        for _ in range(50):
            self.configure()
            if self.configuration is not before:
                break
        self.silent = False
        return self.configuration


class Live:
    """The live core under the new configuration, with a cluster that does what it is told at once."""

    def __init__(self, core: Core, now: int) -> None:
        self.core = core
        self.now = self.start = now
        self.found: list[Happened] = []
        self.placed: list[tuple[int, str, str]] = []
        self.going: dict[tuple[str, str], Termination] = {}
        for name, partition in core.state.partitions.items():
            for key, ask in partition.asks.items():
                if ask.node is not None and ask.is_replaced:
                    self.going[name, key] = Termination.PLACEHOLDER_REPLACED
                elif ask.node is not None and ask.releasing:
                    self.going[name, key] = Termination.PREEMPTED_BY_SCHEDULER

    def apply(self, configuration: Configuration) -> None:
        """It is in force."""
        self._hear(self.core.handle(ConfigurationApplied(configuration, "lock-step"), self.now))

    def until(self, instant: int) -> None:
        """Time passes up to this instant, and what is due then happens."""
        for _ in range(TICKS_MOST):
            self._settle()
            due = self.core.next_due()
            if due is None or due > instant:
                return
            self.now = due
        raise AssertionError("it does not end")

    def _settle(self) -> None:
        more = True
        while more:
            tick = self.core.tick(self.now)
            self._hear(tick.decisions)
            more = tick.more or self._end()

    def _end(self) -> bool:
        """Whatever was ordered to end is gone; was there anything?"""
        going, self.going = self.going, {}
        ended = False
        for (name, key), why in going.items():
            ask = self.core.state.partitions[name].asks.get(key)
            if ask is None or ask.node is None or not (ask.releasing or ask.is_replaced):
                continue
            ended = True
            groups, rm_id = ask.spec.disruption_groups, ask.rm_id
            event = ReleaseRequested(rm_id, ask.application.application_id, key, name, why)
            self._hear(self.core.handle(event, self.now))
            if why is Termination.PREEMPTED_BY_SCHEDULER:
                self._use_up(rm_id, groups)
        return ended

    def _use_up(self, rm_id: str, groups: tuple[str, ...]) -> None:
        for group in groups:
            left = self.core.managers[rm_id].disruptions_allowed.get(group, 0)
            if left > 0:
                self._hear(self.core.handle(DisruptionsAllowed(rm_id, group, left - 1), self.now))

    def _hear(self, decisions: list[Decision]) -> None:
        for one in decisions:
            if isinstance(one, Decided):
                record = one.record
                gets = tuple((each.key, each.node_id) for each in record.beneficiaries)
                victims = tuple(each.key for each in record.victims)
                observed = record.state.value == "observed"
                after = self.now - self.start
                self.found.append(
                    Happened(after, record.partition, record.policy, gets, victims, observed)
                )
            elif isinstance(one, Released):
                self.going[one.partition, one.key] = one.termination
            elif isinstance(one, Withdrawn):
                self.going.pop((one.partition, one.key), None)
            elif isinstance(one, Placed):
                self.placed.append((self.now - self.start, one.key, one.node_id))


def foreseen(found: Forecast) -> list[Happened]:
    """The decisions of a forecast, those of one instant by partition."""
    return [
        Happened(
            one.after_ms,
            one.record.partition,
            one.record.policy,
            tuple((each.key, each.node_id) for each in one.record.beneficiaries),
            tuple(each.key for each in one.record.victims),
            one.record.state.value == "observed",
        )
        for part in found.partitions
        for one in part.decisions
    ]


def compare(seed: int) -> Counter[str]:
    """Simulate a change, apply it, and compare; counts what was seen."""
    life = Life(seed)
    life.middle()
    configuration = life.changed()
    before = life.core.digest()
    found = forecast(life.core, configuration, life.now)
    assert life.core.digest() == before, f"seed {seed}: the simulation changed the core"
    live = Live(life.core, life.now)
    live.apply(configuration)
    live.until(life.now + found.until_ms)
    said = foreseen(found)
    happened = sorted(live.found, key=lambda one: one.partition)
    assert said == happened, f"seed {seed}: foreseen {said}, happened {happened}"
    places = [
        (one.after_ms, one.key, one.node_id) for part in found.partitions for one in part.placements
    ]
    assert sorted(places) == sorted(live.placed), f"seed {seed}"
    seen = Counter({"lives": 1, "complete": found.complete, "decisions": len(said)})
    seen["victims"] = sum(len(one.victims) for one in said)
    seen["lives with victims"] = seen["victims"] > 0
    seen.update(one.policy for one in said)
    if found.complete and random.Random(seed).random() < 0.3:
        live.until(life.now + found.until_ms + AFTERWARDS_MS)
        assert len(live.found) == len(said), (
            f"seed {seed}: more happens after the end: {live.found[len(said) :]}"
        )
        seen["watched for longer"] += 1
    return seen
