"""Long work in parts: a generator that yields None between two parts and returns the result of the whole work.

Between two parts, the caller may do other work that does not use the state on which the parts work. The result does not depend
on these pauses, because the parts run the same statements in the same order with and without pauses.
"""

from collections.abc import Generator
from typing import Final, TypeVar

_T = TypeVar("_T")
Parts = Generator[None, None, _T]
PART: Final = 500
"""The number of queues, applications or asks in one part. A part takes 1 to 5 ms."""


def whole(parts: Parts[_T]) -> _T:
    """Run all parts of the work without a pause, and return the result of the work."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: _T = end.value
            return result
