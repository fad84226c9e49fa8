"""Quantities in the units that users read: cores instead of millicores, binary units instead of bytes.

The text output has three digits; the JSON output has exact whole numbers.
"""

from collections.abc import Iterable, Mapping

BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
BYTES_TYPES = ("memory", "storage", "ephemeral-storage")
FIRST_TYPES = ("vcore", "memory")
NOTHING = "-"
ONE_CORE = 1000
PODS = "pods"
NOUNS = {"vcore": "cores", "nvidia.com/gpu": "gpu"}
"""The names that users read for some resource types.

Every other type is shown with its own name, so that users can tell all types apart.
"""


def heading(kind: str) -> str:
    """Return the word that users read for a resource type, such as `cores`; for most types, the type's own name."""
    return NOUNS.get(kind, kind)


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return each type once: cores first, then memory, then all other types by name."""
    known = set(kinds)
    return [kind for kind in FIRST_TYPES if kind in known] + sorted(known.difference(FIRST_TYPES))


def amount(kind: str, value: int) -> str:
    """Return a quantity with its unit; cores and counts have no unit."""
    if kind == "vcore":
        return _short(value / 1000)
    if _is_bytes(kind):
        unit = _unit(value)
        return f"{_short(value / 1024**unit)} {BINARY_UNITS[unit]}"
    return f"{value:,}"


def scale(kind: str, largest: int) -> tuple[int, str]:
    """Return the divisor and the unit for a series of numbers, given its largest number, as on the axis of a chart."""
    if kind == "vcore":
        return ONE_CORE, ""
    if _is_bytes(kind):
        unit = _unit(largest)
        return 1024**unit, BINARY_UNITS[unit]
    return 1, ""


def maybe(kind: str, values: Mapping[str, int]) -> str:
    """Return the quantity of a type; a dash when the mapping does not have the type."""
    return amount(kind, values[kind]) if kind in values else NOTHING


def pair(kind: str, part: int, whole: int) -> str:
    """Return `part/whole` in one unit: `12/64`, `3.5/16 GiB`."""
    if _is_bytes(kind):
        unit = _unit(max(abs(part), abs(whole)))
        left, right = (_short(value / 1024**unit) for value in (part, whole))
        return f"{left}/{right} {BINARY_UNITS[unit]}"
    return f"{amount(kind, part)}/{amount(kind, whole)}"


def phrase(values: Mapping[str, int]) -> str:
    """Return a resource in one line: `4 cores, 16 GiB memory, 2 gpu`.

    Zeros are left out. The number of pods is left out if another type is shown, because other lines of the same
    output have that number.
    """
    asked = [kind for kind in in_order(values) if values[kind]]
    shown = [kind for kind in asked if kind != PODS] or asked
    words = [f"{amount(kind, values[kind])} {_noun(kind, values[kind])}" for kind in shown]
    return ", ".join(words) if words else "nothing"


def percent(part: int, whole: int) -> str:
    """Return a rounded percentage; a dash when the whole is not positive.

    A part that would be rounded to 0 % is `<1 %`, and a part that would be rounded to 100 % is `>99 %`.
    """
    if whole <= 0:
        return NOTHING
    share = round(100 * part / whole)
    if share == 0 and part > 0:
        return "<1 %"
    if share == 100 and part < whole:  # noqa: PLR2004
        return ">99 %"
    return f"{share} %"


def span(milliseconds: int) -> str:
    """Return a duration: `0.4 s`, `42 s`, `3 m 05 s`, `2 h 10 m`, `5 d 03 h`.

    A negative time is `0.0 s`.
    """
    seconds = max(0, milliseconds) / 1000
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, below, unit, rest in (
        (86_400, 3600, "d", "h"),
        (3600, 60, "h", "m"),
        (60, 1, "m", "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below:02d} {rest}"
    return f"{whole} s"


def _noun(kind: str, value: int) -> str:
    return "core" if kind == "vcore" and value == ONE_CORE else heading(kind)


def _is_bytes(kind: str) -> bool:
    return kind in BYTES_TYPES or kind.startswith("hugepages-")


def _unit(value: int) -> int:
    size = abs(value)
    unit = 0
    while size >= 1024 and unit < len(BINARY_UNITS) - 1:  # noqa: PLR2004
        size //= 1024
        unit += 1
    return unit


def _short(number: float) -> str:
    size = abs(number)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3  # noqa: PLR2004
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text
