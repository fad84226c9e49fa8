"""Spans: intervals of a queue's usage in one resource type, and their downsampling, exact in whole numbers.

A span holds the integral of each measure over the time that it covers. Integrals are added, never averages, so that sums and
averages over any number of merged spans are those of the samples. In the database an integral is a quotient and a rest, because
bytes times milliseconds do not fit 64 bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

Values = tuple[int, ...]


class Span(NamedTuple):
    """An interval from ``from_ms`` up to, and without, ``to_ms``; samples cover ``covered_ms`` of it.

    ``sums`` has the integral of each measure in units times milliseconds, ``peaks`` the largest usage and the largest waiting
    amount.
    """

    from_ms: int
    to_ms: int
    covered_ms: int
    sums: Values
    peaks: tuple[int, int]


def constant(from_ms: int, to_ms: int, values: Values) -> Span:
    """Return the span in which each measure has one value. The first measure is the usage, the last one what waits."""
    length = to_ms - from_ms
    return Span(
        from_ms, to_ms, length, tuple(one * length for one in values), (values[0], values[-1])
    )


def level(span: Span) -> Values | None:
    """Return the values of a span in which no measure changes, and which samples cover wholly; None for any other span."""
    length = span.to_ms - span.from_ms
    if span.covered_ms != length or any(one % length for one in span.sums):
        return None
    values = tuple(one // length for one in span.sums)
    return values if (values[0], values[-1]) == span.peaks else None


def cut(span: Span, from_ms: int, to_ms: int) -> Span | None:
    """Return the part of a span in an interval, None if there is none.

    The part of a span that changes within has its proportion of the integrals, rounded down.
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
    """Return one span with the integrals of several, which are in order and do not overlap."""
    return Span(
        spans[0].from_ms,
        spans[-1].to_ms,
        sum(one.covered_ms for one in spans),
        tuple(map(sum, zip(*(one.sums for one in spans), strict=True))),
        (max(one.peaks[0] for one in spans), max(one.peaks[1] for one in spans)),
    )


def downsample(spans: Iterable[Span], step_ms: int) -> list[Span]:
    """Return spans with at most one change in each step: the spans of a step that differ are joined.

    Neighbours with the same values become one span, however long. The spans are those of one series, in order.
    """
    found: list[Span] = []
    for step in _steps(spans, step_ms):
        merged = _merged(step)
        if len(merged) > 1:
            merged = [joined(merged)]
        found += merged
    return _merged(found)


def _steps(spans: Iterable[Span], step_ms: int) -> Iterator[list[Span]]:
    """Yield the spans of each step. A span that does not change is split where steps meet; any other is within one step."""
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
    """Yield the parts of a span: what belongs to its first and last step, and all whole steps between as one part."""
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
    """Return the spans, with neighbours that have the same values as one."""
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
    """Return the average of each measure, rounded down, and the rest of each integral."""
    pairs = [divmod(one, span.covered_ms) for one in span.sums]
    return tuple(one for one, _ in pairs), tuple(rest for _, rest in pairs)


def sums_of(averages: Iterable[int], rests: Iterable[int], covered_ms: int) -> Values:
    """Return the integrals from their quotients and rests."""
    return tuple(one * covered_ms + rest for one, rest in zip(averages, rests, strict=True))
