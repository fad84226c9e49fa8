"""A tenant's page: the usage of the queue, its entitlement, and the queues that may claim from it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

from evenhand.v1 import (
    explain_pb2,
    explain_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    reports_pb2,
    reports_pb2_grpc,
)
from evenhand_cli.connect import Core
from evenhand_cli.paging import PAGE_SIZE_MAX, every
from evenhand_console.at_once import begin
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.queue_numbers import (
    Numbers,
    Placed,
    at_path,
    capacity_in,
    every_queue,
    kinds_of,
    numbers,
    requested_partition,
    unmet_of,
)
from evenhand_console.reading import unless_absent
from evenhand_console.view import View

APPLICATIONS_MAX: Final = 50
"""Largest number of applications on a page."""
QUEUES_MAX: Final = 200
"""Largest number of queues that are offered for a choice."""


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built. If no queue is chosen, the explanation, the applications and the lost work are left out."""

    info: inspect_pb2.ServerInfoResponse
    tree: inspect_pb2.QueueTree
    partitions: Sequence[inspect_pb2.Partition]
    explained: explain_pb2.ExplainResponse | None
    applications: Sequence[inspect_pb2.Application]
    lost: reports_pb2.GetLostWorkResponse | None


@dataclass(frozen=True, slots=True)
class Share:
    """One resource type: the numbers of the queue, and the part of its usage that is safe from claims."""

    numbers: Numbers
    entitled: int
    limit: int | None
    """The smallest max of the queue and of all queues above it, None if none of them has a max."""
    safe: int
    """The usage up to the entitlement. No claim evicts pods from this part."""
    at_risk: int
    """The usage above the entitlement. Queues below their own entitlements may claim this part."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A queue that may claim from this queue, and the amounts that it now lacks of its entitlement while its pods wait."""

    path: str
    lacks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """The work that the queue lost to another queue by preemption since the core started."""

    queue: str
    policy: str
    victims: int
    ran_ms: int


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page. If no queue is chosen, `choices` has the queues to choose from."""

    partition: str
    partitions: tuple[str, ...]
    now_ms: int
    choices: tuple[str, ...]
    choices_left_out: int
    queue: inspect_pb2.Queue | None = None
    shares: tuple[Share, ...] = ()
    limits: tuple[inspect_pb2.UserLimit, ...] = ()
    applications: Part[inspect_pb2.Application] | None = None
    claimants: tuple[Claimant, ...] = ()
    claimed_elsewhere: bool = False
    may_claim_from: tuple[str, ...] = ()
    claims_elsewhere: bool = False
    disabled: bool = False
    fences: tuple[str, ...] = ()
    taken: tuple[Taken, ...] = ()
    taken_since_ms: int = 0


def read(core: Core, query: Query) -> Read:
    """Read the queue in the address, or else the queue that the caller's role may see.

    Raises Fault if there is no such queue, or if the core does not answer or refuses.
    """
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    partition = query["partition"]
    asked = inspect_pb2.GetQueueTreeRequest(partition=partition)
    of_info = begin(lambda: core.ask(inspect.ServerInfo, inspect_pb2.ServerInfoRequest()))
    of_list = begin(lambda: core.ask(inspect.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    of_tree = begin(lambda: core.ask(inspect.GetQueueTree, asked))
    about = _begin_about(core, partition, query["queue"]) if query["queue"] else None
    tree, info, listed = of_tree.result().tree, of_info.result(), of_list.result().partitions
    wanted = query["queue"] or info.visible_queue
    if not wanted:
        return Read(info, tree, listed, None, (), None)
    path = at_path(tree.root, {}, wanted).queue.path
    about = about or _begin_about(core, partition, path)
    return Read(
        info,
        tree,
        listed,
        about.explained.result(),
        about.applications.result(),
        about.lost.result(),
    )


@dataclass(frozen=True, slots=True)
class _About:
    """The reads that concern one queue alone."""

    explained: Future[explain_pb2.ExplainResponse]
    applications: Future[list[inspect_pb2.Application]]
    lost: Future[reports_pb2.GetLostWorkResponse | None]


def _begin_about(core: Core, partition: str, path: str) -> _About:
    """Begin the reads that concern the queue at a path."""
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    explain = explain_pb2_grpc.ExplainServiceStub(core.channel)
    reports = reports_pb2_grpc.ReportServiceStub(core.channel)
    asked = explain_pb2.ExplainRequest(partition=requested_partition(partition), key=path)
    apps = inspect_pb2.ListApplicationsRequest(partition=partition, queue=path)
    lost = reports_pb2.GetLostWorkRequest(partition=partition, queue=path)
    listed = partial(every, core, inspect.ListApplications, apps)
    return _About(
        begin(lambda: core.ask(explain.Explain, asked)),
        begin(lambda: listed(lambda page: page.applications, PAGE_SIZE_MAX)),
        begin(lambda: unless_absent(lambda: core.ask(reports.GetLostWork, lost))),
    )


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page. Raises Fault for a queue that does not exist."""
    capacity = capacity_in(found.partitions, found.tree.partition)
    every = list(every_queue(found.tree.root))
    paths = [one.path for one in every]
    partitions = tuple(one.name for one in found.partitions)
    wanted = query["queue"] or found.info.visible_queue
    choices, left = tuple(paths[:QUEUES_MAX]), max(0, len(paths) - QUEUES_MAX)
    if not wanted or found.explained is None:
        now = found.tree.taken_at_ms
        return Page(found.tree.partition, partitions, now, choices, left)
    one = at_path(found.tree.root, capacity, wanted)
    path, reach = one.queue.path, found.explained.queue.reach
    used = sorted(found.applications, key=lambda app: (-app.allocations, app.application_id))
    return Page(
        partition=found.tree.partition,
        partitions=partitions,
        now_ms=found.tree.taken_at_ms,
        choices=choices,
        choices_left_out=left,
        queue=one.queue,
        shares=tuple(_share(one, kind) for kind in kinds_of(one)),
        limits=tuple(one.queue.limits),
        applications=part_of(used, query["start"], APPLICATIONS_MAX),
        claimants=tuple(_claimants(every, reach.may_be_claimed_by)),
        claimed_elsewhere=reach.may_be_claimed_elsewhere,
        may_claim_from=tuple(reach.may_claim_from),
        claims_elsewhere=reach.may_claim_elsewhere,
        disabled=reach.disabled,
        fences=tuple(reach.fences),
        taken=tuple(_taken(found.lost, path)),
        taken_since_ms=0 if found.lost is None else found.lost.since_ms,
    )


def _share(one: Placed, kind: str) -> Share:
    shown = numbers(one, kind)
    entitled = max(shown.guaranteed or 0, one.queue.proportional_share.entitled.get(kind, 0))
    safe = min(shown.used, entitled)
    return Share(
        numbers=shown,
        entitled=entitled,
        limit=one.limits.get(kind),
        safe=safe,
        at_risk=shown.used - safe,
    )


def _claimants(every: Sequence[inspect_pb2.Queue], paths: Sequence[str]) -> Iterator[Claimant]:
    """Yield the queues at ``paths``, which may claim from the queue of the page. Queues with an unmet entitlement come first."""
    known = {one.path: one for one in every}
    found = [
        Claimant(path, tuple(unmet_of(known[path]).items()) if path in known else ())
        for path in paths
    ]
    yield from sorted(found, key=lambda one: (not one.lacks, one.path))


def _taken(lost: reports_pb2.GetLostWorkResponse | None, path: str) -> Iterator[Taken]:
    for one in lost.lines if lost is not None else ():
        if one.victim == path or one.victim.startswith(f"{path}."):
            yield Taken(one.claimant, one.policy, one.victims, one.ran_ms)


PARAMETERS: Final = {"queue": "", "partition": "", "start": ""}
VIEW: Final = View("tenant", "My queue", "/tenant", read, shape, PARAMETERS, pause_s=2.0)
