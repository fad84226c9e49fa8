"""The options of all listings: output form, sorting, headers, and repetition after each change.

`lists` gives these options to a command; the command itself only returns its `Listing`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Concatenate

import typer
from rich.console import RenderableType
from rich.live import Live

from evenhand_cli import completion
from evenhand_cli.combinations import refuse_without
from evenhand_cli.connect import Core
from evenhand_cli.escaping import EscapingConsole
from evenhand_cli.output import Form, Output, console_for, write, write_next, write_picture
from evenhand_cli.render.listing import Field, Listing
from evenhand_cli.signatures import joined
from evenhand_cli.terminal import line

INTERVAL_S = 2.0
Command = Callable[Concatenate[Core, ...], Listing[Any]]

NoHeaders = Annotated[
    bool,
    typer.Option(
        "--no-headers",
        help="Write only the rows, without column headings and without the line below the table.",
    ),
]
Watch = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Write the listing again after each change, until Ctrl-C."),
]
Interval = Annotated[
    float | None,
    typer.Option(
        "--interval",
        min=0.1,
        metavar="SECONDS",
        help=f"With --watch: seconds between two requests to the core; {INTERVAL_S:g} when not given.",
    ),
]


@dataclass(frozen=True, slots=True)
class Shape:
    """The form in which a listing is shown."""

    form: Form = Form.TABLE
    sort_by: str = ""
    headers: bool = True


def sorting(column: str, fields: Iterable[Field[Any]] = ()) -> Any:  # noqa: ANN401 -- typer's own type of an option
    """Return the option that sorts a listing.

    The help of the option names the given column as an example, and shells complete the names of all fields.
    """
    return typer.Option(
        "--sort-by",
        metavar="COLUMN",
        help=f"Sort by this column, such as {column}; -COLUMN sorts in descending order.",
        autocompletion=completion.words(one.name for one in fields),
    )


def lists(
    column: str, fields: Iterable[Field[Any]] = ()
) -> Callable[[Command], Callable[..., None]]:
    """Return a decorator that adds the options of all listings to a command.

    The help names `column` as an example.
    """

    def with_options(command: Command) -> Callable[..., None]:
        def listed(
            core: Core,
            output: Output = Form.TABLE,
            sort_by: Annotated[str, sorting(column, fields)] = "",
            no_headers: NoHeaders = False,
            watch: Watch = False,
            interval: Interval = None,
            **rest: Any,  # noqa: ANN401
        ) -> None:
            interval_s = seconds_between_looks(watch=watch, interval=interval)
            shape = Shape(output, sort_by, not no_headers)
            show_listing(core, lambda: command(core, **rest), shape, interval_s)

        return joined(command, listed, keep_first=True)

    return with_options


def seconds_between_looks(*, watch: bool, interval: float | None) -> float:
    """Return the seconds between two requests; 0 for a single request. Raises Fault for an interval without --watch."""
    if not watch:
        refuse_without("--watch", interval=interval)
        return 0
    return interval or INTERVAL_S


def show_listing(
    core: Core, take: Callable[[], Listing[Any]], shape: Shape, interval_s: float
) -> None:
    """Write a listing once or, with an interval, after each change."""
    if interval_s:
        _watch(core, take, shape, interval_s)
    else:
        _write(core, take(), shape)


def _write(core: Core, listing: Listing[Any], shape: Shape) -> None:
    write_listing(replace(listing, rest={**listing.rest, **core.pictures.value()}), shape)


def write_listing(listing: Listing[Any], shape: Shape) -> None:
    """Write a listing once."""
    rows = listing.sorted_by(shape.sort_by)
    if shape.form is Form.NAME:
        write_names(listing.name(row) for row in rows)
    elif shape.form.is_data:
        write(shape.form, _value(listing, rows))
    else:
        console = console_for(shape.form)
        write_picture(console, listing.picture(rows, console, headers=shape.headers))


def write_names(names: Iterator[str]) -> None:
    """Write the names, one on each line."""
    for name in names:
        line(name)


def _value(listing: Listing[Any], rows: Sequence[Any]) -> dict[str, Any]:
    return {listing.kind: [listing.value(row) for row in rows], **listing.rest}


def _watch(core: Core, take: Callable[[], Listing[Any]], shape: Shape, interval_s: float) -> None:
    """Write the listing, and write it again whenever its rows have changed.

    The loop ends only with a Fault or an interrupt.
    """
    before: Mapping[str, Any] | None = None
    with pictures(shape.form) as draw:
        while True:
            listing = take()
            rows = listing.sorted_by(shape.sort_by)
            value = _value(listing, rows) | core.pictures.value()
            changed = before is None or value[listing.kind] != before[listing.kind]
            if shape.form is Form.NAME:
                write_names(listing.name(row) for row in (rows if changed else ()))
            elif shape.form.is_data:
                if changed:
                    write_next(shape.form, value)
            else:
                console = console_for(shape.form)
                draw(listing.picture(rows, console, headers=shape.headers), changed)
            before = value
            time.sleep(interval_s)


@contextmanager
def pictures(form: Form) -> Iterator[Callable[[RenderableType, bool], None]]:
    """Open a display, and yield a function that draws a picture on the display.

    On a terminal a new picture replaces the previous picture. On another output a picture is written below the previous
    picture if the two differ.
    """
    console = console_for(form)
    if not console.is_terminal:
        yield _Printed(console).draw
        return
    with Live(console=console, auto_refresh=False, screen=False) as live:
        yield lambda picture, _: live.update(picture, refresh=True)


class _Printed:
    """Output to a pipe or a file, with an empty line between two pictures."""

    def __init__(self, console: EscapingConsole) -> None:
        self._console = console
        self._is_first = True

    def draw(self, picture: RenderableType, changed: bool) -> None:
        """Write the picture if it differs from the previous picture."""
        if not changed:
            return
        if not self._is_first:
            self._console.print()
        self._is_first = False
        write_picture(self._console, picture)
        self._console.file.flush()
