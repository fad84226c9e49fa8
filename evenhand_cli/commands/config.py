"""The queue configuration: check a file, compare and apply it, show the one in force."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import config_pb2, config_pb2_grpc
from evenhand_cli import terminal
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode
from evenhand_cli.files import read_text
from evenhand_cli.output import Form, Output, plain, plain_all, show
from evenhand_cli.render import findings
from server.config import Problem, load

File = Annotated[Path, typer.Argument(metavar="FILE", help="A queues.yaml.")]

SEVERITIES = {
    "error": config_pb2.PROBLEM_SEVERITY_ERROR,
    "warning": config_pb2.PROBLEM_SEVERITY_WARNING,
}


def check(file: File, output: Output = Form.TABLE) -> None:
    """Checks a file without a core: problems with their lines and what follows from them."""
    configuration, found = load(read_text(file, "argument FILE"), str(file))
    problems = problems_of(found)
    value = {
        "source": str(file),
        "valid": configuration is not None,
        "problems": plain_all(problems),
    }
    show(output, value, lambda _: findings.problems(problems, str(file)))
    if configuration is None:
        raise typer.Exit(ExitCode.PROBLEM)


def problems_of(found: Iterable[Problem]) -> list[config_pb2.ConfigProblem]:
    """Problems found here, in the shape in which the core tells them."""
    return [
        config_pb2.ConfigProblem(
            severity=SEVERITIES[one.severity],
            line=one.line,
            path=one.path,
            message=one.message,
            consequence=one.consequence,
        )
        for one in found
    ]


@asks_core
def apply(
    core: Core,
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    output: Output = Form.TABLE,
) -> None:
    """Applies a file: shows problems and what changes; with an error the old one stays."""
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    text = read_text(file, "argument FILE")
    request = config_pb2.ApplyRequest(yaml=text, source=f"apply {file.name}", dry_run=dry_run)
    answer = core.ask(stub.Apply, request)
    errors = findings.count_errors(answer.problems)
    value = plain(answer) | {"source": str(file), "dry_run": dry_run}
    show(output, value, lambda _: _applied(answer, file, dry_run=dry_run))
    if errors or not (answer.applied or dry_run):
        raise typer.Exit(ExitCode.PROBLEM)


@asks_core
def in_force(core: Core, output: Output = Form.TABLE) -> None:
    """Writes the configuration in force to the output, as it was given."""
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    answer = core.ask(stub.Get, config_pb2.GetRequest())
    if output is Form.TABLE:
        terminal.say(f"from {answer.source or 'the built-in default'}, digest {answer.digest[:12]}")
    show(output, plain(answer), lambda _: Text(answer.yaml.rstrip("\n")))


def _applied(answer: config_pb2.ApplyResponse, file: Path, *, dry_run: bool) -> Group:
    parts: list[RenderableType] = []
    if answer.problems:
        parts.append(findings.problems(answer.problems, str(file)))
    if findings.count_errors(answer.problems):
        return Group(*parts, Text("nothing was applied; the old configuration stays", style="bad"))
    parts.append(findings.changes(answer.changes))
    if dry_run:
        return Group(*parts, Text("dry run: nothing was applied", style="faint"))
    return Group(*parts, Text(f"applied, digest {answer.digest[:12]}", style="good"))


configuration = typer.Typer(
    help="The queue configuration: check, apply, show.",
    no_args_is_help=True,
    add_completion=False,
)
configuration.command("check")(check)
configuration.command("apply")(apply)
configuration.command("show")(in_force)
