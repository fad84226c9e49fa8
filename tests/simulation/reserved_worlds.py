"""Random worlds with many reservations: more of them, earlier, under all settings, and for asks of all priorities."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pytest

from server.model.events import AskAdded, ConfigurationApplied, Event
from server.model.quota import Configuration, ReservationSettings
from tests.simulation.classes import classified
from tests.simulation.worlds import World, make_world

PRIORITIES: Final = (0, 0, 1, 2, 5)
BOUNDS: Final = (0, 1_000, 3_000, 20_000, 600_000)
AFTER_MS: Final = 500


@contextmanager
def eager() -> Iterator[None]:
    """Let core and oracle reserve up to every second node, and already after half a second."""
    with pytest.MonkeyPatch.context() as patch:
        for module, after in (
            ("server.preemption.nodes.reservation", "RESERVE_AFTER_MS"),
            ("tests.simulation.reserving", "RESERVATION_AFTER_MS"),
        ):
            patch.setattr(f"{module}.NODES_PER_RESERVATION", 2)
            patch.setattr(f"{module}.{after}", AFTER_MS)
        yield


def reserved(seed: int, made: Callable[[int], World] = make_world) -> World:
    """Return the world of a seed with other priorities and settings of reservations, without the oracle's answers."""
    dry, dice = made(seed), random.Random(f"reserved {seed}")
    moments = [(now, None if event is None else _event(event, dice)) for now, event in dry.moments]
    return World(seed, _configuration(dry.configuration, dice), moments)


def _event(event: Event, dice: random.Random) -> Event:
    if isinstance(event, AskAdded):
        return event._replace(spec=replace(event.spec, priority=dice.choice(PRIORITIES)))
    if isinstance(event, ConfigurationApplied):
        return event._replace(configuration=_configuration(event.configuration, dice))
    return event


def _configuration(configuration: Configuration, dice: random.Random) -> Configuration:
    settings = ReservationSettings(dice.random() < 0.9, dice.choice(BOUNDS))
    partitions = (replace(spec, reservations=settings) for spec in configuration.partitions)
    return replace(configuration, partitions=tuple(partitions))


def reserved_with_classes(seed: int) -> World:
    """Return the world of a seed with reservations, where asks are firm or lendable."""
    return reserved(seed, classified)
