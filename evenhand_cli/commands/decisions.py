"""The command `evenhand decisions`: a list of decisions, one decision rule by rule, and changes of decisions."""

import enum
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import (
    decisions_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    reports_pb2,
    reports_pb2_grpc,
)
from evenhand_cli import completion, terminal
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.commands.filters import AnyPartition, Filter, check_filters
from evenhand_cli.commands.past import (
    Past,
    from_history,
    past_decision,
    past_decisions,
    past_lost_work,
    started_ms,
)
from evenhand_cli.commands.shadows import shadows_listing
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.durations import milliseconds
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.lists import (
    Interval,
    NoHeaders,
    Shape,
    Watch,
    seconds_between_looks,
    show_listing,
    sorting,
)
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, no_names, plain, show, write_next
from evenhand_cli.paging import every
from evenhand_cli.render import decisions as pictures
from evenhand_cli.render import lost_work as lost
from evenhand_cli.render.decision_brief import decision_brief
from evenhand_cli.render.listing import Listing, none_of
from evenhand_cli.render.tables import footer
from server.model.policies import TABLE

if TYPE_CHECKING:
    Policy = str
else:
    Policy = enum.StrEnum(
        "Policy", {one.name: one.name for one in TABLE if not one.replaces_placeholder}
    )
    """The policies, by the names that records use."""


@asks_core
def decisions(
    core: Core,
    decision: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Show only this decision, rule by rule.",
            autocompletion=completion.decisions,
        ),
    ] = "",
    partition: AnyPartition = "",
    policy: Annotated[
        Policy | None,
        typer.Option(
            "--policy", help="Only decisions of this policy; all policies when not given."
        ),
    ] = None,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            "-q",
            metavar="PATH",
            help="Only decisions that give capacity to this queue or a queue below it, or take capacity from there.",
            autocompletion=completion.queues,
        ),
    ] = "",
    open_: Annotated[
        bool, typer.Option("--open", help="Only decisions that are not finished yet.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only decisions that were made or ended within this time before now, such as 10m or 2h.",
        ),
    ] = "",
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Write a line for each change of a decision, until Ctrl-C."
        ),
    ] = False,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            min=0,
            help="With --follow: end after this number of changes; 0, the default, means never.",
        ),
    ] = 0,
    lost_work: Annotated[
        bool,
        typer.Option(
            "--lost-work",
            help="Instead: show the work that victims lost, by policy, by claimant and victim queue, by user and by "
            "application.",
        ),
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow",
            help="Instead: show what the shadow settings would decide, compared with the decisions of the live "
            "settings.",
        ),
    ] = False,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="With an ID or --lost-work: show everything, even what does not fit the screen.",
        ),
    ] = False,
    output: Output = Form.TABLE,
    sort_by: Annotated[str, sorting("queue", pictures.decisions(0))] = "",
    no_headers: NoHeaders = False,
    watch: Watch = False,
    interval: Interval = None,
) -> None:
    """List preemption decisions: which pods are evicted for which pods, and by which policy.

    A decision gives capacity to an ask, or brings a queue down to its max. With an ID, one decision is shown rule by rule.

    Decisions that the core no longer has in memory come from its history, if it keeps one: the latest 200 of the last day, or all
    since TIME with --since.

    Examples:
        evenhand decisions --open --policy guaranteed
        evenhand decisions g-19aa1b2c3d4-17
        evenhand decisions --follow --queue root.research
        evenhand decisions --lost-work
        evenhand decisions --shadow

    """
    interval_s = seconds_between_looks(watch=watch, interval=interval)
    shape = Shape(output, sort_by, not no_headers)
    if decision or lost_work or follow:
        other = "ID" if decision else "--lost-work" if lost_work else "--follow"
        refuse_together(other, sort_by=sort_by, no_headers=no_headers, watch=watch)
    if decision:
        refuse_together(
            "ID",
            partition=partition,
            policy=policy or "",
            queue=queue,
            open=open_,
            since=since,
            follow=follow,
            count=bool(count),
            lost_work=lost_work,
            shadow=shadow,
        )
        _one(core, decision, output, full=all_ or output is Form.WIDE)
        return
    if lost_work:
        refuse_together("--lost-work", follow=follow, shadow=shadow, open=open_, count=bool(count))
        wanted = reports_pb2.GetLostWorkRequest(
            partition=partition, policy=policy or "", queue=queue, since_ms=_ago(core, since)
        )
        _lost_work(core, wanted, output, full=all_ or output is Form.WIDE)
        return
    refuse_without("an ID or --lost-work", all=all_)
    if shadow:
        refuse_together(
            "--shadow",
            follow=follow,
            open=open_,
            since=since,
            policy=policy or "",
            count=bool(count),
        )
        take = partial(shadows_listing, core, partition, queue)
        show_listing(core, take, shape, interval_s)
        return
    request = pb.ListDecisionsRequest(
        partition=partition,
        policy=policy or "",
        queue=queue,
        open_only=open_,
        since_ms=_ago(core, since),
    )
    if follow:
        refuse_together("--follow", open=open_)
        _follow(core, request, count, output)
        return
    refuse_without("--follow", count=count)
    show_listing(core, partial(_listing, core, request, since), shape, interval_s)


def _listing(core: Core, request: pb.ListDecisionsRequest, since: str) -> Listing[pb.Decision]:
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    taken = 0

    def rows(page: pb.ListDecisionsResponse) -> Iterable[pb.Decision]:
        nonlocal taken
        taken = page.taken_at_ms
        return page.decisions

    wanted = pb.ListDecisionsRequest.FromString(request.SerializeToString())
    found = every(core, stub.ListDecisions, wanted, rows)
    known = {one.decision_id for one in found}
    past = Past() if request.open_only else past_decisions(core, request, known)
    found = [*past.decisions, *found]
    if not found:
        check_filters(core, request.partition, Filter("queue", request.queue))
    running = sum(not one.ended_ms for one in found)
    foot = footer(len(found), "decision", [f"{running:,} of them open"] if found else [])
    notes = [foot]
    if past.decisions:
        note = from_history(past, started_ms(core), of_last_day=not since)
        notes.append(Text(note, style="faint"))
    return Listing(
        "decisions",
        found,
        pictures.decisions(taken),
        lambda one: one.decision_id,
        plain,
        {"taken_at_ms": taken, "from_history": len(past.decisions)},
        lambda: notes,
        none_of(
            "decision",
            "evenhand explain POD says why a pod waits",
            partition=request.partition,
            policy=request.policy,
            queue=request.queue,
            open=request.open_only,
            since=since,
        ),
    )


def _lost_work(
    core: Core, wanted: reports_pb2.GetLostWorkRequest, output: Form, *, full: bool
) -> None:
    """Write the sums of lost work since the requested instant.

    If no instant is requested, the sums begin at the start of the core.
    """
    stub = reports_pb2_grpc.ReportServiceStub(core.channel)
    before_start = wanted.since_ms and wanted.since_ms < started_ms(core)
    past = past_lost_work(core, wanted) if before_start else None
    answer = past or core.ask(stub.GetLostWork, wanted)
    if past is not None:
        terminal.say("from the history: it reaches further back than the start of the core")
    narrowed = bool(wanted.queue or wanted.policy or wanted.since_ms)
    if not answer.lines:
        check_filters(core, wanted.partition, Filter("queue", wanted.queue))
    show(
        output,
        plain(answer),
        lambda console: lost.lost_work(answer, console.width, narrowed=narrowed, full=full),
    )


def _ago(core: Core, since: str) -> int:
    """Return the instant that was `since` (a duration) ago, in Unix milliseconds by the core's clock.

    Return 0 without `since`.
    """
    if not since:
        return 0
    length = milliseconds(since)
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    return max(core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()).now_ms - length, 0)


def _one(core: Core, decision: str, output: Form, *, full: bool) -> None:
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    try:
        answer = core.ask(stub.GetDecision, pb.GetDecisionRequest(decision_id=decision))
    except Fault as fault:
        if fault.code is not ExitCode.PROBLEM:
            raise
        past = past_decision(core, decision)
        if past is None:
            raise _unknown(core, decision) from fault
        terminal.say("from the history: the core that made this decision has ended")
        answer = pb.GetDecisionResponse(
            decision=past.decision, lines=past.lines, taken_at_ms=past.taken_at_ms
        )
    found = answer.decision
    title = Text.assemble((found.decision_id, "key"), ("  decision", "heading"))
    title.append(f"  partition {found.partition}", style="faint")
    now = answer.taken_at_ms
    show(
        output,
        plain(answer),
        lambda console: (
            Group(title, *pictures.decision(found, now, console.width))
            if full
            else decision_brief(found, title, now, console.width)
        ),
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
    """Write the changes of decisions since the requested instant, and further changes as they occur.

    End after `count` changes; 0 means no limit. Raises Fault when the core ends the stream.
    """
    if output is Form.NAME:
        raise no_names()
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
            _write_change(change, output, console)
            seen += 1
            if seen == count:
                return
    raise Fault(
        "the core ended the stream of decisions",
        where=core.address,
        advice="see whether it still runs: evenhand version",
        code=ExitCode.UNREACHABLE,
    )


def _write_change(change: pb.DecisionChange, output: Form, console: Console) -> None:
    if output.is_data:
        write_next(output, plain(change))
    else:
        console.print(pictures.change(change, console), soft_wrap=True)
