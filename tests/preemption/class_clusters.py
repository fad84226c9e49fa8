"""Random tiny clusters of partitions that list policy `job`: firm and lendable pods, and running gangs (J2, J4, J12)."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from tests.preemption.claim_clusters import Dice, WeightedDice
from tests.preemption.claim_oracle import Ask, Cluster, Pod
from tests.preemption.paths import is_below

POLICIES: Final = ("required-node", "guaranteed", "job")


def classify(cluster: Cluster, chance: random.Random) -> None:
    """Give every pod and ask a class, and make some running pods gangs; pods with equal properties form one gang."""
    cluster.policies = POLICIES
    for pod in cluster.pods:
        pod.firm = chance.random() < 0.1
    for ask in cluster.asks:
        ask.firm = chance.random() < 0.4
    band(cluster.pods, chance)


def band(pods: Sequence[Pod], chance: random.Random) -> None:
    """Make gangs of one application each: some with exactly their minimum of members, some with more, some with fewer."""
    least = {pod.owner: chance.randint(2, 3) for pod in pods}
    for pod in pods:
        if chance.random() < 0.2:
            pod.gang, pod.least, pod.firm = "k", least[pod.owner], False
            pod.protection = 0 if pod.protection == 2 else pod.protection


class ClassDice(Dice):
    """A generator of clusters in which firm and lendable asks wait for the headroom below a few maxima."""

    def cluster(self) -> Cluster:
        """Return a cluster with two to five asks."""
        chance = random.Random(f"classes {self.seed}")
        cluster = super().cluster()
        more = self.more_asks(cluster, chance)
        cluster.asks += list(more)
        classify(cluster, chance)
        self.bound(cluster, chance)
        return cluster

    def more_asks(self, cluster: Cluster, chance: random.Random) -> Iterator[Ask]:
        """Yield further asks that wait in the poor leaf or next to it."""
        leaves = [queue.path for queue in cluster.queues if queue.leaf]
        for number in range(20, 20 + chance.choice((1, 1, 2))):
            yield self.ask(number, leaves)

    def bound(self, cluster: Cluster, chance: random.Random) -> None:
        """Give the queue with the most waiting asks a high guarantee and a slightly higher max; give other queues low guarantees."""
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
    """A generator of clusters with classes and shares by weight."""

    def cluster(self) -> Cluster:
        """Return a cluster with one to five asks."""
        cluster = super().cluster()
        classify(cluster, random.Random(f"classes {self.seed}"))
        return cluster


class FullClassDice(ClassDice, WeightedDice):
    """A generator of clusters with classes whose queues keep all remaining capacity for firm asks, and none for lendable asks."""
