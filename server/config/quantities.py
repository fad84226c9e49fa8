"""The readers of quantities, durations, shares and weights. All readers return exact whole numbers.

`server.model.spelling` turns these numbers into text again. Every reader takes the text as written and raises ValueError with a
message for the file's author.
"""

import re
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Final

from server.model.resources import QUANTITY_LIMIT
from server.model.spelling import MILLI, VCORE

DURATION_MS_MAX: Final = ((1 << 63) - 1) // 1_000_000
"""The longest duration that Go's `time.ParseDuration` accepts, which is 292 years."""
WEIGHT_MAX: Final = 1_000_000
PERMYRIAD: Final = 10_000

_FACTORS: Final[dict[str, int]] = {
    "": 1,
    **{unit: 1_000**power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": 1_024**power for power, unit in enumerate("KMGTPE", start=1)},
}
_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
}
_QUANTITY: Final = re.compile(r"(?P<digits>[0-9]{1,30})(?P<unit>[A-Za-z]{0,2})")
_DURATION_PART: Final = re.compile(
    r"([0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
)
_DURATION: Final = re.compile(rf"[+-]?(?:{_DURATION_PART.pattern})+")
_SHARE: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?%")
_DECIMAL: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}")
_WHOLE: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,18})")
_TYPE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?")


def quantity(kind: str, written: str) -> int:
    """Return a quantity of a resource type: `vcore` in milli-cores (`2` = 2000, `500m` = 500), all other types in plain units."""
    if written.startswith("-"):
        raise ValueError(f"the quantity {written!r} of {kind} is negative")
    found = _QUANTITY.fullmatch(written)
    if not found:
        if kind == VCORE and (milli := _in_thousandths(written)):
            raise ValueError(
                f"{written!r} is not a whole number of cores: write thousandths, as in `{milli}m`"
            )
        raise ValueError(
            f"{written!r} is not a quantity of {kind}: write a whole number,"
            " then nothing or k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"
        )
    factor = _factor(kind, found["unit"], written)
    amount = int(found["digits"]) * factor
    if amount >= QUANTITY_LIMIT:
        raise ValueError(
            f"the quantity {written!r} of {kind} is too large: allowed are less than 2^62 units"
        )
    return amount


def _in_thousandths(written: str) -> int:
    """Return a decimal number of cores in thousandths. Return 0 for a text that is not a number or has more than three decimals."""
    whole_part, point, part = written.partition(".")
    if not point or not f"{whole_part}{part}".isdecimal() or len(part) > len(str(MILLI)) - 1:
        return 0
    return int(whole_part or 0) * MILLI + int(part.ljust(3, "0"))


def _factor(kind: str, unit: str, written: str) -> int:
    if unit == "m":
        if kind != VCORE:
            raise ValueError(f"{written!r}: only {VCORE} takes thousandths (`m`), {kind} does not")
        return 1
    if unit not in _FACTORS:
        short = unit.removesuffix("B") or unit
        close = "k" if short in ("K", "k") else f"{short[0].upper()}{short[1:].lower()}"
        known = ": write nothing or k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"
        hint = f", did you mean {close!r}?" if close in _FACTORS else known
        raise ValueError(f"{written!r}: {unit!r} is not a unit of {kind}{hint}")
    return _FACTORS[unit] * (MILLI if kind == VCORE else 1)


def type_name(kind: str) -> str:
    """Return a text that Kubernetes allows as the name of a resource type, such as `memory` or `nvidia.com/gpu`."""
    if not _TYPE_NAME.fullmatch(kind):
        raise ValueError(f"{kind!r} is not the name of a resource type")
    return kind


def duration_ms(written: str) -> int:
    """Return a Go duration (`1h30m`, `500ms`, `0`) in milliseconds, rounded up."""
    if written.lstrip("+-") == "0":
        return 0
    if not _DURATION.fullmatch(written):
        unit = ": a number needs a unit, such as 30s" if _DECIMAL.fullmatch(written) else ""
        raise ValueError(f"{written!r} is not a duration{unit or ', such as 30s, 5m or 1h30m'}")
    parts = _DURATION_PART.findall(written)
    nanoseconds = sum(Fraction(number) * _NANOSECONDS[unit] for number, unit in parts)
    milliseconds = ceil(nanoseconds / 1_000_000)
    if milliseconds > DURATION_MS_MAX:
        raise ValueError(f"the duration {written!r} is too long")
    return -milliseconds if written.startswith("-") else milliseconds


def share_permyriad(written: str) -> int:
    """Return a share from `0%` to `100%`, with at most two decimals, as a whole number of 1/10000. A plain `0` means 0%."""
    if written == "0":
        return 0
    found = _SHARE.fullmatch(written)
    if not found:
        raise ValueError(f"{written!r} is not a share: write 0 or a percentage such as 10% or 2.5%")
    share = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0"))
    if share > PERMYRIAD:
        raise ValueError(f"the share {written!r} is more than 100%")
    return share


def thousandths(written: str) -> int:
    """Return a weight in exact thousandths. The weight may have decimals, such as `1.5`."""
    if written.startswith("-"):
        raise ValueError(f"the weight {written!r} is negative")
    if not _DECIMAL.fullmatch(written):
        raise ValueError(f"{written!r} is not a weight: write a number such as 1 or 1.5")
    weight = Decimal(written) * MILLI
    if weight != weight.to_integral_value():
        raise ValueError(f"the weight {written!r} is finer than a thousandth")
    if weight > WEIGHT_MAX * MILLI:
        raise ValueError(f"the weight {written!r} is more than {WEIGHT_MAX}")
    return int(weight)


def whole(written: str, low: int, high: int) -> int:
    """Return a whole number from ``low`` to ``high``. The text must have plain decimal digits."""
    if not _WHOLE.fullmatch(written):
        raise ValueError(f"{written!r} is not a whole number in plain digits")
    number = int(written)
    if not low <= number <= high:
        raise ValueError(f"{written} is out of range: allowed are {low} to {high}")
    return number
