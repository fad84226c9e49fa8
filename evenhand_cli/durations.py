"""Lengths of time as people type them: `90s`, `10m`, `2h`, `1d`."""

import re

import typer

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DIGITS_MAX = 9
_FORM = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})({'|'.join(UNITS_MS)})")


def milliseconds(text: str) -> int:
    """The length in milliseconds. Raises typer.BadParameter for another form."""
    parts = _FORM.fullmatch(text.strip())
    if parts is None:
        raise typer.BadParameter(f"`{text}` is not a length of time, such as 90s, 10m, 2h or 1d")
    return int(parts[1]) * UNITS_MS[parts[2]]
