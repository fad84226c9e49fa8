"""The commands `evenhand log`, which read the decision log on disk."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand_cli import terminal
from evenhand_cli.commands.filters import OfPolicy
from evenhand_cli.durations import instant_before
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.files import unreadable
from evenhand_cli.lists import NoHeaders, Shape, sorting, write_listing
from evenhand_cli.output import Form, Output, plain, show
from evenhand_cli.render import records
from evenhand_cli.render.decisions import decisions
from evenhand_cli.render.listing import Listing
from evenhand_cli.render.tables import footer
from evenhand_cli.render.words import plural
from server.model.records import DecisionState
from server.record.query import Wanted, read_decisions
from server.record.verify import files_of
from server.record.verify import verify as verified
from server.rpc.evenhand import encode_decisions
from server.rpc.evenhand.redaction import VisibleDecision

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="File that `evenhand serve --decision-log FILE` wrote; full files next to it are checked too.",
    ),
]


def verify(file: File, output: Output = Form.TABLE) -> None:
    """Say whether a line of a decision log was changed, removed, inserted or lost.

    Lines are lost in a crash or on a full disk. If the end of the log was cut off together with its end mark, only a
    copy of the last number and digest can show that: keep such a copy elsewhere. Exit code 1: lines do not match or are
    missing.

    Examples:
        evenhand log verify decisions.jsonl

    """
    files = _files(file)
    try:
        found = verified(files)
    except OSError as error:
        raise unreadable(Path(error.filename or file), error, "argument FILE") from error
    show(output, records.verified_value(found), lambda _: records.verified(found))
    if not found.whole:
        raise typer.Exit(ExitCode.PROBLEM)


def query(
    file: File,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            "-q",
            metavar="PATH",
            help="Only decisions that give capacity to this queue or a queue below it, or take capacity from there.",
        ),
    ] = "",
    policy: OfPolicy = "",
    victim: Annotated[
        str,
        typer.Option(
            "--victim", metavar="KEY", help="Only decisions that evict this pod or application."
        ),
    ] = "",
    beneficiary: Annotated[
        str,
        typer.Option("--for", metavar="KEY", help="Only decisions for this pod or application."),
    ] = "",
    state: Annotated[
        str, typer.Option("--state", metavar="NAME", help="Only decisions in this state.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only decisions made since: a time before the last line, such as 2h, or an instant.",
        ),
    ] = "",
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Only decisions made until this time, in the same forms.",
        ),
    ] = "",
    output: Output = Form.TABLE,
    sort_by: Annotated[str, sorting("queue", decisions(0))] = "",
    no_headers: NoHeaders = False,
) -> None:
    """List the decisions in a decision log, each in its latest state; no core is needed.

    Pods are named by their keys, which is all that the log has.

    Examples:
        evenhand log query decisions.jsonl --queue root.research --since 2d
        evenhand log query decisions.jsonl --victim film --output json

    """
    files = _files(file)
    if state and state not in set(DecisionState):
        known = ", ".join(DecisionState)
        raise typer.BadParameter(f"`{state}` is none of {known}", param_hint="'--state'")
    try:
        found = read_decisions(files)
    except OSError as error:
        raise unreadable(Path(error.filename or file), error, "argument FILE") from error
    now = found.latest_ms
    period = (instant_before(since, now), instant_before(until, now))
    wanted = Wanted(queue.lower(), policy, victim, beneficiary, state, *period)
    rows = [
        encode_decisions.decision(VisibleDecision(one), encode_decisions.nameless, lambda _: True)
        for one in found.matching(wanted)
    ]
    if found.unreadable:
        terminal.say(
            f"{plural(found.unreadable, 'line')} cannot be read: `evenhand log verify {file}` says which"
        )
    listing = Listing(
        "decisions",
        rows,
        decisions(now),
        lambda one: one.decision_id,
        plain,
        {"unreadable": found.unreadable},
        lambda: [footer(len(rows), "decision", [])],
        "no decision of the log matches",
    )
    write_listing(listing, Shape(output, sort_by, not no_headers))


def _files(file: Path) -> list[Path]:
    """Return the files of a log. Raises Fault if the log has no file."""
    files = files_of(file)
    if not files:
        advice = "name the FILE of `evenhand serve --decision-log FILE`"
        raise Fault(f"there is no {file}", where="argument FILE", advice=advice)
    return files


log = typer.Typer(
    help="Check and search the decision log on disk.", no_args_is_help=True, add_completion=False
)


@log.callback()
def group() -> None:
    """Check and search the decision log on disk."""


log.command("verify")(verify)
log.command("query")(query)
