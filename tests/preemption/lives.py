"""Random clusters in a running core: the states after each tick, on which the planner is tested."""

from collections.abc import Iterator
from dataclasses import replace

from server.core.core import Core
from server.state.partition import Partition
from tests.simulation.termination import check_calm
from tests.simulation.worlds import make_world


def partitions_after_each_tick(seeds: range) -> Iterator[tuple[str, Partition, int]]:
    """Yield a place (seed and moment, for messages), the partition and the instant; every third seed also runs with weights."""
    for seed in seeds:
        yield from _one(seed, by_weight=False)
        if seed % 3 == 2:
            yield from _one(seed, by_weight=True)


def _one(seed: int, *, by_weight: bool) -> Iterator[tuple[str, Partition, int]]:
    world = make_world(seed, by_weight=by_weight)
    core = Core(world.configuration)
    for at, (now, event) in enumerate(world.moments):
        if event is not None:
            core.handle(event, now)
            continue
        while core.tick(now).more:
            pass
        check_calm(core)
        for partition in core.state.partitions.values():
            yield f"seed {seed}, by weight {by_weight}, moment {at}", partition, now


def without_preemption(partition: Partition) -> None:
    """Switch preemption off, so that only reservations are planned from now on."""
    settings = replace(partition.spec.preemption, enabled=False)
    partition.spec = replace(partition.spec, preemption=settings)
