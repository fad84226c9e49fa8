"""Random tiny clusters with asks that may replace pods of their own queue."""

import random
from dataclasses import replace
from typing import Final

from tests.preemption.claim_clusters import START, WeightedDice
from tests.preemption.claim_oracle import Ask, Cluster, Pod, Queue
from tests.preemption.class_clusters import band
from tests.preemption.paths import is_below

ALONE: Final = ("in-queue",)
BESIDE_CLAIMS: Final = ("required-node", "guaranteed", "in-queue")
BESIDE_JOBS: Final = ("guaranteed", "job", "in-queue")
LISTS: Final = (ALONE, ALONE, ALONE, BESIDE_CLAIMS, BESIDE_JOBS, BESIDE_JOBS)


class OwnDice(WeightedDice):
    """A generator of clusters in which one queue has most pods, of several applications and priorities."""

    def cluster(self) -> Cluster:
        """Return a cluster with one or two asks."""
        chance = random.Random(f"in-queue {self.seed}")
        by_weight = chance.random() < 0.15
        cluster = super().cluster()
        if not by_weight:
            cluster = replace(
                cluster,
                entitlement="guaranteed",
                demand_cap=True,
                trigger="before",
                overshoot="none",
            )
        cluster.now, cluster.policies = START, chance.choice(LISTS)
        cluster.asks = [self.own_ask(number, chance) for number in range(chance.choice((1, 1, 2)))]
        for pod in cluster.pods:
            self.move(pod, chance)
        for queue in cluster.queues[1:]:
            self.bound(queue, cluster, chance)
        if "job" in cluster.policies:
            for pod in cluster.pods:
                pod.firm = chance.random() < 0.15
            for ask in cluster.asks:
                ask.firm = chance.random() < 0.15
            band([pod for pod in cluster.pods if pod.queue == self.poor], chance)
        return cluster

    def own_ask(self, number: int, chance: random.Random) -> Ask:
        """Return an ask of the queue; most of these asks have waited for longer than the delay."""
        ask = self.ask(number, [self.poor])
        ask.queue, ask.priority = self.poor, chance.choice((0, 1, 1, 2, 2))
        ask.application = chance.choice((self.application("x"), self.application("y")))
        ask.waited = chance.choice((60_000, 60_000, 60_000, 60_000, 20_000))
        return ask

    def move(self, pod: Pod, chance: random.Random) -> None:
        """Move most running pods to the queue of the waiting asks, and some to the asks' application."""
        if chance.random() < 0.7:
            pod.queue = self.poor
            pod.application = self.application(chance.choice("xyzz"))
            pod.priority = chance.choice((0, 0, 0, 1, 1, 2))

    def application(self, name: str) -> str:
        """Return an application of the queue."""
        return f"{name}-{self.poor}"

    def bound(self, queue: Queue, cluster: Cluster, chance: random.Random) -> None:
        """Set guarantees and maxima close to the present use, and delays and minimum running times in the range of the random ones."""
        if not is_below(self.poor, queue.path):
            return
        used = self.used(queue.path, cluster.pods)
        queue.guaranteed = self.near(used, -9, 3) if chance.random() < 0.6 else {}
        queue.max = self.near(used, -1, 6) if chance.random() < 0.5 else None
        queue.delay = chance.choice((30_000, 30_000, 30_000, 10_000))
        queue.min_runtime = chance.choice((0, 0, 0, 3_000))
