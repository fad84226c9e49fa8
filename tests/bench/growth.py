"""How many times more a placement costs on a larger workload: both run in turn, so that they have the same neighbours."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from tests.bench import apart
from tests.bench.figures import Run
from tests.bench.workloads import Workload

COST = "cost of a placement"


def grown(small: Workload, large: Workload, before: Sequence[str] = ()) -> Run:
    """The small one, the large one, and the small one again; a profiler looks at the large one.

    What a placement costs is its CPU time in loops of the probe (`quiet`), which neighbours slow, too; where a run was
    over before anybody looked, its CPU time itself.
    """
    first = apart.run("place", small)
    found = apart.run("place", large, before)
    last = apart.run("place", small)
    return compared(found, (first, last))


def compared(large: Run, small: Sequence[Run]) -> Run:
    """The large one against the mean of the small ones: as busy as the busiest moment of all, as large as the large one."""
    paces = [one.pace for one in (large, *small)]
    looked = all(paces)
    times = _cost(large, looked=looked) / statistics.mean(
        _cost(one, looked=looked) for one in small
    )
    return replace(large, values={COST: times}, pace=max(paces))


def _cost(one: Run, *, looked: bool) -> float:
    return one.cpu_s / one.values["placed"] / (one.pace if looked else 1)
