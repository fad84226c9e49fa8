"""The command line `evenhand`: its commands, and the exit codes and messages with which they end.

Results are written to the standard output, and all other texts to the error stream. Exit codes are those of
`faults.ExitCode`. The module of a command is imported only when the command runs, so that a query of a core does not
load server, scheduler or demonstration.
"""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Annotated, Any

import typer

from evenhand_cli import terminal
from evenhand_cli.command_line import Command, Group, usage_fault
from evenhand_cli.faults import ExitCode, Fault

EPILOG = (
    "Start with `evenhand demo`. Connection options, --output and --partition may stand before or after the command."
    " NO_COLOR=1 turns colours off."
)
RUN = "Run"
LOOK = "Look at a core"
RECORDS = "Look at records"


@dataclass(frozen=True, slots=True)
class CommandModule:
    """The module of a command, and the name of the command's function; "" if the function is named like the command.

    A module that is named without its package is in `evenhand_cli.commands`.
    """

    panel: str
    module: str
    function: str = ""


COMMANDS = {
    "demo": CommandModule(RUN, "demo"),
    "story": CommandModule(RUN, "story"),
    "serve": CommandModule(RUN, "serve"),
    "shim": CommandModule(RUN, "shim"),
    "cluster": CommandModule(RUN, "cluster"),
    "console": CommandModule(RUN, "evenhand_console.command"),
    "partitions": CommandModule(LOOK, "listings"),
    "queues": CommandModule(LOOK, "queues"),
    "apps": CommandModule(LOOK, "listings"),
    "nodes": CommandModule(LOOK, "listings"),
    "allocations": CommandModule(LOOK, "listings"),
    "explain": CommandModule(LOOK, "explain"),
    "decisions": CommandModule(LOOK, "decisions"),
    "simulate": CommandModule(LOOK, "simulate", "simulation"),
    "doctor": CommandModule(LOOK, "health"),
    "health": CommandModule(LOOK, "health"),
    "events": CommandModule(LOOK, "events"),
    "history": CommandModule(LOOK, "history"),
    "version": CommandModule(LOOK, "health"),
    "replication": CommandModule(LOOK, "replication"),
    "follow": CommandModule(RUN, "replication"),
    "partition": CommandModule(RUN, "partition"),
    "context": CommandModule(LOOK, "context", "contexts"),
    "help": CommandModule(LOOK, "help", "show_help"),
    "config": CommandModule(LOOK, "config", "configuration"),
    "replay": CommandModule(RECORDS, "replay"),
    "log": CommandModule(RECORDS, "log"),
}


class Shelf(MutableMapping[str, Any]):
    """The commands by name, in the order of the help. Each command is created when it is first requested."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        """Return the command of this name; raises KeyError."""
        if name not in self._made:
            self._made[name] = command(name, COMMANDS[name])
        return self._made[name]

    def __setitem__(self, name: str, made: Any) -> None:  # noqa: ANN401
        self._made[name] = made

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def command(name: str, place: CommandModule) -> Any:  # noqa: ANN401
    """Return a command, or a group of commands, from its module."""
    module = place.module if "." in place.module else f"evenhand_cli.commands.{place.module}"
    found = getattr(import_module(module), place.function or name)
    made = found if isinstance(found, typer.Typer) else typer.Typer(add_completion=False)
    if made is found:
        made.info.cls = Group
    else:
        made.command(name)(found)
    for one in made.registered_commands:
        one.cls = Command
    single = typer.main.get_command(made)
    single.name = name
    single.rich_help_panel = place.panel  # type: ignore[attr-defined]
    return single


class Commands(Group):
    """The group of all commands.

    A `Fault` ends a command with a message instead of a traceback.
    """

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(**attributes)
        self.commands = Shelf()

    def make_context(self, *arguments: Any, **attributes: Any) -> Any:  # noqa: ANN401
        """Return the context of the program, after reading the options before the command's name."""
        with ended_by_faults():
            return super().make_context(*arguments, **attributes)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run the command that the user named. A `Fault` of the command ends the program."""
        with ended_by_faults():
            return super().invoke(ctx)


@contextmanager
def ended_by_faults() -> Iterator[None]:
    """End the program with a message and the exit code of the fault that the block raises."""
    try:
        yield
    except Fault as fault:
        terminal.show_fault(fault)
        raise typer.Exit(fault.code) from fault
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise  # This exception prints the help, and is no error.
        terminal.show_fault(usage_fault(error))
        raise typer.Exit(ExitCode.USAGE) from error


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evenhand {metadata.version('evenhand')}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    name="evenhand",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def evenhand(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version of this command; `evenhand version` also shows the version of the core.",
        ),
    ] = False,
) -> None:
    """Share a Kubernetes cluster fairly, and always say why."""


def main() -> None:
    """Run the command line; the entry point of the console script."""
    # gRPC's own log lines would be mixed with the command's on the error stream; a user who
    # searches for a fault in gRPC sets the variable.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app()
