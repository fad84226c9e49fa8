"""The measurement of how much other virtual machines disturb a run, and the choice of the least disturbed runs.

A virtual processor shares a core with a processor of another machine, and shares memory and the last cache with
many machines. While these machines work, everything on this machine takes up to twice as long, for tenths of a
second or for minutes, and no counter of this machine shows that. A *look* shows it: a fixed loop and a walk through
memory, which the measured process times every few milliseconds of its own CPU time. Looks take one three-hundredth
of the CPU time.
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
"""Number of steps before a look, which bring the code back into the cache."""
PLACES: Final = 1 << 15
"""Number of lines of 64 bytes; together they exceed what a core's own cache keeps from one look to the next."""
_LINE: Final = 8
"""Number of integers in one line."""
_VISITS: Final = 32
_OF_TEN: Final = 9
"""Number of looks of ten that count; the slowest ones were interrupted."""
QUIET: Final = 1.2
"""The highest pace of an undisturbed run, as a multiple of the least pace."""


class Probe:
    """A probe inside a process; a look has its instant in Unix seconds and its duration in seconds."""

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
        """Count all further looks as part of the measurement."""
        self._first = len(self.looks)

    def end(self) -> None:
        """End or interrupt the measurement, and keep its looks."""
        self._measured += [took for _, took in self.looks[self._first :]]

    @property
    def pace(self) -> float:
        """Return the mean seconds of a look over all measurements in this process."""
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
    """Return, for each place, the next place on a path through all places; the path is random, so that a processor cannot predict it."""
    places = [_LINE * at for at in range(PLACES)]
    Random(1).shuffle(places)
    found = array("l", bytes(_LINE * PLACES * array("l").itemsize))
    for here, there in pairwise([*places, places[0]]):
        found[here] = there
    return found


PROBE: Final = Probe()
"""The probe of this process, which takes looks only after `start`."""


class Stopwatch:
    """Real time and this thread's CPU time since the object was made; looks of the probe count until it stops."""

    def __init__(self) -> None:
        PROBE.begin()
        self._wall, self._cpu = time.perf_counter(), cpu_seconds_here()

    def taken(self) -> tuple[float, float]:
        """End the measurement, and return its seconds of real time and of CPU time."""
        wall, cpu = time.perf_counter() - self._wall, cpu_seconds_here() - self._cpu
        PROBE.end()
        return wall, cpu


def pace(seconds: Sequence[float]) -> float:
    """Return the mean seconds of a look without the slowest ones; 0 without looks."""
    found = sorted(seconds)[: -(-len(seconds) * _OF_TEN // 10)]
    return statistics.mean(found) if found else 0.0


class Quiet:
    """The least pace of any run so far, and the check whether a run is close to it."""

    def __init__(self, least: float = math.inf) -> None:
        self._least = least

    def hear(self, sample: Sample) -> None:
        """Record the pace of one more run."""
        if sample.run.pace:
            self._least = min(self._least, sample.run.pace)

    def is_quiet(self, sample: Sample) -> bool:
        """Return whether other machines hardly disturbed the run; a run without looks counts as undisturbed."""
        return sample.run.pace <= QUIET * self._least


def quietest(samples: Sequence[Sample], runs: int) -> list[Sample]:
    """Return the least disturbed runs; their own figures do not influence the choice."""
    return sorted(samples, key=lambda one: one.run.pace)[:runs]
