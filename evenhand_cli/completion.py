"""Completion of names in the shell.

The names come from the running core, which has half a second to answer each request. When no core answers, or the
core refuses the request, the shell gets no names and no message.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, suppress
from pathlib import Path

import typer

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core, connected_core
from evenhand_cli.contexts import FIELDS, Context
from evenhand_cli.escaping import acts, escaped
from evenhand_cli.faults import Fault

TIMEOUT_S = 0.5
NAMES_MAX = 5_000
"""Maximum number of names of one kind that are requested, which is the size of one page of a listing."""
POD_NAME = "kubernetes.io/meta/podName"
POD_NAMESPACE = "kubernetes.io/meta/namespace"

Ask = Callable[[Core, str], Iterable[str]]


def _answered(ctx: typer.Context, *asked: Ask) -> list[str]:
    """Return those names in the core's answers that a shell can show, sorted.

    If the core does not answer a request, or refuses the request, only the names from earlier requests are returned.
    """
    found: list[str] = []
    given = {name: str(ctx.params.get(name) or "") for name in FIELDS.values()}
    name = ctx.params.get("context") or ""
    with (
        redirect_stderr(io.StringIO()),
        suppress(Fault),
        connected_core(Context(**given), name, TIMEOUT_S) as core,
    ):
        for ask in asked:
            found += ask(core, ctx.params.get("partition") or "")
    return sorted({one for one in found if not acts(one)})


def words(choices: Iterable[str]) -> Callable[[], list[str]]:
    """Return a completion function for an option that accepts one of these words.

    The words are in lower case, with hyphens for blanks.
    """
    known = [one.strip().lower().replace(" ", "-") for one in choices]
    return known.copy


def queues(ctx: typer.Context) -> list[str]:
    """Complete paths of queues."""
    return _answered(ctx, queue_paths)


def nodes(ctx: typer.Context) -> list[str]:
    """Complete names of nodes."""
    return _answered(ctx, _nodes)


def applications(ctx: typer.Context) -> list[str]:
    """Complete ids of applications."""
    return _answered(ctx, _applications)


def users(ctx: typer.Context) -> list[str]:
    """Complete names of users who have applications."""
    return _answered(ctx, _users)


def namespaces(ctx: typer.Context) -> list[str]:
    """Complete namespaces that have pods."""
    return _answered(ctx, _namespaces)


def partitions(ctx: typer.Context) -> list[str]:
    """Complete names of partitions."""
    return _answered(ctx, _partitions)


def decisions(ctx: typer.Context) -> list[str]:
    """Complete ids of decisions."""
    return _answered(ctx, _decisions)


def stories(ctx: typer.Context) -> list[tuple[str, str]]:
    """Complete the numbers of the stories in the file that the command line names, each with its title.

    This completion needs no core.
    """
    from evenhand_cli.files import read_text  # noqa: PLC0415 - other completions need no stories
    from evenhand_cli.story.reading import read_examples  # noqa: PLC0415

    # If an option without its value comes earlier, the arguments are not assigned to their
    # parameters yet.
    file = ctx.params.get("file") or next(iter(ctx.args), "")
    if str(file) in {"", "-"}:
        return []
    try:
        found = read_examples(read_text(Path(file), ""), str(file))
    except Fault:
        return []
    return [(str(one.number), escaped(one.title)) for one in found]


def keys(ctx: typer.Context) -> list[str]:
    """Complete the names of everything that can be explained: pods, queues, applications, decisions, nodes."""
    return _answered(ctx, _pods, queue_paths, _applications, _decisions, _nodes)


def queue_paths(core: Core, partition: str) -> Iterator[str]:
    """Yield the paths of all queues of a partition. Raises Fault if the core does not answer or refuses."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    tree = core.ask(stub.GetQueueTree, inspect_pb2.GetQueueTreeRequest(partition=partition)).tree
    below = [tree.root]
    while below:
        queue = below.pop()
        yield queue.path
        below += queue.children


def _nodes(core: Core, partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListNodesRequest(partition=partition, page_size=NAMES_MAX)
    return (one.node_id for one in core.ask(stub.ListNodes, request).nodes)


def _apps(core: Core, partition: str) -> Iterable[inspect_pb2.Application]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListApplicationsRequest(partition=partition, page_size=NAMES_MAX)
    return core.ask(stub.ListApplications, request).applications


def _applications(core: Core, partition: str) -> Iterator[str]:
    return (one.application_id for one in _apps(core, partition))


def _users(core: Core, partition: str) -> Iterator[str]:
    return (one.user for one in _apps(core, partition) if one.user)


def _allocations(core: Core, partition: str) -> Iterable[inspect_pb2.Allocation]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(
        partition=partition, include_asks=True, page_size=NAMES_MAX
    )
    return core.ask(stub.ListAllocations, request).allocations


def _pods(core: Core, partition: str) -> Iterator[str]:
    for one in _allocations(core, partition):
        name = one.tags.get(POD_NAME, "")
        yield f"{one.tags.get(POD_NAMESPACE, 'default')}/{name}" if name else one.allocation_key


def _namespaces(core: Core, partition: str) -> Iterator[str]:
    found = (one.tags.get(POD_NAMESPACE, "") for one in _allocations(core, partition))
    return (one for one in found if one)


def _partitions(core: Core, _partition: str) -> Iterator[str]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    answer = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest())
    return (one.name for one in answer.partitions)


def _decisions(core: Core, partition: str) -> Iterator[str]:
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    request = decisions_pb2.ListDecisionsRequest(partition=partition, page_size=NAMES_MAX)
    return (one.decision_id for one in core.ask(stub.ListDecisions, request).decisions)
