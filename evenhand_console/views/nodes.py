"""The map of the nodes by partition and topology: used, pledged and fragmented capacity of each node."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.paging import PAGE_SIZE_MAX, every
from evenhand_cli.render.amounts import in_order
from evenhand_console.at_once import begin
from evenhand_console.bars import Bar, bar
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.queue_numbers import shown_partition
from evenhand_console.view import View

NODES_MAX: Final = 300
"""Largest number of nodes on a page of the map."""
FEW: Final = 2
"""A label can group the nodes only if, on average, each value of the label is shared by at least this many nodes."""
ZONE: Final = "topology.kubernetes.io/zone"
NO_GROUP: Final = "none"


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the map is built."""

    info: inspect_pb2.ServerInfoResponse
    nodes: Sequence[inspect_pb2.Node]
    partitions: Sequence[inspect_pb2.Partition]


@dataclass(frozen=True, slots=True)
class Tile:
    """A node of the map."""

    node_id: str
    state: str
    bar: Bar
    free: int
    pods: int
    pledged: Mapping[str, int]
    taints: tuple[str, ...]
    fits: bool
    """Whether a pod of the average size fits on the node."""


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes with one value of the topology label."""

    name: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """The capacity of the nodes of one group, or of all nodes, in the resource type of the map."""

    name: str
    nodes: int
    draining: int
    capacity: int
    used: int
    pledged: int
    free: int
    """The free capacity of all nodes that take new pods."""
    largest: int
    """The largest free capacity that one of these nodes has."""
    fragmented: int
    """The free capacity of those nodes on which a pod of the average size does not fit."""
    bar: Bar


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the map."""

    partition: str
    partitions: tuple[str, ...]
    now_ms: int
    kind: str
    kinds: tuple[str, ...]
    by: str
    labels: tuple[str, ...]
    average: Mapping[str, int]
    """The average request of the running pods, by resource type."""
    sums: tuple[Sum, ...]
    groups: tuple[Group, ...]
    part: Part[inspect_pb2.Node]


def read(core: Core, query: Query) -> Read:
    """Read the nodes of a partition. Raises Fault if the core does not answer or refuses."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    partition = query["partition"]
    request = inspect_pb2.ListNodesRequest(partition=partition)
    info = begin(lambda: core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()))
    listed = begin(lambda: core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    found = every(core, stub.ListNodes, request, lambda page: page.nodes, PAGE_SIZE_MAX)
    return Read(info.result(), found, listed.result().partitions)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the map."""
    kinds = in_order(kind for one in found.nodes for kind in one.capacity)
    kind = query["resource"] if query["resource"] in kinds else next(iter(kinds), "vcore")
    labels = _labels(found.nodes)
    by = query["by"] or (ZONE if ZONE in labels else next(iter(labels), NO_GROUP))
    average = _average(found.nodes)
    ordered = sorted(found.nodes, key=lambda one: (_group(one, by), one.node_id))
    groups: dict[str, list[inspect_pb2.Node]] = {}
    for one in ordered:
        groups.setdefault(_group(one, by), []).append(one)
    part = part_of(ordered, query["start"], NODES_MAX)
    tiles: dict[str, list[Tile]] = {}
    for one in part.rows:
        tiles.setdefault(_group(one, by), []).append(_tile(one, kind, average))
    several = len(groups) > 1
    sums = [_sum(name, nodes, kind, average) for name, nodes in groups.items()] if several else []
    return Page(
        partition=shown_partition(found.partitions, query["partition"]),
        partitions=tuple(one.name for one in found.partitions),
        now_ms=found.info.now_ms,
        kind=kind,
        kinds=tuple(kinds),
        by=by,
        labels=(NO_GROUP, *labels),
        average=average,
        sums=(_sum("all nodes", ordered, kind, average), *sums),
        groups=tuple(Group(name, tuple(rows)) for name, rows in tiles.items()),
        part=part,
    )


def _labels(nodes: Sequence[inspect_pb2.Node]) -> list[str]:
    """Return the labels by which the nodes can be grouped (see FEW), topology labels first."""
    values: dict[str, set[str]] = {}
    for one in nodes:
        for name, value in one.labels.items():
            values.setdefault(name, set()).add(value)
    some = [name for name, found in values.items() if len(found) * FEW <= len(nodes)]
    return sorted(some, key=lambda name: (not name.startswith("topology."), name))


def _group(one: inspect_pb2.Node, by: str) -> str:
    return "" if by == NO_GROUP else one.labels.get(by, "")


def _average(nodes: Iterable[inspect_pb2.Node]) -> dict[str, int]:
    """Return the average request of the pods of this scheduler, rounded up."""
    used: dict[str, int] = {}
    pods = 0
    for one in nodes:
        pods += one.allocations
        for kind, value in one.usage.items():
            used[kind] = used.get(kind, 0) + value
    return {kind: -(-value // pods) for kind, value in used.items() if value > 0} if pods else {}


def _fits(one: inspect_pb2.Node, average: Mapping[str, int]) -> bool:
    return all(one.available.get(kind, 0) >= value for kind, value in average.items())


def _free(one: inspect_pb2.Node, kind: str) -> int:
    """Return the amount of a resource type that is free on a node for pods."""
    return max(0, one.available.get(kind, 0)) if one.schedulable else 0


def _bar(kind: str, capacity: int, used: int, pledged: int) -> Bar:
    return bar(kind, {"used": used, "promised": pledged, "capacity": capacity}, capacity)


def _used(one: inspect_pb2.Node, kind: str) -> int:
    return one.usage.get(kind, 0) + one.foreign_usage.get(kind, 0)


def _tile(one: inspect_pb2.Node, kind: str, average: Mapping[str, int]) -> Tile:
    return Tile(
        node_id=one.node_id,
        state="ready" if one.schedulable else "draining",
        bar=_bar(kind, one.capacity.get(kind, 0), _used(one, kind), one.pledged.get(kind, 0)),
        free=_free(one, kind),
        pods=one.allocations + one.foreign_allocations,
        pledged=one.pledged,
        taints=tuple(f"{each.key}:{each.effect}" for each in one.taints),
        fits=one.schedulable and _fits(one, average),
    )


def _sum(
    name: str, nodes: Sequence[inspect_pb2.Node], kind: str, average: Mapping[str, int]
) -> Sum:
    capacity = sum(one.capacity.get(kind, 0) for one in nodes)
    free = [(one, left) for one in nodes if (left := _free(one, kind))]
    used = sum(_used(one, kind) for one in nodes)
    pledged = sum(one.pledged.get(kind, 0) for one in nodes)
    return Sum(
        name=name,
        nodes=len(nodes),
        draining=sum(not one.schedulable for one in nodes),
        capacity=capacity,
        used=used,
        pledged=pledged,
        free=sum(left for _, left in free),
        largest=max((left for _, left in free), default=0),
        fragmented=sum(left for one, left in free if not _fits(one, average)),
        bar=_bar(kind, capacity, used, pledged),
    )


PARAMETERS: Final = {"partition": "", "resource": "", "by": "", "start": ""}
VIEW: Final = View("nodes", "Nodes", "/nodes", read, shape, PARAMETERS, pause_s=3.0)
