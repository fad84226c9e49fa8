"""What a listing was narrowed to, looked at when nothing was found: a name that does not exist is a fault.

An empty listing of a queue that exists is an answer; one of a misspelled queue would be a wrong one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_cli.near import near_matches
from evenhand_cli.paging import every


@dataclass(frozen=True, slots=True)
class Filter:
    """An option `--queue`, `--app` or `--node` with its value; empty when it was not given."""

    option: str
    value: str


def check_filters(core: Core, partition: str, *filters: Filter) -> None:
    """Raises Fault for the first filter that names what does not exist."""
    for one in filters:
        if one.value:
            _check(one, KNOWN[one.option](core, partition))


def _check(one: Filter, known: Iterable[str]) -> None:
    names = list(known)
    if one.value in names:
        return
    noun = "application" if one.option == "app" else one.option
    raise Fault(
        f"there is no {noun} `{one.value}`",
        where=f"--{one.option}",
        advice=near_matches(one.value, names) or f"list them with `evenhand {one.option}s`",
    )


def _queues(core: Core, partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    tree = core.ask(stub.GetQueueTree, inspect_pb2.GetQueueTreeRequest(partition=partition)).tree
    below = [tree.root]
    while below:
        queue = below.pop()
        yield queue.path
        below += queue.children


def _applications(core: Core, partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListApplicationsRequest(partition=partition)
    found = every(core, stub.ListApplications, request, lambda page: page.applications)
    return (one.application_id for one in found)


def _nodes(core: Core, partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListNodesRequest(partition=partition)
    return (one.node_id for one in every(core, stub.ListNodes, request, lambda page: page.nodes))


KNOWN: dict[str, Callable[[Core, str], Iterable[str]]] = {
    "queue": _queues,
    "app": _applications,
    "node": _nodes,
}
