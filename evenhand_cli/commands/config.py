"""The commands on the queue configuration: check a file, compare it, apply it, show the configuration in force."""

from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import (
    config_pb2,
    config_pb2_grpc,
    history_pb2,
    history_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    simulate_pb2,
)
from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_without
from evenhand_cli.commands.simulate import QueuesFile, simulated
from evenhand_cli.config_maps import STANDARD_INPUT, QueuesText, read_queues
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.output import Form, Output, plain, plain_all, show
from evenhand_cli.render import findings, forecasts
from evenhand_cli.render.fits import Pointer
from evenhand_cli.render.screen import first_that_fits
from evenhand_cli.render.words import instant
from evenhand_cli.silencing import Ignore, check_codes, sorted_out
from server.config import Problem, examine
from server.config.header import header
from server.model.revisions import ANY_BASE, Base

KEPT = (
    "A core that is started again has it, until the file of `serve --config` or the ConfigMap of the shim is changed: change"
    " it there, too."
)
NOT_KEPT = (
    "not kept: {why}. A crash would lose it: write it into the file of `serve --config`, on Kubernetes into the ConfigMap of"
    " the shim"
)
LASTS = (
    "It lasts until the core ends. At its start a core reads the file of `serve --config` again, and on Kubernetes the shim"
    " sends the ConfigMap of its namespace: change it there, too, to keep it."
)
"""The notice to users about a core of a version that gives configurations no revision numbers."""
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only show what would change and which pods would be evicted; apply nothing.",
    ),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--all",
        help="With --dry-run: show each decision, victim and queue that changes, and all warnings.",
    ),
]
SEVERITIES = {
    "error": config_pb2.PROBLEM_SEVERITY_ERROR,
    "warning": config_pb2.PROBLEM_SEVERITY_WARNING,
}


def check(file: QueuesFile, ignore: Ignore = None, output: Output = Form.TABLE) -> None:
    """List the problems of a file with their lines and consequences; no core is needed.

    Examples:
        evenhand config check queues.yaml
        kubectl get configmap yunikorn-configs -o yaml | evenhand config check -

    """
    check_codes(ignore or ())
    read = read_queues(file, "argument FILE")
    configuration, found, silent = examine(read.text, read.source)
    problems, silenced = sorted_out(read, problems_of(found), problems_of(silent), ignore or ())
    value = {
        "source": str(file),
        "valid": configuration is not None,
        "problems": plain_all(problems),
        "silenced": plain_all(silenced),
        "notes": list(read.notes),
    }
    show(output, value, lambda _: findings.problems(problems, read.source, silenced, read.notes))
    if configuration is None:
        raise typer.Exit(ExitCode.PROBLEM)


def problems_of(found: Iterable[Problem]) -> list[config_pb2.ConfigProblem]:
    """Return problems that the command itself found, as the messages that the core would send."""
    return [
        config_pb2.ConfigProblem(
            severity=SEVERITIES[one.severity],
            line=one.line,
            path=one.path,
            message=one.message,
            consequence=one.consequence,
            code=one.code,
            advice=one.advice,
        )
        for one in found
    ]


@asks_core
def apply(
    core: Core,
    file: QueuesFile,
    dry_run: DryRun = False,
    whole: Whole = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite the configuration in force, even when it was applied after FILE was made.",
        ),
    ] = False,
    ignore: Ignore = None,
    output: Output = Form.TABLE,
) -> None:
    """Apply a file to the core, and list its problems and the changes.

    A file with an error is not applied. A file from `config show` names its revision in the first line; such a file is
    refused when another revision is in force. Any other file is compared with the configuration in force.

    Examples:
        evenhand config apply queues.yaml --dry-run
        evenhand config apply queues.yaml
        evenhand config show > now.yaml; edit now.yaml; evenhand config apply now.yaml

    """
    how = _How(dry_run, whole, tuple(ignore or ()), output)
    how.check()
    read = read_queues(file, "argument FILE")
    name = "standard input" if file == STANDARD_INPUT else file.name
    base = ANY_BASE if force else read.base if read.base != ANY_BASE else _now(core)
    _put_in_force(core, read, f"apply {name}", base, how, shown=str(file))


@asks_core
def rollback(
    core: Core,
    revision: Annotated[
        int,
        typer.Argument(
            metavar="REVISION",
            min=1,
            help="Number of the revision, as `evenhand history config` lists it.",
        ),
    ],
    dry_run: DryRun = False,
    whole: Whole = False,
    ignore: Ignore = None,
    output: Output = Form.TABLE,
) -> None:
    """Apply the text of an earlier revision again, as the next revision.

    The text is from the history. As with `config apply`, nothing is applied when another revision came into force meanwhile.

    Examples:
        evenhand config rollback 6 --dry-run
        evenhand config rollback 6

    """
    how = _How(dry_run, whole, tuple(ignore or ()), output)
    how.check()
    base = _now(core)
    stub = history_pb2_grpc.HistoryServiceStub(core.channel)
    request = history_pb2.GetConfigurationRequest(revision=revision)
    found = core.ask(stub.GetConfiguration, request)
    name = f"revision {revision}"
    if not found.yaml:
        raise Fault(
            f"{name} is the built-in configuration, which has no text",
            where="argument REVISION",
            advice="list the others with `evenhand history config`",
        )
    _put_in_force(core, QueuesText(found.yaml, name), f"rollback to {name}", base, how, shown=name)


class _How(NamedTuple):
    """The options that say how a command applies a configuration."""

    dry_run: bool
    whole: bool
    ignore: tuple[str, ...]
    output: Form

    def check(self) -> None:
        """Raise Fault or typer.BadParameter for options that do not fit together."""
        if not self.dry_run:
            refuse_without("--dry-run", all=self.whole)
        check_codes(self.ignore)


def _put_in_force(
    core: Core, read: QueuesText, source: str, base: Base, how: _How, *, shown: str
) -> None:
    """Apply a text, or with `--dry-run` show its changes. The command exits with code 1 when the text is not applied."""
    dry_run, whole, ignore, output = how
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    request = config_pb2.ApplyRequest(
        yaml=read.text,
        source=source,
        dry_run=dry_run,
        base_revision=base.number,
        base_digest=base.digest,
    )
    answer = core.ask(stub.Apply, request)
    problems, silenced = sorted_out(read, answer.problems, answer.silenced, ignore)
    del answer.problems[:], answer.silenced[:]
    answer.problems.extend(problems)
    answer.silenced.extend(silenced)
    errors = findings.count_errors(answer.problems)
    value = plain(answer) | {"source": shown, "dry_run": dry_run, "notes": list(read.notes)}
    if dry_run and not errors:
        found = simulated(core, read)
        value["simulation"] = plain(found)
        full = whole or output is Form.WIDE
        show(output, value, lambda console: _tried(answer, found, read, console.width, whole=full))
    else:
        show(output, value, lambda _: _applied(answer, read))
    if errors or not (answer.applied or dry_run):
        raise typer.Exit(ExitCode.PROBLEM)


@asks_core
def diff(core: Core, file: QueuesFile, output: Output = Form.TABLE) -> None:
    """Show what would change if a file came into force. Nothing is applied.

    `+` marks what the file adds, `-` what it removes, `~` a setting that it changes, first with the value in force and then
    with the value in the file. Differences in comments, order and spelling are not shown, because they change nothing for the core.

    Exit code 0: the file says the same; 1: something would change; 2: the file has errors; 3: the core does not answer.
    `evenhand config apply FILE --dry-run` also shows what would become of queues and pods.

    Examples:
        evenhand config diff queues.yaml
        kubectl get configmap yunikorn-configs -o yaml | evenhand config diff -

    """
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    read = read_queues(file, "argument FILE")
    answer = core.ask(stub.Diff, config_pb2.DiffRequest(yaml=read.text, source=read.source))
    errors = findings.count_errors(answer.problems)
    value = plain(answer) | {"source": str(file), "same": not (errors or answer.changes)}
    show(output, value, lambda _: _compared(answer, read))
    if errors:
        raise typer.Exit(ExitCode.USAGE)
    if answer.changes:
        raise typer.Exit(ExitCode.PROBLEM)


@asks_core
def in_force(core: Core, output: Output = Form.TABLE) -> None:
    """Write the configuration in force to the output, unchanged.

    The first line names the revision, so that `config apply` knows from which revision the file was made.

    Examples:
        evenhand config show > queues.yaml

    """
    stub = config_pb2_grpc.ConfigurationServiceStub(core.channel)
    answer = core.ask(stub.Get, config_pb2.GetRequest())
    if output not in {Form.TABLE, Form.WIDE}:
        show(output, plain(answer), lambda _: "")
        return
    for one in _about(answer):
        terminal.say(one)
    first = header(Base(answer.revision, answer.digest)) if answer.revision else ""
    terminal.document(first + answer.yaml)


def _about(answer: config_pb2.GetResponse) -> Iterator[str]:
    """Yield lines that say which configuration is in force, which user applied it, and when.

    The lines also say whether the configuration survives a restart.
    """
    source = answer.source or "the built-in default"
    digest = f", digest {answer.digest[:12]}" if answer.digest else ""
    if not answer.revision:
        yield f"from {source}{digest}"
        return
    by = f" by {answer.applied_by}" if answer.applied_by else ""
    when = f", {instant(answer.applied_at_ms)}" if answer.applied_at_ms else ""
    yield f"revision {answer.revision}{by} from {source}{when}{digest}"
    if answer.not_kept:
        yield NOT_KEPT.format(why=answer.not_kept)


def _now(core: Core) -> Base:
    """Return the revision in force as the base of a change.

    If a change names this revision as its base, the core makes exactly the changes that were shown. The revision is
    read with the request that `evenhand version` sends. Every role may send this request, also the role of a shim.
    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    answer = core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest())
    number = answer.config_revision
    return Base(number, answer.config_digest if number else "")


def _applied(answer: config_pb2.ApplyResponse, read: QueuesText) -> Group:
    parts: list[RenderableType] = []
    if answer.problems or answer.silenced or read.notes:
        parts.append(findings.problems(answer.problems, read.source, answer.silenced, read.notes))
    if findings.count_errors(answer.problems):
        return Group(*parts, Text("nothing was applied; the old configuration stays", style="bad"))
    parts.append(findings.changes(answer.changes))
    digest = f"digest {answer.digest[:12]}"
    if not answer.revision:
        applied = Text(f"applied, {digest}", style="good")
        return Group(*parts, applied, Text(LASTS, style="faint"))
    was = (
        f", before it {answer.revision_before}" if answer.revision_before < answer.revision else ""
    )
    parts.append(Text(f"applied: revision {answer.revision}{was}, {digest}", style="good"))
    if read.base not in {ANY_BASE, Base(answer.revision, answer.digest)}:
        again = f"{read.source} names revision {read.base.number}: before you change it again, evenhand config show > FILE"
        parts.append(Text(again, style="faint"))
    if answer.not_kept:
        parts.append(Text(NOT_KEPT.format(why=answer.not_kept), style="warn"))
    else:
        parts.append(Text(KEPT, style="faint"))
    return Group(*parts)


def _compared(answer: config_pb2.DiffResponse, read: QueuesText) -> RenderableType:
    """Return the differences from the revision in force, or the errors of a file that cannot be compared."""
    if findings.count_errors(answer.problems):
        return findings.problems(answer.problems, read.source, (), read.notes)
    now = f"revision {answer.revision}" if answer.revision else "the configuration"
    if not answer.changes:
        return Text(f"{read.source} says the same as {now}, which is in force", style="good")
    first = Text(f"{read.source} would change {now}, which is in force:", style="heading")
    follow = Pointer("What would follow", f"evenhand config apply {read.source} --dry-run")
    return Group(first, findings.changes(answer.changes), follow)


def _tried(
    answer: config_pb2.ApplyResponse,
    found: simulate_pb2.SimulateConfigurationResponse,
    read: QueuesText,
    width: int,
    *,
    whole: bool,
) -> RenderableType:
    """Return the consequences of a configuration, followed by its differences from the configuration in force."""

    def form(detail: forecasts.Detail | None) -> Group:
        return Group(
            forecasts.configuration(found, width, detail),
            Text("\nwhat differs", style="heading"),
            findings.changes(answer.changes, None if detail is None else detail.changes),
            *findings.warned(
                answer.problems, read.source, answer.silenced, read.notes, whole=whole
            ),
            Text(_dry(answer), style="faint"),
        )

    return form(None) if whole else first_that_fits(map(form, forecasts.DETAILS), width)


def _dry(answer: config_pb2.ApplyResponse) -> str:
    now = f"; revision {answer.revision} is in force" if answer.revision else ""
    return f"dry run: nothing was applied{now}"


configuration = typer.Typer(
    help="Check, compare, apply or show the queue configuration.",
    no_args_is_help=True,
    add_completion=False,
)
configuration.command("check")(check)
configuration.command("apply")(apply)
configuration.command("rollback")(rollback)
configuration.command("diff")(diff)
configuration.command("show")(in_force)
