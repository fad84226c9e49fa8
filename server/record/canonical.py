"""One way to write a value down: JSON in ASCII with sorted keys, without blanks, with whole numbers only."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

Plain = str | int | bool | list[Any] | dict[str, Any] | None
"""What JSON knows, without fractions."""

DIGEST_CHARACTERS: Final = 64


class BadLineError(ValueError):
    """A line that is no JSON object in this form; ``str()`` says why."""


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def line(value: Mapping[str, Plain]) -> bytes:
    """The value as one line, its end included."""
    return f"{_ENCODER.encode(value)}\n".encode("ascii")


def digest(written: bytes) -> str:
    """SHA-256 of a line, its end included: what `sed -n 5p FILE | sha256sum` says of line 5."""
    return hashlib.sha256(written).hexdigest()


def parsed(written: bytes) -> dict[str, Any]:
    """The object that a line holds. Raises BadLineError."""
    try:
        value = json.loads(written, parse_float=_refused, parse_constant=_refused)
    except RecursionError as error:
        raise BadLineError("it is nested too deeply") from error
    except ValueError as error:
        raise BadLineError(f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadLineError("it is no JSON object")
    return value


def _refused(text: str) -> NoReturn:
    raise BadLineError(f"{text} is no whole number")
