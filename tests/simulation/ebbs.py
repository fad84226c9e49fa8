"""Clusters with batches of arrivals and, from time to time, many ends of pods in one message; every second cluster preempts."""

import random
from collections.abc import Iterator
from typing import Final

from server.model.decisions import Termination
from server.model.events import (
    AllocationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ReleaseRequested,
)
from tests.simulation.floods import flooded
from tests.simulation.worlds import Moment, World, preempting

OFTEN: Final = 0.15
MOST: Final = 40
"""Maximum number of consecutive ends; the pods may run, wait, or be gone already."""
CALM: Final = 0.6
ODD: Final = 0.08
"""The probability that an end is an unusual one."""


def ebbing(seed: int) -> World:
    """Return the world of a seed with batch departures, without the oracle's answers."""
    world = flooded(seed)
    moments = list(_Ebb(seed).moments(world.moments))
    if seed % 2:
        return World(seed, world.configuration, moments)
    return World(seed, preempting(world.configuration), [(now, _bold(one)) for now, one in moments])


def _bold(event: Event | None) -> Event | None:
    if isinstance(event, ConfigurationApplied):
        return event._replace(configuration=preempting(event.configuration))
    return event


class _Ebb:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"ebb {seed}")
        self.known: list[AskAdded | AllocationAdded] = []

    def moments(self, flood: list[Moment]) -> Iterator[Moment]:
        """Yield the moments of a cluster with batches of arrivals, and insert ends of pods between them."""
        for now, event in flood:
            yield now, event
            if isinstance(event, AskAdded | AllocationAdded):
                self.known.append(event)
            if self.known and self.dice.random() < OFTEN:
                yield from ((now, one) for one in self._row())

    def _row(self) -> Iterator[Event | None]:
        if self.dice.random() < CALM:
            yield None
        for one in self._some():
            made = ReleaseRequested(one.rm_id, one.application_id, one.key, one.partition)
            yield self._odd(made) if self.dice.random() < ODD else made
        if self.dice.random() < CALM:
            yield None

    def _some(self) -> list[AskAdded | AllocationAdded]:
        """Return the pods whose ends are reported; some of them are reported again later."""
        some = self.dice.sample(self.known, min(len(self.known), self.dice.randint(1, MOST)))
        gone = {id(one) for one in some if self.dice.random() > ODD}
        self.known = [one for one in self.known if id(one) not in gone]
        return some

    def _odd(self, made: ReleaseRequested) -> ReleaseRequested:
        return self.dice.choice(
            (
                made._replace(asks_only=True),
                made._replace(application_id=""),
                made._replace(application_id="somebody else's"),
                made._replace(rm_id="nobody"),
                made._replace(partition="nowhere"),
                made._replace(key=""),
                made._replace(message="it was time"),
                made._replace(termination=Termination.SCHEDULING_FAILED_ON_RM),
                made._replace(termination=Termination.PREEMPTED_BY_SCHEDULER),
            )
        )
