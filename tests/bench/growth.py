"""How many times more a placement costs on a larger workload: both run in turn, so that they have the same neighbours."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from tests.bench import apart
from tests.bench.figures import Run
from tests.bench.workloads import Workload

COST = "cost of a placement"


def grown(small: Workload, large: Workload, before: Sequence[str] = ()) -> Run:
    """The small one, the large one, and the small one again; a profiler looks at the large one."""
    first = apart.run("place", small)
    found = apart.run("place", large, before)
    last = apart.run("place", small)
    return compared(found, (first, last))


def compared(large: Run, small: Sequence[Run]) -> Run:
    """The large one against the mean of the small ones: as busy as the busiest moment of all, as large as the large one."""
    times = _cost(large) / statistics.mean(map(_cost, small))
    return replace(large, values={COST: times}, pace=max(one.pace for one in (large, *small)))


def _cost(one: Run) -> float:
    return one.cpu_s / one.values["placed"]
