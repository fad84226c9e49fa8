"""The commands `evenhand simulate`: asks that were not submitted, and other configurations. Nothing changes."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType

from evenhand.v1 import simulate_pb2, simulate_pb2_grpc
from evenhand_cli import completion, terminal
from evenhand_cli.asks.reading import Reading, read_asks
from evenhand_cli.asks.simulated import Options
from evenhand_cli.config_maps import QueuesText, read_queues
from evenhand_cli.connect import DEFAULT_TIMEOUT_S, Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.output import Form, Output, plain, show
from evenhand_cli.render import findings, forecasts
from evenhand_cli.render import simulations as pictures
from evenhand_cli.render.screen import first_that_fits
from evenhand_cli.render.words import plural
from evenhand_cli.silencing import Ignore, check_codes, sorted_out

QueuesFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A queues.yaml, or a ConfigMap with one; - reads standard input."
    ),
]
NOTES_MAX = 5
"""Maximum number of asks whose notes are printed."""
SIMULATION_S = 120.0
"""Longest time, in seconds, that the simulation of a configuration may take when `--timeout` is not given."""


@asks_core
def ask(
    core: Core,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            allow_dash=True,
            help="File with pods, workloads and their PriorityClasses, or with asks in the short form; - reads "
            "standard input.",
        ),
    ],
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            "-q",
            metavar="PATH",
            help="Queue of all asks; when not given, the queue that labels and placement rules say.",
            autocompletion=completion.queues,
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            help="Namespace of pods that name none.",
            autocompletion=completion.namespaces,
        ),
    ] = "default",
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            help="Priority of asks whose priority the file does not say, such as pods whose PriorityClass is not in "
            "it.",
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes",
            metavar="FILE",
            help="File with further PriorityClasses, such as the output of `kubectl get priorityclass -o yaml`.",
        ),
    ] = None,
    partition: Annotated[
        str,
        typer.Option(
            "--partition",
            "-p",
            help="Partition of all asks; when not given, the partition that the pods name.",
            autocompletion=completion.partitions,
        ),
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Say where asks would be placed, what would be evicted for them, or which rule prevents that.

    Nothing is submitted. When a file has several asks, each is simulated as if the asks before it had been placed.

    Examples:
        evenhand simulate ask pod.yaml --queue root.research
        kubectl get pod train-1 -o yaml | evenhand simulate ask -

    """
    reading = read_asks(file, Options(queue, namespace, priority), classes)
    _tell(reading)
    request = simulate_pb2.SimulateAsksRequest(
        partition=_partition(reading, partition), asks=[one.message for one in reading.asks]
    )
    stub = simulate_pb2_grpc.SimulateServiceStub(core.channel)
    answer = core.ask(stub.SimulateAsks, request)
    for one, asked in zip(answer.asks, reading.asks, strict=False):
        told = [*asked.assumed, *one.assumed]
        del one.assumed[:]
        one.assumed.extend(told)
    show(
        output,
        plain(answer),
        lambda console: pictures.asks(answer, console.width, full=output is Form.WIDE),
    )
    if any(one.outcome == simulate_pb2.ASK_OUTCOME_REFUSED for one in answer.asks):
        raise typer.Exit(ExitCode.PROBLEM)


def _tell(reading: Reading) -> None:
    """Print on the error stream which parts of the file the simulation ignores."""
    noted = [one for one in reading.asks if one.notes]
    for one in noted[:NOTES_MAX]:
        for note in one.notes:
            terminal.say(f"{one.name}: {note}")
    if len(noted) > NOTES_MAX:
        terminal.say(f"and the same or more of {plural(len(noted) - NOTES_MAX, 'other ask')}")
    if reading.ignored:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(reading.ignored.items()))
        terminal.say(f"left out: {kinds}")


def _partition(reading: Reading, wanted: str) -> str:
    """Return the partition to simulate in: ``wanted``, or else the partition that all asks name.

    Raises Fault if ``wanted`` is empty and the asks name several partitions.
    """
    named = sorted({one.partition for one in reading.asks})
    if not wanted and len(named) > 1:
        raise Fault(
            f"the asks belong to several partitions: {', '.join(named)}",
            where="argument FILE",
            advice="simulate them apart, or say which one counts: --partition",
        )
    return wanted or named[0]


@asks_core
def config(
    core: Core,
    file: QueuesFile,
    whole: Annotated[
        bool,
        typer.Option(
            "--all", help="Show each decision, victim and queue that changes, and all warnings."
        ),
    ] = False,
    ignore: Ignore = None,
    output: Output = Form.TABLE,
) -> None:
    """Say what a queues.yaml would cause: which pods would be evicted when, for which asks, and by which policy.

    Nothing is applied. `evenhand config apply FILE --dry-run` also shows the differences from the configuration in force.

    Examples:
        evenhand simulate config queues.yaml
        evenhand simulate config queues.yaml --all

    """
    check_codes(ignore or ())
    read = read_queues(file, "argument FILE")
    answer = simulated(core, read)
    problems, silenced = sorted_out(read, answer.problems, answer.silenced, ignore or ())
    del answer.problems[:], answer.silenced[:]
    answer.problems.extend(problems)
    answer.silenced.extend(silenced)
    show(
        output,
        plain(answer) | {"source": str(file)},
        lambda console: _foreseen(
            answer, read, str(file), console, whole=whole or output is Form.WIDE
        ),
    )
    if not answer.valid:
        raise typer.Exit(ExitCode.PROBLEM)


def _foreseen(
    answer: simulate_pb2.SimulateConfigurationResponse,
    read: QueuesText,
    file: str,
    console: Console,
    *,
    whole: bool,
) -> RenderableType:
    """Return the consequences, the warnings, and the command that applies the file.

    For a file with errors, return only the errors.
    """
    problems, silenced = answer.problems, answer.silenced
    if not answer.valid:
        return Group(findings.problems(problems, read.source, silenced, read.notes))

    def form(detail: forecasts.Detail | None) -> Group:
        return Group(
            forecasts.configuration(answer, console.width, detail),
            *findings.warned(problems, read.source, silenced, read.notes, whole=whole),
            *forecasts.next_steps(answer, file),
        )

    return form(None) if whole else first_that_fits(map(form, forecasts.DETAILS), console.width)


def simulated(core: Core, read: QueuesText) -> simulate_pb2.SimulateConfigurationResponse:
    """Ask the core for the consequences of a configuration; on a large cluster the answer may take minutes."""
    stub = simulate_pb2_grpc.SimulateServiceStub(core.channel)
    request = simulate_pb2.SimulateConfigurationRequest(yaml=read.text, source=read.source)
    timeout_s = SIMULATION_S if core.timeout_s == DEFAULT_TIMEOUT_S else core.timeout_s
    return replace(core, timeout_s=timeout_s).ask(stub.SimulateConfiguration, request)


simulation = typer.Typer(
    help="Say what would happen to asks, or with another configuration; nothing changes.",
    no_args_is_help=True,
    add_completion=False,
)
simulation.command("ask")(ask)
simulation.command("config")(config)
