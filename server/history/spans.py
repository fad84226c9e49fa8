"""Spans: intervals of a queue's usage in one resource type, and their downsampling, exact in whole numbers.

A span holds the integral of each measure over the time that it covers. When spans are merged, their integrals are added; averages
are computed only from the sums. Sums and averages over merged spans therefore equal those of the samples, without rounding
errors. The database stores an integral as the average and the remainder of the division, because bytes times milliseconds do not
fit into 64 bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

Values = tuple[int, ...]


class Span(NamedTuple):
    """The half-open interval from ``from_ms`` to ``to_ms``, in milliseconds. Samples cover ``covered_ms`` of the interval."""

    from_ms: int
    to_ms: int
    covered_ms: int
    sums: Values
    """The integral of each measure, in units times milliseconds."""
    peaks: tuple[int, int]
    """The largest usage and the largest waiting amount."""


def constant(from_ms: int, to_ms: int, values: Values) -> Span:
    """Return a span in which no measure changes. The first of ``values`` is the usage, and the last of them is the waiting amount."""
    length = to_ms - from_ms
    return Span(
        from_ms, to_ms, length, tuple(one * length for one in values), (values[0], values[-1])
    )


def level(span: Span) -> Values | None:
    """Return the values of a span if no measure changes in it and samples cover all of it. Otherwise return None."""
    length = span.to_ms - span.from_ms
    if span.covered_ms != length or any(one % length for one in span.sums):
        return None
    values = tuple(one // length for one in span.sums)
    return values if (values[0], values[-1]) == span.peaks else None


def cut(span: Span, from_ms: int, to_ms: int) -> Span | None:
    """Return the part of a span that lies in an interval, or None.

    If a measure changes within the span, the part gets its share of each integral in proportion to its length, rounded down.
    """
    begin, end = max(span.from_ms, from_ms), min(span.to_ms, to_ms)
    if begin >= end:
        return None
    if (begin, end) == (span.from_ms, span.to_ms):
        return span
    values = level(span)
    if values is not None:
        return constant(begin, end, values)
    part, whole = end - begin, span.to_ms - span.from_ms
    sums = tuple(one * part // whole for one in span.sums)
    return Span(begin, end, span.covered_ms * part // whole, sums, span.peaks)


def joined(spans: Sequence[Span]) -> Span:
    """Return one span with the summed integrals of several spans, which must be in order and not overlap."""
    return Span(
        spans[0].from_ms,
        spans[-1].to_ms,
        sum(one.covered_ms for one in spans),
        tuple(map(sum, zip(*(one.sums for one in spans), strict=True))),
        (max(one.peaks[0] for one in spans), max(one.peaks[1] for one in spans)),
    )


def downsample(spans: Iterable[Span], step_ms: int) -> list[Span]:
    """Return fewer spans: spans with different values that lie in the same step are joined into one span.

    Neighbouring spans with equal values become one span, however long. The given spans must be of one series, and in order.
    """
    found: list[Span] = []
    for step in _steps(spans, step_ms):
        merged = _merged(step)
        if len(merged) > 1:
            merged = [joined(merged)]
        found += merged
    return _merged(found)


def _steps(spans: Iterable[Span], step_ms: int) -> Iterator[list[Span]]:
    """Yield the spans of each step, which is ``step_ms`` long. A span in which no measure changes is split where a step ends.

    A span in which a measure changes must be within one step.
    """
    step: list[Span] = []
    number = 0
    for span in spans:
        for piece in _split(span, step_ms):
            if step and piece.from_ms // step_ms != number:
                yield step
                step = []
            number = piece.from_ms // step_ms
            step.append(piece)
    if step:
        yield step


def _split(span: Span, step_ms: int) -> Iterator[Span]:
    """Yield the parts of a span: the part in its first step, all whole steps in between as one part, and the part in its last step."""
    values = level(span)
    first = -(-span.from_ms // step_ms) * step_ms
    last = span.to_ms // step_ms * step_ms
    if values is None or first > last or not (span.from_ms < first or last < span.to_ms):
        yield span
        return
    edges = sorted({span.from_ms, first, last, span.to_ms})
    for begin, end in pairwise(edges):
        yield constant(begin, end, values)


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Return the spans, with each run of neighbours that have equal values merged into one span."""
    found: list[Span] = []
    for span in spans:
        values = level(span)
        before = found[-1] if found else None
        if before and before.to_ms == span.from_ms and values and level(before) == values:
            found[-1] = constant(before.from_ms, span.to_ms, values)
        else:
            found.append(span)
    return found


def quotients(span: Span) -> tuple[Values, Values]:
    """Return the average of each measure, rounded down, and the remainder of each integral."""
    pairs = [divmod(one, span.covered_ms) for one in span.sums]
    return tuple(one for one, _ in pairs), tuple(rest for _, rest in pairs)


def sums_of(averages: Iterable[int], rests: Iterable[int], covered_ms: int) -> Values:
    """Return the integrals from which `quotients` computed these averages and remainders."""
    return tuple(one * covered_ms + rest for one, rest in zip(averages, rests, strict=True))
