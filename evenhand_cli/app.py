"""The command line `evenhand`: its commands, and how they end.

Results go to the output, everything else to the error stream. Exit codes are `faults.ExitCode`.
"""

from typing import Any

import typer
from typer.core import TyperGroup

from evenhand_cli import terminal
from evenhand_cli.commands import config, demo, explain, health, listings, queues, serve, shim
from evenhand_cli.faults import Fault

EPILOG = "Start with `evenhand demo`. Colours: NO_COLOR=1 turns them off."


class Commands(TyperGroup):
    """The commands; a fault of the user's world ends with a message instead of a traceback."""

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
    help="Shares a Kubernetes cluster fairly, and can always say why.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
configuration = typer.Typer(
    help="The queue configuration: check, apply, show.", no_args_is_help=True
)

RUN = "Run"
for name, process in (("demo", demo.demo), ("serve", serve.serve), ("shim", shim.shim)):
    app.command(name, rich_help_panel=RUN)(process)

LOOK = "Look at a core"
for name, command in (
    ("partitions", listings.partitions),
    ("queues", queues.queues),
    ("apps", listings.apps),
    ("nodes", listings.nodes),
    ("allocations", listings.allocations),
    ("explain", explain.explain),
    ("doctor", health.doctor),
    ("events", health.events),
    ("version", health.version),
):
    app.command(name, rich_help_panel=LOOK)(command)

configuration.command("check")(config.check)
configuration.command("apply")(config.apply)
configuration.command("show")(config.in_force)
app.add_typer(configuration, name="config", rich_help_panel=LOOK)


def main() -> None:
    """Entry point of the console script."""
    app()
