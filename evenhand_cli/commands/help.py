"""The command `evenhand help`, which shows the help of another command."""

from typing import Annotated, Any

import typer

from evenhand_cli import help_text
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches

TOPIC = "connection"


def show_help(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="Words of a command, such as `config apply`; or `connection`, for the connection options.",
        ),
    ] = None,
) -> None:
    """Show the help of a command.

    Examples:
        evenhand help queues
        evenhand help config apply
        evenhand help connection

    """
    words = command or []
    root: Any = ctx.find_root()
    if words == [TOPIC]:
        typer.echo(help_text.connection(root.command.get_command(root, "queues")), nl=False)
        return
    found = root
    for word in words:
        found = _below(found, word)
    typer.echo(found.get_help())


def _below(ctx: Any, word: str) -> Any:  # noqa: ANN401 - contexts of Typer
    """Return the context of a command of this group. Raises Fault when the command does not exist."""
    names = ctx.command.list_commands(ctx) if hasattr(ctx.command, "list_commands") else []
    if word not in names:
        raise Fault(
            f"there is no command `{word}` in `{ctx.command_path}`",
            where="argument COMMAND",
            advice=near_matches(word, names) or f"see {ctx.command_path} --help",
            code=ExitCode.USAGE,
        )
    chosen = ctx.command.get_command(ctx, word)
    return chosen.context_class(
        chosen, info_name=word, parent=ctx, help_option_names=["-h", "--help"]
    )
