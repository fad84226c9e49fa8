"""A share that is computed with scaled numbers is exact to the last unit, for all quantities."""

from hypothesis import given
from hypothesis import strategies as st

from server.model.fit import SHARE_UNBOUNDED, scales, share

AMOUNTS = st.one_of(
    st.integers(0, 1 << 61),
    st.integers(0, 1 << 40).map(lambda one: one << 20),
    st.integers(0, 61).map(lambda one: 1 << one),
)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=5))
def test_scales_give_the_share(pairs: list[tuple[int, int]]) -> None:
    usage, measure = zip(*pairs, strict=True)
    ratios = [
        (used << shift) // base if base else SHARE_UNBOUNDED
        for used, (shift, base) in zip(usage, scales(measure), strict=True)
        if used
    ]
    assert max(ratios, default=0) == share(usage, measure)


@given(AMOUNTS.filter(bool))
def test_whole_mebibytes_are_divided_by_few_digits(base: int) -> None:
    ((shift, divisor),) = scales([base << 20])
    assert 0 <= shift <= 12
    assert divisor <= base
