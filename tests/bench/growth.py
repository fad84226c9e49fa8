"""The growth of a placement's cost with the size of the workload; small and large workloads run in turn, so that both are equally disturbed."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from tests.bench import apart
from tests.bench.figures import Run
from tests.bench.workloads import Workload

COST = "cost of a placement"


def grown(small: Workload, large: Workload, before: Sequence[str] = ()) -> Run:
    """Run the small workload, the large one, and the small one again; a profiler samples only the large one."""
    first = apart.run("place", small)
    found = apart.run("place", large, before)
    last = apart.run("place", small)
    return compared(found, (first, last))


def compared(large: Run, small: Sequence[Run]) -> Run:
    """Return the run of the large workload, with its cost as a multiple of the mean cost of the small runs.

    The pace of the result is that of the most disturbed run.
    """
    times = _cost(large) / statistics.mean(map(_cost, small))
    return replace(large, values={COST: times}, pace=max(one.pace for one in (large, *small)))


def _cost(one: Run) -> float:
    return one.cpu_s / one.values["placed"]
