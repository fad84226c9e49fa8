"""Columns that give way: a table that is wider than the terminal leaves the least important out, whole.

Half a key helps nobody, so nothing is cut while a column can still go. What was left out is named
below the table; the JSON output has everything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand_cli.render.bars import Bar

GAP = 2
"""Blanks between two columns."""
ALWAYS = 0
"""A column that never gives way, its text is folded in the end; else the greater the number, the sooner it goes."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its cells, one a row."""

    name: str
    cells: Sequence[RenderableType]
    gives_way: int = ALWAYS
    right: bool = False

    def width(self) -> int:
        """Cells that it needs to show everything in one line."""
        return max([cell_len(self.name), *map(_width, self.cells)])

    def is_empty(self) -> bool:
        """Does it say nothing in any row?"""
        return not any(map(_width, self.cells))


def table(columns: Sequence[Column], width: int) -> RenderableType:
    """The table at this width; columns that say nothing are left out without a word."""
    telling = [one for one in columns if one.gives_way == ALWAYS or not one.is_empty()]
    shown = fitting(telling, width)
    drawn = Table(box=None, pad_edge=False, header_style="heading", show_edge=False)
    for one in shown:
        _add_column(drawn, one)
    for row in zip(*(one.cells for one in shown), strict=True):
        drawn.add_row(*row)
    hidden = [one.name for one in telling if one not in shown]
    if not hidden:
        return drawn
    note = f"too narrow for {', '.join(hidden)}: --output json has all"
    return Group(drawn, Text(note, style="faint"))


def titled(title: str, columns: Sequence[Column], width: int) -> list[RenderableType]:
    """A table below an empty line and its title."""
    return [Text(f"\n{title}", style="heading"), table(columns, width)]


def facts(found: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and values, a line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="faint", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in found:
        grid.add_row(f"  {name}", value)
    return grid


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that have room beside each other, in their order."""
    shown = list(columns)
    while _needed(shown) > width:
        last = max(shown, key=lambda one: one.gives_way)
        if last.gives_way == ALWAYS:
            break
        shown.remove(last)
    return shown


def _needed(columns: Sequence[Column]) -> int:
    return sum(one.width() for one in columns) + GAP * (len(columns) - 1)


def _add_column(drawn: Table, column: Column) -> None:
    drawn.add_column(
        column.name,
        justify="right" if column.right else "left",
        no_wrap=column.gives_way != ALWAYS,
        overflow="fold",
    )


def _width(cell: RenderableType) -> int:
    if isinstance(cell, Bar):
        return cell.width
    return cell_len(cell.plain if isinstance(cell, Text) else str(cell))
