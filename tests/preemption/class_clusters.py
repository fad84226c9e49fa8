"""Random tiny clusters of partitions that plan for jobs: firm and lendable ones, and gangs that run (J2, J4, J12)."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from tests.preemption.claim_clusters import Dice, WeightedDice
from tests.preemption.claim_oracle import Ask, Cluster, Pod
from tests.preemption.paths import is_below

POLICIES: Final = ("required-node", "guaranteed", "job")


def classify(cluster: Cluster, chance: random.Random) -> None:
    """Give everybody a class, and some of what runs a gang; those who agree on everything are in one."""
    cluster.policies = POLICIES
    for pod in cluster.pods:
        pod.firm = chance.random() < 0.1
    for ask in cluster.asks:
        ask.firm = chance.random() < 0.4
    band(cluster.pods, chance)


def band(pods: Sequence[Pod], chance: random.Random) -> None:
    """Gangs of one application each: some just large enough, some with members to spare, some broken."""
    least = {pod.owner: chance.randint(2, 3) for pod in pods}
    for pod in pods:
        if chance.random() < 0.2:
            pod.gang, pod.least, pod.firm = "k", least[pod.owner], False
            pod.protection = 0 if pod.protection == 2 else pod.protection


class ClassDice(Dice):
    """Draws clusters in which firm asks and lendable ones wait for what few maxima leave."""

    def cluster(self) -> Cluster:
        """One cluster with two to five asks."""
        chance = random.Random(f"classes {self.seed}")
        cluster = super().cluster()
        more = self.more_asks(cluster, chance)
        cluster.asks += list(more)
        classify(cluster, chance)
        self.bound(cluster, chance)
        return cluster

    def more_asks(self, cluster: Cluster, chance: random.Random) -> Iterator[Ask]:
        """Others that wait in the poor leaf or beside it."""
        leaves = [queue.path for queue in cluster.queues if queue.leaf]
        for number in range(20, 20 + chance.choice((1, 1, 2))):
            yield self.ask(number, leaves)

    def bound(self, cluster: Cluster, chance: random.Random) -> None:
        """Much is guaranteed where most wait, and little more allowed; others are owed little."""
        for queue in cluster.queues[1:]:
            used = self.used(queue.path, cluster.pods)
            if not is_below(self.poor, queue.path):
                queue.guaranteed = {} if chance.random() < 0.6 else queue.guaranteed
            elif chance.random() < 0.8:
                queue.guaranteed = {
                    kind: much + chance.randint(1, 10) for kind, much in used.items()
                }
                most = {
                    kind: much + chance.randint(0, 6) for kind, much in queue.guaranteed.items()
                }
                queue.max = most if chance.random() < 0.7 else None


class WeightedClassDice(WeightedDice):
    """Clusters with classes where shares go by weight."""

    def cluster(self) -> Cluster:
        """One cluster with one to five asks."""
        cluster = super().cluster()
        classify(cluster, random.Random(f"classes {self.seed}"))
        return cluster


class FullClassDice(ClassDice, WeightedDice):
    """Clusters with classes where queues are full for lendable asks by what is kept for firm ones."""
