"""Warnings of a configuration that the user chose not to see: `--ignore CODE`."""

from collections.abc import Sequence
from typing import Annotated

import typer

from evenhand.v1 import config_pb2
from evenhand_cli import completion
from evenhand_cli.config_maps import QueuesText
from evenhand_cli.faults import ExitCode, Fault
from server.config.codes import CODES, unknown

Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="CODE",
        help="Do not show warnings with this code; may be repeated.",
        autocompletion=completion.words(CODES),
    ),
]
CODES_ADVICE = "the table of warnings in docs/configuration.md lists all codes"


def check_codes(ignored: Sequence[str]) -> None:
    """Raise Fault for a code of `--ignore` that no warning has."""
    for code in ignored:
        if refusal := unknown(code):
            raise Fault(refusal, where="--ignore", advice=CODES_ADVICE, code=ExitCode.USAGE)


def sorted_out(
    read: QueuesText,
    problems: Sequence[config_pb2.ConfigProblem],
    silenced: Sequence[config_pb2.ConfigProblem],
    ignored: Sequence[str],
) -> tuple[list[config_pb2.ConfigProblem], list[config_pb2.ConfigProblem]]:
    """Return the problems to show, and the ignored problems.

    A problem is ignored if it is in `silenced` or if its code is in `ignored`. All returned problems have line numbers
    of the file.
    """
    shown = [one for one in problems if not one.code or one.code not in ignored]
    more = [one for one in problems if one.code and one.code in ignored]
    return read.placed(shown), read.placed([*silenced, *more])
