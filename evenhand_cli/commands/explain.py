"""Why something waits, where something runs."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from evenhand.v1 import explain_pb2, explain_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from evenhand_cli.commands.listings import every
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import Fault
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, plain, show
from evenhand_cli.render.explanation import explanation


@asks_core
def explain(
    core: Core,
    key: Annotated[
        str, typer.Argument(help="Key of an ask or allocation, name of an application or node.")
    ],
    partition: Annotated[
        str, typer.Option("--partition", "-p", help="Partition; all when not given.")
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Says why an ask waits, or where an allocation runs."""
    stub = explain_pb2_grpc.ExplainServiceStub(core.channel)
    request = explain_pb2.ExplainRequest(partition=partition, key=key)
    answer = core.ask(stub.Explain, request)
    if answer.kind in (explain_pb2.SUBJECT_KIND_UNKNOWN, explain_pb2.SUBJECT_KIND_UNSPECIFIED):
        raise _unknown(core, key, partition)
    show(output, plain(answer), lambda _: explanation(answer))


def _unknown(core: Core, key: str, partition: str) -> Fault:
    return Fault(
        f"nothing has the key `{key}`: no ask, allocation, application or node",
        where=f"partition {partition}" if partition else f"core at {core.address}",
        advice=near_matches(key, _known(core, partition))
        or "list the keys with `evenhand allocations --asks`, `evenhand apps` or `evenhand nodes`",
    )


def _known(core: Core, partition: str) -> list[str]:
    """Every key and name that the caller may see, to find those that look alike."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    asks = inspect_pb2.ListAllocationsRequest(
        partition=partition, include_asks=True, include_foreign=True
    )
    apps = inspect_pb2.ListApplicationsRequest(partition=partition)
    nodes = inspect_pb2.ListNodesRequest(partition=partition)
    listings: Iterable[Callable[[], list[str]]] = (
        lambda: [
            one.allocation_key
            for one in every(core, stub.ListAllocations, asks, lambda page: page.allocations)
        ],
        lambda: [
            one.application_id
            for one in every(core, stub.ListApplications, apps, lambda page: page.applications)
        ],
        lambda: [
            one.node_id for one in every(core, stub.ListNodes, nodes, lambda page: page.nodes)
        ],
    )
    return [name for listing in listings for name in _or_none(listing)]


def _or_none(listing: Callable[[], list[str]]) -> list[str]:
    """A listing that the caller's role does not allow offers no names; the rest does."""
    try:
        return listing()
    except Fault:
        return []
