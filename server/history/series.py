"""The series of usage that the writing process follows: one for each queue and resource type, with a row for each change."""

import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sqlalchemy import Table

from server.history import schema
from server.history.samples import Sample
from server.history.spans import Span, Values, constant, quotients

Put = Callable[[Table, object, dict[str, Any]], None]
SeriesKey = tuple[str, str, str]

LATE: Final = 3
"""A sample is late if it comes more than this many sampling intervals after the previous sample.

The values before a late sample count for one sampling interval only.
"""


class _Open(NamedTuple):
    number: int
    from_ms: int
    values: Values


def usage_row(number: int, series: SeriesKey, span: Span, step_ms: int) -> dict[str, Any]:
    """Return the row of a span of a series."""
    averages, rests = quotients(span)
    row: dict[str, Any] = dict(zip(schema.MEASURES, averages, strict=True))
    row |= {f"{name}_rest": one for name, one in zip(schema.MEASURES, rests, strict=True)}
    partition, queue, kind = series
    return row | {
        "id": number,
        "partition": partition,
        "queue": queue,
        "resource_type": kind,
        "step_ms": step_ms,
        "from_ms": span.from_ms,
        "to_ms": span.to_ms,
        "covered_ms": span.covered_ms,
        "usage_peak": span.peaks[0],
        "waiting_peak": span.peaks[1],
    }


class Series:
    """The open spans: the latest values of each series, and the sample from which on they apply."""

    def __init__(self, put: Put, next_number: Callable[[], int], sample_ms: int) -> None:
        self._put = put
        self._sample_ms = sample_ms
        self._next_number = next_number
        self._open: dict[SeriesKey, _Open] = {}
        self._seen: dict[str, int] = {}

    def sample(self, data: bytes) -> None:
        """Record the encoded samples of all partitions."""
        found = [Sample(*each) for each in pickle.loads(data)]  # noqa: S301 - from the core
        for one in found:
            self._take(one)
        names = {one.partition for one in found}
        for series in [one for one in self._open if one[0] not in names]:
            self._close(series, self._seen[series[0]] + self._sample_ms)

    def close(self, now: int) -> None:
        """Close all open spans, because the core ends.

        If the end comes so late that a sample would be late (`LATE`), close the spans one sampling interval after their last sample.
        """
        for series in list(self._open):
            seen = self._seen[series[0]]
            self._close(
                series, now if now - seen <= LATE * self._sample_ms else seen + self._sample_ms
            )

    def _take(self, sample: Sample) -> None:
        before = self._seen.get(sample.partition, sample.at_ms)
        late = sample.at_ms - before > LATE * self._sample_ms
        end = before + self._sample_ms if late else sample.at_ms
        now = {(sample.partition, queue, kind): values for queue, kind, values in sample.rows}
        own = [one for one in self._open if one[0] == sample.partition]
        for series in own:
            if late or now.get(series) != self._open[series].values:
                self._close(series, end)
        for series, values in now.items():
            if series not in self._open:
                self._begin(series, sample.at_ms, values)
        self._seen[sample.partition] = sample.at_ms

    def _begin(self, series: SeriesKey, at_ms: int, values: Values) -> None:
        opened = _Open(self._next_number(), at_ms, values)
        self._open[series] = opened
        row = usage_row(opened.number, series, constant(at_ms, at_ms + 1, values), self._sample_ms)
        self._put(schema.USAGE, opened.number, row | {"to_ms": None, "covered_ms": 0})

    def _close(self, series: SeriesKey, at_ms: int) -> None:
        opened = self._open.pop(series)
        end = max(at_ms, opened.from_ms + 1)
        row = usage_row(
            opened.number, series, constant(opened.from_ms, end, opened.values), self._sample_ms
        )
        self._put(schema.USAGE, opened.number, row)
