"""Sums over rows, and the set of numbers in them, compared with plain Python; when they differ, the kernel is wrong."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.kernels import distinct, sums
from server.kernels.fit import Array

WIDTH = 3
NODES = 5
LEAVES = (0, 3, 1 << 40, 1 << 61)
"""Numbers of leaves: those of a core that has run for years are large."""

numbers = st.lists(st.integers(-3, 1 << 40), max_size=12)
rows = st.lists(
    st.tuples(
        st.integers(0, NODES - 1),
        st.sampled_from(LEAVES),
        st.lists(st.integers(0, 1 << 57), min_size=WIDTH, max_size=WIDTH),
        st.booleans(),
    ),
    min_size=1,
    max_size=3 * distinct.FEW,
).filter(lambda drawn: any(one[-1] for one in drawn))
"""Node, leaf, amounts of an allocation, and whether it goes."""


def line(values: list[int]) -> Array:
    return np.array(values, dtype=np.int64)


def per(drawn: list[Any], at: int) -> dict[int, list[int]]:
    """Return the sums of the drawn rows that count, by node (`at` is 0) or leaf (1)."""
    found: dict[int, list[int]] = {}
    for one in drawn:
        if one[-1]:
            known = found.setdefault(one[at], [0] * WIDTH)
            found[one[at]] = [had + more for had, more in zip(known, one[2], strict=True)]
    return found


def sparse(amounts: list[int]) -> list[tuple[int, int]]:
    return [(column, quantity) for column, quantity in enumerate(amounts) if quantity]


@given(rows)
def test_released_rows_are_summed_up_by_node_and_by_leaf(drawn: list[Any]) -> None:
    going = line([at for at, one in enumerate(drawn) if one[-1]])
    standing, coming = np.ones(len(drawn), dtype=np.bool_), np.zeros((NODES, WIDTH), dtype=np.int64)
    columns = (line([one[0] for one in drawn]), line([one[1] for one in drawn]))
    amounts = line([one[2] for one in drawn])
    nodes, leaves = per(drawn, 0), per(drawn, 1)
    expected = [(leaf, sparse(leaves[leaf])) for leaf in sorted(leaves)]
    found = sums.release(standing, coming, *columns, amounts, going, 1)
    assert found == (sorted(nodes), expected)
    assert np.flatnonzero(~standing).tolist() == going.tolist()
    assert coming.tolist() == [nodes.get(node, [0] * WIDTH) for node in range(NODES)]
    assert sums.by_leaf(columns[1], amounts, going) == expected
    assert sums.release(standing, coming, *columns, amounts, going, -1) == found
    assert standing.all()
    assert not coming.any()


@given(st.lists(st.integers(0, 3 * distinct.FEW), max_size=2 * distinct.FEW))
def test_rows_differ_unless_one_occurs_twice(drawn: list[int]) -> None:
    assert distinct.all_differ(line(drawn)) == (len(set(drawn)) == len(drawn))


@given(numbers)
def test_different_numbers_with_their_places_and_how_many_there_are(drawn: list[int]) -> None:
    rising, different = sorted(drawn), sorted(set(drawn))
    counts = Counter(drawn)
    assert distinct.as_column(drawn).tolist() == drawn
    assert distinct.distinct(line(drawn)) == different
    first = [rising.index(one) for one in different]
    assert distinct.starts(line(rising)).tolist() == first
    found = distinct.counted(line(rising))
    assert found == (different, first, [counts[one] for one in different])
    small = [abs(one) % 20 for one in drawn]
    assert distinct.tally(line(small)) == [
        small.count(at) for at in range(max(small, default=-1) + 1)
    ]
    for some in (drawn, small):
        known, places = distinct.numbered(line(some))
        assert known == sorted(set(some))
        assert places.tolist() == [known.index(one) for one in some]
