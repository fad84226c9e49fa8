"""Random clusters in which plain asks arrive in batches, mostly of one priority; there is capacity for many, and there are few ticks."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from server.model.asks import AskSpec
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    NodeAdded,
    NodeUpdated,
)
from server.model.quota import Configuration, PartitionSpec, PriorityPolicy, QueueSpec
from server.model.resources import Resource
from tests.simulation.worlds import Moment, World, make_world

WIDER: Final = 6
"""Factor by which nodes and limits are larger, because a batch that does not fit is placed one by one."""
CALM: Final = 0.8
"""The probability that all work is done before a batch begins, and before other events follow it."""
MOST: Final = 12
"""Maximum number of asks that replace one ask."""


def flooded(seed: int) -> World:
    """Return the world of a seed with batch arrivals, without the answers of the oracle."""
    return _Flood(make_world(seed)).world


class _Flood:
    def __init__(self, dry: World) -> None:
        self.dice = random.Random(f"flood {dry.seed}")
        self.specs: dict[int, tuple[AskSpec, AskSpec]] = {}
        self.applications: dict[str, list[str]] = {}
        self.plain = self.dice.random() < 0.9
        """Whether no ask is a member of a gang or waits only for a limited time."""
        self.even = self.dice.random() < 0.8
        """Whether all asks have equal priority."""
        self.flat = self.dice.random() < 0.8
        """Whether no queue changes priorities."""
        self.wider = self.dice.choice((1, WIDER, 10 * WIDER, 100 * WIDER))
        self.flows = False
        self.ticks = self.dice.choice((0.2, 0.5))
        moments = [one for moment in dry.moments for one in self._moments(moment)]
        configuration = self._configuration(dry.configuration)
        self.world = World(dry.seed, configuration, [*moments, (moments[-1][0], None)])

    def _moments(self, moment: Moment) -> Iterator[Moment]:
        now, event = moment
        self.flows, before = isinstance(event, AskAdded), self.flows
        if event is None:
            if self.dice.random() < self.ticks:
                yield moment
            return
        if before != self.flows and self.dice.random() < CALM:
            yield now, None
        if isinstance(event, AskAdded):
            for at in range(self.dice.randint(1, MOST)):
                yield now, self._ask(event, at)
        else:
            yield now, self._event(event)

    def _ask(self, event: AskAdded, at: int) -> AskAdded:
        """Return an ask of a batch: the first is the original one, others belong to any application."""
        spec = self._spec(event.spec)
        if not at:
            return event._replace(spec=spec)
        name = self.dice.choice(self.applications.get(event.partition, [event.application_id]))
        made = self.dice.choice([spec, *(made for _, made in self.specs.values())])
        return event._replace(key=f"{event.key}-{at}", application_id=name, spec=made)

    def _event(self, event: Event) -> Event:
        if isinstance(event, ApplicationAdded):
            self.applications.setdefault(event.partition, []).append(event.application_id)
        if isinstance(event, NodeAdded):
            return event._replace(capacity=self._wide(event.capacity))
        if isinstance(event, NodeUpdated) and event.capacity is not None:
            return event._replace(capacity=self._wide(event.capacity))
        if isinstance(event, AllocationAdded):
            return event._replace(spec=self._spec(event.spec))
        if isinstance(event, ConfigurationApplied):
            return event._replace(configuration=self._configuration(event.configuration))
        return event

    def _wide(self, amounts: Resource) -> Resource:
        return tuple((name, amount * self.wider) for name, amount in amounts)

    def _spec(self, spec: AskSpec) -> AskSpec:
        """Return the spec for an ask; equal asks share one object, because the core recognises equal specs by identity."""
        if id(spec) not in self.specs:
            made = spec
            if self.plain:
                made = replace(made, timeout_ms=0, gang_key="", min_members=0)
            if self.even:
                made = replace(made, priority=0)
            self.specs[id(spec)] = spec, made
        return self.specs[id(spec)][1]

    def _configuration(self, configuration: Configuration) -> Configuration:
        return Configuration(tuple(map(self._partition, configuration.partitions)))

    def _partition(self, spec: PartitionSpec) -> PartitionSpec:
        return replace(spec, root=self._queue(spec.root))

    def _queue(self, spec: QueueSpec) -> QueueSpec:
        most = None if spec.max is None else self._wide(spec.max)
        limits = tuple(
            replace(one, max_resources=one.max_resources and self._wide(one.max_resources))
            for one in spec.limits
        )
        properties = spec.properties
        if self.flat:
            properties = replace(
                properties, priority_policy=PriorityPolicy.DEFAULT, priority_offset=0
            )
        children = tuple(map(self._queue, spec.children))
        return replace(spec, max=most, limits=limits, properties=properties, children=children)
