"""The command line `evenhand`: its commands, and how they end.

Results go to the output, everything else to the error stream. Exit codes are `faults.ExitCode`.
A command's module is imported when the command runs: a look at a core, which scripts and health
checks repeat, waits for no server, scheduler or demonstration to load.
"""

import os
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from evenhand_cli import terminal
from evenhand_cli.faults import Fault

EPILOG = "Start with `evenhand demo`. Colours: NO_COLOR=1 turns them off."
RUN = "Run"
LOOK = "Look at a core"
RECORDS = "Look at records"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is written; its function has the command's name unless told otherwise."""

    panel: str
    module: str
    function: str = ""


COMMANDS = {
    "demo": Place(RUN, "demo"),
    "serve": Place(RUN, "serve"),
    "shim": Place(RUN, "shim"),
    "partitions": Place(LOOK, "listings"),
    "queues": Place(LOOK, "queues"),
    "apps": Place(LOOK, "listings"),
    "nodes": Place(LOOK, "listings"),
    "allocations": Place(LOOK, "listings"),
    "explain": Place(LOOK, "explain"),
    "decisions": Place(LOOK, "decisions"),
    "simulate": Place(LOOK, "simulate", "simulation"),
    "doctor": Place(LOOK, "health"),
    "health": Place(LOOK, "health"),
    "events": Place(LOOK, "health"),
    "version": Place(LOOK, "health"),
    "config": Place(LOOK, "config", "configuration"),
    "replay": Place(RECORDS, "replay"),
    "log": Place(RECORDS, "log"),
}


class Shelf(MutableMapping[str, Any]):
    """The commands by name, in order; each is made when it is taken."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        """The command of this name; raises KeyError."""
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


def command(name: str, place: Place) -> Any:  # noqa: ANN401
    """A command, or a group of them, out of its module."""
    found = getattr(import_module(f"evenhand_cli.commands.{place.module}"), place.function or name)
    made = found if isinstance(found, typer.Typer) else typer.Typer(add_completion=False)
    if made is not found:
        made.command(name)(found)
    single = typer.main.get_command(made)
    single.name = name
    single.rich_help_panel = place.panel  # type: ignore[attr-defined]
    return single


class Commands(TyperGroup):
    """The commands; a fault of the user's world ends with a message instead of a traceback."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(**attributes)
        self.commands = Shelf()

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Runs the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Fault as fault:
            terminal.show_fault(fault)
            raise typer.Exit(fault.code) from fault


app = typer.Typer(
    cls=Commands,
    name="evenhand",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def evenhand() -> None:
    """Shares a Kubernetes cluster fairly, and can always say why."""


def main() -> None:
    """Entry point of the console script."""
    # gRPC's own lines on the error stream would stand between ours; whoever looks for a fault in it sets the variable.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app()
