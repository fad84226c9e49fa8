"""The kernel for the order of turns, compared with repeatedly taking the least; when they differ, the kernel is wrong."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from server.kernels.turns import Children, Turns, in_turn
from server.model.fit import Scale, scales, share

COLUMNS = 2
LEAVES = 3
APPLICATIONS = 5

small = st.integers(0, 3)
quantities = st.one_of(small, st.integers(0, 1 << 24), st.integers(0, 1 << 56))
measures = st.one_of(st.integers(0, 4), st.integers(1, 1 << 60), st.just(0))


def amounts(cells: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(cells, min_size=COLUMNS, max_size=COLUMNS)


@dataclass
class Child:
    """A queue or an application, with what its usage is compared with."""

    above: int
    tie: int
    ranked: bool
    usage: list[int]
    measure: list[int]
    asks: list[int] = field(default_factory=list)

    @property
    def share(self) -> int:
        return share(self.usage, self.measure)

    @property
    def key(self) -> tuple[int, int]:
        return (self.share if self.ranked else 0, self.tie)


@st.composite
def children(draw: st.DrawFn, count: int, above: int) -> list[Child]:
    """Draw children, each with a parent and a tie-breaker of its own."""
    return [
        Child(
            draw(st.integers(0, above - 1)),
            tie,
            draw(st.booleans()),
            draw(amounts(quantities)),
            draw(amounts(measures)),
        )
        for tie in range(count)
    ]


def level(some: list[Child]) -> Children:
    lines: list[list[Scale]] = [scales(one.measure) for one in some]
    return Children(
        [one.above for one in some],
        [one.ranked for one in some],
        [list(one.usage) for one in some],
        [one.share for one in some],
        range(len(some)),
        lines,
    )


def one_by_one(asks: list[list[int]], applications: list[Child], leaves: list[Child]) -> list[int]:
    """Return the order of the asks: of the least waiting leaf, its least application's first ask, repeatedly."""
    order = []
    while waiting := [one for one in applications if one.asks]:
        leaf = min({one.above for one in waiting}, key=lambda at: leaves[at].key)
        first = min((one for one in waiting if one.above == leaf), key=lambda one: one.key)
        ask = first.asks.pop(0)
        order.append(ask)
        for column, quantity in enumerate(asks[ask]):
            first.usage[column] += quantity
            leaves[leaf].usage[column] += quantity
    return order


@given(
    children(APPLICATIONS, LEAVES),
    children(LEAVES, 1),
    st.lists(st.tuples(st.integers(0, APPLICATIONS - 1), amounts(quantities)), max_size=14),
)
def test_the_order_is_that_of_one_at_a_time(
    applications: list[Child], leaves: list[Child], drawn: list[tuple[int, list[int]]]
) -> None:
    # Every child has an ask, as the kernel wants it.
    asking = [*range(APPLICATIONS), *(application for application, _ in drawn)]
    asks = [[1, 0]] * APPLICATIONS + [quantity for _, quantity in drawn]
    used = sorted({one.above for one in applications})
    leaves = [leaves[at] for at in used]
    for one in applications:
        one.above = used.index(one.above)
    levels = [level(applications), level(leaves)]
    for ask, application in enumerate(asking):
        applications[application].asks.append(ask)
    found = in_turn(asking, list(range(len(asks))), asks, levels)
    order = one_by_one(asks, applications, leaves)
    if found is None:
        largest = max(max(one.usage) for one in [*applications, *leaves])
        assert largest >= 1 << 29, "they were small enough"
        return
    assert found == Turns(
        order,
        [[one.usage for one in applications], [one.usage for one in leaves]],
        [[one.share for one in applications], [one.share for one in leaves]],
        len(asks),
    )


def test_numbers_that_leave_int64_are_left_to_others() -> None:
    for measure, usage, fits in (
        (3, (3 << 29) - 2, True),
        (3, 3 << 29, False),
        ((1 << 60) + 1, 1 << 61, True),
        ((1 << 61) + 1, 1 << 60, False),
        (0, 1 << 28, True),
        (0, 1 << 29, False),
        (33_566_846_976 * 10_000, 1 << 48, True),
    ):
        one = Children([0], [True], [[usage]], [0], [0], [scales([measure])])
        found = in_turn([0], [0], [[1]], [one])
        assert (found is not None) == fits, (measure, usage)
        assert found is None or found.shares == [[share([usage + 1], [measure])]]
