"""Random clusters whose jobs have classes: every ask is firm or lendable, and no pod is evicted (J2, J4)."""

import random
from dataclasses import replace
from typing import Final

from server.model.asks import AskSpec
from server.model.events import AllocationAdded, AskAdded, ConfigurationApplied
from server.model.quota import Configuration, PreemptionSettings
from tests.simulation.worlds import Moment, World, make_world

SETTINGS: Final = PreemptionSettings(enabled=False, policies=("job",))


def classified(seed: int) -> World:
    """Return the cluster of a seed with classes, without the oracle's answers, which must be computed again."""
    world = make_world(seed)
    specs: dict[tuple[int, bool | None], AskSpec] = {}
    moments = [_moment(one, seed, specs) for one in world.moments]
    return World(seed, _with_classes(world.configuration), moments)


def _with_classes(configuration: Configuration) -> Configuration:
    partitions = (replace(one, preemption=SETTINGS) for one in configuration.partitions)
    return replace(configuration, partitions=tuple(partitions))


def _moment(moment: Moment, seed: int, specs: dict[tuple[int, bool | None], AskSpec]) -> Moment:
    now, event = moment
    if isinstance(event, ConfigurationApplied):
        return now, event._replace(configuration=_with_classes(event.configuration))
    if not isinstance(event, AskAdded | AllocationAdded):
        return moment
    name = event.spec.gang_key or event.key
    lendable = random.Random(f"{seed} {event.application_id} {name}").choice((True, None, False))
    known = id(event.spec), lendable
    if known not in specs:
        specs[known] = replace(event.spec, lendable=lendable)
    return now, event._replace(spec=specs[known])
