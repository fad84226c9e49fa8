"""Listings: rows with named fields.

The fields determine the columns, the sort order, and the names of rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rich.console import Console, Group, RenderableType
from rich.text import Text

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches
from evenhand_cli.render.columns import ALWAYS, NEVER_FOLDED, Column, table

DESCENDING = "-"
_NUMBERS = re.compile(r"(\d+)")

Row = TypeVar("Row")
Given = bool | str | Sequence[str] | None
"""The value of an option that narrows a listing.

A false value means that the option was not given.
"""


@dataclass(frozen=True, slots=True)
class Field(Generic[Row]):
    """A column of a listing.

    A field has a function that returns the cell of a row, and a function that returns the value by which rows are
    sorted.
    """

    name: str
    cell: Callable[[Row], RenderableType]
    gives_way: int = ALWAYS
    right: bool = False
    least: int = NEVER_FOLDED
    names: bool = False
    """Whether the cells are names, which are shortened instead of folded."""
    order: Callable[[Row], Any] | None = None
    """The function for the sort value.

    If `order` is None, rows are sorted by the cell's text, in which numbers compare as numbers.
    """

    def column(self, rows: Sequence[Row]) -> Column:
        """Return the column of these rows."""
        cells = [self.cell(row) for row in rows]
        return Column(self.name, cells, self.gives_way, self.right, self.least, self.names)

    def rank(self, row: Row) -> Any:  # noqa: ANN401
        """Return the value by which the row is sorted."""
        if self.order is not None:
            return self.order(row)
        cell = self.cell(row)
        return natural(cell.plain if isinstance(cell, Text) else str(cell))


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """Rows of one kind, and the functions that show them."""

    kind: str
    """Key of the rows in the JSON output, such as `nodes`."""
    rows: Sequence[Row]
    fields: Sequence[Field[Row]]
    name: Callable[[Row], str]
    value: Callable[[Row], Any]
    """A function that returns a row of the JSON output."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the JSON output."""
    foot: Callable[[], Iterable[RenderableType]] = tuple
    """A function that returns the lines below the table."""
    none: str = ""
    """The sentence that replaces a table without rows."""
    draw: "Callable[[Sequence[Row], Console, bool], RenderableType] | None" = None
    """A function that draws rows of several lines each, with or without headers.

    If `draw` is None, each row has one line.
    """

    def sorted_by(self, wanted: str) -> Sequence[Row]:
        """Return the rows sorted by a field.

        With `-` before the field's name, the order is descending. Without a name, the rows are unchanged.

        Raises Fault if there is no such field.
        """
        if not wanted:
            return self.rows
        chosen = named_field(self.fields, wanted)
        return sorted(self.rows, key=chosen.rank, reverse=wanted.startswith(DESCENDING))

    def picture(
        self, rows: Sequence[Row], console: Console, *, headers: bool = True
    ) -> RenderableType:
        """Return the table at the console's width and the lines below it; a sentence when there are no rows."""
        if not rows and self.none:
            return Text(self.none) if headers else Group()
        if self.draw is not None:
            return self.draw(rows, console, headers)
        columns = [one.column(rows) for one in self.fields]
        drawn = table(columns, console.width, headers=headers)
        return Group(drawn, *self.foot()) if headers else drawn


def none_of(noun: str, then: str = "", **given: Given) -> str:
    """Return the sentence for an empty listing: `No nodes yet.`, or `No node matches --label zone=a.` with options."""
    options = list(_options(given))
    if options:
        return f"No {noun} matches {' '.join(options)}."
    return f"No {noun}s yet{f'; {then}' if then else ''}."


def _options(given: Mapping[str, Given]) -> Iterator[str]:
    for name, value in given.items():
        option = f"--{name.strip('_').replace('_', '-')}"
        if value is True:
            yield option
        elif value:
            yield from (f"{option} {one}" for one in ([value] if isinstance(value, str) else value))


def named_field(fields: Sequence[Field[Row]], wanted: str) -> Field[Row]:
    """Return the field with this name; blanks and hyphens count as equal.

    Raises Fault if there is no such field.
    """
    name = spelled(wanted.removeprefix(DESCENDING))
    for one in fields:
        if spelled(one.name) == name:
            return one
    names = [spelled(one.name) for one in fields]
    raise Fault(
        f"there is no column `{name}` to sort by",
        where="--sort-by",
        advice=near_matches(name, names) or f"there are {', '.join(names)}",
        code=ExitCode.USAGE,
    )


def spelled(name: str) -> str:
    """Return a column's name in the form in which users type it: `waits-for`."""
    return name.strip().lower().replace(" ", "-")


def natural(text: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key that sorts `node-2` before `node-10`."""
    parts = filter(None, _NUMBERS.split(text))
    return tuple((one.isdecimal(), int(one) if one.isdecimal() else 0, one) for one in parts)
