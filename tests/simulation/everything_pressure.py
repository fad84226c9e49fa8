"""Situations that require preemption: one queue uses nearly everything, and asks of entitled queues follow.

A purely random run mostly has free capacity, or no pod that may be evicted for an ask. It would make few decisions,
and leave little to check.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from server.model.asks import AskSpec, Constraints, Protection
from server.model.events import ApplicationAdded, AskAdded, ManagerRegistered, NodeUpdated
from server.model.resources import resource
from tests.preemption.attack_account import Partition
from tests.preemption.attacks import Attack

CROWD_MOST: Final = 16
"""Maximum number of pods that fill a queue at once."""
WAITED_MS: Final = 6_000
"""Milliseconds, longer than any delay of a queue."""


class Pressed(Attack):
    """A random run in which queues are filled; `chance` is the random generator for that."""

    chance: random.Random

    def found(self) -> None:
        """Add nodes, then applications (some with placeholders), then pods that fill a queue."""
        for manager in dict.fromkeys(self.managers.values()):
            self.tell(ManagerRegistered(manager))
        for _ in range(self.dice.randint(2, 4) * len(self.managers)):
            self.add_node()
        for _ in range(6 * len(self.managers)):
            self.add_application()
        self.tick()
        for partition in self.managers:
            self.besiege(partition)

    def siege(self) -> None:
        """Fill a queue with pods, and add asks that claim from it."""
        self.besiege(self.place()[0])

    def besiege(self, partition: str) -> None:
        """Fill all free capacity with small preemptible pods of one leaf; add asks of other queues and move the clock."""
        state = self.account.partitions[partition]
        self.fill(partition, state, self.rich(partition), self.crowding(state))
        self.tick()
        for _ in range(self.chance.randint(1, 3)):
            self.claim(partition)
        self.now += self.chance.choice((0, 1_000, WAITED_MS))
        self.tick()

    def rich(self, partition: str) -> str:
        """Return a leaf with a small guarantee, which the usage of the leaf soon exceeds."""
        queues = self.account.queues(partition)
        leaves = self.chance.sample(self.leaves(partition), 2)
        return min(leaves, key=lambda path: sum(dict(queues[path].guaranteed).values()))

    def crowding(self, state: Partition) -> AskSpec:
        """Return an ask to fill a queue with: low priority, preemptible, lendable."""
        return replace(
            self.spec(state),
            resource=resource({kind: self.chance.choice((1, 1, 2, 3)) for kind in self.kinds}),
            priority=self.chance.choice((0, 0, 0, 1)),
            constraints=Constraints(),
            originator=False,
            allow_preempt_self=self.chance.random() < 0.85,
            protection=Protection.NORMAL,
            lendable=self.chance.choice((None, True)),
            rm_check=False,
            timeout_ms=0,
        )

    def fill(self, partition: str, state: Partition, leaf: str, spec: AskSpec) -> None:
        """Add as many asks as the open nodes have capacity for, and one more."""
        size = dict(spec.resource)
        fits = 0
        for name, node in state.nodes.items():
            used = state.used(name)
            free = [
                (node.capacity.get(kind, 0) - used[kind]) // each for kind, each in size.items()
            ]
            fits += max(0, min(free)) if node.open else 0
        self.ask(partition, leaf, spec, min(fits + 1, CROWD_MOST))

    def ask(self, partition: str, leaf: str, spec: AskSpec, count: int) -> None:
        """Add asks of a new application to a leaf, old enough to claim."""
        manager, name = self.managers[partition], self.name("app")
        user = self.chance.choice(("ann", "bob"))
        self.tell(ApplicationAdded(manager, name, leaf, partition, user))
        for _ in range(count):
            created = self.now - WAITED_MS
            self.tell(AskAdded(manager, self.name("p"), name, spec, partition, created))

    # -- asks that claim ---------------------------------------------------------------------------------------------------

    def claimant(self, state: Partition) -> AskSpec:
        """Return the specification of an ask that may claim and is important."""
        return replace(
            self.spec(state),
            priority=self.chance.choice((1, 2, 5)),
            constraints=Constraints(),
            allow_preempt_other=True,
            may_trigger=self.chance.choice((None, True)),
            originator=False,
            protection=Protection.NORMAL,
            rm_check=False,
            timeout_ms=0,
        )

    def claim(self, partition: str = "") -> None:
        """Add asks or a gang of a leaf that is below its guarantee, or else of the leaf that uses least."""
        partition = partition or self.place()[0]
        state = self.account.partitions[partition]
        spec, count = self.claimant(state), self.chance.randint(1, 3)
        if self.chance.random() < 0.35:
            count = self.chance.randint(2, 3)
            spec = replace(spec, gang_key=self.name("j"), min_members=count)
        self.ask(partition, self.hungry(partition, state), spec, count)

    def hungry(self, partition: str, state: Partition) -> str:
        """Return a leaf that lacks a part of its own guarantee or that of a queue above; else the leaf that uses least."""
        queues, leaves = self.account.queues(partition), self.leaves(partition)
        lacking = []
        for path in leaves:
            above = [one for one in queues if f"{path}.".startswith(f"{one}.")]
            if any(
                state.usage(one, dying=False)[kind] < least
                for one in above
                for kind, least in queues[one].guaranteed
            ):
                lacking.append(path)
        if lacking:
            return self.chance.choice(lacking)
        return min(leaves, key=lambda path: state.usage(path, dying=False).total())

    def replace_own(self) -> None:
        """Add more important asks to a leaf that uses all that it is allowed to use (I2)."""
        partition, state, _ = self.place()
        running = self.pods(state, running=True)
        if running:
            leaf = state.applications[self.chance.choice(running).application][0]
            self.ask(partition, leaf, replace(self.claimant(state), priority=5), 1)

    def daemon(self) -> None:
        """Add a pod for each of some nodes that are full (G11)."""
        partition, state, _ = self.place()
        nodes = [name for name, node in state.nodes.items() if node.open]
        for node in self.chance.sample(nodes, min(len(nodes), self.chance.randint(1, 2))):
            spec = replace(self.claimant(state), constraints=Constraints(required_node=node))
            self.ask(partition, self.chance.choice(self.leaves(partition)), spec, 1)

    def squeeze(self) -> None:
        """Shrink a node below what its pods use (W3)."""
        partition, state, manager = self.place()
        if not state.nodes:
            return
        node = self.chance.choice(list(state.nodes))
        used = state.used(node)
        left = {kind: max(1, used[kind] - self.chance.randint(1, 4)) for kind in self.kinds}
        self.tell(NodeUpdated(manager, node, resource(left), partition))

    def pressure(self) -> list[tuple[Callable[[], None], int]]:
        """Return the actions, each with its frequency."""
        return [
            (self.siege, 20),
            (self.claim, 10),
            (self.replace_own, 6),
            (self.daemon, 4),
            (self.squeeze, 8),
        ]
