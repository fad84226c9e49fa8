"""How busy the neighbours of our core are while something is measured, and which runs they disturbed least.

A virtual processor shares a core with that of another machine. While that one works, everything here takes up to twice
as long, for moments of a tenth of a second, and nothing that this machine counts says so. A fixed loop does, which the
measured process times every few milliseconds of its own CPU time; it takes a hundredth of that.
"""

import math
import signal
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from tests.bench.calibration import cpu_seconds_here
from tests.bench.figures import Sample

EVERY_S: Final = 0.005
_STEPS: Final = 200
_OF_TEN: Final = 9
"""Looks that count: the slowest ones were interrupted."""
QUIET: Final = 1.15
"""How many times the least pace a quiet run has at most."""


class Probe:
    """Looks from inside the process that it is started in. A look: its instant in Unix seconds, the loop's seconds."""

    def __init__(self) -> None:
        self.looks: list[tuple[float, float]] = []
        self._measured: list[float] = []
        self._first = 0

    def start(self) -> None:
        """Looks from now on, by the process's profiling timer."""
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def stop(self) -> None:
        """Does not look any more."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def begin(self) -> None:
        """What is measured begins."""
        self._first = len(self.looks)

    def end(self) -> None:
        """What is measured is over, for now."""
        self._measured += [took for _, took in self.looks[self._first :]]

    @property
    def pace(self) -> float:
        """That of all that was measured in this process."""
        return pace(self._measured)

    def _look(self, _number: int, _frame: object) -> None:
        _loop()  # brings its code back into the cache
        begun = time.perf_counter()
        _loop()
        self.looks.append((time.time(), time.perf_counter() - begun))


def _loop() -> None:
    total = 0
    for step in range(_STEPS):
        total += step


PROBE: Final = Probe()
"""This process's own; it looks only where it was started."""


class Stopwatch:
    """Wall and this thread's CPU since it was made; what the probe sees until it stops counts."""

    def __init__(self) -> None:
        PROBE.begin()
        self._wall, self._cpu = time.perf_counter(), cpu_seconds_here()

    def taken(self) -> tuple[float, float]:
        """Seconds of wall, and of CPU; what is measured is over."""
        wall, cpu = time.perf_counter() - self._wall, cpu_seconds_here() - self._cpu
        PROBE.end()
        return wall, cpu


def pace(seconds: Sequence[float]) -> float:
    """Seconds of the loop, in the mean over a run; 0 where nobody looked."""
    found = sorted(seconds)[: -(-len(seconds) * _OF_TEN // 10)]
    return statistics.mean(found) if found else 0.0


class Quiet:
    """Knows the least pace of each workload so far, and which of its runs come near it.

    One workload leaves more behind in the cache than another, so that the loop's own time differs between them.
    """

    def __init__(self, least: Mapping[str, float] | None = None) -> None:
        self._least = dict(least or {})

    def hear(self, case: str, sample: Sample) -> None:
        """One more run."""
        if sample.run.pace:
            self._least[case] = min(self._least.get(case, math.inf), sample.run.pace)

    def is_quiet(self, case: str, sample: Sample) -> bool:
        """Did neighbours hardly disturb it? Where nobody looked, nobody knows better."""
        return sample.run.pace <= QUIET * self._least.get(case, math.inf)


def quietest(samples: Sequence[Sample], runs: int) -> list[Sample]:
    """So many runs during which neighbours were least busy, whatever the runs' own figures are."""
    return sorted(samples, key=lambda one: one.run.pace)[:runs]
