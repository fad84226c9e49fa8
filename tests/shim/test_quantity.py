"""Quantities compared with an independent parser that uses fractions."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim_client.quantity import (
    AMOUNT_MAX,
    QUANTITY_LENGTH_MAX,
    BadQuantityError,
    counted,
    duration_ms,
    milli_units,
    whole_units,
)

FACTORS = {
    "": Fraction(1),
    **{s: Fraction(10) ** p for s, p in zip("num", (-9, -6, -3), strict=True)},
    **{s: Fraction(1000) ** (p + 1) for p, s in enumerate("kMGTPE")},
    **{f"{s}i": Fraction(1024) ** (p + 1) for p, s in enumerate("KMGTPE")},
}

digits = st.text("0123456789", min_size=0, max_size=12)
suffixes = st.one_of(
    st.sampled_from(sorted(FACTORS)),
    st.builds(lambda e, n: f"{e}{n}", st.sampled_from("eE"), st.integers(-30, 30)),
)


def independent(whole: str, fraction: str, suffix: str) -> Fraction:
    number = Fraction(int(whole or "0")) + Fraction(int(fraction or "0"), 10 ** len(fraction))
    if suffix[:1] in {"e", "E"} and suffix not in FACTORS:
        return number * Fraction(10) ** int(suffix[1:])
    return number * FACTORS[suffix]


@given(whole=digits, fraction=digits, dot=st.booleans(), suffix=suffixes, plus=st.booleans())
def test_a_quantity_is_what_fractions_say(
    *, whole: str, fraction: str, dot: bool, suffix: str, plus: bool
) -> None:
    fraction = fraction if dot else ""
    text = f"{'+' if plus else ''}{whole}{'.' if dot else ''}{fraction}{suffix}"
    if not whole and not fraction:
        with pytest.raises(BadQuantityError):
            whole_units(text)
        return
    amount = independent(whole, fraction, suffix)
    for read, factor in ((whole_units, 1), (milli_units, 1000)):
        wanted = ceil(amount * factor)
        if wanted > AMOUNT_MAX:
            with pytest.raises(BadQuantityError):
                read(text)
        else:
            assert read(text) == wanted


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        ("0", 0, 0),
        ("-0", 0, 0),
        ("500m", 1, 500),
        ("1n", 1, 1),
        ("0.1", 1, 100),
        ("1.5Gi", 1610612736, 1610612736000),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("1e3", 1000, 1000000),
        ("1E3", 1000, 1000000),
        ("2E", 2 * 10**18, None),
        ("12e-1", 2, 1200),
        ("100M", 100_000_000, 100_000_000_000),
        ("128974848", 128974848, 128974848000),
        ("1e-99999", 1, 1),
    ],
)
def test_quantities_as_the_api_server_reads_them(text: str, whole: int, milli: int | None) -> None:
    assert whole_units(text) == whole
    if milli is not None:
        assert milli_units(text) == milli


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "1 ", " 1", "1 Gi", "1_000", "NaN", "nan", "Infinity", "inf", "0x10", "1,5", "--1",
        "-1", "-1m", "1K", "1ki", "1gi", "1Mi5", "1e", "1e+", "1.2.3", ".", "+", "m", "e3", "\u0661", "\uff11",
        "1\n", "1e99999", "9" * 40, "1" * (QUANTITY_LENGTH_MAX + 1), "8Ei", "²",
    ],
)  # fmt: skip
def test_what_is_no_quantity_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(BadQuantityError):
        whole_units(text)


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        amount = whole_units(text)
    except BadQuantityError:
        return
    assert 0 <= amount <= AMOUNT_MAX


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("100", 100),
        ("007", 7),
        ("0", None),
        ("101", None),
        ("0000000019999", None),
        ("0" * 18 + "7", 7),
        ("0" * 19 + "7", None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1_0", None),
        ("\u0661", None),
        ("1.0", None),
    ],
)
def test_a_count_is_digits_within_its_bounds(text: str, count: int | None) -> None:
    assert counted(text, (1, 100)) == count


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("90s", 90_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        (".5s", 500),
        ("1.s", 1_000),
        ("+2m0.25s", 120_250),
        ("1ns", 1),
        ("1500us", 2),
        ("1500\u00b5s", 2),
        ("1500\u03bcs", 2),
        ("1ms1ms", 2),
    ],
)
def test_durations_are_those_of_go(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "10",
        "s",
        ".s",
        "1d",
        "-1s",
        "1 s",
        " 1s",
        "1s ",
        "1e3s",
        "1_0s",
        "\u0661s",
        "--1s",
        "0x1s",
        f"{'1' * 70}s",
    ],
)
def test_other_texts_are_no_durations(text: str) -> None:
    assert duration_ms(text) is None
