"""Tables that fit the terminal: the least important columns are left out whole, long text is folded between words.

Every column has a priority. A column whose cells are all equal is left out before one that tells rows apart, unless
it carries the answer. The columns that were left out are named below the table; `--output wide` shows all of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand_cli.render.amounts import NOTHING
from evenhand_cli.render.bars import Bar

GAP = 2
"""Blanks between two columns."""
ALWAYS = 0
"""A column that is never left out."""
ANSWER = 1
"""A column that carries the answer: it is left out after all others, also when its cells are all equal."""
FIRST = 9
"""From here on a column is left out before all others, also before those that are the same everywhere."""
NEVER_FOLDED = 0
NAME_MAX = 40
"""Width of the names beside facts from which on they are folded."""
CONTINUED = Text()
"""The cell of a further line of the row above it."""
_SEPARATORS = (re.compile(r"(?<= )"), re.compile(r"(?<=[./,:])"), re.compile(r"(?<=-)"))
"""Behind which a line may end, from the first choice to the last: words, parts of a path, parts of a name."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its cells, one a row; the greater `gives_way`, the sooner it is left out."""

    name: str
    cells: Sequence[RenderableType]
    gives_way: int = ALWAYS
    right: bool = False
    least: int = NEVER_FOLDED
    """The width to which its text may be folded; 0: it is shown in one line or not at all."""

    def width(self) -> int:
        """Return the width that shows every cell in one line."""
        return max([cell_len(self.name), *map(_width, self.cells)])

    def narrowest(self) -> int:
        """Return the smallest width that still shows the column."""
        if not self.least:
            return self.width()
        return min(self.width(), max(self.least, cell_len(self.name)))

    def is_empty(self) -> bool:
        """Is every cell empty?"""
        return not any(map(_width, self.cells))

    def constant(self) -> str:
        """Return the text that all of several cells share; empty when they differ."""
        texts = [_plain(cell) for cell in self.cells if cell is not CONTINUED]
        return texts[0] if len(texts) > 1 and len(set(texts)) == 1 else ""


def table(columns: Sequence[Column], width: int, *, headers: bool = True) -> RenderableType:
    """Return the table at this width; columns without any content are left out without a note."""
    telling = [one for one in columns if one.gives_way == ALWAYS or not one.is_empty()]
    shown = fitting(telling, width)
    widths = _shares(shown, width)
    drawn = Table(
        box=None, pad_edge=False, header_style="heading", show_edge=False, show_header=headers
    )
    for one, share in zip(shown, widths, strict=True):
        _add_column(drawn, one, share)
    folded = [_folded_cells(one, share) for one, share in zip(shown, widths, strict=True)]
    for row in zip(*folded, strict=True):
        drawn.add_row(*row)
    hidden = [one for one in telling if one not in shown]
    return Group(drawn, left_out(hidden)) if hidden and headers else drawn


def left_out(hidden: Iterable[Column]) -> Text:
    """Name the columns that did not fit, and the value of those that are the same in every row."""
    names = [
        one.name if one.constant() in {"", NOTHING} else f"{one.name} ({one.constant()} everywhere)"
        for one in hidden
        if one.name
    ]
    if not names:
        return Text("--output wide shows all", style="faint")
    return Text(f"left out: {', '.join(names)}; --output wide shows all", style="faint")


def titled(title: str, columns: Sequence[Column], width: int) -> list[RenderableType]:
    """A table below an empty line and its title."""
    return [Text(f"\n{title}", style="heading"), table(columns, width)]


def facts(found: Iterable[tuple[str, str | Text]]) -> Table:
    """Return names and values, a line each; a long name is folded, so that its value has room."""
    rows = [(f"  {name}", value) for name, value in found]
    widest = max([cell_len(name) for name, _ in rows], default=0)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="faint", overflow="fold", width=min(widest, NAME_MAX) or None)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit beside each other, in their order."""
    shown = list(columns)
    while _needed(shown) > width:
        last = max(shown, key=_leaves_first)
        if last.gives_way == ALWAYS:
            break
        shown.remove(last)
    return shown


def fits(columns: Sequence[Column], width: int) -> bool:
    """Do all columns have their full width beside each other?"""
    return sum(one.width() for one in columns) + GAP * (len(columns) - 1) <= width


def _leaves_first(column: Column) -> tuple[bool, bool, int]:
    """Order the columns by which to leave out first: greatest last."""
    is_constant = column.gives_way > ANSWER and bool(column.constant())
    return column.gives_way >= FIRST, is_constant, column.gives_way


def _needed(columns: Sequence[Column]) -> int:
    return sum(one.narrowest() for one in columns) + GAP * (len(columns) - 1)


def _shares(columns: Sequence[Column], width: int) -> list[int]:
    """Return the width of each column: what is left over goes to the columns that could be folded, in order."""
    spare = max(width - _needed(columns), 0)
    widths = []
    for one in columns:
        more = min(one.width() - one.narrowest(), spare)
        widths.append(one.narrowest() + more)
        spare -= more
    return widths


def _add_column(drawn: Table, column: Column, share: int) -> None:
    drawn.add_column(
        column.name,
        justify="right" if column.right else "left",
        no_wrap=column.gives_way != ALWAYS and share == column.width(),
        overflow="fold",
    )


def _folded_cells(column: Column, width: int) -> Sequence[RenderableType]:
    if width >= column.width():
        return column.cells
    return [cell if isinstance(cell, Bar) else _folded(cell, width) for cell in column.cells]


def _folded(cell: RenderableType, width: int) -> RenderableType:
    """Break a cell into lines of this width, behind separators where that is possible."""
    text = _plain(cell)
    if cell_len(text) <= width:
        return cell
    lines = [""]
    for piece in _pieces(text, width, _SEPARATORS):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    style = cell.style if isinstance(cell, Text) else ""
    return Text("\n".join(line.rstrip() for line in lines), style=style)


def _pieces(text: str, width: int, separators: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """Cut a text behind the first kind of separator, a piece that is still too long behind the next one."""
    if not separators or cell_len(text.rstrip()) <= width:
        yield text
        return
    for piece in separators[0].split(text):
        yield from _pieces(piece, width, separators[1:])


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else "" if isinstance(cell, Bar) else str(cell)


def _width(cell: RenderableType) -> int:
    return cell.width if isinstance(cell, Bar) else cell_len(_plain(cell))
