"""Sizes as users write them: `500MiB`, `2GiB`."""

import re

import typer

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_FORM = re.compile(rf"([0-9]{{1,9}})({'|'.join(UNITS)})")


def size(text: str) -> int:
    """Return a size in bytes; `0` needs no unit. Raises typer.BadParameter for a text in another form."""
    if text.strip() == "0":
        return 0
    parts = _FORM.fullmatch(text.strip())
    if parts is None:
        raise typer.BadParameter(f"`{text}` is not a size, such as 500MiB or 2GiB")
    return int(parts[1]) * UNITS[parts[2]]
