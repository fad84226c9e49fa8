"""The forms that visitors send, with limits on their number, size and reading time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request

FORM_MAX: Final = 16 * 1024
"""Largest form in bytes."""
TEXT_MAX: Final = 4 * 1024 * 1024
"""Largest form with a text, in bytes."""
TEXTS_MAX: Final = 16
"""The largest number of forms with a text that are read at the same time."""
FORM_S: Final = 60.0
"""The seconds within which the whole form must have arrived."""
FIELDS_MAX: Final = 32
"""Largest number of fields of a form."""


class Texts:
    """The forms with a text that are being read now."""

    def __init__(self) -> None:
        self._reading = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Count one form with a text while the block runs. Raises HTTPException 503 if there are too many."""
        if self._reading >= TEXTS_MAX:
            raise HTTPException(503)
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1


def check_length(request: Request, most: int) -> None:
    """Raise HTTPException 413 if the header Content-Length of a form says that the form is too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > len(str(most)) or int(length) > most):
        raise HTTPException(413)


async def fields_of(request: Request, most: int) -> dict[str, str]:
    """Return the fields of a form.

    Raises HTTPException if the form is too large or too slow, or has too many fields.
    """
    body = bytearray()
    try:
        with anyio.fail_after(FORM_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(413)
    except TimeoutError as late:
        raise HTTPException(408) from late
    try:
        # Reading a long text takes seconds, and other pages must not wait for this.
        return await anyio.to_thread.run_sync(_parsed, bytes(body))
    except ValueError as many:
        raise HTTPException(400) from many


def _parsed(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode(errors="replace"), max_num_fields=FIELDS_MAX))
