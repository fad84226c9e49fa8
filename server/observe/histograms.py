"""Histograms of durations by queue, in whole milliseconds, and their text in Prometheus' form.

OpenTelemetry records one value at a time, in several microseconds. These histograms add many equal values at once, and keep the
text of each line until its numbers change, so that a scrape formats only what is new.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Final

LINES_MAX: Final = 1_000
"""The largest number of lines (combinations of labels) of one histogram, apart from the lines of `OTHER`.

A line has one series for each bucket, one for the sum and one for the count.
"""
OTHER: Final = "other"
"""The value of the label ``queue`` for queues without a line of their own. The path of a queue is never "other"."""
BOUNDS_MS: Final = (
    100,
    1_000,
    5_000,
    15_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    14_400_000,
    86_400_000,
)
"""The upper bounds of the buckets in milliseconds. One further bucket has all longer durations."""

Labels = tuple[str, ...]
"""The values of the labels of a line: the partition, the queue, and for some histograms a third label."""


class _Line:
    """The numbers of one line, and the text of the line while this text is up to date."""

    __slots__ = ("buckets", "sum_ms", "text")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0
        self.text = ""

    def add(self, duration_ms: int, times: int) -> None:
        self.buckets[bisect_left(BOUNDS_MS, duration_ms)] += times
        self.sum_ms += duration_ms * times
        self.text = ""

    def merge(self, other: "_Line") -> None:
        self.buckets = [one + more for one, more in zip(self.buckets, other.buckets, strict=True)]
        self.sum_ms += other.sum_ms
        self.text = ""


class Histogram:
    """A histogram of durations with at most `LINES_MAX` lines for queues.

    ``label`` is the name of the third label, or "" if there is no third label. When all lines are in use, the values of further
    queues are added to the line of queue `OTHER` with the same partition and third label. `folded` counts these values.
    """

    def __init__(self, name: str, description: str, label: str = "") -> None:
        self.name: Final = name
        self.folded = 0
        """The number of values that were added to a line of `OTHER` since the start."""
        self._description = description
        self.labels: Final[tuple[str, ...]] = (
            ("partition", "queue", label) if label else ("partition", "queue")
        )
        self._lines: dict[Labels, _Line] = {}
        self._others: dict[Labels, _Line] = {}

    def __len__(self) -> int:
        """Return the number of lines, without the lines of `OTHER`."""
        return len(self._lines)

    def add(self, labels: Labels, duration_ms: int, times: int = 1) -> None:
        """Add a duration that occurred `times` times. A negative duration counts as 0."""
        line = self._lines.get(labels)
        if line is None:
            line = self._made(labels, times)
        line.add(max(duration_ms, 0), times)

    def _made(self, labels: Labels, times: int) -> _Line:
        if len(self._lines) < LINES_MAX:
            return self._lines.setdefault(labels, _Line())
        self.folded += times
        return self._others.setdefault(_other(labels), _Line())

    def keep(self, known: Collection[tuple[str, str]]) -> None:
        """Move the lines of queues that no longer exist to `OTHER`.

        ``known`` has the partition and the path of each queue that exists.
        """
        for labels in [one for one in self._lines if one[:2] not in known]:
            gone = self._lines.pop(labels)
            self.folded += sum(gone.buckets)
            self._others.setdefault(_other(labels), _Line()).merge(gone)

    def text(self) -> str:
        """Return the histogram in Prometheus' text form, "" if it has no line."""
        lines = [*self._lines.items(), *self._others.items()]
        if not lines:
            return ""
        for labels, line in lines:
            if not line.text:
                line.text = "".join(self._format(labels, line))
        head = f"# HELP {self.name} {self._description}\n# TYPE {self.name} histogram\n"
        return head + "".join(line.text for _, line in lines)

    def _format(self, labels: Labels, line: _Line) -> Iterator[str]:
        told = ",".join(_pairs(self.labels, labels))
        total = 0
        for bound, count in zip(_BOUNDS, line.buckets, strict=True):
            total += count
            yield f'{self.name}_bucket{{{told},le="{bound}"}} {total}\n'
        yield f"{self.name}_sum{{{told}}} {line.sum_ms / 1_000}\n"
        yield f"{self.name}_count{{{told}}} {total}\n"


_BOUNDS: Final = (*(repr(bound / 1_000) for bound in BOUNDS_MS), "+Inf")


def _other(labels: Labels) -> Labels:
    return (labels[0], OTHER, *labels[2:])


def _pairs(names: Iterable[str], values: Iterable[str]) -> Iterator[str]:
    for name, value in zip(names, values, strict=True):
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        yield f'{name}="{escaped}"'
