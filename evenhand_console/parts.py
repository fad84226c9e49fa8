"""The pages of long lists, and the whole numbers in the address of a page, such as the row at which the page begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

DIGITS_MAX: Final = 9

Row = TypeVar("Row")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Part(Generic[Row]):
    """The rows of one page of a list: the first row has the index `start` in the list, and the list has `total` rows.

    `earlier` is the `start` of the previous page, and `later` the `start` of the next page. `earlier` or `later` is
    None if there is no such page.
    """

    rows: tuple[Row, ...]
    start: int
    total: int
    earlier: int | None
    later: int | None

    def made(self, make: Callable[[Row], Made]) -> "Part[Made]":
        """Return the page after a function has converted each of its rows. Rows of other pages are not converted."""
        rows = tuple(make(one) for one in self.rows)
        return Part(rows, self.start, self.total, self.earlier, self.later)


def number(text: str) -> int:
    """Return the whole number in a parameter of the address; 0 if the parameter has another value."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS_MAX else 0


def part_of(rows: Sequence[Row], start: str, most: int) -> Part[Row]:
    """Return the page of a list that begins at the row with this number."""
    first = min(number(start), max(0, len(rows) - 1))
    later = first + most
    return Part(
        rows=tuple(rows[first:later]),
        start=first,
        total=len(rows),
        earlier=max(0, first - most) if first else None,
        later=later if later < len(rows) else None,
    )
