"""What the core holds: partitions, applications, nodes, allocations."""

from typing import Annotated

import typer
from rich.console import Group

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.commands.filters import Filter, check_filters
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.output import Form, Output, plain_all, show
from evenhand_cli.paging import every
from evenhand_cli.render import tables
from server.model.decisions import ApplicationState

Partition = Annotated[
    str, typer.Option("--partition", "-p", help="Partition; `default` when not given.")
]
QueuePath = Annotated[
    str, typer.Option("--queue", "-q", metavar="PATH", help="Only this queue and those below it.")
]


@asks_core
def partitions(core: Core, output: Output = Form.TABLE) -> None:
    """Lists the partitions with their totals."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    found = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()).partitions
    value = {"partitions": plain_all(found)} | core.pictures.value()
    show(output, value, lambda _: tables.partitions(found))


@asks_core
def apps(
    core: Core,
    partition: Partition = "",
    queue: QueuePath = "",
    state: Annotated[
        list[ApplicationState] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            case_sensitive=False,
            help="Only this state, such as running; may be repeated.",
        ),
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Lists the applications in the order of their submission."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListApplicationsRequest(
        partition=partition, queue=queue, states=state or ()
    )
    found = every(core, stub.ListApplications, request, lambda page: page.applications)
    if not found:
        check_filters(core, partition, Filter("queue", queue))
    foot = tables.footer(len(found), "application")
    value = {"applications": plain_all(found)} | core.pictures.value()
    show(output, value, lambda console: Group(tables.applications(found, console.width), foot))


@asks_core
def nodes(core: Core, partition: Partition = "", output: Output = Form.TABLE) -> None:
    """Lists the nodes with what is used of them."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListNodesRequest(partition=partition)
    found = every(core, stub.ListNodes, request, lambda page: page.nodes)
    foot = tables.footer(len(found), "node")
    show(
        output,
        {"nodes": plain_all(found)} | core.pictures.value(),
        lambda console: Group(tables.nodes(found, console.width), foot),
    )


@asks_core
def allocations(
    core: Core,
    partition: Partition = "",
    queue: QueuePath = "",
    app: Annotated[str, typer.Option("--app", "-a", help="Only this application.")] = "",
    node: Annotated[str, typer.Option("--node", "-n", help="Only this node.")] = "",
    asks: Annotated[bool, typer.Option("--asks", help="Waiting asks too.")] = False,
    foreign: Annotated[bool, typer.Option("--foreign", help="Those of others too.")] = False,
    output: Output = Form.TABLE,
) -> None:
    """Lists the allocations and, if wanted, the waiting asks."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(
        partition=partition,
        queue=queue,
        application_id=app,
        node_id=node,
        include_asks=asks,
        include_foreign=foreign,
    )
    found = every(core, stub.ListAllocations, request, lambda page: page.allocations)
    if not found:
        filters = Filter("queue", queue), Filter("app", app), Filter("node", node)
        check_filters(core, partition, *filters)
    waiting = sum(one.state == inspect_pb2.ALLOCATION_STATE_WAITING for one in found)
    others = [f"{waiting:,} of them waiting"] if asks else []
    foot = tables.footer(len(found), "row" if asks else "allocation", others)
    value = {"allocations": plain_all(found)} | core.pictures.value()
    show(output, value, lambda console: Group(tables.allocations(found, console.width), foot))
