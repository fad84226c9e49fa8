"""The processor time of the core in which nothing can be placed while a text changes queues in use, without gRPC.

Run as ``python -m tests.bench.switching [QUEUES] [KIND]``: each line has a kind of change, its longest event or tick, the longest
part of one, and the sum of all. With a KIND, a profile of its events and ticks follows.
"""

import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from server.config import load
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    ManagerRegistered,
    NodeAdded,
)
from server.model.parts import Parts
from server.model.quota import Configuration
from server.model.resources import resource
from server.rpc.limits import TICK_BUDGET, TICK_BUDGET_MIN
from tests.bench.calibration import calibrate
from tests.bench.changed import POD, PODS, Changed, kinds, names

QUEUES: Final = 10_000
_T = TypeVar("_T")
_NOW: Final = 1_000


def configuration(changed: Changed, *, is_first: bool) -> Configuration:
    """Return the configuration of a text."""
    found, problems = load(changed.text(is_first=is_first))
    assert found is not None, problems[:1]
    return found


def filled(changed: Changed, first: Configuration) -> Core:
    """Return a core in which each queue has a placed pod and pods that wait."""
    core, queues = Core(first), range(changed.queues - 2)
    core.handle(ManagerRegistered("rm"), _NOW)
    for name in names(changed.partitions):
        size = resource({"vcore": 21 * POD, "memory": 1 << 40})
        core.take(
            [NodeAdded("rm", f"{name}{at}", size, partition=name) for at in queues[::10]], _NOW
        )
        core.take(
            [ApplicationAdded("rm", f"{name}{at}", f"root.q{at}", name) for at in queues], _NOW
        )
        spec = AskSpec(resource({"vcore": POD}))
        for pod in range(PODS):
            asks = [AskAdded("rm", f"{name}{at}-{pod}", f"{name}{at}", spec, name) for at in queues]
            core.take(asks, _NOW)
        while core.tick(_NOW).more:
            pass
    return core


def switched(core: Core, brought: Configuration) -> Iterator[tuple[float, float]]:
    """Apply a configuration. Yield the seconds of its event and of each following tick, and the longest part of each."""
    for _ in core.prepare(brought):
        pass
    event = ConfigurationApplied(brought, "bench", one_by_one=True)
    yield _measured(core.take_in_parts(event, _NOW))[1:]
    more, budget = True, TICK_BUDGET_MIN
    while more:
        done, seconds, longest = _measured(core.tick_in_parts(_NOW, budget))
        more, budget = done.more, TICK_BUDGET
        yield seconds, longest
    for _ in core.drop_prepared():
        pass


def _measured(parts: Parts[_T]) -> tuple[_T, float, float]:
    """Do work in parts. Return its result, its seconds of processor time, and those of its longest part."""
    begun = before = time.process_time()
    longest = 0.0
    while True:
        try:
            next(parts)
        except StopIteration as end:
            now = time.process_time()
            return end.value, now - begun, max(longest, now - before)
        now = time.process_time()
        longest, before = max(longest, now - before), now


def main(arguments: Sequence[str]) -> None:
    """Print a line for each kind of change, and a profile of the kind that is named."""
    queues = int(arguments[0]) if arguments else QUEUES
    for one in kinds(queues):
        if arguments[1:] and one.name != arguments[1]:
            continue
        first, second = (configuration(one, is_first=is_first) for is_first in (True, False))
        core = filled(one, first)
        gc.collect()
        gc.freeze()
        gc.disable()
        profile = cProfile.Profile() if arguments[1:] else None
        for brought, which in ((second, "there"), (first, "back")):
            if profile is not None:
                profile.enable()
            steps = [*switched(core, brought)]
            if profile is not None:
                profile.disable()
            event, longest = 1e3 * steps[0][0], 1e3 * max(took for took, _ in steps)
            part, whole = 1e3 * max(part for _, part in steps), 1e3 * sum(took for took, _ in steps)
            at = max(range(len(steps)), key=lambda number: steps[number][0])
            print(  # noqa: T201 - the report
                f"{one.name:28} {which:6} event {event:6.1f} longest {longest:6.1f} (step {at}) "
                f"part {part:5.1f} all {whole:7.1f} ms, {len(steps) - 1} ticks, "
                f"calibration {1e3 * calibrate():.0f} ms",
                flush=True,
            )
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        gc.unfreeze()
        gc.enable()


if __name__ == "__main__":
    main(sys.argv[1:])
