"""Measurements within one process: the placement of a whole workload, and churn on a cluster that this workload fills."""

import time
from collections.abc import Sequence

from server.core.core import Core
from server.model.events import AskAdded, Event, ReleaseRequested
from tests.bench.figures import Run
from tests.bench.processes import own_peak_mib
from tests.bench.quiet import Stopwatch
from tests.bench.shell import Shell, shell
from tests.bench.workloads import RM, Workload, asks, configuration, set_up

CHURNED = 1_000
"""Number of releases, and of new asks, in one batch of churn; a server gathers as many under a backlog of messages."""
ROUNDS = 100


class Watch(Stopwatch):
    """The stopwatch of placements."""

    def stop(self, placed: int, one: Shell) -> Run:
        """Return the figures of the placements since the start."""
        wall, cpu = self.taken()
        values = {
            "placements": placed / wall,
            "placed": placed,
            "longest tick": 1_000 * one.longest,
            "longest tick, CPU": 1_000 * one.longest_cpu,
        }
        return Run(values, cpu, own_peak_mib())


def _standing(workload: Workload) -> Shell:
    """Return the shell of a core that knows the cluster and has no idle work left."""
    made = shell(Core(configuration(workload)))
    made.take(list(set_up(workload)))
    made.rest()
    made.forget()
    return made


def filled(workload: Workload, running: Sequence[AskAdded]) -> Shell:
    """Return the shell of a core on whose cluster all of these asks run."""
    made = _standing(workload)
    _all_placed(made, running)
    made.rest()
    return made


def place(workload: Workload) -> Run:
    """Measure the placement of all asks that arrive at once, from the first ask to the last placement."""
    one = _standing(workload)
    events = asks(workload)
    one.rest()  # Garbage of the benchmark itself is not collected in the middle of the core's work.
    watch = Watch()
    _all_placed(one, events)
    return watch.stop(len(events), one)


def churn(workload: Workload) -> Run:
    """Measure a full cluster on which pods end and others arrive; each batch is sent when the batch before it is placed."""
    standing = asks(workload)
    one = filled(workload, standing)
    many = min(CHURNED, workload.asks)
    rounds = min(ROUNDS, workload.asks // many)
    coming = asks(workload, first=workload.asks, count=rounds * many)
    one.rest()
    one.forget()
    watch = Watch()
    for at in range(0, len(coming), many):
        one.now += 10
        part = slice(at, at + many)
        _all_placed(one, [*map(_ended, standing[part]), *coming[part]])
        one.rest()
    found = watch.stop(len(coming), one)
    found.values["a look at everything"] = _look_at_everything(one)
    return found


def _look_at_everything(one: Shell) -> float:
    """Return the milliseconds of a full garbage collection, which a server does only when idle."""
    begun = time.perf_counter()
    one.garbage.look_at_everything()
    return 1_000 * (time.perf_counter() - begun)


def _ended(ask: AskAdded) -> ReleaseRequested:
    return ReleaseRequested(RM, ask.application_id, ask.key)


def _all_placed(one: Shell, events: Sequence[Event]) -> None:
    placed = one.take(events)
    wanted = sum(type(event) is AskAdded for event in events)
    assert placed == wanted, f"{placed} of {wanted} asks were placed"
