"""Clusters with claims in paced rounds and random settings; the releases of each round are counted independently (P1, P5)."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from server.core.core import Core
from server.model.decisions import Decision
from server.model.quota import PreemptionSettings
from server.model.records import DecisionRecord
from tests.preemption import claim_clusters
from tests.preemption.claim_oracle import (
    Amounts,
    Cluster,
    Pod,
    Queue,
    best,
    entitled,
    staying,
    use_of,
)
from tests.preemption.paths import is_below, path_up
from tests.simulation.outsiders import Outsiders
from tests.simulation.termination import Life

Measure = tuple[str, str]
"""The kind of a budget, and the name of the object that it limits."""
OverUse = dict[tuple[str, str], int]
"""The use beyond the guarantee, by queue and type."""


def random_settings(seed: int) -> PreemptionSettings:
    """Return settings with rounds that are short compared with a scenario, and with small budgets."""
    chance = random.Random(f"pace {seed}")
    return PreemptionSettings(
        rounds_interval_ms=chance.choice((0, 1_000, 7_000, 20_000)),
        pace_permyriad=chance.choice((0, 1, 1, 500)),
        pace_queue_permyriad=chance.choice((0, 0, 1, 700)),
        pace_application_permyriad=chance.choice((0, 0, 0, 700)),
        pace_window_ms=chance.choice((0, 0, 5_000, 30_000)),
        deadzone_permyriad=chance.choice((0, 0, 0, 2_500)),
        natural_permyriad=chance.choice((0, 0, 500, 4_000)),
    )


def only_a_part(seed: int) -> PreemptionSettings:
    """Return random settings whose only budget is the natural termination factor, because other budgets would hide its effect (P9)."""
    part = random.Random(f"part {seed}").choice((100, 1_000, 4_000))
    return replace(
        random_settings(seed),
        pace_permyriad=0,
        pace_queue_permyriad=0,
        pace_application_permyriad=0,
        natural_permyriad=part,
    )


class HungryDice(claim_clusters.Dice):
    """A generator of clusters in which one leaf has a large guarantee and many small asks: more claims than the budgets allow."""

    def size(self, most: int) -> Amounts:
        """Return a small size: more than one pod is evicted for an ask, and more than one ask may claim."""
        return super().size(min(most, 2))

    def guarantee(self, queues: list[Queue], pods: list[Pod]) -> None:
        """Give the leaf and all queues above it a large guarantee and no max; other queues get no guarantee."""
        super().guarantee(queues, pods)
        for queue in queues[1:]:
            asking = is_below(self.poor, queue.path)
            used = self.used(queue.path, pods)
            owed = {kind: amount + 30 for kind, amount in used.items()}
            queue.guaranteed, queue.max = (owed, None) if asking else ({}, queue.max)


@dataclass
class Round:
    """One round: when it began, what queues had over their guarantees then, and the resources of its victims."""

    began_ms: int
    over: OverUse
    taken: Counter[tuple[Measure, str]] = field(default_factory=Counter)


@dataclass
class Pacer:
    """The releases of the rounds so far, counted literally as the specification says."""

    settings: PreemptionSettings
    rounds: list[Round] = field(default_factory=list)
    put_off: int = 0

    def begins(self, began_ms: int, over: OverUse) -> None:
        """Record that a round began, which must not be before the interval of the last one is over."""
        if self.rounds:
            gap = began_ms - self.rounds[-1].began_ms
            assert gap >= self.settings.rounds_interval_ms, f"a round {gap} ms after the last (P1)"
        self.rounds.append(Round(began_ms, over))

    def decided(self, cluster: Cluster, asker: str, victims: list[Pod], now: int) -> None:
        """Assert that a decision is within every budget of the last round; the first decision of a round is exempt.

        Victims in or below the preemptor's own queues count as no loss there (P9).
        """
        last = self.rounds[-1]
        more = Counter[tuple[Measure, str]]()
        for pod in victims:
            own = [path for path in path_up(pod.queue) if not is_below(asker, path)]
            measures = [("partition", ""), ("queue", pod.queue), ("application", pod.queue)]
            for measure in measures + [("loss", path) for path in own]:
                for kind, amount in pod.size.items():
                    more[measure, kind] += amount
        if last.taken:
            for what, amount in more.items():
                used, most = self._used(what, now), self._most(cluster, what)
                assert most is None or used + amount <= most, f"{what}: {used} + {amount} of {most}"
        last.taken += more

    def _used(self, what: tuple[Measure, str], now: int) -> int:
        (measure, _), _ = what
        window = self.settings.pace_window_ms if measure != "loss" else 0
        counted = [one for one in self.rounds[:-1] if one.began_ms + window > now]
        return sum(one.taken[what] for one in [*counted, self.rounds[-1]])

    def _most(self, cluster: Cluster, what: tuple[Measure, str]) -> int | None:
        (measure, name), kind = what
        if measure == "loss":
            return self._part_most(cluster, name, kind)
        share = {
            "partition": self.settings.pace_permyriad,
            "queue": self.settings.pace_queue_permyriad,
            "application": self.settings.pace_application_permyriad,
        }[measure]
        total = sum(node.capacity.get(kind, 0) for node in cluster.nodes)
        return total * share // 10_000 if share else None

    def _part_most(self, cluster: Cluster, path: str, kind: str) -> int | None:
        """Return the part of a queue's over-use that a round may release; the partition's budget limits the over-use that counts (P9)."""
        over, part = self.rounds[-1].over.get((path, kind), 0), self.settings.natural_permyriad
        allowed = self._most(cluster, (("partition", ""), kind))
        least = over if allowed is None else min(over, allowed)
        return least * part // 10_000 if over > 0 and part else None


class PacedLife(Life):
    """A `Life` with paced rounds; with an interval, ticks get small budgets, so that rounds are interrupted."""

    asks_more = 16

    def __init__(self, seed: int, settings: PreemptionSettings | None = None) -> None:
        self.settings = settings or random_settings(seed)
        self.pacer = Pacer(self.settings)
        self.told: list[str] = []
        self.fresh = False
        self.over: OverUse | None = None
        super().__init__(seed, HungryDice if seed % 2 else claim_clusters.Dice)
        self.early = False
        self.budgets = random.Random(f"budgets {seed}")

    def new_core(self) -> Core:
        self.pacer.rounds.clear()
        self.cluster.dead_zone = self.settings.deadzone_permyriad
        return Core(claim_clusters.configuration(self.cluster, self.settings))

    def step(self) -> None:
        more = True
        while more:
            budget = (
                self.budgets.choice((1, 2, 20_000)) if self.settings.rounds_interval_ms else 20_000
            )
            self.fresh = not self.settings.rounds_interval_ms
            found = self.core.tick(self.now, budget)
            self._take_over(found.decisions)
            if self.settings.rounds_interval_ms and self._began_ms() is not None:
                self._follow_rounds()  # a round may begin and be interrupted before its first decision
            more = found.more
        self.core.validate()
        self.after_ticks()

    def _take_over(self, decisions: list[Decision]) -> None:
        self.told += [repr(one) for one in decisions]
        self.over = None
        super()._take_over(decisions)

    def _decided(self, record: DecisionRecord) -> None:
        self.over = self.over or self._over_use()
        going = {pod.key for pod in self.cluster.pods if pod.dying}
        super()._decided(record)
        victims = [pod for pod in self.cluster.pods if pod.dying and pod.key not in going]
        if record.policy == "guaranteed":
            self._follow_rounds()
            if victims:
                (one,) = record.beneficiaries
                self.pacer.decided(self.cluster, one.queue, victims, self.now)

    def _follow_rounds(self) -> None:
        """Record a new round; its beginning is the only value read from the core. Without an interval, each tick is a round."""
        began = self._began_ms() or self.now
        known = self.pacer.rounds[-1].began_ms if self.pacer.rounds else None
        if known != began or self.fresh:
            self.pacer.begins(began, self.over or self._over_use())
        self.fresh = False

    def _began_ms(self) -> int | None:
        return self.core.state.partitions["default"].round.began_ms

    def _over_use(self) -> OverUse:
        """Return the use beyond entitlement as a round sees it: after placement, before any eviction of the round."""
        left = staying(self.cluster)
        return {
            (queue.path, kind): amount - entitled(self.cluster, queue.path, kind)
            for queue in self.cluster.queues
            for kind, amount in use_of(queue.path, left).items()
        }

    def forgotten(self) -> Iterator[str]:
        """Yield the asks that wait at the end although brute force finds a claim."""
        for ask in self.cluster.asks:
            if not ask.required_node and best(self.cluster, ask) is not None:
                yield ask.key


class PacedOutsiders(Outsiders):
    """Disturbances of a `PacedLife`; half of the restarts lose the core and its record of the rounds."""

    def __init__(self, seed: int) -> None:
        self.paced = PacedLife(seed)
        super().__init__(seed, self.paced)

    def _restart(self) -> None:
        if self.random.random() < 0.5:
            self.paced.core = self.paced.new_core()
        super()._restart()
