"""The tree of queues, each with its amounts and a bar. Queues with unmet guarantees come first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.output import word
from evenhand_cli.render.amounts import in_order
from evenhand_console.at_once import begin
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.queue_numbers import (
    Numbers,
    Placed,
    any_kinds_of,
    at_path,
    capacity_in,
    every_queue,
    numbers,
    placed,
    unmet_of,
)
from evenhand_console.view import View

ROWS_MAX: Final = 200
"""Largest number of rows of a page."""
DEFAULT_DEPTH: Final = "3"
DEPTHS: Final = ("1", "2", "3", "5", "all")


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the tree is built."""

    tree: inspect_pb2.QueueTree
    partitions: Sequence[inspect_pb2.Partition]


@dataclass(frozen=True, slots=True)
class Row:
    """A queue of the tree."""

    path: str
    name: str
    level: int
    state: str
    numbers: Numbers
    asks: int
    reasons: tuple[inspect_pb2.ReasonCount, ...]
    unmet: tuple[tuple[str, int], ...]
    below: int
    """The number of queues below this queue that are not shown because of the chosen depth."""


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the tree."""

    partition: str
    partitions: tuple[str, ...]
    under: str
    above: tuple[str, ...]
    """The paths of the queues above the shown queue, the root first."""
    kind: str
    kinds: tuple[str, ...]
    depths: tuple[str, ...]
    part: Part[Row]
    unmet: tuple[Row, ...]


def read(core: Core, query: Query) -> Read:
    """Read the tree of a partition, and the partitions for their capacity."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.GetQueueTreeRequest(partition=query["partition"])
    tree = begin(lambda: core.ask(stub.GetQueueTree, request))
    partitions = core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()).partitions
    return Read(tree.result().tree, partitions)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the tree. Raises Fault for a queue that does not exist."""
    capacity = capacity_in(found.partitions, found.tree.partition)
    every = list(placed(found.tree.root, capacity))
    top = at_path(found.tree.root, capacity, query["under"])
    under = top.queue.path
    kinds = in_order({kind for one in every for kind in any_kinds_of(one.queue)})
    kind = query["resource"] if query["resource"] in kinds else next(iter(kinds), "vcore")
    inside = [
        one for one in every if one.queue.path == under or one.queue.path.startswith(f"{under}.")
    ]
    shown = [one for one in _sorted(inside, top) if _is_shown(one, top, query["depth"])]
    parts = under.split(".")
    return Page(
        partition=found.tree.partition,
        partitions=tuple(one.name for one in found.partitions),
        under=under,
        above=tuple(".".join(parts[:count]) for count in range(1, len(parts))),
        kind=kind,
        kinds=tuple(kinds),
        depths=DEPTHS,
        part=part_of(shown, query["start"], ROWS_MAX).made(
            lambda one: _row(one, top, kind, query["depth"])
        ),
        unmet=tuple(
            _row(one, top, kind, "all") for one in inside if one.queue.leaf and unmet_of(one.queue)
        ),
    )


def _sorted(inside: Sequence[Placed], top: Placed) -> list[Placed]:
    """Return the queues as a tree. A sibling comes first if its own guarantee, or that of a queue below it, is unmet."""
    by_path = {one.queue.path: one for one in inside}
    unmet = {path for path, one in by_path.items() if unmet_of(one.queue)}
    for path in list(unmet):
        parts = path.split(".")
        unmet.update(".".join(parts[:count]) for count in range(1, len(parts)))
    ordered: list[Placed] = []
    stack = [top]
    while stack:
        one = stack.pop()
        ordered.append(one)
        children = [by_path[child.path] for child in one.queue.children]
        stack += sorted(
            children, key=lambda it: (it.queue.path not in unmet, it.queue.path), reverse=True
        )
    return ordered


def _is_shown(one: Placed, top: Placed, depth: str) -> bool:
    return depth == "all" or one.depth - top.depth <= _depth(depth)


def _depth(text: str) -> int:
    return int(text) if text in DEPTHS and text.isdecimal() else int(DEFAULT_DEPTH)


def _row(one: Placed, top: Placed, kind: str, depth: str) -> Row:
    queue = one.queue
    is_last = depth != "all" and one.depth - top.depth == _depth(depth)
    return Row(
        path=queue.path,
        name=queue.name or queue.path,
        level=one.depth - top.depth + 1,
        state=word(inspect_pb2.QueueState.DESCRIPTOR, queue.state),
        numbers=numbers(one, kind),
        asks=queue.asks_waiting,
        reasons=tuple(queue.waiting_reasons[:2]),
        unmet=tuple(unmet_of(queue).items()),
        below=len(list(every_queue(queue))) - 1 if is_last else 0,
    )


PARAMETERS: Final = {
    "partition": "",
    "under": "",
    "resource": "",
    "depth": DEFAULT_DEPTH,
    "start": "",
}
VIEW: Final = View("queues", "Queues", "/queues", read, shape, PARAMETERS)
