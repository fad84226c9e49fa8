"""The checks of single fields. Each check raises a RefusedError that says what is wrong and where (design 1.12)."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from server.model.phrases import count
from server.model.quota import DEFAULT_PARTITION
from server.model.resources import QUANTITY_LIMIT, Resource
from server.rpc.limits import LISTED_MAX, NAME_CHARACTERS_MAX, SECONDS_MAX
from si.v1 import si_pb2

_SHOWN: Final = 60
_ACTING: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""The control characters (C0, DEL, C1) and the characters that change the order of text."""


class RefusedError(ValueError):
    """The error of a refused object of a message. `str()` starts with the path of the field."""


def name(field: str, text: str) -> str:
    """Return a key or id, which must not be empty and has a bounded length."""
    if not text:
        raise RefusedError(f"{field}: is empty")
    return bounded(field, text)


def bounded(field: str, text: str) -> str:
    """Return a name that may be empty, of bounded length and without control characters."""
    if len(text) > NAME_CHARACTERS_MAX:
        raise RefusedError(
            f"{field}: has {len(text)} characters, allowed are {NAME_CHARACTERS_MAX}"
        )
    return printable(field, text)


def printable(field: str, text: str) -> str:
    """Return a name, or refuse it if it has control characters, which could act on a terminal.

    Names in Kubernetes have no control characters.
    """
    found = None if text.isprintable() else _ACTING.search(text)
    if found is not None:
        where = f"character {found.start() + 1}"
        raise RefusedError(f"{field}: {where} is a control character (U+{ord(found[0]):04X})")
    return text


def partition(text: str) -> str:
    """Return the partition's name in lower case, as in the configuration.

    Return `default` if the client names no partition.
    """
    return bounded("partitionName", text).lower() or DEFAULT_PARTITION


def listed(field: str, items: Collection[object]) -> None:
    """Raise RefusedError for a list that is too long."""
    if len(items) > LISTED_MAX:
        raise RefusedError(f"{field}: has {count(len(items), 'entry')}, allowed are {LISTED_MAX}")


def quantities(field: str, message: si_pb2.Resource) -> Resource:
    """Return the canonical resource of a wire resource.

    Zeros are left out (server.model.resources).
    """
    entries: Mapping[str, si_pb2.Quantity] = message.resources
    listed(field, entries)
    pairs = []
    for kind, quantity in entries.items():
        amount = quantity.value
        if not 0 <= amount < QUANTITY_LIMIT or not kind:
            raise RefusedError(_bad_quantity(field, kind, amount))
        if amount:
            pairs.append((kind, amount))
    return tuple(sorted(pairs))


def _bad_quantity(field: str, kind: str, amount: int) -> str:
    """Return a text that says what is wrong with one quantity."""
    if not kind:
        return f"{field}: has a quantity without a resource type"
    wrong = "is negative" if amount < 0 else f"is too large, the largest is {QUANTITY_LIMIT - 1}"
    return f"{field}[{kind[:_SHOWN]}]: {amount} {wrong}"


def whole(field: str, number: int, largest: int) -> int:
    """Return a number if it is from 0 to `largest`, and otherwise refuse it."""
    if not 0 <= number <= largest:
        raise RefusedError(f"{field}: {number} is not between 0 and {largest}")
    return number


def milliseconds(field: str, number: int) -> int:
    """Return a duration or instant in milliseconds, or refuse it if it is negative or too large."""
    return whole(field, number, SECONDS_MAX * 1000)


def one_of(field: str, text: str, allowed: Collection[str]) -> str:
    """Return a word if it is one of the allowed words, and otherwise refuse it."""
    if text not in allowed:
        words = ", ".join(word for word in allowed if word)
        raise RefusedError(f"{field}: {text[:_SHOWN]!r} is unknown, allowed are {words}")
    return text
