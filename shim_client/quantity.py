"""Kubernetes quantities, and counts and durations in annotations and settings, as exact whole numbers.

The grammar is that of the API server (`resource.Quantity`): a signed decimal number, then one suffix or exponent. The
suffix is binary (Ki .. Ei) or decimal (n u m k M G T P E); the exponent is decimal. Every text in another form is
refused. Python's own `Decimal` would accept spaces, underscores, NaN, infinities and digits of other scripts.

Amounts finer than the requested unit are rounded up, as the API server rounds them (`Value`, `MilliValue`): 1n of cpu
is one millicore.
"""

from __future__ import annotations

import re
from functools import lru_cache

QUANTITY_LENGTH_MAX = 64
"""Maximum number of characters of a quantity; the quantities of an API server are much shorter."""

AMOUNT_MAX = 2**62 - 1
"""Largest amount of one type (design 6.13: a running total stays under 2**62)."""

DIGITS_MAX = 19
"""Maximum number of digits of a count.

All limits in this package have at most as many digits.
"""

_EXPONENT_LIMIT = 100
"""Largest exponent that is computed.

A larger exponent, in a text of at most 64 characters, always gives an amount that is above every limit or
below one unit.
"""

_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_BINARY_POWER = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_POWER = {
    "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip


_DURATION_LENGTH_MAX = 64
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
}
_PART = re.compile(
    r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
)


class BadQuantityError(ValueError):
    """A text that Kubernetes would not accept as a quantity, or an amount outside the limits."""


def counted(text: str, bounds: tuple[int, int]) -> int | None:
    """Return the count that is written in decimal digits.

    Return None when the text is not a count or is outside the bounds.
    """
    if len(text) > DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return None
    count = int(text)
    return count if bounds[0] <= count <= bounds[1] else None


def duration_ms(text: str) -> int | None:
    """Return a duration as Go writes it (`90s`, `1m30s`, `0`) in milliseconds, rounded up. Return None for a negative duration and for other texts."""
    written = text.removeprefix("+")
    if written == "0":
        return 0
    nanoseconds, at = 0, 0
    while at < len(written) <= _DURATION_LENGTH_MAX:
        part = _PART.match(written, at)
        if part is None or not (part["whole"] or part["fraction"]):
            return None
        nanoseconds += _ceil_scaled(part["whole"], part["fraction"] or "", part["unit"])
        at = part.end()
    return -(-nanoseconds // 10**6) if at and at == len(written) else None


def _ceil_scaled(whole: str, fraction: str, unit: str) -> int:
    """Return the nanoseconds of one part of a duration, rounded up."""
    scale: int = 10 ** len(fraction)
    return -(-int(whole + fraction) * _NANOSECONDS[unit] // scale)


@lru_cache(maxsize=4096)
def whole_units(text: str) -> int:
    """Return the amount in base units (bytes, devices, pods), rounded up."""
    return _scaled(text, 0)


@lru_cache(maxsize=4096)
def milli_units(text: str) -> int:
    """Return the amount in thousandths of a unit (for cpu: millicores), rounded up."""
    return _scaled(text, 3)


def _scaled(text: str, power: int) -> int:
    """Return ceil(amount * 10**power).

    Raises BadQuantityError if the text is not a quantity, is negative, or is more than AMOUNT_MAX units.
    """
    match = _NUMBER.fullmatch(text) if len(text) <= QUANTITY_LENGTH_MAX else None
    if match is None:
        raise BadQuantityError(f"{text[:QUANTITY_LENGTH_MAX]!r} is not a quantity")
    whole, fraction = match["whole"], match["fraction"] or ""
    if not whole and not fraction:
        raise BadQuantityError(f"{text!r} has no digits")
    digits = int(whole + fraction)
    if match["sign"] == "-" and digits:
        raise BadQuantityError(f"{text!r} is negative")
    amount = _shifted(digits << _binary_shift(match), _decimal_power(match) - len(fraction) + power)
    if amount > AMOUNT_MAX:
        raise BadQuantityError(f"{text!r} is more than {AMOUNT_MAX} units")
    return amount


def _binary_shift(match: re.Match[str]) -> int:
    return _BINARY_POWER[match["binary"]] if match["binary"] else 0


def _decimal_power(match: re.Match[str]) -> int:
    if match["decimal"]:
        return _DECIMAL_POWER[match["decimal"]]
    exponent = int(match["exponent"] or 0)
    return max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, exponent))


def _shifted(digits: int, power: int) -> int:
    """Return ceil(digits * 10**power)."""
    if power >= 0:
        return int(digits * 10**power)
    return -(-digits // int(10**-power))
