"""The command `evenhand events`: the events that the core keeps in memory, and new events as they occur."""

import enum
from collections import deque
from typing import Annotated

import typer

from evenhand.v1 import watch_pb2, watch_pb2_grpc
from evenhand_cli import completion, terminal
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, console_for, plain, write_next
from evenhand_cli.render import findings
from evenhand_cli.render.listing import none_of
from evenhand_cli.render.words import plural


class Kind(enum.StrEnum):
    """The kinds of events, with the words of the JSON output."""

    PLACED = "placed"
    RELEASED = "released"
    REJECTED = "rejected"
    WAITING = "waiting"
    ALLOCATION = "allocation"
    ASK = "ask"
    APPLICATION = "application"
    NODE = "node"
    QUEUE = "queue"
    MANAGER = "manager"
    CONFIGURATION = "configuration"
    DECISION = "decision"
    SHADOW = "shadow"


@asks_core
def events(
    core: Core,
    since: Annotated[
        int,
        typer.Option(
            "--since",
            min=0,
            metavar="NUMBER",
            help="Only events whose number is greater than this one; all events when not given.",
        ),
    ] = 0,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            metavar="KIND",
            help=f"Only events of this kind; may be repeated. The kinds are {', '.join(Kind)}.",
            autocompletion=completion.words(Kind),
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            min=0,
            metavar="N",
            help="Show only the last N events; with --follow, end after N events. 0, the default, means no limit.",
        ),
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write new events when they occur, until Ctrl-C.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """List the core's events, oldest first.

    The core holds the last 10,000 events since its start. Each event has a number, to which --since refers. With
    --output json each event is one object on one line.

    Examples:
        evenhand events --count 20
        evenhand events --kind rejected --kind decision
        evenhand events --follow --since 1200

    """
    for one in kind or ():
        if one not in list(Kind):
            raise Fault(
                f"there is no kind of event `{one}`",
                where="--kind",
                advice=near_matches(one, Kind) or f"there are {', '.join(Kind)}",
                code=ExitCode.USAGE,
            )
    request = watch_pb2.WatchEventsRequest(since=since, kinds=kind or (), held_only=not follow)
    if follow:
        _follow(core, request, count, output)
    else:
        _list(core, request, count, output)


def _list(core: Core, request: watch_pb2.WatchEventsRequest, count: int, output: Form) -> None:
    """Write all events that the core keeps in memory, or the last `count` of them."""
    stub = watch_pb2_grpc.WatchServiceStub(core.channel)
    held: deque[watch_pb2.EventRecord] = deque(maxlen=count or None)
    for answer in core.follow(stub.WatchEvents, request, timeout_s=core.timeout_s):
        _tell_missed(answer)
        held.extend(answer.events)
    for record in held:
        _write(record, output)
    if not held and not output.is_data and output is not Form.NAME:
        then = "evenhand events --follow waits for what comes"
        terminal.line(none_of("event", then, kind=list(request.kinds), since=_given(request.since)))


def _given(since: int) -> str:
    return str(since) if since else ""


def _follow(core: Core, request: watch_pb2.WatchEventsRequest, count: int, output: Form) -> None:
    """Write events as they occur. End after `count` events; 0 means no limit. Raises Fault when the core ends the stream."""
    stub = watch_pb2_grpc.WatchServiceStub(core.channel)
    seen = 0
    for answer in core.follow(stub.WatchEvents, request):
        _tell_missed(answer)
        for record in answer.events:
            _write(record, output)
            seen += 1
            if seen == count:
                return
    raise Fault(
        "the core ended the stream of events",
        where=core.address,
        advice="see whether it still runs: evenhand version",
        code=ExitCode.UNREACHABLE,
    )


def _tell_missed(answer: watch_pb2.WatchEventsResponse) -> None:
    if answer.missed:
        terminal.say(
            f"{plural(answer.missed, 'event', 'were')} missed: the core no longer had them"
        )


def _write(record: watch_pb2.EventRecord, output: Form) -> None:
    if output.is_data:
        write_next(output, plain(record))
    elif output is Form.NAME:
        terminal.line(record.name or record.object)
    else:
        console = console_for(output)
        console.print(findings.event(record, console), soft_wrap=True)
