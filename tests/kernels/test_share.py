"""The kernel that shares an amount down a tree, compared with its plain definition; when they differ, the kernel is wrong."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.kernels import share
from server.kernels.water import WEIGHT_MAX
from tests.effort import cases
from tests.preemption.proportion_oracle import Sibling, at_most, poured

HUGE = (1 << 62) - 1
SCALES = (4, 12, 100, 10_007, 1 << 40, 1 << 61)
WEIGHTS = (1, 3, 10, WEIGHT_MAX)


def random_family(random_: random.Random, scale: int) -> list[Sibling]:
    """Return random siblings whose weights and bounds are often equal."""
    heaviest = random_.choice(WEIGHTS)
    found = []
    for _ in range(random_.randint(1, random_.choice((2, 4, 12)))):
        cap = random_.choice((None, 0, random_.randint(0, scale), random_.randint(0, scale // 3)))
        least = random_.choice((0, 0, random_.randint(0, scale), random_.randint(0, scale // 5)))
        least = at_most(least, cap) if random_.random() < 0.9 or cap is None else cap
        found.append(Sibling(random_.randint(1, heaviest), least, cap))
    return found


def random_amount(random_: random.Random, siblings: Sequence[Sibling], scale: int) -> int:
    """Return a random amount, often close to what the siblings need."""
    least = sum(one.floor for one in siblings)
    most = sum(scale if one.cap is None else one.cap for one in siblings)
    around = random_.choice((least, most, random_.randint(0, scale), random_.randint(0, most)))
    return min(HUGE, max(0, around + random_.randint(-2, 2)))


def divided(families: Sequence[Sequence[Sibling]], amounts: Sequence[int]) -> list[list[int]]:
    """Return what the kernel divides among the families, each of them a column.

    Smaller families are filled up with siblings that may have nothing.
    """
    most = max(map(len, families))
    nobody = Sibling(1, 0, 0)
    lines = [[*family, *[nobody] * (most - len(family))] for family in families]
    rows = list(zip(*lines, strict=True))
    nothing = (0,) * len(families)
    found = share.divide(
        [[(-1, 1)], [(0, most)]],
        share.Rows(
            weights=[1, *(row[0].weight for row in rows)],
            wanted=[nothing] * (most + 1),
            more=[nothing] * (most + 1),
            least=[nothing, *([one.floor for one in row] for row in rows)],
            most=[[None] * len(families), *([one.cap for one in row] for row in rows)],
            endless=[False, *[True] * most],
        ),
        amounts,
    )
    parts = found.parts.tolist()[1:]
    return [
        [parts[at][column] for at in range(len(family))] for column, family in enumerate(families)
    ]


def check(seed: int) -> None:
    """Random families in one call, of one set of weights each place: as one by one."""
    random_ = random.Random(seed)
    scale = random_.choice(SCALES)
    first = random_family(random_, scale)
    families = [first]
    for _ in range(random_.randint(0, 3)):
        other = random_family(random_, scale)
        families.append(
            [one._replace(weight=own.weight) for one, own in zip(other, first, strict=False)]
        )
    amounts = [random_amount(random_, family, scale) for family in families]
    expected = [poured(amount, family) for amount, family in zip(amounts, families, strict=True)]
    assert divided(families, amounts) == expected, seed
    for amount, family, parts in zip(amounts, families, expected, strict=True):
        properties(amount, family, parts, seed)


def properties(amount: int, family: Sequence[Sibling], parts: Sequence[int], seed: int) -> None:
    """W1 as such: nothing is lost, nobody has more than its cap, nor less than its floor while these can be kept."""
    caps = [amount if one.cap is None else one.cap for one in family]
    assert sum(parts) == min(amount, sum(caps)), seed
    assert all(part <= cap for part, cap in zip(parts, caps, strict=True)), seed
    if sum(one.floor for one in family) <= amount:
        assert all(part >= one.floor for part, one in zip(parts, family, strict=True)), seed
    else:
        assert all(part <= one.floor for part, one in zip(parts, family, strict=True)), seed


@pytest.mark.parametrize("start", range(0, 600, 150))
def test_random_families(start: int) -> None:
    for seed in range(start, start + cases(150)):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10_000, 30_000, 1_000))
def test_many_random_families(start: int) -> None:
    for seed in range(start, start + 1_000):
        check(seed)


def test_an_amount_of_any_size_is_exact() -> None:
    """Doubles would not do: the levels at which these two stop differ by less than one in 2^61."""
    family = [
        Sibling(WEIGHT_MAX, 0, HUGE - 1),
        Sibling(WEIGHT_MAX - 1, 0, HUGE // 2),
        Sibling(7, HUGE // 3, None),
    ]
    for amount in (HUGE, HUGE - 1, HUGE // 2 + 1, HUGE // 3):
        assert divided([family], [amount]) == [poured(amount, family)]


def test_levels_that_differ_by_next_to_nothing_keep_their_order() -> None:
    """1 / WEIGHT_MAX and 1 / (WEIGHT_MAX - 1): neighbours among all fractions of weights."""
    family = [Sibling(WEIGHT_MAX - 1, 0, 1), Sibling(WEIGHT_MAX, 0, 1), Sibling(1, 0, None)]
    for amount in range(4):
        assert divided([family], [amount]) == [poured(amount, family)]


def test_ties_go_to_the_earlier() -> None:
    alike = [Sibling(1, 0, None)] * 3
    assert divided([alike], [10]) == [[4, 3, 3]]
    assert divided([alike], [11]) == [[4, 4, 3]]


def test_floors_beyond_the_share_are_scaled() -> None:
    """W1: in proportion to themselves, whatever the weights."""
    family = [Sibling(100, 20, None), Sibling(1, 10, None), Sibling(50, 0, None)]
    assert divided([family], [15]) == [[10, 5, 0]]


def test_who_starts_and_stops_to_rise_at_one_level_has_just_that() -> None:
    family = [Sibling(1, 5, 5), Sibling(2, 10, 10), Sibling(1, 0, None)]
    assert divided([family], [19]) == [[5, 10, 4]]
    assert divided([family], [21]) == [[5, 10, 6]]


def test_endless_sums_are_no_overflow() -> None:
    """The most of many rows is more than any number holds."""
    family = [Sibling(1, 0, HUGE)] * 40
    assert divided([family], [HUGE]) == [poured(HUGE, family)]
    assert divided([[Sibling(1, HUGE, HUGE)] * 40], [400]) == [[10] * 40]


@given(st.integers(0, HUGE), st.lists(st.integers(0, HUGE), max_size=6))
def test_largest_remainder_keeps_the_sum(amount: int, weights: list[int]) -> None:
    parts = share.largest_remainder(amount, weights)
    assert sum(parts) == min(amount, sum(weights))
    if 0 < amount <= sum(weights):
        exact = [amount * weight / sum(weights) for weight in weights]
        limit = 1 + amount / (1 << 40)
        assert all(abs(part - one) <= limit for part, one in zip(parts, exact, strict=True))
