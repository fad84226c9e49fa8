"""The fast construction of many named tuples. A quota run makes several named tuples for each of tens of thousands of victims."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeVar

_Line = TypeVar("_Line", bound=tuple[object, ...])


def lines(kind: type[_Line], *columns: Iterable[object]) -> Iterator[_Line]:
    """Yield one named tuple of a kind for each line of the columns.

    There must be one column for each field, in order, and all columns must have the same length.

    The function runs no Python code per line. Therefore the function is several times as fast as calling ``kind`` for each line.
    """
    assert len(columns) == len(vars(kind)["_fields"]), f"{kind.__name__} has other fields"
    made = partial(tuple.__new__, kind)
    return map(made, zip(*columns, strict=True))
