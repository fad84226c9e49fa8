"""Running pods that are protected from preemption: pods that opted out, firm pods, and pods that are never evicted."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.paging import PAGE_SIZE_MAX, every
from evenhand_cli.render.tables import NORMAL, PROTECTIONS, pod_name, protection
from evenhand_console.at_once import begin
from evenhand_console.facets import Facet, facet, is_in
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.queue_numbers import shown_partition
from evenhand_console.view import View

ROWS_MAX: Final = 100
"""Largest number of pods on a page."""


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built."""

    info: inspect_pb2.ServerInfoResponse
    partitions: Sequence[inspect_pb2.Partition]
    pods: Sequence[inspect_pb2.Allocation]


@dataclass(frozen=True, slots=True)
class PodLine:
    """A protected pod."""

    key: str
    name: str
    queue: str
    application_id: str
    node: str
    protection: str
    priority: int
    resources: Mapping[str, int]
    runs_ms: int


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    partition: str
    partitions: tuple[str, ...]
    now_ms: int
    running: int
    """The number of running pods, whether protected or not."""
    facets: tuple[Facet, ...]
    part: Part[PodLine]


def read(core: Core, query: Query) -> Read:
    """Read the running pods. Raises Fault if the core does not answer or refuses."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(partition=query["partition"])
    info = begin(lambda: core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()))
    listed = begin(lambda: core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    pods = every(core, stub.ListAllocations, request, lambda page: page.allocations, PAGE_SIZE_MAX)
    return Read(info.result(), listed.result().partitions, pods)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page. The pods with the highest level of protection come first."""
    kept = [one for one in found.pods if protection(one) not in {"", NORMAL}]
    shown = sorted((one for one in kept if _matches(one, query)), key=_order)
    now = found.info.now_ms
    return Page(
        partition=shown_partition(found.partitions, query["partition"]),
        partitions=tuple(one.name for one in found.partitions),
        now_ms=now,
        running=len(found.pods),
        facets=tuple(_facet(name, kept, query) for name in FACETS),
        part=part_of(shown, query["start"], ROWS_MAX).made(lambda one: _pod(one, now)),
    )


def _queue_of(one: inspect_pb2.Allocation) -> str:
    return one.queue


FACETS: Final[Mapping[str, Callable[[inspect_pb2.Allocation], str]]] = {
    "protection": protection,
    "queue": _queue_of,
}
"""For each facet, a function that returns the value of a pod in this facet."""


def _matches(one: inspect_pb2.Allocation, query: Query, but: str = "") -> bool:
    """Return whether a pod matches the choices in the facets. The choice in the facet ``but`` is ignored."""
    return all(
        name == but or not query[name] or is_in(value_of(one), query[name], name)
        for name, value_of in FACETS.items()
    )


def _facet(name: str, pods: Sequence[inspect_pb2.Allocation], query: Query) -> Facet:
    counts = Counter(FACETS[name](one) for one in pods if _matches(one, query, name))
    return facet(name, counts, query[name])


def _order(one: inspect_pb2.Allocation) -> tuple[int, str, str, str]:
    level = protection(one)
    rank = PROTECTIONS.index(level) if level in PROTECTIONS else len(PROTECTIONS)
    return -rank, one.queue, pod_name(one), one.allocation_key


def _pod(one: inspect_pb2.Allocation, now: int) -> PodLine:
    return PodLine(
        key=one.allocation_key,
        name=pod_name(one) or one.allocation_key,
        queue=one.queue,
        application_id=one.application_id,
        node=one.node_id,
        protection=protection(one),
        priority=one.priority,
        resources=one.resources,
        runs_ms=now - one.since_ms,
    )


PARAMETERS: Final = {"partition": "", "protection": "", "queue": "", "start": ""}
VIEW: Final = View("protected", "Protected", "/protected", read, shape, PARAMETERS, pause_s=5.0)
