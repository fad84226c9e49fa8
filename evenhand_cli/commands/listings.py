"""What the core holds: partitions, applications, nodes, allocations."""

from collections.abc import Callable, Iterable
from typing import Annotated, Protocol, TypeVar

import grpc
import typer
from rich.console import Group

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli import terminal
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.output import Form, Output, plain_all, show
from evenhand_cli.render import tables

PAGE_SIZE = 1000

Partition = Annotated[
    str, typer.Option("--partition", "-p", help="Partition; `default` when not given.")
]
QueuePath = Annotated[
    str, typer.Option("--queue", "-q", metavar="PATH", help="Only this queue and those below it.")
]


class PagedRequest(Protocol):
    """A request for one page."""

    page_size: int
    page_token: str


class Page(Protocol):
    """An answer that may not be the last."""

    @property
    def next_page_token(self) -> str:
        """Empty on the last page."""


Request = TypeVar("Request", bound=PagedRequest)
Answer = TypeVar("Answer", bound=Page)
Row = TypeVar("Row")


@asks_core
def partitions(core: Core, output: Output = Form.TABLE) -> None:
    """Lists the partitions with their totals."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    found = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()).partitions
    show(output, {"partitions": plain_all(found)}, lambda _: tables.partitions(found))


@asks_core
def apps(
    core: Core,
    partition: Partition = "",
    queue: QueuePath = "",
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="Only this state; may be repeated.")
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Lists the applications in the order of their submission."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListApplicationsRequest(
        partition=partition, queue=queue, states=state or ()
    )
    found = every(core, stub.ListApplications, request, lambda page: page.applications)
    foot = tables.footer(len(found), "application")
    value = {"applications": plain_all(found)}
    show(output, value, lambda _: Group(tables.applications(found), foot))


@asks_core
def nodes(core: Core, partition: Partition = "", output: Output = Form.TABLE) -> None:
    """Lists the nodes with what is used of them."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListNodesRequest(partition=partition)
    found = every(core, stub.ListNodes, request, lambda page: page.nodes)
    foot = tables.footer(len(found), "node")
    show(output, {"nodes": plain_all(found)}, lambda _: Group(tables.nodes(found), foot))


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
    waiting = sum(one.state == inspect_pb2.ALLOCATION_STATE_WAITING for one in found)
    others = [f"{waiting:,} of them waiting"] if asks else []
    foot = tables.footer(len(found), "row" if asks else "allocation", others)
    value = {"allocations": plain_all(found)}
    show(output, value, lambda console: Group(tables.allocations(found, console), foot))


def every(
    core: Core,
    method: "grpc.UnaryUnaryMultiCallable[Request, Answer]",
    request: Request,
    rows: Callable[[Answer], Iterable[Row]],
) -> list[Row]:
    """All pages of a listing, one after the other. Raises Fault."""
    found: list[Row] = []
    request.page_size = PAGE_SIZE
    with terminal.patience(f"reading from {core.address}") as tell:
        while True:
            with core.faults():
                page = method(request, timeout=core.timeout_s, metadata=core.metadata)
            found += rows(page)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token
            tell(f"reading from {core.address}: {len(found):,} so far")
