"""The tree of queues, once or live."""

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.live import Live

from evenhand.v1 import (
    inspect_pb2,
    inspect_pb2_grpc,
    reports_pb2,
    reports_pb2_grpc,
    watch_pb2,
    watch_pb2_grpc,
)
from evenhand_cli import terminal
from evenhand_cli.commands.listings import Partition
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, plain, show, write_json_line
from evenhand_cli.render import queues as picture
from evenhand_cli.render import reports

WATCH_INTERVAL_MS = 250


@asks_core
def queues(
    core: Core,
    path: Annotated[
        str, typer.Argument(metavar="QUEUE", help="Only this queue and those below it.")
    ] = "",
    partition: Partition = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the changes.")] = False,
    unmet: Annotated[
        bool,
        typer.Option(
            "--unmet",
            help="Only queues below their guarantee with waiting asks: what binds them, what would cure it.",
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Shows the tree of queues: usage, guarantee, max, head-room, what waits.

    Why a queue does not get what it is guaranteed: evenhand queues --unmet root.research
    """
    if unmet:
        _unmet(core, partition, path, watch, output)
        return
    if watch:
        _follow(core, partition, path, output)
        return
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    tree = core.ask(stub.GetQueueTree, inspect_pb2.GetQueueTreeRequest(partition=partition)).tree
    partitions = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()).partitions
    capacity: Mapping[str, int] = next(
        (one.capacity for one in partitions if one.name == tree.partition), {}
    )
    root, limits = below(tree.root, capacity, path)
    tree.root.CopyFrom(root)
    value = plain(tree) | core.pictures.value()
    show(output, value, lambda console: picture.tree(root, limits, console, tree.taken_at_ms))


def _unmet(core: Core, partition: str, path: str, watch: bool, output: Form) -> None:
    """The report of guarantees that are not met; the planner is asked, so that it may take a while."""
    if watch:
        raise Fault(
            "--unmet and --watch do not go together",
            where="--unmet",
            advice="ask again when something has changed",
            code=ExitCode.USAGE,
        )
    stub = reports_pb2_grpc.ReportServiceStub(core.channel)
    request = reports_pb2.GetUnmetGuaranteesRequest(partition=partition, queue=path)
    answer = core.ask(stub.GetUnmetGuarantees, request)
    show(output, plain(answer), lambda console: reports.unmet(answer, console.width))


def below(
    root: inspect_pb2.Queue, capacity: Mapping[str, int], path: str
) -> tuple[inspect_pb2.Queue, Mapping[str, int]]:
    """The queue at a path, with the limits from above it. Raises Fault with near matches."""
    found = list(picture.rows(root, capacity))
    for row in found:
        if row.queue.path == (path or root.path):
            return row.queue, row.limits
    paths = [row.queue.path for row in found]
    raise Fault(
        f"there is no queue `{path}`",
        where="argument QUEUE",
        advice=near_matches(path, paths) or "list them with `evenhand queues`",
    )


def _follow(core: Core, partition: str, path: str, output: Form) -> None:
    stub = watch_pb2_grpc.WatchServiceStub(core.channel)
    request = watch_pb2.WatchQueuesRequest(partition=partition, min_interval_ms=WATCH_INTERVAL_MS)
    console = terminal.results()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        for answer in core.follow(stub.WatchQueues, request):
            root, limits = below(answer.tree.root, answer.summary.capacity, path)
            if output is Form.JSON:
                write_json_line(plain(answer.tree) | {"root": plain(root)})
            else:
                now = answer.tree.taken_at_ms
                live.update(picture.tree(root, limits, console, now), refresh=True)
    raise Fault(
        "the core ended the stream",
        where=core.address,
        advice="see whether it still runs: evenhand health",
        code=ExitCode.UNREACHABLE,
    )
