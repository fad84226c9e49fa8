"""The reading of a command line: shared options may stand before the command's name.

`evenhand --core HOST:PORT queues` and `evenhand queues --core HOST:PORT` mean the same. The command itself also reads
the options that stand before its name. For this reason the message for an unknown option is the same in both positions.
"""

import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evenhand_cli import help_text
from evenhand_cli.faults import ExitCode, Fault

SHARED = frozenset(
    {
        "--core",
        "--cores",
        "--context",
        "--tls-ca",
        "--tls-cert",
        "--tls-key",
        "--tls-server-name",
        "--token-file",
        "--timeout",
        "--output",
        "-o",
        "--partition",
        "-p",
    }
)
"""Options with a value that may stand before the command's name."""
LEADING = "evenhand.leading"
"""The key in a context's `meta` under which the options before the command's name are stored."""
RENAMED = {
    "-n": "-n is --namespace in the listings that have one; write --node or --count in full",
}
_NO_OPTION = re.compile(r"No such option: (\S+)")
_CAUSE = re.compile(r", unable to parse .*$|, got a number with a fractional part$")


class Command(TyperCommand):
    """A command that also reads shared options before its name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the options before the command's name, then the options after it."""
        return super().parse_args(ctx, [*ctx.meta.get(LEADING, ()), *args])

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help of the command."""
        formatter.write(help_text.command(self, ctx))


class Group(TyperGroup):
    """A group of commands that passes shared options before a command's name on to the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the group's own options, and store the shared options for the command."""
        leading, own, rest = split(args)
        ctx.meta[LEADING] = (*ctx.meta.get(LEADING, ()), *leading)
        return super().parse_args(ctx, [*own, *rest])

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help of the group."""
        formatter.write(help_text.group(self, ctx))


def split(args: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Split arguments into three parts: shared options before the first word, other options before this word, and the rest."""
    leading: list[str] = []
    own: list[str] = []
    waiting = list(args)
    while waiting and waiting[0].startswith("-"):
        option = waiting.pop(0)
        name = option.partition("=")[0] if option.startswith("--") else option[:2]
        taken = leading if name in SHARED else own
        taken.append(option)
        if name in SHARED and option == name and waiting:
            taken.append(waiting.pop(0))
    return leading, own, waiting


def usage_fault(error: typer.TyperException) -> Fault:
    """Return the Fault for a wrong command line.

    The words of the fault do not name the libraries that read the command line.
    """
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else "evenhand"
    unknown = _NO_OPTION.match(error.format_message())
    advice = [RENAMED[unknown[1]]] if unknown and unknown[1] in RENAMED else []
    return Fault(
        plain_words(error.format_message()),
        where=path,
        advice="\n".join([*advice, f"see {path} --help"]),
        code=ExitCode.USAGE,
    )


def plain_words(message: str) -> str:
    """Return a library's message in words that do not name the library."""
    told = message.replace("Value error, ", "").replace("Input should be", "it must be")
    told = told.replace("it must be a valid integer", "it must be a whole number")
    told = told.replace("it must be a valid number", "it must be a number")
    return _CAUSE.sub("", told)
