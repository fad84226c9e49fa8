"""The commands `evenhand log`, which read the decision log on disk."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.files import unreadable
from evenhand_cli.output import Form, Output, show
from evenhand_cli.render import records
from server.record.verify import files_of
from server.record.verify import verify as verified

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="File that `evenhand serve --decision-log FILE` wrote; full files next to it are checked too.",
    ),
]


def verify(file: File, output: Output = Form.TABLE) -> None:
    """Say whether a line of a decision log was changed, removed, inserted or lost.

    Lines are lost in a crash or on a full disk. If the end of the log was cut off together with its end mark, only the last
    number and digest show that: keep a copy of both elsewhere. Exit code 1: lines do not match or are missing.

    Examples:
        evenhand log verify decisions.jsonl

    """
    files = files_of(file)
    if not files:
        advice = "name the FILE of `evenhand serve --decision-log FILE`"
        raise Fault(f"there is no {file}", where="argument FILE", advice=advice)
    try:
        found = verified(files)
    except OSError as error:
        raise unreadable(Path(error.filename or file), error, "argument FILE") from error
    show(output, records.verified_value(found), lambda _: records.verified(found))
    if not found.whole:
        raise typer.Exit(ExitCode.PROBLEM)


log = typer.Typer(
    help="Check the decision log on disk.", no_args_is_help=True, add_completion=False
)


@log.callback()
def group() -> None:
    """Check the decision log on disk."""


log.command("verify")(verify)
