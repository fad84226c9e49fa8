"""Each scanning kernel compared with its plain Python definition; when they differ, the kernel is wrong."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.kernels import scan
from server.kernels.fit import Array, Rows, SlotRows, any_fit
from server.model.fit import fits, score, shortfall

HUGE = (1 << 62) - 1
WIDTH = 3

amounts = st.one_of(st.integers(0, 9), st.integers(0, 1 << 41), st.integers(0, HUGE))
free_amounts = st.one_of(amounts, st.integers(-HUGE, 0))
positive = amounts.map(lambda amount: max(amount, 1))


def rows_of(cells: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(cells, min_size=WIDTH, max_size=WIDTH), max_size=6)


demands = st.dictionaries(st.integers(0, WIDTH - 1), positive, max_size=WIDTH).map(
    lambda wanted: tuple(wanted.items())
)
wholes = rows_of(amounts)
weights = st.lists(st.tuples(st.integers(0, WIDTH - 1), st.integers(0, 10_000)), max_size=WIDTH)


def table(rows: Sequence[Sequence[int]]) -> Array:
    return np.array(rows, dtype=np.int64).reshape(len(rows), WIDTH)


@given(rows_of(free_amounts), demands)
def test_a_row_holds_what_fits(free: list[list[int]], demand: scan.Sparse) -> None:
    assert scan.holding(table(free), demand).tolist() == [fits(demand, row) for row in free]


@given(st.lists(demands, max_size=4), rows_of(free_amounts))
def test_any_row_fits_when_one_does(wanted: list[scan.Sparse], free: list[list[int]]) -> None:
    if free:
        expected = [any(fits(demand, row) for row in free) for demand in wanted]
        assert any_fit(wanted, free) == expected


@given(
    st.lists(demands, max_size=8),
    rows_of(free_amounts),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_rows_hold_what_one_of_them_fits_whatever_was_asked_before(
    wanted: list[scan.Sparse], free: list[list[int]], marks: list[bool]
) -> None:
    """Marked rows are those of the slots whose byte is 1."""
    slots = range(5, 5 - len(free), -1)
    some = SlotRows(slots, free).marked(bytearray(marks)) if free else Rows([])
    chosen = [row for slot, row in zip(slots, free, strict=True) if marks[slot]]
    for rows, plain in ((Rows(free), free), (some, chosen)):
        expected = [any(fits(demand, row) for row in plain) for demand in wanted]
        assert [rows.hold(demand) for demand in wanted] == expected


@given(st.lists(st.tuples(amounts, positive), max_size=6))
def test_a_part_is_scaled_exactly(pairs: list[tuple[int, int]]) -> None:
    part = np.array([one for one, _ in pairs], dtype=np.int64)
    whole = np.array([other for _, other in pairs], dtype=np.int64)
    assert scan.scaled(part, whole).tolist() == [(one << 20) // other for one, other in pairs]


@given(wholes, st.data(), weights)
def test_fullness_is_a_nodes_score(
    whole: list[list[int]], data: st.DataObject, weighing: list[tuple[int, int]]
) -> None:
    rest = [[data.draw(st.integers(cell - HUGE, cell)) for cell in row] for row in whole]
    expected = [score(own, free, weighing) for own, free in zip(whole, rest, strict=True)]
    assert scan.fullness(table(rest), table(whole), weighing).tolist() == expected


@given(rows_of(free_amounts), wholes, demands)
def test_lacking_is_a_nodes_shortfall(
    rest: list[list[int]], whole: list[list[int]], demand: scan.Sparse
) -> None:
    pairs = [(free, own) for free, own in zip(rest, whole, strict=False) if fits(demand, own)]
    expected = [shortfall(demand, own, free) for free, own in pairs]
    found = scan.lacking(table([one for one, _ in pairs]), table([own for _, own in pairs]), demand)
    assert found.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8), st.data())
def test_the_first_row_has_the_least_rank_then_number(
    ranked: list[tuple[int, bool]], data: st.DataObject
) -> None:
    numbers = data.draw(st.permutations(range(10, 10 + len(ranked))))
    rows = [at for at, (_, chosen) in enumerate(ranked) if chosen]
    ranks = np.array([ranked[at][0] for at in rows], dtype=np.int64)
    expected = min(rows, key=lambda at: (ranked[at][0], numbers[at]), default=-1)
    assert scan.first(np.array(rows, dtype=np.int64), ranks, np.array(numbers)) == expected
