"""Quantities in the form in which people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from evenhand_cli.render import amounts

GIB = 1 << 30


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("vcore", 250, "0.25"),
        ("vcore", 1500, "1.5"),
        ("vcore", 64_000, "64"),
        ("vcore", 125_514_000, "125,514"),
        ("vcore", -500, "-0.5"),
        ("memory", 0, "0 B"),
        ("memory", 1023, "1,023 B"),
        ("memory", 3 * GIB + GIB // 2, "3.5 GiB"),
        ("memory", 612_028_416 << 20, "584 TiB"),
        ("hugepages-2Mi", 2 << 20, "2 MiB"),
        ("nvidia.com/gpu", 6212, "6,212"),
    ],
)
def test_one_quantity(kind: str, value: int, shown: str) -> None:
    assert amounts.amount(kind, value) == shown


def test_a_pair_has_one_unit() -> None:
    assert amounts.pair("memory", GIB // 2, 64 * GIB) == "0.5/64 GiB"
    assert amounts.pair("vcore", 7500, 16_000) == "7.5/16"


def test_a_resource_in_one_line() -> None:
    resource = {"nvidia.com/gpu": 2, "memory": 16 * GIB, "vcore": 1000, "pods": 0}
    assert amounts.phrase(resource) == "1 core, 16 GiB memory, 2 gpu"
    assert amounts.phrase({}) == "nothing"


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 10, "0 %"), (1, 10_000, "<1 %"), (9_999, 10_000, ">99 %"), (10, 10, "100 %"), (1, 0, "-")],
)
def test_a_little_is_not_nothing_and_nearly_all_is_not_all(
    part: int, whole: int, shown: str
) -> None:
    assert amounts.percent(part, whole) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (400, "0.4 s"),
        (42_000, "42 s"),
        (185_000, "3 m 05 s"),
        (7_800_000, "2 h 10 m"),
        (-5, "0.0 s"),
    ],
)
def test_a_span(milliseconds: int, shown: str) -> None:
    assert amounts.span(milliseconds) == shown


@given(some.sampled_from(["vcore", "memory", "pods"]), some.integers(-(2**62), 2**62))
def test_every_quantity_is_short(kind: str, value: int) -> None:
    shown = amounts.amount(kind, value)
    digits = sum(sign.isdigit() for sign in shown)
    assert digits <= 4 or kind != "memory"
    assert shown.startswith("-") == (value < 0) or set(shown) <= set("-0")
