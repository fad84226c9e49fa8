"""Tables that fit the terminal.

Whole columns are left out, the least important first, and long text is folded between words. Every column has a
priority. A column whose cells are all equal is left out before a column that distinguishes rows. This rule does not
apply to columns that carry the answer to the user's question. Width is given first to names, and then to columns
that do not carry the answer. A name that still does not fit is shortened in its middle, and not broken over two lines.
A note below the table names the columns that were left out or shortened. `--output wide` shows all columns in full.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from evenhand_cli.escaping import escaped, escaped_text
from evenhand_cli.long_names import PLAIN_SIGN, SIGN, Note, shortened
from evenhand_cli.render.amounts import NOTHING
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.sparks import Sparkline
from evenhand_cli.terminal import PIPE_WIDTH

Drawn = Bar | Sparkline
"""A cell that draws itself, such as a bar. The cell has a fixed width, and no text that could be folded."""
GAP = 2
"""Number of blanks between two columns."""
ALWAYS = 0
"""Priority of a column that is never left out."""
ANSWER = 1
"""Priority of a column that carries the answer to the user's question.

A column with this priority is left out after all other columns, even when its cells are all equal.
"""
FIRST = 9
"""Columns with this priority or a greater one are left out first, even before columns with equal cells."""
NEVER_FOLDED = 0
NAME_MAX = 40
"""Maximum width of a name in a list of facts; longer names are shortened."""
NAME_LEAST = 16
"""Smallest width to which names are shortened if their column sets no smallest width."""
NAME_FIRST = 40
"""Width that a name may take before columns that do not carry the answer to the user's question get any width."""
CONTINUED = Text()
"""The cell of a line that continues the row above it."""
_WORDS = re.compile(r"(?<= )")
_PARTS = re.compile(r"(?<=\.)")
"""The pattern of the positions within a word at which a line may end."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column with one cell for each row.

    The priority is `gives_way`: of two columns, the column with the greater number is left out first.
    """

    name: str
    cells: Sequence[RenderableType]
    gives_way: int = ALWAYS
    right: bool = False
    least: int = NEVER_FOLDED
    """Smallest width to which the column's text may be folded.

    With 0 the text is never folded.
    """
    names: bool = False
    """Whether the cells are names.

    Names are shortened and not folded, and their width is at least `least` or `NAME_LEAST`.
    """

    def width(self) -> int:
        """Return the width that shows every cell in one line."""
        return max([cell_len(self.name), *map(_width, self.cells)])

    def narrowest(self) -> int:
        """Return the smallest width that still shows the column."""
        least = self.least or (NAME_LEAST if self.names else NEVER_FOLDED)
        if not least:
            return self.width()
        return min(self.width(), max(least, cell_len(self.name)))

    def wanted(self) -> int:
        """Return the width that this column gets before columns that do not carry the answer get any width."""
        if not self.names:
            return self.narrowest()
        return min(self.width(), max(NAME_FIRST, self.narrowest()))

    def is_empty(self) -> bool:
        """Return whether every cell is empty."""
        return not any(map(_width, self.cells))

    def constant(self) -> str:
        """Return the text that all cells have in common; empty if the cells differ, or if there is only one cell."""
        texts = [_plain(cell) for cell in self.cells if cell is not CONTINUED]
        return texts[0] if len(texts) > 1 and len(set(texts)) == 1 else ""


def table(
    columns: Sequence[Column], width: int, *, headers: bool = True, noted: bool = True
) -> RenderableType:
    """Return the table at this width.

    Empty columns are left out without a note, unless their priority is ALWAYS. Pass `noted=False` for a command without
    `--output wide`. The table then has no note, because the note refers to that option.
    """
    telling = _telling([replace(one, cells=list(map(_escaped, one.cells))) for one in columns])
    shown = fitting(telling, width)
    widths = _shares(shown, width)
    drawn = Table(
        box=None, pad_edge=False, header_style="heading", show_edge=False, show_header=headers
    )
    for one, share in zip(shown, widths, strict=True):
        _add_column(drawn, one, share)
    cells = [_cells(one, share) for one, share in zip(shown, widths, strict=True)]
    for row in zip(*cells, strict=True):
        drawn.add_row(*row)
    names = {one.name for one in shown}
    hidden = [one for one in telling if one.name not in names]
    shortened = any(isinstance(cell, Shortened) for column in cells for cell in column)
    if not (headers and noted and (hidden or shortened)):
        return drawn
    return Group(drawn, left_out(hidden, shortened=shortened))


def is_shown(name: str, columns: Sequence[Column], width: int) -> bool:
    """Return whether the table at this width shows the column with this name."""
    return any(one.name == name for one in fitting(_telling(columns), width))


def _telling(columns: Iterable[Column]) -> list[Column]:
    return [one for one in columns if one.gives_way == ALWAYS or not one.is_empty()]


def left_out(hidden: Iterable[Column], *, shortened: bool = False) -> Text:
    """Return a note about the columns that did not fit.

    For a column whose cells are equal, the note also has the value of the cells.
    """
    names = [
        one.name if one.constant() in {"", NOTHING} else f"{one.name} ({one.constant()} everywhere)"
        for one in hidden
        if one.name
    ]
    missing = [f"left out: {', '.join(names)}"] if names else []
    cut = ["long names are shortened"] if shortened else []
    shows = "--output wide shows all" if missing or not cut else "--output wide shows them whole"
    note = Note if shortened else Text
    return note("; ".join([*missing, *cut, shows]), style="faint")


def titled(title: str, columns: Sequence[Column], width: int) -> list[RenderableType]:
    """Return a table with its title above it, after an empty line."""
    return [Text(f"\n{title}", style="heading"), table(columns, width)]


class Facts:
    """Names with values, one line each; a long name is shortened, so that its value fits."""

    def __init__(self, rows: Iterable[tuple[str, str | Text]]) -> None:
        self.rows = [(f"  {escaped(name)}", value) for name, value in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw the lines; names are not shortened when the width is unknown."""
        del console
        widest = max([cell_len(name) for name, _ in self.rows], default=0)
        width = widest if options.max_width >= PIPE_WIDTH else min(widest, NAME_MAX)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="faint", width=width or None, no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in self.rows:
            grid.add_row(
                name if cell_len(name) <= width else _fitted(name, width, shortened), value
            )
        yield grid


def facts(found: Iterable[tuple[str, str | Text]]) -> Facts:
    """Return names with values, one line each."""
    return Facts(found)


@dataclass(frozen=True, slots=True)
class Hanging:
    """A text whose second and further lines are indented by `indent` columns.

    Lines are broken between words, or after the dots of a path.
    """

    text: Text
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the text; for a console that does not wrap, yield one line."""
        if options.no_wrap or cell_len(self.text.plain) <= options.max_width:
            yield self.text
            return
        lines = _lines(self.text.plain[self.indent :], options.max_width - self.indent)
        start = self.indent
        for number, one in enumerate(lines):
            part = self.text[start : start + len(one)]
            part.rstrip()
            before = self.text[: self.indent] if not number else Text(" " * self.indent)
            yield Text.assemble(before, part)
            start += len(one)


@dataclass(frozen=True, slots=True)
class Indented:
    """An output whose lines are indented by `indent` columns. A line that is too wide is not cut, because it can be a command."""

    output: RenderableType
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the output."""
        inside = options.update_width(max(options.max_width - self.indent, 1))
        for line in Segment.split_lines(console.render(self.output, inside)):
            yield Segment(" " * self.indent if line else "")
            yield from line
            yield Segment.line()


def _lines(text: str, width: int) -> list[str]:
    """Return a text as lines.

    Lines are broken between words or, within a long word such as a path, after dots.
    """
    lines = [""]
    for piece in (_WORDS if " " in text else _PARTS).split(text):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit next to each other, without changing their order.

    Columns with the priority ALWAYS stay even if they do not fit.
    """
    if width >= PIPE_WIDTH:
        columns = [_unshortened(one) for one in columns]
    shown = list(columns)
    while _sum(one.wanted() for one in shown) > width:
        last = max(shown, key=_leaves_first)
        if last.gives_way <= ANSWER:
            break
        shown.remove(last)
    while _sum(one.narrowest() for one in shown) > width:
        last = max(shown, key=_leaves_first)
        if last.gives_way == ALWAYS:
            break
        shown.remove(last)
    return shown


def _unshortened(column: Column) -> Column:
    """Return the column with names that are not shortened, for a wide output or for an output of unknown width."""
    return replace(column, names=False, least=NEVER_FOLDED) if column.names else column


def fits(columns: Sequence[Column], width: int) -> bool:
    """Return whether all columns fit next to each other at their full width."""
    return _sum(one.width() for one in columns) <= width


def _leaves_first(column: Column) -> tuple[bool, bool, int]:
    """Return the rank of a column for being left out: the column with the greatest rank is left out first."""
    is_constant = column.gives_way > ANSWER and bool(column.constant())
    return column.gives_way >= FIRST, is_constant, column.gives_way


def _sum(widths: Iterable[int]) -> int:
    """Return the width of columns next to each other, including the blanks between them."""
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def _shares(columns: Sequence[Column], width: int) -> list[int]:
    """Return the width of each column.

    Spare width is given in three passes over the columns, from left to right. The first pass widens each column up to
    the width that it wants, the second widens columns of names, and the third widens all columns.
    """
    widths = [one.narrowest() for one in columns]
    spare = max(width - _sum(widths), 0)
    for limits in (
        [one.wanted() for one in columns],
        [one.width() if one.names else 0 for one in columns],
        [one.width() for one in columns],
    ):
        for at, limit in enumerate(limits):
            more = min(max(limit - widths[at], 0), spare)
            widths[at] += more
            spare -= more
    return widths


def _add_column(drawn: Table, column: Column, share: int) -> None:
    drawn.add_column(
        column.name,
        justify="right" if column.right else "left",
        no_wrap=column.names or (column.gives_way != ALWAYS and share == column.width()),
        overflow="fold",
    )


class Shortened:
    """A cell with names that are shortened in their middle to the width of the column."""

    def __init__(
        self, cell: RenderableType, width: int, fit: Callable[[str, int, str], str]
    ) -> None:
        self.cell = cell
        self.width = width
        self.fit = fit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw the cell with an ellipsis, or with `~` on an ASCII output."""
        del console
        text = self.fit(_plain(self.cell), self.width, PLAIN_SIGN if options.ascii_only else SIGN)
        yield Text(text, style=_style(self.cell))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width of the cell's column."""
        del console, options
        return Measurement(self.width, self.width)


def folded(text: str, width: int, sign: str) -> str:
    """Return a text as lines of at most this width, broken between words; a longer word is shortened."""
    lines = [""]
    for piece in _WORDS.split(text):
        word = shortened(piece.rstrip(), width, sign)
        if lines[-1] and cell_len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word + piece[len(piece.rstrip()) :]
    return "\n".join(line.rstrip() for line in lines)


def _escaped(cell: RenderableType) -> RenderableType:
    """Return a cell with escaped text, so that its width is the width on the screen."""
    if isinstance(cell, Text):
        return escaped_text(cell)
    return escaped(cell) if isinstance(cell, str) else cell


def _cells(column: Column, width: int) -> Sequence[RenderableType]:
    if width >= column.width():
        return column.cells
    fit = shortened if column.names else folded
    return [cell if _width(cell) <= width else _fitted(cell, width, fit) for cell in column.cells]


def _fitted(
    cell: RenderableType, width: int, fit: Callable[[str, int, str], str]
) -> RenderableType:
    text = _plain(cell)
    if fit is folded and all(cell_len(word) <= width for word in text.split()):
        return Text(folded(text, width, ""), style=_style(cell))
    return cell if isinstance(cell, Drawn) else Shortened(cell, width, fit)


def _style(cell: RenderableType) -> str | Style:
    return (cell.style or _last_style(cell)) if isinstance(cell, Text) else ""


def _last_style(cell: Text) -> str | Style:
    """Return the style of the name in a cell that consists of guides and a name."""
    return cell.spans[-1].style if cell.spans else ""


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else "" if isinstance(cell, Drawn) else str(cell)


def _width(cell: RenderableType) -> int:
    return cell.width if isinstance(cell, Drawn) else cell_len(_plain(cell))
