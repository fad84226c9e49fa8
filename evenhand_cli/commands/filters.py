"""Options that narrow a listing.

When a listing is empty, the names in its options are checked: a name that does not exist is a fault. For an existing
queue, an empty listing is a correct answer; for a misspelled name, an empty listing would mislead the user.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli import completion
from evenhand_cli.completion import POD_NAMESPACE
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_cli.near import near_matches
from evenhand_cli.paging import every
from server.model.reasons import Code

POD_LABEL = "kubernetes.io/label/"
APPLICATION_NAMESPACE = "namespace"
_PRIORITY = re.compile(r"(-?\d{1,10})?(\.\.)?(-?\d{1,10})?")

AnyPartition = Annotated[
    str,
    typer.Option(
        "--partition",
        "-p",
        metavar="NAME",
        help="Only this partition; all partitions when not given.",
        autocompletion=completion.partitions,
    ),
]
OfPolicy = Annotated[
    str, typer.Option("--policy", metavar="NAME", help="Only decisions of this policy.")
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Only pods and applications of this namespace.",
        autocompletion=completion.namespaces,
    ),
]
User = Annotated[
    str,
    typer.Option(
        "--user",
        metavar="NAME",
        help="Only applications of this user, and their pods.",
        autocompletion=completion.users,
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="KEY[=VALUE]",
        help="Only nodes or pods with this label; may be repeated, and then each of the labels is required.",
    ),
]
Waiting = Annotated[
    bool, typer.Option("--waiting", help="Only asks that wait, or applications with such asks.")
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="CODE",
        help="Only asks that wait for this reason, such as no-node, or applications with such asks.",
        autocompletion=completion.words(Code),
    ),
]
PriorityRange = Annotated[
    str,
    typer.Option(
        "--priority",
        metavar="N|N..|..N|N..M",
        help="Only pods with this priority, or in a range: N.. is N and higher, ..N is N and lower, N..M is from N "
        "to M.",
    ),
]


@dataclass(frozen=True, slots=True)
class Filter:
    """An option of `KNOWN`, such as `--queue`, with its value. The value is empty when the option was not given."""

    option: str
    value: str


def check_filters(core: Core, partition: str, *filters: Filter) -> None:
    """Raise Fault for the first filter whose value is unknown.

    A value is unknown if no object has this name, or if the core has no such reason.
    """
    for one in filters:
        if one.value:
            _check(one, KNOWN[one.option](core, partition), core, partition)


def _check(one: Filter, known: Iterable[str], core: Core, partition: str) -> None:
    names = list(known)
    if one.value in names:
        return
    noun = "application" if one.option == "app" else one.option
    advice = near_matches(one.value, names) or LISTED.get(one.option, "")
    if one.option == "namespace" and one.value in _nodes_or_none(core, partition):
        advice = f"-n means --namespace; a node is named by --node {one.value}"
    raise Fault(f"there is no {noun} `{one.value}`", where=f"--{one.option}", advice=advice)


def has_labels(labels: Mapping[str, str], wanted: Sequence[str], prefix: str = "") -> bool:
    """Return whether all wanted labels are present: `KEY` with any value, `KEY=VALUE` with this value."""
    for one in wanted:
        key, equals, value = one.partition("=")
        if prefix + key not in labels or (equals and labels[prefix + key] != value):
            return False
    return True


def check_labels(wanted: Sequence[str]) -> None:
    """Raise typer.BadParameter for a label without a key."""
    for one in wanted:
        if not one.partition("=")[0]:
            raise typer.BadParameter(f"`{one}` is not KEY or KEY=VALUE", param_hint="'--label'")


def priorities(text: str) -> Callable[[int], bool]:
    """Return a function that checks whether a priority is in the range that the text describes.

    Raises typer.BadParameter.
    """
    parts = _PRIORITY.fullmatch(text.strip())
    if parts is None or (text and not (parts[1] or parts[3])):
        raise typer.BadParameter(
            f"`{text}` is not a priority or a range, such as 100, 100.. or 0..99",
            param_hint="'--priority'",
        )
    if not parts[2]:
        wanted = parts[1]
        return lambda one: not wanted or one == int(wanted)
    least, most = parts[1], parts[3]
    return lambda one: (not least or one >= int(least)) and (not most or one <= int(most))


def applications_of(core: Core, partition: str, user: str) -> frozenset[str]:
    """Return the ids of a user's applications."""
    return frozenset(
        one.application_id for one in _all_applications(core, partition) if one.user == user
    )


def _all_applications(core: Core, partition: str) -> list[inspect_pb2.Application]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListApplicationsRequest(partition=partition)
    return every(core, stub.ListApplications, request, lambda page: page.applications)


def _applications(core: Core, partition: str) -> Iterator[str]:
    return (one.application_id for one in _all_applications(core, partition))


def _users(core: Core, partition: str) -> Iterator[str]:
    return (one.user for one in _all_applications(core, partition))


def _nodes(core: Core, partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListNodesRequest(partition=partition)
    return (one.node_id for one in every(core, stub.ListNodes, request, lambda page: page.nodes))


def _nodes_or_none(core: Core, partition: str) -> list[str]:
    """Return the names of the nodes, or no names if the user may not see nodes."""
    try:
        return list(_nodes(core, partition))
    except Fault:
        return []


def _namespaces(core: Core, partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(partition=partition, include_asks=True)
    for pod in every(core, stub.ListAllocations, request, lambda page: page.allocations):
        yield pod.tags.get(POD_NAMESPACE, "")
    for one in _all_applications(core, partition):
        yield one.tags.get(APPLICATION_NAMESPACE, "")


KNOWN: dict[str, Callable[[Core, str], Iterable[str]]] = {
    "queue": completion.queue_paths,
    "app": _applications,
    "node": _nodes,
    "namespace": _namespaces,
    "user": _users,
    "reason": lambda _core, _partition: [*Code],
}
LISTED = {
    "queue": "list them with `evenhand queues`",
    "app": "list them with `evenhand apps`",
    "node": "list them with `evenhand nodes`",
    "namespace": "it has no pod that the core knows; list all with `evenhand allocations --asks`",
    "user": "list the users with `evenhand apps`",
    "reason": "the column `waits for` has the reasons",
}
