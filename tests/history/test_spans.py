"""Downsampling keeps the integral of each measure exactly, and percentiles are values that occurred."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from server.history.figures import percentile
from server.history.spans import (
    Span,
    Values,
    constant,
    cut,
    downsample,
    joined,
    level,
    quotients,
    sums_of,
)

MINUTE = 60_000
MEASURES = 5
values = st.tuples(*(st.integers(0, 1 << 62) for _ in range(MEASURES)))


@st.composite
def series(draw: st.DrawFn) -> list[Span]:
    """Draw spans in order, with gaps between some."""
    at = draw(st.integers(0, 5 * MINUTE))
    found: list[Span] = []
    for _ in range(draw(st.integers(1, 30))):
        length = draw(st.integers(1, 3 * MINUTE))
        few: st.SearchStrategy[Values] = st.sampled_from([(1, 2, 3, 4, 5), (0, 0, 0, 0, 0)])
        found.append(constant(at, at + length, draw(values | few)))
        at += length + draw(st.sampled_from([0, 0, 0, 1, 90_000]))
    return found


def totals(spans: list[Span]) -> tuple[int, Values, tuple[int, int]]:
    whole = joined(spans)
    return whole.covered_ms, whole.sums, whole.peaks


@given(series(), st.sampled_from([1_000, MINUTE, 10 * MINUTE]))
def test_downsampling_keeps_integrals_lengths_and_peaks(spans: list[Span], step: int) -> None:
    assert totals(downsample(spans, step)) == totals(spans)


@given(series())
def test_downsampling_twice_keeps_them_too(spans: list[Span]) -> None:
    assert totals(downsample(downsample(spans, MINUTE), 10 * MINUTE)) == totals(spans)


@given(series(), st.sampled_from([MINUTE, 10 * MINUTE]))
def test_a_step_has_at_most_one_span_that_changes(spans: list[Span], step: int) -> None:
    found = downsample(spans, step)
    assert all(one.to_ms <= other.from_ms for one, other in pairwise(found))
    mixed = [one.from_ms // step for one in found if level(one) is None]
    assert len(mixed) == len(set(mixed))
    for one in found:
        if level(one) is None:
            assert (one.to_ms - 1) // step == one.from_ms // step


@given(series(), st.sampled_from([MINUTE, 10 * MINUTE]))
def test_each_step_keeps_its_own_integrals(spans: list[Span], step: int) -> None:
    found = downsample(spans, step)
    first, last = spans[0].from_ms // step, spans[-1].to_ms // step
    for number in range(first, last + 1):
        edges = number * step, (number + 1) * step
        before = [part for one in spans if (part := cut(one, *edges))]
        after = [part for one in found if (part := cut(one, *edges))]
        assert bool(before) == bool(after)
        if before:
            assert totals(after) == totals(before)


def test_what_does_not_change_stays_one_span() -> None:
    spans = [constant(at * 10_000, (at + 1) * 10_000, (7, 0, 0, 0, 1)) for at in range(1_000)]
    assert downsample(spans, MINUTE) == [constant(0, 10_000_000, (7, 0, 0, 0, 1))]


@given(series())
def test_quotient_and_rest_are_the_integral(spans: list[Span]) -> None:
    whole = joined(spans)
    averages, rests = quotients(whole)
    assert sums_of(averages, rests, whole.covered_ms) == whole.sums
    assert all(one < 1 << 63 for one in (*averages, *rests))


@given(st.lists(st.integers(0, 1_000), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_the_least_value_within_which_the_part_lies(
    found: list[int], percent: int
) -> None:
    ordered = sorted(found)
    value = percentile(ordered, percent)
    assert value in ordered
    assert sum(one <= value for one in ordered) * 100 >= percent * len(ordered)
    assert sum(one < value for one in ordered) * 100 < percent * len(ordered)


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 99) == 0
