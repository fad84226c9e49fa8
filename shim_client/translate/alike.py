"""Pods of one owner are written alike: what is read of equal parts is read once, and kept once.

A part is known again by its spelling: equal bytes are equal fields of equal types.  A part that is spelled
otherwise than before costs a reading and no more; one that is too long to be kept is read each time.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Generic, TypeVar

One = TypeVar("One")
Other = TypeVar("Other")
Found = TypeVar("Found")

SPELLING_BYTES_MAX = 16 * 1024
"""Longest spelling that is kept; pods of people seldom come near it."""
KEPT_MAX = 4096
"""Most spellings that are kept of one reading; then all of them are forgotten."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of them, likewise: pods that are not alike may be gone long since."""
_FORMAT = 2
"""The last format of `marshal` that writes nothing but the value: later ones refer back to equal objects."""


class ReadOnce(Generic[One, Other, Found]):
    """A reading of two plain values, whose results nobody changes; `plain` is the reading itself."""

    def __init__(self, plain: Callable[[One, Other], Found]) -> None:
        self.plain = plain
        self._kept: dict[bytes, Found] = {}
        self._bytes = 0

    def __call__(self, one: One, other: Other) -> Found:
        """Return what the two say; errors: those of the reading."""
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
        """Keep nothing of what was read so far."""
        self._kept.clear()
        self._bytes = 0

    def _keep(self, spelling: bytes, found: Found) -> None:
        if len(self._kept) >= KEPT_MAX or self._bytes >= KEPT_BYTES_MAX:
            self.forget()
        self._kept[spelling] = found
        self._bytes += len(spelling)


def _spelling(parts: tuple[Any, Any]) -> bytes:
    """Return the bytes that stand for the parts and nothing else, none when they cannot be kept."""
    try:
        spelling = marshal.dumps(parts, _FORMAT)
    except ValueError:
        return b""
    return spelling if len(spelling) <= SPELLING_BYTES_MAX else b""
