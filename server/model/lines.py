"""Named tuples by the ten thousand: a quota run says of each victim who it is, why it goes, and what its owner hears."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeVar

_Line = TypeVar("_Line", bound=tuple[object, ...])


def lines(kind: type[_Line], *columns: Iterable[object]) -> Iterator[_Line]:
    """One of a kind for each line of the columns, which are its fields in order, all of them and equally long.

    Nothing of Python runs for a line, which makes this several times as fast as calling the kind.
    """
    assert len(columns) == len(vars(kind)["_fields"]), f"{kind.__name__} has other fields"
    made = partial(tuple.__new__, kind)
    return map(made, zip(*columns, strict=True))
