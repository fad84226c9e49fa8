"""Small random clusters and their events, determined by a seed.

A world is drawn while the oracle runs it, so that releases, updates and node changes concern existing objects.
Numbers are small and there are few shapes, so that ties, full nodes and exhausted headroom are frequent.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from server.model.asks import PRIORITY_MAX, PRIORITY_MIN, AskSpec, Taint
from server.model.decisions import Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    ReleaseRequested,
    SyncCompleted,
)
from server.model.quota import Configuration, PreemptionSettings, QueueSpec
from server.model.resources import resource
from tests.simulation.oracle import NaiveCore
from tests.simulation.shapes import LABELS, TAINTS, Shapes, leaves
from tests.simulation.tables import Item

START = 1_700_000_000_000
MANAGER = "rm"
LATE_MANAGER = "rm-late"
"""The owner of a second partition, with explicit sync; nothing is placed in that partition until it has synced."""

Moment = tuple[int, Event | None]
"""An instant, and an event or None for a tick."""


@dataclass
class World:
    """A configuration and everything that happens under it."""

    seed: int
    configuration: Configuration
    moments: list[Moment] = field(default_factory=list)
    expected: list[object] = field(default_factory=list)
    """The oracle's answers at each moment while the world was drawn; empty when they must be computed again."""


def make_world(seed: int, *, by_weight: bool = False) -> World:
    """Return the world of a seed: equal seeds give equal worlds. With `by_weight` its queues may share by weight."""
    return _Drawing(seed, by_weight=by_weight).draw()


def preempting(configuration: Configuration) -> Configuration:
    """Return the configuration with preemption switched on; the oracle of placement does not implement preemption."""
    partitions = (
        replace(spec, preemption=PreemptionSettings(backoff_ms=1_000))
        for spec in configuration.partitions
    )
    return replace(configuration, partitions=tuple(partitions))


def sharing(configuration: Configuration, *, demand_cap: bool) -> Configuration:
    """Return the configuration with preemption switched on and shares by weight; the name of a queue determines its weight."""
    settings = PreemptionSettings(
        backoff_ms=1_000, entitlement="proportional", demand_cap=demand_cap, trigger="after"
    )
    partitions = (
        replace(spec, root=_weighted(spec.root), preemption=settings)
        for spec in configuration.partitions
    )
    return replace(configuration, partitions=tuple(partitions))


def _weighted(queue: QueueSpec) -> QueueSpec:
    children = tuple(_weighted(child) for child in queue.children)
    return replace(queue, weight=1 + sum(map(ord, queue.name)) % 4, children=children)


def oracle_says(oracle: NaiveCore, moment: Moment) -> object:
    """Return the oracle's answer to an event or a tick, to compare with the core's."""
    now, event = moment
    if event is not None:
        return {"rejected": oracle.handle(event, now)}
    return {"placed": oracle.tick(now), "reserved": oracle.reservations()}


class _Drawing:
    """A generator of one world, event by event."""

    def __init__(self, seed: int, *, by_weight: bool) -> None:
        self.dice = random.Random(seed)
        self.shapes = Shapes(self.dice, random.Random(f"weights {seed}") if by_weight else None)
        self.world = World(seed, self.shapes.configuration())
        self.oracle = NaiveCore(self.world.configuration)
        self.now = START
        self.names = 0
        self.partitions = [spec.name for spec in self.world.configuration.partitions]
        self.late = LATE_MANAGER if self.dice.random() < 0.5 else MANAGER

    def draw(self) -> World:
        """Create the cluster, then add random events."""
        self._found()
        happenings: list[tuple[Callable[[], None], int]] = [
            (self._asks, 26),
            (self._release, 14),
            (self._put_back, 6),
            (self._update_ask, 8),
            (self._add_node, 4),
            (self._change_node, 12),
            (self._remove_node, 2),
            (self._foreign, 7),
            (self._application, 4),
            (self._remove_application, 1),
            (self._recover, 3),
            (self._configure, 6),
            (self._wait, 12),
            (self._sync, 8),
        ]
        actions = [action for action, _ in happenings]
        weights = [weight for _, weight in happenings]
        for action in self.dice.choices(actions, weights, k=self.dice.randint(6, 20)):
            action()
            if self.dice.random() < 0.7:
                self._tick()
        self._sync()
        self._wait()
        self._tick()
        return self.world

    def _say(self, event: Event | None) -> None:
        moment = (self.now, event)
        self.world.moments.append(moment)
        self.world.expected.append(oracle_says(self.oracle, moment))

    def _tick(self) -> None:
        self._say(None)

    def _name(self, word: str) -> str:
        self.names += 1
        return f"{word}{self.names}"

    def _partition(self) -> str:
        return self.dice.choice(self.partitions)

    # -- the first objects ------------------------------------------------------------------------------

    def _found(self) -> None:
        self._say(ManagerRegistered(MANAGER, explicit_sync=self.dice.random() < 0.1))
        self._say(ManagerRegistered(LATE_MANAGER, explicit_sync=True))
        many = self.dice.random() < 0.05
        for _ in range(self.dice.randint(20, 24) if many else self.dice.randint(1, 6)):
            self._add_node()
        for _ in range(self.dice.randint(1, 6)):
            self._application()
        for _ in range(self.dice.choice((0, 0, 0, 1, 3))):
            self._recover()
        for _ in range(self.dice.randint(1, 4)):
            self._asks()
        self._tick()

    def _manager(self, partition: str) -> str:
        return MANAGER if partition == "default" else self.late

    def _add_node(self) -> None:
        dice, partition = self.dice, self._partition()
        self._say(
            NodeAdded(
                self._manager(partition),
                self._name("n"),
                self.shapes.capacity(),
                schedulable=dice.random() < 0.9,
                partition=partition,
                labels=self._labels(),
                taints=self._taints(),
            )
        )

    def _labels(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (key, self.dice.choice(values)) for key, values in LABELS if self.dice.random() < 0.7
        )

    def _taints(self) -> tuple[Taint, ...]:
        return (self.dice.choice(TAINTS),) if self.dice.random() < 0.15 else ()

    def _application(self) -> None:
        dice, partition = self.dice, self._partition()
        spec = self.oracle.partitions[partition].spec
        names = dice.choice((("g1",), ("g2",), ("g2", "g1"), ()))
        self._say(
            ApplicationAdded(
                self._manager(partition),
                self._name("app"),
                dice.choice(leaves(spec.root)) if dice.random() < 0.97 else "root.nowhere",
                partition,
                dice.choice(("u1", "u2", "u3")),
                names,
            )
        )

    # -- events ------------------------------------------------------------------------------

    def _some_application(self) -> tuple[str, str] | None:
        known = [
            (name, application)
            for name, partition in self.oracle.partitions.items()
            for application in partition.applications
        ]
        return self.dice.choice(known) if known else None

    def _some_item(self, *, placed: bool) -> tuple[str, Item] | None:
        known = [
            (name, item)
            for name, partition in self.oracle.partitions.items()
            for item in partition.items.values()
            if bool(item.node_id) == placed
        ]
        return self.dice.choice(known) if known else None

    def _some_node(self) -> tuple[str, str] | None:
        known = [
            (name, node)
            for name, partition in self.oracle.partitions.items()
            for node in partition.nodes
        ]
        return self.dice.choice(known) if known else None

    def _asks(self) -> None:
        found = self._some_application()
        if found is None:
            return
        partition, application = found
        nodes = list(self.oracle.partitions[partition].nodes)
        spec = self.shapes.spec(nodes)
        for _ in range(self.dice.randint(1, 6)):
            created = self.now - self.dice.choice((0, 1, 1_500, 5_000, -10))
            self._say(
                AskAdded(
                    self._manager(partition),
                    self._name("a"),
                    application,
                    spec,
                    partition,
                    created if self.dice.random() < 0.3 else None,
                )
            )

    def _recover(self) -> None:
        """Report an existing allocation, as a shim would, perhaps where it does not fit."""
        found = self._some_application()
        nodes = list(self.oracle.partitions[found[0]].nodes) if found else []
        if found and nodes:
            node = self.dice.choice(nodes)
            spec = self.shapes.spec(nodes)
            self._say(
                AllocationAdded(
                    self._manager(found[0]), self._name("e"), found[1], node, spec, found[0]
                )
            )

    def _release(self) -> None:
        found = self._some_item(placed=self.dice.random() < 0.8)
        if found:
            partition, item = found
            self._say(
                ReleaseRequested(
                    self._manager(partition), item.application.application_id, item.key, partition
                )
            )

    def _put_back(self) -> None:
        found = self._some_item(placed=True)
        if found:
            partition, item = found
            self._say(
                ReleaseRequested(
                    self._manager(partition),
                    item.application.application_id,
                    item.key,
                    partition,
                    Termination.SCHEDULING_FAILED_ON_RM,
                )
            )

    def _update_ask(self) -> None:
        found = self._some_item(placed=self.dice.random() < 0.3)
        if found is None:
            return
        partition, item = found
        spec = self._other(item.spec)
        self._say(
            AskAdded(
                self._manager(partition), item.key, item.application.application_id, spec, partition
            )
        )

    def _other(self, spec: AskSpec) -> AskSpec:
        wanted = {
            kind: max(1, amount + self.dice.choice((-2, -1, 1, 2)))
            for kind, amount in spec.resource
        }
        priority = spec.priority + self.dice.choice((0, 0, 1, -3))
        priority = min(max(priority, PRIORITY_MIN), PRIORITY_MAX)
        return replace(spec, resource=resource(wanted), priority=priority)

    def _change_node(self) -> None:
        found = self._some_node()
        if found is None:
            return
        partition, node = found
        event: Event = self.dice.choice(
            (
                NodeDrained(self._manager(partition), node, partition),
                NodeEnabled(self._manager(partition), node, partition),
                NodeEnabled(self._manager(partition), node, partition),
                NodeUpdated(self._manager(partition), node, self.shapes.capacity(), partition),
                NodeUpdated(
                    self._manager(partition), node, None, partition, self._labels(), self._taints()
                ),
            )
        )
        self._say(event)

    def _remove_node(self) -> None:
        found = self._some_node()
        if found:
            self._say(NodeRemoved(self._manager(found[0]), found[1], found[0]))

    def _foreign(self) -> None:
        """Add, resize, move or remove a pod of another scheduler."""
        found = self._some_node()
        if found is None:
            return
        partition, node = found
        known = [
            key for each in self.oracle.partitions[partition].nodes.values() for key in each.foreign
        ]
        key = self.dice.choice(known) if known and self.dice.random() < 0.6 else self._name("f")
        if key in known and self.dice.random() < 0.5:
            self._say(ReleaseRequested(self._manager(partition), "", key, partition))
            return
        taken = resource({kind: self.dice.randint(1, 6) for kind in self.shapes.kinds[:2]})
        self._say(ForeignAdded(self._manager(partition), key, node, taken, partition))

    def _remove_application(self) -> None:
        found = self._some_application()
        if found:
            self._say(ApplicationRemoved(self._manager(found[0]), found[1], found[0]))

    def _configure(self) -> None:
        changed = self.shapes.changed([each.spec for each in self.oracle.partitions.values()])
        self._say(ConfigurationApplied(changed, "test"))

    def _wait(self) -> None:
        self.now += self.dice.choice((1, 500, 2_000, 2_000, 5_000, 61_000))

    def _sync(self) -> None:
        for manager in sorted(self.oracle.unsynced):
            self._say(SyncCompleted(manager))
