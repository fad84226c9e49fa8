"""The commands that list partitions, applications, nodes and allocations."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli import completion, terminal
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.commands.filters import (
    APPLICATION_NAMESPACE,
    POD_LABEL,
    Filter,
    Labels,
    Namespace,
    PriorityRange,
    Reason,
    User,
    Waiting,
    applications_of,
    check_filters,
    check_labels,
    has_labels,
    priorities,
)
from evenhand_cli.completion import POD_NAMESPACE
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.lists import lists
from evenhand_cli.near import near_matches
from evenhand_cli.output import plain, word
from evenhand_cli.paging import every
from evenhand_cli.render import tables
from evenhand_cli.render.listing import Listing, none_of
from evenhand_cli.render.summary import summary
from server.model.decisions import ApplicationState

Partition = Annotated[
    str,
    typer.Option(
        "--partition",
        "-p",
        metavar="NAME",
        help="Only this partition; the partition `default` when not given.",
        autocompletion=completion.partitions,
    ),
]
QueuePath = Annotated[
    str,
    typer.Option(
        "--queue",
        "-q",
        metavar="PATH",
        help="Only this queue and the queues below it.",
        autocompletion=completion.queues,
    ),
]
REGISTERS = "a resource manager registers them: evenhand shim"
NODE_STATES = ("ready", "draining")
STATES = tuple(
    word(inspect_pb2.AllocationState.DESCRIPTOR, number)
    for number in inspect_pb2.AllocationState.values()
    if number
)
WAITING = ("waiting", "pledged")
"""States of an ask."""


@asks_core
@lists("waiting", tables.PARTITIONS)
def partitions(core: Core) -> Listing[inspect_pb2.Partition]:
    """List the partitions with their counts, and how much of each resource type is used.

    Examples:
        evenhand partitions
        evenhand partitions --output json

    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    found = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()).partitions
    return Listing(
        "partitions",
        found,
        tables.PARTITIONS,
        lambda one: one.name,
        plain,
        draw=lambda rows, console, headers: tables.partitions(rows, console.width, headers=headers),
    )


@asks_core
@lists("waits-for", tables.APPLICATIONS)
def apps(
    core: Core,
    partition: Partition = "",
    queue: QueuePath = "",
    namespace: Namespace = "",
    user: User = "",
    state: Annotated[
        list[ApplicationState] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            case_sensitive=False,
            help="Only applications in this state, such as running; may be repeated.",
        ),
    ] = None,
    waiting: Waiting = False,
    reason: Reason = "",
) -> Listing[inspect_pb2.Application]:
    """List the applications and their states, in the order of submission.

    Examples:
        evenhand apps --waiting
        evenhand apps --reason no-node --state running
        evenhand apps --queue root.research --user ada --sort-by -waiting

    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListApplicationsRequest(
        partition=partition, queue=queue, states=state or ()
    )
    every_one = every(core, stub.ListApplications, request, lambda page: page.applications)
    found = [
        one
        for one in every_one
        if namespace in {"", one.tags.get(APPLICATION_NAMESPACE, "")}
        and user in {"", one.user}
        and (one.asks_waiting or not waiting)
        and (not reason or reason in {each.code for each in one.waiting_reasons})
    ]
    if not found:
        named = {"reason": reason, "queue": queue, "namespace": namespace, "user": user}
        check_filters(core, partition, *(Filter(*one) for one in named.items()))
    foot = tables.footer(len(found), "application")
    return Listing(
        "applications",
        found,
        tables.APPLICATIONS,
        lambda one: one.application_id,
        plain,
        foot=lambda: [foot],
        none=none_of(
            "application",
            partition=partition,
            queue=queue,
            namespace=namespace,
            user=user,
            state=state,
            waiting=waiting,
            reason=reason,
        ),
    )


@asks_core
@lists("running", tables.node_fields(("vcore", "memory")))
def nodes(
    core: Core,
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="Only this node; all nodes when not given.",
            autocompletion=completion.nodes,
        ),
    ] = "",
    partition: Partition = "",
    label: Labels = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only nodes in this state, ready or draining; may be repeated.",
            autocompletion=completion.words(NODE_STATES),
        ),
    ] = None,
) -> Listing[inspect_pb2.Node]:
    """List the nodes and how much of each is used.

    `evenhand explain NODE` shows what runs on a node.

    Examples:
        evenhand nodes gpu-1
        evenhand nodes --label zone=a --state draining
        evenhand nodes --sort-by -cores

    """
    check_labels(label or ())
    _check_states(state or (), NODE_STATES)
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListNodesRequest(partition=partition)
    every_one = every(core, stub.ListNodes, request, lambda page: page.nodes)
    if node and node not in {one.node_id for one in every_one}:
        names = [one.node_id for one in every_one]
        advice = near_matches(node, names) or "list them with `evenhand nodes`"
        raise Fault(f"there is no node `{node}`", where="argument NODE", advice=advice)
    found = [
        one
        for one in every_one
        if node in {"", one.node_id}
        and has_labels(one.labels, label or ())
        and (not state or ("ready" if one.schedulable else "draining") in state)
    ]
    foot = tables.footer(len(found), "node")
    none = none_of("node", REGISTERS, node=node, partition=partition, label=label, state=state)
    fields, name = tables.nodes(found), attrgetter("node_id")
    return Listing("nodes", found, fields, name, plain, foot=lambda: [foot], none=none)


@asks_core
@lists("waits-for", tables.allocation_fields(named=True))
def allocations(
    core: Core,
    partition: Partition = "",
    queue: QueuePath = "",
    app: Annotated[
        str,
        typer.Option(
            "--app",
            "-a",
            metavar="ID",
            help="Only allocations of this application.",
            autocompletion=completion.applications,
        ),
    ] = "",
    node: Annotated[
        str,
        typer.Option(
            "--node",
            metavar="NAME",
            help="Only allocations on this node.",
            autocompletion=completion.nodes,
        ),
    ] = "",
    namespace: Namespace = "",
    user: User = "",
    label: Labels = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only allocations in this state: waiting, pledged, allocated, releasing or foreign; may be repeated.",
            autocompletion=completion.words(STATES),
        ),
    ] = None,
    priority: PriorityRange = "",
    protection: Annotated[
        list[str] | None,
        typer.Option(
            "--protection",
            metavar="LEVEL",
            help="Only pods with this protection from preemption: normal, prefer-not (opted out), firm or untouchable; "
            "may be repeated.",
            autocompletion=completion.words(tables.PROTECTIONS),
        ),
    ] = None,
    asks: Annotated[bool, typer.Option("--asks", help="List waiting asks too.")] = False,
    waiting: Waiting = False,
    reason: Reason = "",
    foreign: Annotated[
        bool, typer.Option("--foreign", help="List pods of other schedulers too.")
    ] = False,
    together: Annotated[
        bool,
        typer.Option(
            "--summary",
            help="List equal pods together: one entry for each queue, state and protection.",
        ),
    ] = False,
) -> Listing[inspect_pb2.Allocation]:
    """List the allocations, which are pods with a node, and on request the waiting asks.

    Examples:
        evenhand allocations --waiting --queue root.research
        evenhand allocations -n science --label team=vision --sort-by -priority
        evenhand allocations --node gpu-1 -o name
        evenhand allocations --protection prefer-not --protection firm --summary

    """
    check_labels(label or ())
    _check_states(state or (), STATES)
    _check_protections(protection or ())
    if state:
        refuse_without("--state foreign", foreign=foreign and "foreign" not in state)
        refuse_without("--state waiting", asks=asks and not set(WAITING).intersection(state))
    if waiting:
        refuse_together("--waiting", foreign=foreign)
    in_range = priorities(priority)
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(
        partition=partition,
        queue=queue,
        application_id=app,
        node_id=node,
        include_asks=asks or bool(waiting or reason or set(WAITING).intersection(state or ())),
        include_foreign=foreign or "foreign" in (state or ()),
    )
    every_one = every(core, stub.ListAllocations, request, lambda page: page.allocations)
    applications = applications_of(core, partition, user) if user else None
    found = [
        one
        for one in every_one
        if namespace in {"", one.tags.get(POD_NAMESPACE, "")}
        and (applications is None or one.application_id in applications)
        and has_labels(one.tags, label or (), POD_LABEL)
        and (not state or _state_of(one) in state)
        and (not waiting or _state_of(one) in WAITING)
        and reason in {"", one.waiting_code}
        and in_range(one.priority)
        and (not protection or tables.protection(one) in protection)
    ]
    if not found:
        named = {
            "reason": reason,
            "queue": queue,
            "app": app,
            "node": node,
            "namespace": namespace,
            "user": user,
        }
        check_filters(core, partition, *(Filter(*one) for one in named.items()))
    fields = tables.allocations(found)
    foot = _counted(found, asks=request.include_asks, waiting=waiting or bool(reason))
    none = none_of(
        "allocation",
        partition=partition,
        queue=queue,
        app=app,
        node=node,
        namespace=namespace,
        user=user,
        label=label,
        state=state,
        priority=priority,
        protection=protection,
        waiting=waiting,
        reason=reason,
    )
    listing = Listing(
        "allocations", found, fields, tables.name_of, plain, foot=lambda: [foot], none=none
    )
    if not (together and found):
        return listing
    return replace(
        listing,
        draw=lambda rows, console, headers: Group(
            summary(rows, full=console.width >= terminal.UNLIMITED), *([foot] if headers else [])
        ),
    )


def _counted(found: Sequence[inspect_pb2.Allocation], *, asks: bool, waiting: bool) -> Text:
    if waiting:
        return tables.footer(len(found), "waiting ask")
    wait = sum(one.state in tables.WAITING_STATES for one in found)
    others = [f"{wait:,} of them waiting"] if asks else []
    return tables.footer(len(found), "row" if asks else "allocation", others)


def _state_of(one: inspect_pb2.Allocation) -> str:
    return word(inspect_pb2.AllocationState.DESCRIPTOR, one.state)


def _check_protections(wanted: Sequence[str]) -> None:
    """Raise Fault when a level of protection does not exist."""
    for one in wanted:
        if one not in tables.PROTECTIONS:
            raise Fault(
                f"there is no protection `{one}`",
                where="--protection",
                advice=near_matches(one, tables.PROTECTIONS)
                or f"write one of {', '.join(tables.PROTECTIONS)}",
                code=ExitCode.USAGE,
            )


def _check_states(wanted: Sequence[str], known: Sequence[str]) -> None:
    """Raise typer.BadParameter when a state does not exist."""
    for one in wanted:
        if one not in known:
            near = near_matches(one, known)
            advice = f"; {near}" if near else ""
            raise typer.BadParameter(
                f"`{one}` is no state: there are {', '.join(known)}{advice}",
                param_hint="'--state'",
            )
