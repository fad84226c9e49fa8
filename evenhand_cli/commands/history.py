"""The commands `evenhand history`: usage, waits, pods, configurations, lost work and restarts of the past."""

from typing import Annotated

import typer

from evenhand.v1 import (
    history_pb2 as pb,
)
from evenhand.v1 import (
    history_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
)
from evenhand_cli import completion
from evenhand_cli.commands.filters import AnyPartition, OfPolicy
from evenhand_cli.commands.listings import Partition, QueuePath
from evenhand_cli.commands.past import as_lost_work
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.durations import instant_before
from evenhand_cli.output import Form, Output, plain, show
from evenhand_cli.render import history as pictures
from evenhand_cli.render import lost_work as lost

POINTS = 30
"""The number of bars in a sparkline."""
PAGE = 20

Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Start: a time before now, such as 2h or 7d, or an instant, such as 2026-11-24 14:30:00.",
    ),
]
Until = Annotated[
    str,
    typer.Option("--until", metavar="TIME", help="End, in the same forms; now when not given."),
]
All = Annotated[
    bool, typer.Option("--all", help="Show everything, even what does not fit the screen.")
]


@asks_core
def queue(
    core: Core,
    path: Annotated[
        str,
        typer.Argument(
            metavar="[QUEUE]",
            help="The queue; the root when not given.",
            autocompletion=completion.queues,
        ),
    ] = "",
    partition: Partition = "",
    since: Since = "1h",
    until: Until = "",
    output: Output = Form.TABLE,
) -> None:
    """Show what a queue used over time, and how long its pods waited.

    Examples:
        evenhand history queue root.research
        evenhand history queue root.research --since 7d

    """
    begin, end = _period(core, since, until)
    request = pb.GetQueueHistoryRequest(
        partition=partition, queue=path, since_ms=begin, until_ms=end, points=POINTS
    )
    answer = core.ask(_stub(core).GetQueueHistory, request)
    show(output, plain(answer), lambda console: pictures.queue(answer, console.width))


@asks_core
def pod(
    core: Core,
    name: Annotated[
        str, typer.Argument(metavar="POD", help="Name of a pod, as NAMESPACE/NAME or NAME, or key.")
    ],
    partition: AnyPartition = "",
    all_: All = False,
    output: Output = Form.TABLE,
) -> None:
    """Show the life of a pod: what it waited for, where it ran, and how it ended.

    Examples:
        evenhand history pod shop/web-1

    """
    request = pb.GetPodHistoryRequest(partition=partition, pod=name)
    answer = core.ask(_stub(core).GetPodHistory, request)
    full = all_ or output is Form.WIDE
    show(output, plain(answer), lambda _: pictures.pods(name, answer, full=full))


@asks_core
def waits(
    core: Core,
    partition: Partition = "",
    queue: QueuePath = "",
    since: Since = "1d",
    until: Until = "",
    all_: All = False,
    output: Output = Form.TABLE,
) -> None:
    """Show by queue how long pods waited for their places: median, 90th and 99th percentile.

    Pods that began to wait in this time count. A percentile is the waiting time of one of these pods, never a value between two
    of them.

    Examples:
        evenhand history waits --queue root.research
        evenhand history waits --since 7d

    """
    begin, end = _period(core, since, until)
    request = pb.GetWaitsRequest(partition=partition, queue=queue, since_ms=begin, until_ms=end)
    answer = core.ask(_stub(core).GetWaits, request)
    full = all_ or output is Form.WIDE
    show(output, plain(answer), lambda console: pictures.waits(answer, console.width, full=full))


@asks_core
def config(
    core: Core,
    since: Since = "",
    until: Until = "",
    all_: All = False,
    output: Output = Form.TABLE,
) -> None:
    """List the configurations that were in force: who applied each, what it changed, and what followed.

    The latest comes first; without --all there are at most 5.

    Examples:
        evenhand history config
        evenhand history config --since 7d --all

    """
    begin, end = _period(core, since, until)
    full = all_ or output is not Form.TABLE
    request = pb.ListConfigurationsRequest(
        since_ms=begin, until_ms=end, page_size=PAGE if full else 5
    )
    answer = core.ask(_stub(core).ListConfigurations, request)
    show(output, plain(answer), lambda _: pictures.configurations(answer, full=full))


@asks_core
def lost_work(
    core: Core,
    partition: AnyPartition = "",
    queue: QueuePath = "",
    policy: OfPolicy = "",
    since: Since = "1d",
    until: Until = "",
    all_: All = False,
    output: Output = Form.TABLE,
) -> None:
    """Show the work that evictions destroyed: by policy, by queue, by user and by application.

    Examples:
        evenhand history lost-work --since 7d
        evenhand history lost-work --queue root.research --all

    """
    begin, end = _period(core, since, until)
    request = pb.GetPastLostWorkRequest(
        partition=partition, queue=queue, policy=policy, since_ms=begin, until_ms=end
    )
    answer = core.ask(_stub(core).GetPastLostWork, request)
    found = as_lost_work(answer)
    full = all_ or output is Form.WIDE
    show(
        output,
        plain(answer),
        lambda console: lost.lost_work(
            found, console.width, narrowed=True, full=full, command="history lost-work"
        ),
    )


@asks_core
def failovers(
    core: Core, since: Since = "", until: Until = "", output: Output = Form.TABLE
) -> None:
    """List starts and ends of the core, and what its managers had before and after each.

    The latest comes first; the table has at most 20.

    Examples:
        evenhand history failovers
        evenhand history failovers --since 7d -o json

    """
    begin, end = _period(core, since, until)
    size = PAGE if output is Form.TABLE else 0
    request = pb.ListFailoversRequest(since_ms=begin, until_ms=end, page_size=size)
    answer = core.ask(_stub(core).ListFailovers, request)
    show(output, plain(answer), lambda console: pictures.failovers(answer, console.width))


def _stub(core: Core) -> history_pb2_grpc.HistoryServiceStub:
    return history_pb2_grpc.HistoryServiceStub(core.channel)


def _period(core: Core, since: str, until: str) -> tuple[int, int]:
    """Return start and end of a period by the core's clock. An instant that is not given is 0. Raises typer.BadParameter."""
    if not since and not until:
        return 0, 0
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    now = core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()).now_ms
    return instant_before(since, now), instant_before(until, now)


history = typer.Typer(
    help="Look at the past: usage, waits, pods, configurations, lost work and restarts, also of earlier runs of the core.",
    no_args_is_help=True,
    add_completion=False,
)
history.command("queue")(queue)
history.command("pod")(pod)
history.command("waits")(waits)
history.command("config")(config)
history.command("lost-work")(lost_work)
history.command("failovers")(failovers)
