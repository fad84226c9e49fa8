"""What preemption decided: a list, one decision rule by rule, and what becomes of them."""

import enum
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import (
    decisions_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    reports_pb2,
    reports_pb2_grpc,
)
from evenhand_cli import terminal
from evenhand_cli.commands.filters import Filter, check_filters
from evenhand_cli.commands.shadows import list_shadows
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.durations import milliseconds
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, plain, plain_all, show, write_json_line
from evenhand_cli.paging import every
from evenhand_cli.render import decisions as pictures
from evenhand_cli.render import reports
from evenhand_cli.render.tables import footer


class Policy(enum.StrEnum):
    """The policies by the names that records carry."""

    REQUIRED_NODE = "required-node"
    GUARANTEED = "guaranteed"
    JOB = "job"
    IN_QUEUE = "in-queue"
    QUOTA = "quota"
    TRIM = "trim"
    RESERVATION = "reservation"


@asks_core
def decisions(
    core: Core,
    decision: Annotated[
        str, typer.Argument(metavar="ID", help="Only this one, rule by rule.")
    ] = "",
    partition: Annotated[
        str, typer.Option("--partition", "-p", help="Partition; all when not given.")
    ] = "",
    policy: Annotated[
        Policy | None, typer.Option("--policy", help="Only those of this policy.")
    ] = None,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            "-q",
            metavar="PATH",
            help="Only those that give to this queue or one below it, or take from there.",
        ),
    ] = "",
    open_: Annotated[
        bool, typer.Option("--open", help="Only those that are not done yet.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Only those made or ended so long ago, such as 10m."
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on, a line for each change.")
    ] = False,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=0, help="With --follow: end after so many; 0: never."),
    ] = 0,
    lost_work: Annotated[
        bool,
        typer.Option(
            "--lost-work",
            help="Instead: what victims had done, by policy, claimant and victim queue, since the server started.",
        ),
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow",
            help="Instead: what the shadow settings would decide, beside what those in force did.",
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Lists who has to go for whom, and by which policy.

    A decision gives room to an ask, or brings a queue down to its max.

    Such as: evenhand decisions --open --policy guaranteed

    One of them, rule by rule: evenhand decisions g-19aa1b2c3d4-17

    What happens just now: evenhand decisions --follow --queue root.research

    What it has cost: evenhand decisions --lost-work

    What other settings would do: evenhand decisions --shadow
    """
    if decision:
        _one(core, decision, output)
        return
    if lost_work:
        _lost_work(core, partition, output)
        return
    if shadow:
        list_shadows(core, partition, queue, output)
        return
    request = pb.ListDecisionsRequest(
        partition=partition,
        policy=policy or "",
        queue=queue,
        open_only=open_,
        since_ms=_ago(core, since),
    )
    if follow:
        _follow(core, request, count, output)
        return
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    taken = 0

    def rows(page: pb.ListDecisionsResponse) -> Iterable[pb.Decision]:
        nonlocal taken
        taken = page.taken_at_ms
        return page.decisions

    found = every(core, stub.ListDecisions, request, rows)
    if not found:
        check_filters(core, partition, Filter("queue", queue))
    running = sum(not one.ended_ms for one in found)
    value = {"decisions": plain_all(found), "taken_at_ms": taken} | core.pictures.value()
    foot = footer(len(found), "decision", [f"{running:,} of them open"] if found else [])
    show(
        output,
        value,
        lambda console: Group(pictures.decisions(found, taken, console.width), foot),
    )


def _lost_work(core: Core, partition: str, output: Form) -> None:
    """The sums; they begin anew with each start of the server."""
    stub = reports_pb2_grpc.ReportServiceStub(core.channel)
    answer = core.ask(stub.GetLostWork, reports_pb2.GetLostWorkRequest(partition=partition))
    show(output, plain(answer), lambda console: reports.lost_work(answer, console.width))


def _ago(core: Core, since: str) -> int:
    """The instant so long ago, by the core's clock; 0 when nothing was said."""
    if not since:
        return 0
    length = milliseconds(since)
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    return max(core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()).now_ms - length, 0)


def _one(core: Core, decision: str, output: Form) -> None:
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    try:
        answer = core.ask(stub.GetDecision, pb.GetDecisionRequest(decision_id=decision))
    except Fault as fault:
        if fault.code is not ExitCode.PROBLEM:
            raise
        raise _unknown(core, decision) from fault
    found = answer.decision
    title = Text.assemble((found.decision_id, "key"), ("  decision", "heading"))
    title.append(f"  partition {found.partition}", style="faint")
    show(
        output,
        plain(answer),
        lambda console: Group(title, *pictures.decision(found, answer.taken_at_ms, console.width)),
    )


def _unknown(core: Core, decision: str) -> Fault:
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    known = every(core, stub.ListDecisions, pb.ListDecisionsRequest(), lambda page: page.decisions)
    advice = "list them with `evenhand decisions`; one that ended long ago is no longer kept"
    near = near_matches(decision, (one.decision_id for one in known))
    return Fault(
        f"there is no decision `{decision}`",
        where=f"core at {core.address}",
        advice="\n".join(filter(None, [near, advice])),
    )


def _follow(core: Core, wanted: pb.ListDecisionsRequest, count: int, output: Form) -> None:
    """Changes as they come; those that are held and older than was asked for are left out."""
    if wanted.open_only:
        raise Fault(
            "--open and --follow do not go together",
            where="--open",
            advice="follow without it: every change says the state of its decision",
            code=ExitCode.USAGE,
        )
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    request = pb.WatchDecisionsRequest(
        partition=wanted.partition, policy=wanted.policy, queue=wanted.queue
    )
    console = terminal.results()
    seen = 0
    for answer in core.follow(stub.WatchDecisions, request):
        if answer.missed:
            terminal.say(f"{answer.missed:,} changes were missed: the core no longer had them")
        for change in answer.changes:
            if change.time_ms < wanted.since_ms:
                continue
            if output is Form.JSON:
                write_json_line(plain(change))
            else:
                console.print(pictures.change(change), soft_wrap=True)
            seen += 1
            if seen == count:
                return
    raise Fault(
        "the core ended the stream of decisions",
        where=core.address,
        advice="see whether it still runs: evenhand version",
        code=ExitCode.UNREACHABLE,
    )
