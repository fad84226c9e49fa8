"""A cache of parsed parts of pods.

The pods of one owner have equal parts, so each part is parsed and stored once. The key of a part is its bytes:
parts with equal bytes have equal fields of equal types. An equal part with other bytes is parsed separately, which
only costs time. A part that is too long to be stored is parsed each time.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Generic, TypeVar

One = TypeVar("One")
Other = TypeVar("Other")
Found = TypeVar("Found")

SPELLING_BYTES_MAX = 16 * 1024
"""Maximum number of bytes of a part that is stored.

Pods whose manifests were written by hand seldom have longer parts.
"""
KEPT_MAX = 4096
"""Maximum number of parts that one cache stores. When this number is reached, the cache forgets all parts."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Maximum number of bytes of parts that are stored by one cache.

When this number is reached, the cache forgets all parts.
"""
_FORMAT = 2
"""The last format of `marshal` whose bytes depend only on the value.

In later formats, the bytes also depend on which objects are identical.
"""


class ReadOnce(Generic[One, Other, Found]):
    """A cached function of two plain values; its results are never changed. `plain` is the function itself."""

    def __init__(self, plain: Callable[[One, Other], Found]) -> None:
        self.plain = plain
        self._kept: dict[bytes, Found] = {}
        self._bytes = 0

    def __call__(self, one: One, other: Other) -> Found:
        """Return the result for the two values, or raise the error of the function."""
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
    """Return bytes that identify the two values.

    Return empty bytes when the result of the function cannot be stored.
    """
    try:
        spelling = marshal.dumps(parts, _FORMAT)
    except ValueError:
        return b""
    return spelling if len(spelling) <= SPELLING_BYTES_MAX else b""
