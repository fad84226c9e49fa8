"""Long work in parts: a generator that yields None between two parts and returns the result of the whole.

The caller may let other work run between two parts, but nothing that uses the state on which the parts work. The result does not
depend on that: parts are the same statements in the same order, whether or not the caller pauses between them.
"""

from collections.abc import Generator
from typing import Final, TypeVar

_T = TypeVar("_T")
Parts = Generator[None, None, _T]
PART: Final = 500
"""The number of queues, applications or asks of one part, which takes 1 to 5 ms."""


def whole(parts: Parts[_T]) -> _T:
    """Do all parts and return the result."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: _T = end.value
            return result
