"""A cache of readings: pods of one owner are written alike, so equal parts are read once and kept once.

A part is recognised by its spelling: equal bytes are equal fields of equal types. A part that is spelled differently
is read once more, without other harm; one that is too long to be kept is read each time.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Generic, TypeVar

One = TypeVar("One")
Other = TypeVar("Other")
Found = TypeVar("Found")

SPELLING_BYTES_MAX = 16 * 1024
"""Longest spelling that is kept; pods that people write are seldom that long."""
KEPT_MAX = 4096
"""Maximum number of spellings that are kept of one reading; beyond it all of them are forgotten."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Maximum number of bytes of spellings that are kept, likewise: pods that are not alike may be gone long since."""
_FORMAT = 2
"""The last format of `marshal` whose bytes depend on the value alone: later ones refer back to equal objects."""


class ReadOnce(Generic[One, Other, Found]):
    """A cached reading of two plain values; its results are never changed. `plain` is the reading itself."""

    def __init__(self, plain: Callable[[One, Other], Found]) -> None:
        self.plain = plain
        self._kept: dict[bytes, Found] = {}
        self._bytes = 0

    def __call__(self, one: One, other: Other) -> Found:
        """Return the result for the two values; errors: those of the reading."""
        spelling = _spelling((one, other))
        found = self._kept.get(spelling) if spelling else None
        if found is None:
            found = self.plain(one, other)
            if spelling:
                self._keep(spelling, found)
        return found

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """Forget all results."""
        self._kept.clear()
        self._bytes = 0

    def _keep(self, spelling: bytes, found: Found) -> None:
        if len(self._kept) >= KEPT_MAX or self._bytes >= KEPT_BYTES_MAX:
            self.forget()
        self._kept[spelling] = found
        self._bytes += len(spelling)


def _spelling(parts: tuple[Any, Any]) -> bytes:
    """Return bytes that identify the parts; empty when the parts cannot be kept."""
    try:
        spelling = marshal.dumps(parts, _FORMAT)
    except ValueError:
        return b""
    return spelling if len(spelling) <= SPELLING_BYTES_MAX else b""
