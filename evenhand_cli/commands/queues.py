"""The command `evenhand queues`: the tree of queues, shown once or kept up to date."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from evenhand.v1 import (
    inspect_pb2,
    inspect_pb2_grpc,
    reports_pb2,
    reports_pb2_grpc,
    watch_pb2,
    watch_pb2_grpc,
)
from evenhand_cli import completion
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.commands.listings import Partition
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.lists import (
    NoHeaders,
    Shape,
    Watch,
    pictures,
    sorting,
    write_names,
)
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, console_for, plain, plain_all, show, write_next
from evenhand_cli.paging import every
from evenhand_cli.render import queue_settings, reports
from evenhand_cli.render import queues as picture
from evenhand_cli.render.tables import pod_name

WATCH_INTERVAL_MS = 250
UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


@asks_core
def queues(
    core: Core,
    path: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE",
            help="Only this queue and the queues below it; all queues when not given.",
            autocompletion=completion.queues,
        ),
    ] = "",
    partition: Partition = "",
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only queues in which asks or applications wait.")
    ] = False,
    unmet: Annotated[
        bool,
        typer.Option(
            "--unmet",
            help="Instead: show queues below their guarantee with waiting asks, what prevents these asks, and what "
            "would help.",
        ),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help="With --unmet: show all queues and all groups of asks, even when they do not fit the screen.",
        ),
    ] = False,
    settings: Annotated[
        bool,
        typer.Option(
            "--settings",
            help="Instead: show the settings of each queue, and where each value comes from.",
        ),
    ] = False,
    output: Output = Form.TABLE,
    sort_by: Annotated[str, sorting("used", picture.SORTED_BY)] = "",
    no_headers: NoHeaders = False,
    watch: Watch = False,
) -> None:
    """Show the tree of queues: usage, guarantee, max, headroom, and how much waits.

    --sort-by sorts the children of each queue.

    Examples:
        evenhand queues root.research
        evenhand queues --waiting --watch
        evenhand queues --unmet root.research

    """
    core = core.owning(partition)
    if settings:
        refuse_together(
            "--settings",
            unmet=unmet,
            all=whole,
            watch=watch,
            sort_by=sort_by,
            waiting=waiting,
            no_headers=no_headers,
        )
        _settings(core, partition, path, output)
        return
    if unmet:
        refuse_together(
            "--unmet", watch=watch, sort_by=sort_by, waiting=waiting, no_headers=no_headers
        )
        _unmet(core, partition, path, output, whole=whole or output is Form.WIDE)
        return
    refuse_without("--unmet", all=whole)
    shape = _Shape(path, Shape(output, sort_by, not no_headers), waiting)
    if watch:
        _follow(core, partition, shape)
        return
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    tree = core.ask(stub.GetQueueTree, inspect_pb2.GetQueueTreeRequest(partition=partition)).tree
    partitions = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()).partitions
    capacity: Mapping[str, int] = next(
        (one.capacity for one in partitions if one.name == tree.partition), {}
    )
    chosen = shape.chosen(tree, capacity)
    if output is Form.NAME:
        write_names(chosen.names())
        return
    value = chosen.value() | core.pictures.value()
    show(output, value, lambda console: chosen.picture(console, headers=not no_headers))


@dataclass(frozen=True, slots=True)
class _Tree:
    """The requested part of the tree of queues, with the limits of the queues above this part."""

    whole: inspect_pb2.QueueTree
    root: inspect_pb2.Queue
    limits: Mapping[str, int]
    none: str = ""
    """The sentence that replaces the tree if the user wants only queues with waiting asks, and no asks wait."""

    def value(self) -> dict[str, Any]:
        """Return the tree as data."""
        return plain(self.whole) | {"root": plain(self.root)}

    def names(self) -> Iterator[str]:
        """Yield the paths of the queues, parents before their children."""
        return (row.queue.path for row in picture.rows(self.root, self.limits))

    def picture(self, console: Console, *, headers: bool) -> RenderableType:
        """Return the tree as text for the console."""
        now = self.whole.taken_at_ms
        if self.none:
            return Text(self.none) if headers else Group()
        return picture.tree(self.root, self.limits, console, now, headers=headers)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The choice of queues, and the form in which the chosen queues are shown."""

    path: str
    shape: Shape
    waiting: bool

    def chosen(self, tree: inspect_pb2.QueueTree, capacity: Mapping[str, int]) -> _Tree:
        """Return the requested part of the tree. Raises Fault for a path or column that does not exist."""
        root, limits = below(tree.root, capacity, self.path)
        none = ""
        if self.waiting:
            root = picture.only_waiting(root)
            none = "" if root.asks_waiting else f"Nothing waits in {root.path}."
        return _Tree(tree, picture.ordered(root, self.shape.sort_by), limits, none)


def _settings(core: Core, partition: str, path: str, output: Form) -> None:
    """Write the settings of each queue."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    if path:
        asked = inspect_pb2.GetQueueTreeRequest(partition=partition)
        path = below(core.ask(stub.GetQueueTree, asked).tree.root, {}, path)[0].path
    request = inspect_pb2.ListQueueSettingsRequest(partition=partition, queue=path)
    found = every(core, stub.ListQueueSettings, request, lambda page: page.queues)
    value = {"queues": plain_all(found)}
    show(output, value, lambda console: queue_settings.listing(found, console.width))


def _unmet(core: Core, partition: str, path: str, output: Form, *, whole: bool) -> None:
    """Write the report of unmet guarantees, for which the core simulates claims; this may take a while."""
    stub = reports_pb2_grpc.ReportServiceStub(core.channel)
    request = reports_pb2.GetUnmetGuaranteesRequest(partition=partition, queue=path)
    answer = core.ask(stub.GetUnmetGuarantees, request)
    if not output.is_data:
        _name_pods(core, answer)
    show(output, plain(answer), lambda console: reports.unmet(answer, console.width, whole=whole))


def _name_pods(core: Core, answer: reports_pb2.GetUnmetGuaranteesResponse) -> None:
    """Replace the keys of pods in an answer, in place, by the names of the pods.

    If a name is not known, the key stays.
    """
    asks = [one for queue in answer.queues for one in queue.asks]
    if not any(UUID.search(text) for one in asks for text in _texts(one)):
        return
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(partition=answer.partition, include_asks=True)
    found = every(core, stub.ListAllocations, request, lambda page: page.allocations)
    names = {one.allocation_key: pod_name(one) for one in found}
    for one in asks:
        one.name = one.name or names.get(one.allocation_key, "")
        one.because = _named(one.because, names)
        if one.HasField("cure"):
            one.cure.text = _named(one.cure.text, names)


def _texts(one: reports_pb2.UnmetAsks) -> tuple[str, ...]:
    return ("" if one.name else one.allocation_key, one.because, one.cure.text)


def _named(text: str, names: Mapping[str, str]) -> str:
    return UUID.sub(lambda found: names.get(found[0]) or found[0], text)


def below(
    root: inspect_pb2.Queue, capacity: Mapping[str, int], path: str
) -> tuple[inspect_pb2.Queue, Mapping[str, int]]:
    """Return the queue at a path (the root for an empty path), and the limits of the queues above this queue.

    Raises Fault if there is no such queue. The fault names near matches if there are any.
    """
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


def _follow(core: Core, partition: str, wanted: _Shape) -> None:
    """Show the tree again whenever the core reports a change."""
    stub = watch_pb2_grpc.WatchServiceStub(core.channel)
    request = watch_pb2.WatchQueuesRequest(partition=partition, min_interval_ms=WATCH_INTERVAL_MS)
    form, headers = wanted.shape.form, wanted.shape.headers
    with pictures(form) as draw:
        for answer in core.follow(stub.WatchQueues, request):
            chosen = wanted.chosen(answer.tree, answer.summary.capacity)
            if form is Form.NAME:
                write_names(chosen.names())
            elif form.is_data:
                write_next(form, chosen.value() | core.pictures.value())
            else:
                draw(chosen.picture(console_for(form), headers=headers), True)
    raise Fault(
        "the core ended the stream",
        where=core.address,
        advice="see whether it still runs: evenhand health",
        code=ExitCode.UNREACHABLE,
    )
