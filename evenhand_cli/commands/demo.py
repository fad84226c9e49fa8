"""The command `evenhand demo`: core, shim and an embedded cluster in one process."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

import evenhand_cli
from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.commands.serve import ConfigFile, check_config, serve_fault
from evenhand_cli.commands.shim import (
    ClusterListen,
    open_cluster,
    open_live,
    shim_faults,
)
from evenhand_cli.console_process import ConsoleListen, perhaps_beside
from evenhand_cli.demo.facts import Progress
from evenhand_cli.demo.picture import picture_console, write_picture
from evenhand_cli.demo.run import Beside, CoreProcess, Plan, Ready, demonstrate
from evenhand_cli.demo.screen import Stage, screen
from evenhand_cli.demo.summary import Outcome, outcome_picture, outcome_value
from evenhand_cli.demo.view import Update, line_view, live_view
from evenhand_cli.embedded.hosting import following, service_of
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.output import Form, Output, show
from evenhand_cli.rpc_faults import fault_of
from evenhand_cli.stopping import stop_event
from server.bootstrap import Exit, ServeOptions
from server.bootstrap import serve as run_core
from server.observe import logs
from shim_client.bootstrap import LiveDirectory
from shim_client.shim import Shim

EXAMPLE = Path("examples/clusters/small")
"""The path of the example cluster in a checkout."""
PACKED = Path("evenhand_cli/examples/small")
"""The path of the example cluster in a wheel (see hatch_build.py)."""
LIMIT_S = 600.0
STOP_MS = 500
"""Milliseconds from the deletion of a pod to its end, or less if the grace period of the pod is shorter.

In this time users can see on the screen that the pod is ending.
"""
QUEUES_MAX = 60
"""Maximum number of queues on the last screen, whose height is not limited."""


def demo(
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            metavar="DIR",
            help="Directory of Kubernetes objects in YAML or JSON; the small example cluster when not given.",
        ),
    ] = None,
    config: ConfigFile = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Continue after everything has settled, until Ctrl-C.")
    ] = False,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address on which the core listens; port 0 means any free port.",
        ),
    ] = "127.0.0.1:0",
    cluster_listen: ClusterListen = "",
    limit: Annotated[
        float | None,
        typer.Option(
            "--limit",
            metavar="SECONDS",
            min=1,
            help=f"Give up after this number of seconds; {LIMIT_S:g} when not given.",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Draw the last screen into this SVG file."),
    ] = None,
    output: Output = Form.TABLE,
    console: ConsoleListen = "",
) -> None:
    """Run a core, a shim and an embedded cluster, and show which pods get a node and why others wait.

    The command ends when every pod has a node or a reason to wait, with exit code 1 when an object was refused.

    Examples:
        evenhand demo
        evenhand demo --cluster examples/clusters/claim
        evenhand demo --cluster DIR --watch --listen 127.0.0.1:50051
        evenhand demo --watch --console 127.0.0.1:8080

    """
    if watch:
        refuse_together("--watch", limit=limit)
    text = None if config is None else check_config(config)
    if not watch:
        refuse_without("--watch", cluster_listen=cluster_listen)
    directory = cluster or example_cluster()
    logs.configure(sys.stderr, logging.ERROR)
    live = open_live(directory, None, stop_ms=STOP_MS) if watch else None
    opened = live.opened if live else open_cluster(directory, stop_ms=STOP_MS)
    told: list[str] = []
    options = ServeOptions(listen=listen, config_file=config, config_text=text)
    beside = _beside(live, cluster_listen) if live else None
    name = shown_name(directory)
    with perhaps_beside(console) as (url, start), shim_faults(""):
        core = core_of(options, told, start)
        plan = Plan(opened, core, name, watch, limit or LIMIT_S, beside, url)
        if url:
            terminal.say(f"console on {url}")
        progress, outcome = asyncio.run(_demonstrate(plan, output))
    if picture is not None:
        _draw(picture, progress, outcome)
    show(output, outcome_value(outcome), lambda console: _ending(progress, outcome, console))
    settled = outcome.settled or outcome.stopped
    if outcome.refused() or not (outcome.consistent() and settled):
        raise typer.Exit(ExitCode.PROBLEM)


def _beside(live: LiveDirectory, listen: str) -> Beside:
    """Return a function that starts the tasks of a running cluster: follow its files, and answer cluster commands."""

    def start(shim: Shim) -> Sequence[Coroutine[Any, Any, None]]:
        return [
            service_of(live.opened.cluster, listen, terminal.say),
            following(live, shim, terminal.say, terminal.say),
        ]

    return start


def core_of(
    options: ServeOptions, told: list[str], listens: Callable[[str], None] = lambda _: None
) -> CoreProcess:
    """Return a function that runs a core for the demonstration.

    ``listens`` gets the core's address as soon as the core listens. The function raises Fault when the core cannot
    start or fails.
    """

    async def core(ready: Ready) -> None:
        def listening(address: str) -> None:
            listens(address)
            ready(address)

        code = await run_core(options, ready=listening, errors=told.append)
        if code != Exit.DRAINED:
            raise serve_fault(code, options.listen, told)

    return core


def example_cluster() -> Path:
    """Return the directory of the example cluster. Raises Fault where the example cluster is not installed."""
    above = Path(evenhand_cli.__file__).parent.parent
    for directory in (above / PACKED, above / EXAMPLE):
        if directory.is_dir():
            return directory
    raise Fault(
        "the example cluster is not installed here",
        where=str(above / PACKED),
        advice="name a directory of Kubernetes YAML with --cluster DIR",
    )


def shown_name(directory: Path) -> str:
    """Return the name of a directory as users see it: a relative path if it is below the working directory."""
    here = Path.cwd()
    return str(directory.relative_to(here) if directory.is_relative_to(here) else directory)


async def _demonstrate(plan: Plan, output: Form) -> tuple[Progress, Outcome]:
    def view(stage: Stage) -> AbstractContextManager[Update]:
        console = terminal.results()
        if output is Form.TABLE and console.is_terminal:
            return live_view(stage, console)
        return line_view()

    try:
        return await demonstrate(plan, view, stop_event())
    except grpc.RpcError as error:
        raise fault_of(error, "the demonstration's own port", secure=False) from error


def _ending(progress: Progress, outcome: Outcome, console: Console) -> RenderableType:
    """Return the summary of a demonstration. If no live screen was shown, put the last screen before the summary."""
    summary = outcome_picture(outcome, console.width)
    if console.is_terminal:
        return Group(Text(), summary)
    return Group(_last_screen(progress, outcome, console), Text(), summary)


def _last_screen(progress: Progress, outcome: Outcome, console: Console) -> RenderableType:
    ended_s = progress.started_s + outcome.seconds
    return screen(outcome.stage, progress, ended_s, console, queues_max=QUEUES_MAX)


def _draw(file: Path, progress: Progress, outcome: Outcome) -> None:
    console = picture_console()
    last = _last_screen(progress, outcome, console)
    write_picture(file, console, last, Text(), outcome_picture(outcome, console.width))
    terminal.say(f"drew {file}")
