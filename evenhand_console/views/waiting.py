"""The pods that wait: facets by queue, state, user and reason, and the pods of the applications on a page."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.output import word
from evenhand_cli.paging import PAGE_SIZE_MAX, every
from evenhand_cli.render.tables import WAITING_STATES, pod_name
from evenhand_console.at_once import begin
from evenhand_console.facets import Facet, facet, is_in
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.queue_numbers import shown_partition
from evenhand_console.view import View

APPLICATIONS_MAX: Final = 20
"""Largest number of applications on a page."""
PODS_MAX: Final = 10
"""The largest number of pods of each application on a page of several applications."""
ROWS_MAX: Final = 200
"""Largest number of pods on a page of one application."""
NOT_COUNTED: Final = "not-counted"
"""The reason that is shown for pods whose reasons the core did not count, because too many pods wait."""


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built."""

    info: inspect_pb2.ServerInfoResponse
    partitions: Sequence[inspect_pb2.Partition]
    applications: Sequence[inspect_pb2.Application]
    pods: Sequence[inspect_pb2.Allocation]
    """The asks of the applications on the page."""


@dataclass(frozen=True, slots=True)
class PodLine:
    """A pod that waits."""

    key: str
    name: str
    state: str
    code: str
    waited_ms: int
    resources: Mapping[str, int]
    priority: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """An application with waiting pods."""

    application_id: str
    queue: str
    user: str
    state: str
    count: int
    pods: tuple[PodLine, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    partition: str
    partitions: tuple[str, ...]
    now_ms: int
    total: int
    facets: tuple[Facet, ...]
    part: Part[Waiting] | None
    """The applications of this page of the list; None on the page of a single application."""
    single: Waiting | None
    pods: Part[PodLine] | None
    """The pods of the single application."""


def read(core: Core, query: Query) -> Read:
    """Read all applications, and the waiting pods of the applications on this page of the list.

    Raises Fault if the core does not answer or refuses.
    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    partition = query["partition"]
    info = begin(lambda: core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()))
    listed = begin(lambda: core.ask(stub.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    listing = inspect_pb2.ListApplicationsRequest(partition=partition)
    applications = every(
        core, stub.ListApplications, listing, lambda page: page.applications, PAGE_SIZE_MAX
    )
    shown = part_of(_chosen(applications, query), query["start"], APPLICATIONS_MAX).rows
    pods = [begin(partial(_pods_of, core, partition, one.application_id)) for one in shown]
    found = [each for one in pods for each in one.result()]
    return Read(info.result(), listed.result().partitions, applications, found)


def _pods_of(core: Core, partition: str, application: str) -> list[inspect_pb2.Allocation]:
    """Read the waiting pods of an application."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(
        partition=partition, application_id=application, include_asks=True
    )
    found = every(core, stub.ListAllocations, request, lambda page: page.allocations, PAGE_SIZE_MAX)
    return [each for each in found if each.state in WAITING_STATES]


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page."""
    now = found.info.now_ms
    chosen = _chosen(found.applications, query)
    pods: dict[str, list[inspect_pb2.Allocation]] = {}
    for one in found.pods:
        if query["reason"] in {"", NOT_COUNTED, one.waiting_code}:
            pods.setdefault(one.application_id, []).append(one)
    start, of_one = query["start"], bool(query["application"])
    part = part_of([] if of_one else chosen, start, APPLICATIONS_MAX).made(
        lambda one: _waiting(one, pods.get(one.application_id, ()), now)
    )
    of_chosen = pods.get(chosen[0].application_id, ()) if of_one and chosen else ()
    names = tuple(one.name for one in found.partitions)
    return Page(
        partition=shown_partition(found.partitions, query["partition"]),
        partitions=names,
        now_ms=now,
        total=sum(_count(one, query["reason"]) for one in chosen),
        facets=tuple(_facet(name, found.applications, query) for name in FACETS),
        part=None if of_one else part,
        single=_waiting(chosen[0], (), now) if of_one and chosen else None,
        pods=part_of(of_chosen, start, ROWS_MAX).made(lambda one: _pod(one, now))
        if of_one
        else None,
    )


def _reasons(one: inspect_pb2.Application) -> dict[str, int]:
    counted = {each.code: each.count for each in one.waiting_reasons}
    rest = one.asks_waiting - sum(counted.values())
    return {**counted, NOT_COUNTED: rest} if rest > 0 else counted


def _queue_of(one: inspect_pb2.Application) -> dict[str, int]:
    return {one.queue: one.asks_waiting}


def _user_of(one: inspect_pb2.Application) -> dict[str, int]:
    return {one.user: one.asks_waiting}


def _state_of(one: inspect_pb2.Application) -> dict[str, int]:
    return {one.state.lower(): one.asks_waiting}


FACETS: Final[Mapping[str, Callable[[inspect_pb2.Application], dict[str, int]]]] = {
    "queue": _queue_of,
    "state": _state_of,
    "user": _user_of,
    "reason": _reasons,
}
"""For each facet, a function that returns how many waiting pods of an application have each value of the facet.

The value of the facet `state` is the state of the application.
"""


def _matches(one: inspect_pb2.Application, query: Query, but: str = "") -> bool:
    """Return whether an application has waiting pods that match the choices in all facets except the facet ``but``."""
    if not one.asks_waiting or query["application"] not in {"", one.application_id}:
        return False
    wanted = {name: query[name] for name in FACETS if name != but and query[name]}
    return all(
        any(is_in(value, wanted[name], name) for value in FACETS[name](one)) for name in wanted
    )


def _chosen(
    applications: Iterable[inspect_pb2.Application], query: Query
) -> list[inspect_pb2.Application]:
    return [one for one in applications if _matches(one, query)]


def _count(one: inspect_pb2.Application, reason: str) -> int:
    return _reasons(one).get(reason, 0) if reason else one.asks_waiting


def _facet(name: str, applications: Iterable[inspect_pb2.Application], query: Query) -> Facet:
    counts = Counter[str]()
    for one in applications:
        if _matches(one, query, name):
            if name == "reason":
                counts.update(_reasons(one))
            else:
                value = next(iter(FACETS[name](one)))
                counts[value] += _count(one, query["reason"])
    return facet(name, counts, query[name])


def _waiting(
    one: inspect_pb2.Application, pods: Sequence[inspect_pb2.Allocation], now: int
) -> Waiting:
    return Waiting(
        application_id=one.application_id,
        queue=one.queue,
        user=one.user,
        state=one.state.lower(),
        count=one.asks_waiting,
        pods=tuple(_pod(each, now) for each in pods[:PODS_MAX]),
        left_out=max(0, len(pods) - PODS_MAX),
    )


def _pod(one: inspect_pb2.Allocation, now: int) -> PodLine:
    return PodLine(
        key=one.allocation_key,
        name=pod_name(one) or one.allocation_key,
        state=word(inspect_pb2.AllocationState.DESCRIPTOR, one.state),
        code=one.waiting_code,
        waited_ms=now - one.since_ms,
        resources=one.resources,
        priority=one.priority,
    )


PARAMETERS: Final = {
    "partition": "",
    "queue": "",
    "state": "",
    "user": "",
    "reason": "",
    "application": "",
    "start": "",
}
VIEW: Final = View("waiting", "Waiting", "/waiting", read, shape, PARAMETERS, pause_s=2.0)
