"""Each sorting kernel compared with its plain Python definition; when they differ, the kernel is wrong."""

from itertools import groupby
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.kernels import order
from server.kernels.fit import Array

WIDTH = 3
HUGE = 1 << 58
"""Eight rows of these stay under 2^62, as the sums of a partition do."""

amounts = st.one_of(st.integers(0, 3), st.integers(0, HUGE))
limits = st.one_of(st.integers(-3, 9), st.integers(-HUGE, 1 << 62))
few = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12)


def lines(cells: st.SearchStrategy[int], width: int = WIDTH) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(cells, min_size=width, max_size=width), max_size=8)


def table(rows: list[list[int]]) -> Array:
    """Return the rows as an array with a line for each column."""
    return np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(len(rows), WIDTH).T)


def columns(pairs: list[tuple[int, int]]) -> list[Array]:
    return [np.array([pair[at] for pair in pairs], dtype=np.int64) for at in (0, 1)]


@given(few)
def test_rows_are_ranked_by_their_columns_and_keep_their_order(
    pairs: list[tuple[int, int]],
) -> None:
    expected = sorted(range(len(pairs)), key=pairs.__getitem__)
    assert order.ranked(columns(pairs)).tolist() == expected


@given(few)
def test_tied_stretches_are_of_equal_rows(pairs: list[tuple[int, int]]) -> None:
    ranked = order.ranked(columns(pairs))
    expected, start = [], 0
    for _, alike in groupby(ranked.tolist(), key=pairs.__getitem__):
        stop = start + len(list(alike))
        if stop - start > 1:
            expected.append((start, stop))
        start = stop
    assert order.tied(columns(pairs), ranked) == expected


@given(st.lists(st.integers(-1, 4), max_size=12), st.integers(1, 3))
def test_groups_are_counted_with_their_first_rows(groups: list[int], most: int) -> None:
    rows = {one: [at for at, own in enumerate(groups) if own == one] for one in set(groups)}
    expected = [(one, len(rows[one]), rows[one][:most]) for one in sorted(rows) if one >= 0]
    assert order.grouped(np.array(groups, dtype=np.int64), most) == expected


@given(
    lines(amounts),
    st.lists(st.one_of(st.integers(-2, 9), amounts), min_size=1, max_size=WIDTH),
    st.lists(limits, min_size=WIDTH, max_size=WIDTH),
)
def test_rows_are_taken_until_one_is_useless_or_too_much(
    rows: list[list[int]], wanted: list[int], limit: list[int]
) -> None:
    taken = [0] * WIDTH
    count = 0
    for row in rows:
        useful = any(row[at] and taken[at] < most for at, most in enumerate(wanted))
        after = [had + more for had, more in zip(taken, row, strict=True)]
        if not useful or any(row[at] and after[at] > limit[at] for at in range(WIDTH)):
            break
        count, taken = count + 1, after
    assert order.takeable(table(rows), wanted, limit) == (count, taken)


@given(lines(amounts), st.lists(limits, min_size=WIDTH, max_size=WIDTH))
def test_items_within_a_limit(rows: list[list[int]], limit: list[int]) -> None:
    expected = [all(not row[at] or row[at] <= limit[at] for at in range(WIDTH)) for row in rows]
    assert order.within(table(rows), limit).tolist() == expected
    each = [np.full(len(rows), most, dtype=np.int64) for most in limit]
    assert order.within(table(rows), each).tolist() == expected


@given(lines(amounts))
def test_items_that_have_something(rows: list[list[int]]) -> None:
    assert order.positive(table(rows)).tolist() == [any(row) for row in rows]


@given(lines(amounts), st.lists(limits, min_size=WIDTH, max_size=WIDTH))
def test_each_item_that_fits_what_is_left(rows: list[list[int]], limit: list[int]) -> None:
    found, free = [], list(limit)
    for number, row in enumerate(rows):
        if all(not row[at] or row[at] <= free[at] for at in range(WIDTH)):
            found.append(number)
            free = [have - size for have, size in zip(free, row, strict=True)]
    assert order.fitting(table(rows), limit) == found
    with patch.object(order, "FEW", 0):
        assert order.fitting(table(rows), limit) == found
