"""The load of our core's neighbours during a measurement, and the runs that they disturbed least.

A virtual processor shares a core with that of another machine, and memory and the last cache with many. While they work,
everything here takes up to twice as long, for moments of a tenth of a second or for minutes, and nothing that this
machine counts says so. A *look* does: a fixed loop, and a walk from place to place in memory, which the measured process
times every few milliseconds of its own CPU time. Looks take a three-hundredth of that.
"""

import math
import signal
import statistics
import time
from array import array
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Final

from tests.bench.calibration import cpu_seconds_here
from tests.bench.figures import Sample

EVERY_S: Final = 0.005
_STEPS: Final = 400
_WARMING: Final = 40
"""Steps before, which bring the code back into the cache."""
PLACES: Final = 1 << 15
"""The number of lines of 64 bytes: more than a core's own cache keeps from one look to the next."""
_LINE: Final = 8
"""Numbers in one."""
_VISITS: Final = 32
_OF_TEN: Final = 9
"""Looks that count: the slowest ones were interrupted."""
QUIET: Final = 1.2
"""The highest pace of a quiet run, as a multiple of the least."""


class Probe:
    """A probe inside a process. A look has its instant in Unix seconds, and how many seconds it took."""

    def __init__(self) -> None:
        self._next = array("l")
        self._at = 0
        self.looks: list[tuple[float, float]] = []
        self._measured: list[float] = []
        self._first = 0

    def start(self) -> None:
        """Start taking looks by the process's profiling timer."""
        self._next = way()
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def stop(self) -> None:
        """Stop taking looks."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def begin(self) -> None:
        """Count the looks from now on as those of the measurement."""
        self._first = len(self.looks)

    def end(self) -> None:
        """End or interrupt the measurement, and keep its looks."""
        self._measured += [took for _, took in self.looks[self._first :]]

    @property
    def pace(self) -> float:
        """Return the pace of all that was measured in this process."""
        return pace(self._measured)

    def _look(self, _number: int, _frame: object) -> None:
        _loop(_WARMING)
        begun = time.perf_counter()
        _loop(_STEPS)
        self._walk()
        self.looks.append((time.time(), time.perf_counter() - begun))

    def _walk(self) -> None:
        at, following = self._at, self._next
        for _ in range(_VISITS):
            at = following[at]
        self._at = at


def _loop(steps: int) -> None:
    total = 0
    for step in range(steps):
        total += step


def way() -> "array[int]":
    """Return the place after each place: a way through all of them that a processor cannot foresee."""
    places = [_LINE * at for at in range(PLACES)]
    Random(1).shuffle(places)
    found = array("l", bytes(_LINE * PLACES * array("l").itemsize))
    for here, there in pairwise([*places, places[0]]):
        found[here] = there
    return found


PROBE: Final = Probe()
"""The probe of this process, which takes looks only after `start`."""


class Stopwatch:
    """Wall and this thread's CPU since it was made; what the probe sees until it stops counts."""

    def __init__(self) -> None:
        PROBE.begin()
        self._wall, self._cpu = time.perf_counter(), cpu_seconds_here()

    def taken(self) -> tuple[float, float]:
        """End the measurement, and return its seconds of wall and of CPU."""
        wall, cpu = time.perf_counter() - self._wall, cpu_seconds_here() - self._cpu
        PROBE.end()
        return wall, cpu


def pace(seconds: Sequence[float]) -> float:
    """Return the mean seconds of a look, the slowest left out; 0 without looks."""
    found = sorted(seconds)[: -(-len(seconds) * _OF_TEN // 10)]
    return statistics.mean(found) if found else 0.0


class Quiet:
    """The least pace so far of any run, and the test of which runs come near it."""

    def __init__(self, least: float = math.inf) -> None:
        self._least = least

    def hear(self, sample: Sample) -> None:
        """Take one more run into account."""
        if sample.run.pace:
            self._least = min(self._least, sample.run.pace)

    def is_quiet(self, sample: Sample) -> bool:
        """Return whether neighbours hardly disturbed the run; a run without looks counts as quiet."""
        return sample.run.pace <= QUIET * self._least


def quietest(samples: Sequence[Sample], runs: int) -> list[Sample]:
    """Return the runs during which neighbours were least busy, whatever the runs' own figures are."""
    return sorted(samples, key=lambda one: one.run.pace)[:runs]
