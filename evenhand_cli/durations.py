"""Durations and instants as users write them: `90s`, `10m`, `2h`, `1d`; `2026-11-24 14:30:00`."""

import re
from datetime import UTC, datetime, timedelta

import typer

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DIGITS_MAX = 9
_FORM = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})({'|'.join(UNITS_MS)})")


def milliseconds(text: str) -> int:
    """Return a duration in milliseconds. Raises typer.BadParameter for a text in another form."""
    parts = _FORM.fullmatch(text.strip())
    if parts is None:
        raise typer.BadParameter(f"`{text}` is not a length of time, such as 90s, 10m, 2h or 1d")
    return int(parts[1]) * UNITS_MS[parts[2]]


def instant_ms(text: str) -> int:
    """Return an instant in Unix milliseconds; the text has Unix milliseconds, or ISO date and time.

    A time without a zone is local time. Raises typer.BadParameter for a text in another form.
    """
    if text.strip().isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"`{text}` is no instant, such as 2026-11-24 14:30:00, 2026-11-24T14:30:00Z or Unix milliseconds"
        ) from error
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def instant_before(text: str, now: int) -> int:
    """Return an instant in Unix milliseconds, given as a duration before `now` or as an instant; 0 for an empty text.

    Raises typer.BadParameter for a text in another form.
    """
    if not text:
        return 0
    if text.strip().endswith(tuple(UNITS_MS)) and ":" not in text:
        return max(now - milliseconds(text), 1)
    return instant_ms(text)
