"""Quantities, durations, shares and weights: the exact value of what is read, and what is refused."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.config.quantities import (
    DURATION_MS_MAX,
    duration_ms,
    quantity,
    share_permyriad,
    thousandths,
)
from server.model.resources import QUANTITY_LIMIT
from server.model.spelling import duration_text, limit_text, quantity_text, share_text

QUANTITIES = [
    ("vcore", "1", 1_000),
    ("vcore", "500m", 500),
    ("vcore", "2k", 2_000_000),
    ("memory", "0", 0),
    ("memory", "007", 7),
    ("memory", "10k", 10_000),
    ("memory", "10M", 10_000_000),
    ("memory", "1G", 10**9),
    ("memory", "1T", 10**12),
    ("memory", "1P", 10**15),
    ("memory", "1E", 10**18),
    ("memory", "1Ki", 1 << 10),
    ("memory", "1Mi", 1 << 20),
    ("memory", "1Gi", 1 << 30),
    ("memory", "1Ti", 1 << 40),
    ("memory", "1Pi", 1 << 50),
    ("memory", "3Ei", 3 << 60),
    ("nvidia.com/gpu", "8", 8),
    ("memory", str(QUANTITY_LIMIT - 1), QUANTITY_LIMIT - 1),
]
BAD_QUANTITIES = [
    ("memory", "-1", "is negative"),
    ("memory", "1.5", "is not a quantity"),
    ("memory", "1e3", "is not a quantity"),
    ("memory", "1_000", "is not a quantity"),
    ("memory", "0x10", "is not a quantity"),
    ("memory", "", "is not a quantity"),
    ("memory", "Gi", "is not a quantity"),
    ("memory", "1 Gi", "is not a quantity"),
    ("memory", "+1", "is not a quantity"),
    ("memory", "\u0661", "is not a quantity"),
    ("memory", "500m", "only vcore takes thousandths"),
    ("memory", "1K", "did you mean 'k'?"),
    ("memory", "1ki", "did you mean 'Ki'?"),
    ("memory", "1g", "did you mean 'G'?"),
    ("memory", "1GB", "is not a unit"),
    ("memory", str(QUANTITY_LIMIT), "is too large"),
    ("memory", "5Ei", "is too large"),
    ("vcore", "5000000000000000", "is too large"),
    ("memory", "9" * 400_000, "is not a quantity"),
]
DURATIONS = [
    ("0", 0),
    ("0s", 0),
    ("-0", 0),
    ("30s", 30_000),
    ("1h30m", 5_400_000),
    ("1.5h", 5_400_000),
    (".5s", 500),
    ("1.s", 1_000),
    ("0.1s", 100),
    ("100ms", 100),
    ("1us", 1),
    ("1\u00b5s", 1),
    ("1\u03bcs", 1),
    ("1000001ns", 2),
    ("1h1m1s1ms", 3_661_001),
    ("-5s", -5_000),
    ("+5s", 5_000),
    ("292y", None),
    ("2562047h", 2_562_047 * 3_600_000),
    ("2562048h", None),
    ("5", None),
    ("5 s", None),
    ("s", None),
    ("", None),
    ("1d", None),
    ("1m30", None),
    ("1e3s", None),
    ("\u0661s", None),
]


@pytest.mark.parametrize(("kind", "written", "expected"), QUANTITIES)
def test_a_quantity_is_read_exactly(kind: str, written: str, expected: int) -> None:
    assert quantity(kind, written) == expected


@pytest.mark.parametrize(("kind", "written", "words"), BAD_QUANTITIES)
def test_a_bad_quantity_is_refused_and_names_its_type(kind: str, written: str, words: str) -> None:
    with pytest.raises(ValueError, match=kind) as refusal:
        quantity(kind, written)
    assert words in str(refusal.value)


@pytest.mark.parametrize(("written", "expected"), DURATIONS)
def test_durations_are_those_of_go(written: str, expected: int | None) -> None:
    if expected is not None:
        assert duration_ms(written) == expected
        return
    with pytest.raises(ValueError, match="duration"):
        duration_ms(written)


def test_a_number_without_a_unit_is_told_to_take_one() -> None:
    with pytest.raises(ValueError, match="a number needs a unit"):
        duration_ms("300")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0", 0),
        ("0%", 0),
        ("10%", 1_000),
        ("2.5%", 250),
        ("0.01%", 1),
        ("33.33%", 3_333),
        ("100%", 10_000),
    ],
)
def test_shares_are_read_exactly(written: str, expected: int) -> None:
    assert share_permyriad(written) == expected


@pytest.mark.parametrize(
    "written", ["10", "1", "-1%", "100.01%", "101%", "1.234%", "ten", "", "%", "10 %"]
)
def test_bad_shares_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="share"):
        share_permyriad(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1", 1_000),
        ("1.5", 1_500),
        ("0.001", 1),
        ("0", 0),
        (".5", 500),
        ("1.", 1_000),
        ("0.30", 300),
    ],
)
def test_weights_are_exact_thousandths(written: str, expected: int) -> None:
    assert thousandths(written) == expected


@pytest.mark.parametrize(
    "written", ["-1", "0.0001", "1e3", "x", "", "1000000.001", "1_0", ".inf", ".nan"]
)
def test_bad_weights_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="weight"):
        thousandths(written)


@given(
    kind=st.sampled_from(["vcore", "memory", "gpu", "hugepages-2Mi"]),
    amount=st.integers(0, QUANTITY_LIMIT - 1),
)
@settings(deadline=None, print_blob=True)
def test_a_quantity_survives_being_written(kind: str, amount: int) -> None:
    assert quantity(kind, quantity_text(kind, amount)) == amount


@given(st.integers(0, DURATION_MS_MAX))
@settings(deadline=None, print_blob=True)
def test_a_duration_survives_being_written(milliseconds: int) -> None:
    assert duration_ms(duration_text(milliseconds)) == milliseconds


@given(st.integers(0, 10_000))
@settings(deadline=None, print_blob=True)
def test_a_share_survives_being_written(permyriad: int) -> None:
    assert share_permyriad(share_text(permyriad)) == permyriad


@given(hours=st.integers(0, 1_000), seconds=st.decimals(0, 10_000, places=9))
@settings(deadline=None, print_blob=True)
def test_a_fraction_of_a_millisecond_counts_as_a_whole_one(hours: int, seconds: object) -> None:
    exact = hours * 3_600_000 + Fraction(str(seconds)) * 1_000
    assert 0 <= duration_ms(f"{hours}h{seconds:f}s") - exact < 1


def test_amounts_are_written_for_people() -> None:
    assert (
        limit_text((("gpu", 1024), ("memory", 3 << 29), ("vcore", 1_500)))
        == "gpu=1024 memory=1536Mi vcore=1500m"
    )
    assert (duration_text(0), duration_text(5_400_000), duration_text(1_500)) == (
        "0s",
        "1h30m",
        "1500ms",
    )
