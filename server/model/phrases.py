"""The wording of quantities, lengths of time and lists, for sentences about plans and for reports."""

from collections.abc import Iterable, Mapping, Sequence

from server.model.resources import PORT_PREFIX

_BYTES = frozenset({"memory", "storage", "ephemeral-storage"})
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_ORDER = ("vcore", "memory")
ONE_CORE = 1_000
_DAY_S = 86_400


_NOUNS = {"vcore": "cores", "nvidia.com/gpu": "gpu"}
"""The common names of some resource types.

A type without a common name is written with its own name, so that no two types have the same name.
"""


def noun(kind: str) -> str:
    """Return the name of a resource type for a sentence: `cores`, `memory`, `gpu`, `amd.com/gpu`."""
    return _NOUNS.get(kind, kind)


def quantity(kind: str, amount: int) -> str:
    """Return a quantity with its unit: `1.5 cores`, `0.1 cores`, `16 GiB memory`, `2 gpu`."""
    if kind == "vcore":
        return _cores(amount)
    if kind in _BYTES or kind.startswith("hugepages-"):
        return f"{_size(amount)} {kind}"
    if kind.startswith(PORT_PREFIX):
        return f"host port {kind.removeprefix(PORT_PREFIX)}"
    if kind == "pods":
        return count(amount, "pod")
    return f"{amount} {noun(kind)}"


def _cores(amount: int) -> str:
    """Return a number of cores as a decimal number, even below one core, so that all sentences and tables use the same unit."""
    return f"{_decimal(amount, ONE_CORE)} {'core' if amount == ONE_CORE else 'cores'}"


def _size(amount: int) -> str:
    power = 0
    while abs(amount) >> (10 * (power + 1)) and power + 1 < len(_UNITS):
        power += 1
    return f"{_decimal(amount, 1 << (10 * power))} {_UNITS[power]}"


def _decimal(amount: int, unit: int) -> str:
    """Return an amount in a unit, with up to three decimals if the number is not whole."""
    whole, rest = divmod(abs(amount), unit)
    sign = "-" if amount < 0 else ""
    if not rest:
        return f"{sign}{whole}"
    digits = f"{rest * 1_000 // unit:03d}".rstrip("0") or "001"
    return f"{sign}{whole}.{digits}"


def quantities(amounts: Mapping[str, int], verb: str = "") -> str:
    """Return a resource in words, with cores and memory first. Return `nothing` if the resource is empty.

    A ``verb`` is given in the plural, such as `are` or `more are`. The text then ends with the form of the verb that agrees
    with the quantities: `1 core is`, `4 cores are`, `2 GiB memory is`.
    """
    kinds = sorted(
        amounts, key=lambda kind: (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind)
    )
    some = [kind for kind in kinds if amounts[kind]]
    text = listed([quantity(kind, amounts[kind]) for kind in some]) or "nothing"
    if not verb:
        return text
    is_one = not some or (len(some) == 1 and _is_one(some[0], amounts[some[0]]))
    return f"{text} {agreeing(verb, 1 if is_one else len(some) + 1)}"


def _is_one(kind: str, amount: int) -> bool:
    """Return whether a verb after the quantity is in the singular.

    The verb is in the singular for a quantity of one, and for any amount of memory.
    """
    if kind == "vcore":
        return amount == ONE_CORE
    is_size = kind in _BYTES or kind.startswith(("hugepages-", PORT_PREFIX))
    return is_size or amount == 1


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `a, b and c`."""
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def some(words: Iterable[str], most: int) -> str:
    """Return the first ``most`` words as a list, and the number of the other words: `a, b and 3 more`."""
    every = list(words)
    shown = every[:most]
    if len(every) > most:
        shown.append(f"{len(every) - most} more")
    return listed(shown)


_SINGULAR = {"are": "is", "were": "was", "have": "has", "do": "does", "go": "goes"}
"""The singular forms of verbs for which it is not enough to add an s to the plural."""
_UNCHANGED = frozenset({"would", "had"})


def count(number: int, noun: str, verb: str = "") -> str:
    """Return a number and its noun: `1 ask`, `3 asks`.

    A ``verb`` is given in the plural. The text then ends with the form of the verb that agrees with the number: `1 ask waits`.
    """
    text = f"{number} {noun if number == 1 else plural_of(noun)}"
    return f"{text} {agreeing(verb, number)}" if verb else text


def plural_of(noun: str) -> str:
    """Return the plural of a noun: `asks`, `entries`."""
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"


def agreeing(verb: str, number: int) -> str:
    """Return the form of a verb that agrees with a number.

    ``verb`` is in the plural. The result is a form such as `is`, `are`, `more is` or `waits`.
    """
    before, _, last = verb.rpartition(" ")
    if number != 1 or last in _UNCHANGED:
        return verb
    return f"{before} {_SINGULAR.get(last, f'{last}s')}".lstrip()


def span(milliseconds: int) -> str:
    """Return a length of time: `12 s`, `5 min`, `3 h`, `2 days`."""
    seconds = max(milliseconds, 0) // 1_000
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def time_of_day(instant: int) -> str:
    """Return an instant as its time of day: `14:05:10 UTC`."""
    seconds = instant // 1_000 % _DAY_S
    return f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d} UTC"


def date(instant: int) -> str:
    """Return the day of an instant in UTC: `2026-11-24`.

    The calculation begins each year in March, so that a leap day is the last day of its year.
    """
    eras, day = divmod(instant // 1_000 // _DAY_S + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    first = (153 * month + 2) // 5
    later = month >= 10  # noqa: PLR2004 - January and February
    return (
        f"{400 * eras + year + later:04d}-{month + (-9 if later else 3):02d}-{day - first + 1:02d}"
    )


def place(position: int) -> str:
    """Return a position as an ordinal number: `1st`, `2nd`, `3rd`, `11th`."""
    last = position % 100
    ending = "th" if 11 <= last <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")  # noqa: PLR2004
    return f"{position}{ending}"
