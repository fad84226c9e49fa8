"""The whole core in one process: asks in, decisions out."""

import gc
import time
from dataclasses import dataclass

from server.core.core import Core
from server.model.decisions import Placed
from tests.bench.workloads import Workload, asks, configuration, set_up

NOW = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One run. ``longest_tick`` and ``wall`` in seconds; ``cpu`` of this process."""

    placed: int
    wall: float
    cpu: float
    longest_tick: float


def run(workload: Workload, budget: int = 2_000) -> Figure:
    """Hand all asks to the core and tick until nothing more is placed."""
    core = Core(configuration(workload))
    for event in set_up(workload):
        core.handle(event, NOW)
    core.tick(NOW)
    events = asks(workload)
    gc.collect()
    gc.freeze()
    gc.disable()
    started, cpu = time.perf_counter(), time.process_time()
    for ask in events:
        core.handle(ask, NOW)
    placed, longest = _drain(core, budget)
    figure = Figure(placed, time.perf_counter() - started, time.process_time() - cpu, longest)
    gc.enable()
    gc.unfreeze()
    return figure


def _drain(core: Core, budget: int) -> tuple[int, float]:
    placed = 0
    longest = 0.0
    more = True
    while more:
        begun = time.perf_counter()
        tick = core.tick(NOW, budget)
        longest = max(longest, time.perf_counter() - begun)
        placed += sum(isinstance(one, Placed) for one in tick.decisions)
        more = tick.more
    return placed, longest
