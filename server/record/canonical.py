"""The canonical form of a value: JSON in ASCII with sorted keys, without blanks, with whole numbers only."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

Plain = str | int | bool | list[Any] | dict[str, Any] | None
"""The values of JSON, without fractions."""

DIGEST_CHARACTERS: Final = 64


class BadLineError(ValueError):
    """The error of a line that is not a JSON object in the canonical form. Its text says why."""


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def line(value: Mapping[str, Plain], steps: int = 0) -> bytes:
    """Return the value as one line, which ends with a newline.

    The outer ``steps`` levels of nesting are joined by this function and not by the JSON encoder, because the encoder holds the
    interpreter's lock until it returns. A thread that writes a long line therefore lets other threads run in between.
    """
    return f"{_text(value, steps)}\n".encode("ascii")


def _text(value: object, steps: int) -> str:
    if steps and isinstance(value, dict):
        parts = (
            f"{_ENCODER.encode(name)}:{_text(value[name], steps - 1)}" for name in sorted(value)
        )
        return f"{{{','.join(parts)}}}"
    if steps and isinstance(value, list):
        return f"[{','.join(_text(one, steps - 1) for one in value)}]"
    return _ENCODER.encode(value)


def digest(written: bytes) -> str:
    """Return the SHA-256 of a line with its newline. For line 5, `sed -n 5p FILE | sha256sum` prints the same digest."""
    return hashlib.sha256(written).hexdigest()


def parsed(written: bytes) -> dict[str, Any]:
    """Return the object that a line holds. Raise BadLineError if the line is no JSON object in the canonical form."""
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
