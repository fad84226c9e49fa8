"""The metrics of a workload, the values of one run, and the row of the report over several runs."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Basis(StrEnum):
    """The kind of value of a run that is compared with the last record."""

    CPU = "cpu"
    """CPU seconds of the core, in calibration loops; time spent waiting on a busy machine does not count."""
    VALUE = "value"
    """The milliseconds of the value itself, in calibration loops."""
    PLAIN = "plain"
    """The value itself."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A value of a run by its name. `target` is the largest allowed value or, with `more`, the smallest; 0 means no target."""

    name: str
    unit: str
    target: float = 0
    more: bool = False
    basis: Basis = Basis.CPU

    def reached(self, value: float) -> bool | None:
        """Return whether the value reaches the target, None when there is no target."""
        if not self.target:
            return None
        return value >= self.target if self.more else value <= self.target


@dataclass(frozen=True, slots=True)
class Run:
    """The values of one run by metric, with the CPU seconds and the peak memory in MiB of the measured process (core or shim)."""

    values: dict[str, float]
    cpu_s: float
    mib: int
    note: str = ""
    pace: float = 0.0
    """Mean seconds of a look, which measures how busy other programs were (see `quiet`); 0 without looks."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case to measure. Its name begins with the way in which the core is reached: in process, or gRPC."""

    name: str
    metrics: tuple[Metric, ...]
    run: Callable[[Sequence[str]], Run]
    """A function that runs the case once; its argument is a command to put before the core's command, such as a profiler."""
    subject: Any = None
    """The workload or the cluster."""

    @property
    def is_served(self) -> bool:
        """Return whether the case goes through gRPC."""
        return self.name.startswith("gRPC")


@dataclass(frozen=True, slots=True)
class Sample:
    """One run, the mean CPU seconds of the calibration loops before and after it, and the machine's load."""

    run: Run
    calibration: float
    load: float


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the report: medians of the least disturbed runs; `cost` is compared with the record, see `Basis`."""

    case: str
    metric: str
    unit: str
    more: bool
    target: float
    reached: bool | None
    runs: int
    median: float
    best: float
    cost: float
    cpu_s: float = 0.0
    cpu_us_each: float = 0.0
    """CPU microseconds per placement, in cases that place asks."""
    mib: int = 0
    load: float = 0.0
    calibration: float = 0.0
    note: str = ""
    subject: dict[str, Any] = field(default_factory=dict)
    day: str = ""
    """The day of the measurement."""
    tries: int = 0
    """Number of all runs, including disturbed ones, and their median."""
    of_all: float = 0.0
    pace: float = 0.0
    """The median pace of the runs that count."""
    code: str = ""
    """A digest of the measured code, see `record.code`."""


def most_of(waits: Sequence[float]) -> float:
    """Return the wait that 99 of 100 waits do not exceed. ``waits`` are sorted."""
    return waits[-(-len(waits) * 99 // 100) - 1]


def row(case: Case, metric: Metric, samples: Sequence[Sample], tried: Sequence[Sample]) -> Row:
    """Return the row of one metric, computed from the samples that count; `tried` has all samples, including disturbed ones."""
    values = [one.run.values[metric.name] for one in samples]
    median = statistics.median(values)
    cpu_s = statistics.median(one.run.cpu_s for one in samples)
    placed = samples[0].run.values.get("placed", 0)
    return Row(
        case=case.name,
        metric=metric.name,
        unit=metric.unit,
        more=metric.more,
        target=metric.target,
        reached=metric.reached(median),
        runs=len(samples),
        median=median,
        best=max(values) if metric.more else min(values),
        cost=statistics.median(_cost(metric, one) for one in samples),
        cpu_s=cpu_s,
        cpu_us_each=1e6 * cpu_s / placed if placed else 0.0,
        mib=max(one.run.mib for one in samples),
        load=statistics.median(one.load for one in samples),
        calibration=statistics.median(one.calibration for one in samples),
        note=samples[-1].run.note,
        subject=_fields(case.subject),
        tries=len(tried),
        of_all=statistics.median(one.run.values[metric.name] for one in tried),
        pace=statistics.median(one.run.pace for one in samples),
    )


def _fields(subject: Any) -> dict[str, Any]:
    return {name: getattr(subject, name) for name in getattr(subject, "__slots__", ())}


def _cost(metric: Metric, sample: Sample) -> float:
    value = sample.run.values[metric.name]
    if metric.basis is Basis.PLAIN:
        return value
    return (sample.run.cpu_s if metric.basis is Basis.CPU else value / 1_000) / sample.calibration
