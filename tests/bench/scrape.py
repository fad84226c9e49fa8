"""The cost of a scrape of the metrics: the time to compute and write them, and the number of series."""

import statistics
import time
from typing import Final

from server.observe.histograms import LINES_MAX
from server.observe.metrics import Metrics
from tests.bench.figures import Run
from tests.bench.inprocess import filled
from tests.bench.processes import own_peak_mib
from tests.bench.quiet import Stopwatch
from tests.bench.shell import Shell
from tests.bench.workloads import Workload, asks, queue

ROUNDS: Final = 5


def scraped(workload: Workload) -> Run:
    """Measure scrapes after the placement of a whole workload, then scrapes while all lines of all histograms are used."""
    one = filled(workload, asks(workload))
    metrics = next(each for each in one.observers if isinstance(each, Metrics))
    watch = Stopwatch()
    found = {}
    for name, full in (("", False), (", histograms full", True)):
        times, series = [], 0
        for _ in range(ROUNDS):
            _change(metrics, workload, full=full)
            milliseconds, series = _scrape(one, metrics)
            times.append(milliseconds)
        found[f"scrape{name}"] = statistics.median(times)
        found[f"series{name}"] = series
    _, cpu = watch.taken()
    return Run(found, cpu, own_peak_mib())


def _change(metrics: Metrics, workload: Workload, *, full: bool) -> None:
    """Add a value to each queue's waits, or to all lines of all histograms, as if pods had been placed since the last scrape."""
    chosen = metrics.histograms if full else metrics.histograms[:1]
    for histogram in chosen:
        for at in range(min(workload.leaves, LINES_MAX)):
            values = ("default", queue(workload, at), "none")
            histogram.add(values[: len(histogram.labels)], 1_000 + at)


def _scrape(one: Shell, metrics: Metrics) -> tuple[float, int]:
    """Return the milliseconds of a scrape, and the number of series in it."""
    one.rest()
    begun = time.perf_counter()
    text = metrics.text()
    milliseconds = 1_000 * (time.perf_counter() - begun)
    return milliseconds, sum(not line.startswith(b"#") for line in text.splitlines())
