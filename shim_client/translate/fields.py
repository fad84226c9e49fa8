"""Typed reading of untyped Kubernetes objects; each error names the field.

An absent or null field is read as the empty value of its type, as in the API server's JSON. Only a field with a
quantity must be present. A value of another type is a `BadObjectError` that names the path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from shim_client.quantity import BadQuantityError

Fields = Mapping[str, Any]
_EMPTY: Fields = {}

ENTRIES_MAX = 1000
"""Maximum number of labels, annotations or selectors of one object that are read."""
TEXTS_LENGTH_MAX = 256 * 1024
"""Maximum total length of an object's labels, annotations or selectors: the API server's limit on annotations."""

LABEL_LENGTH_MAX = 63
"""Maximum number of characters of a label's value, as in the API server."""
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)


class BadObjectError(ValueError):
    """A Kubernetes object that cannot be read: the field and the reason."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def parsed(written: str) -> object:
    """Return the value of the JSON in an annotation. Raises ValueError when an API server would not accept the JSON.

    Python's own JSON reader accepts texts that no message can hold: half a surrogate pair in an escape, NaN, or
    nesting without a limit. This function refuses texts that no message can hold.
    """
    try:
        value = json.loads(written)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as bad:
        raise ValueError("it is nested too deeply") from bad
    except UnicodeEncodeError as bad:
        raise ValueError(f"{bad.object[bad.start]!a} is half a letter") from bad
    return value


def is_label(value: str) -> bool:
    """Return whether a text is a valid label value; an empty text is not accepted."""
    return len(value) <= LABEL_LENGTH_MAX and _LABEL.fullmatch(value) is not None


def mapping(fields: Fields, key: str, path: str = "") -> Fields:
    """Return the object under `key`, empty when absent."""
    value = fields.get(key)
    if value is None:
        return _EMPTY
    if not isinstance(value, dict):
        raise BadObjectError(path + key, "is not an object")
    return value


def texts(fields: Fields, key: str, path: str = "") -> Mapping[str, str]:
    """Return the map of texts under `key` (labels, annotations, selectors)."""
    value = mapping(fields, key, path)
    length = 0
    for name, text_value in value.items():
        if not _is_text(name) or not _is_text(text_value):
            raise BadObjectError(f"{path}{key}[{_shown(name)}]", "is not text; put it in quotes")
        length += len(name) + len(text_value)
    if len(value) > ENTRIES_MAX or length > TEXTS_LENGTH_MAX:
        limits = f"{ENTRIES_MAX} entries, {TEXTS_LENGTH_MAX} characters"
        raise BadObjectError(path + key, f"is larger than {limits}")
    return value


def items(fields: Fields, key: str, path: str = "") -> Sequence[Fields]:
    """Return the list of objects under `key`."""
    value = fields.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadObjectError(path + key, "is not a list of objects")
    for item in value:
        if not isinstance(item, dict):
            raise BadObjectError(path + key, "is not a list of objects")
    return value


def names(fields: Fields, key: str, path: str = "") -> tuple[str, ...]:
    """Return the list of texts under `key`."""
    value = fields.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(_is_text(item) for item in value):
        raise BadObjectError(path + key, "is not a list of texts")
    if len(value) > ENTRIES_MAX:
        raise BadObjectError(path + key, f"has more than {ENTRIES_MAX} entries")
    return tuple(value)


def text(fields: Fields, key: str, path: str = "") -> str:
    """Return the text under `key`."""
    value = fields.get(key)
    if value is None:
        return ""
    if not _is_text(value) or len(value) > TEXTS_LENGTH_MAX:
        raise BadObjectError(path + key, "is not text")
    return str(value)


def _is_text(value: object) -> bool:
    """Return whether the value is text that can be written as UTF-8."""
    return type(value) is str and (value.isascii() or _is_unicode(value))


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _shown(name: object) -> str:
    return ascii(name).strip("'")[:80]


def whole(fields: Fields, key: str, bounds: tuple[int, int], path: str = "") -> int:
    """Return the whole number under `key`, 0 when absent.

    Raises BadObjectError when the value is no whole number, or is outside the bounds.
    """
    value = fields.get(key)
    if value is None:
        return 0
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise BadObjectError(path + key, f"is not a whole number of {bounds[0]} to {bounds[1]}")
    return value


def flag(fields: Fields, key: str, path: str = "") -> bool:
    """Return the boolean under `key`, false when absent."""
    value = fields.get(key)
    if value is None:
        return False
    if type(value) is not bool:
        raise BadObjectError(path + key, "is not true or false")
    return value


def quantity(fields: Fields, key: str, units: Callable[[str], int], path: str = "") -> int:
    """Return the quantity under `key`, written as text or as a number.

    Raises BadObjectError also when the quantity is absent.
    """
    value = fields.get(key)
    if type(value) not in (str, int, float):
        raise BadObjectError(path + key, "is not a quantity")
    try:
        return units(str(value))
    except BadQuantityError as bad:
        raise BadObjectError(path + key, str(bad)) from bad


def instant_ms(fields: Fields, key: str, path: str = "") -> int:
    """Return the RFC 3339 instant under `key` as Unix milliseconds, 0 when absent."""
    value = text(fields, key, path)
    if not value:
        return 0
    try:
        return _parsed_ms(value)
    except ValueError as bad:
        raise BadObjectError(path + key, f"{value[:40]!r} is not an instant") from bad


@lru_cache(maxsize=4096)
def _parsed_ms(value: str) -> int:
    instant = datetime.fromisoformat(value)
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return int(instant.timestamp() * 1000)
