"""Timers and promises: the instants at which maxima are enforced, and the capacity that is promised or kept for pods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from evenhand.v1 import (
    decisions_pb2,
    decisions_pb2_grpc,
    explain_pb2,
    explain_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
)
from evenhand_cli.connect import Core
from evenhand_cli.paging import PAGE_SIZE_MAX, every
from evenhand_cli.render import decisions as words
from evenhand_cli.render.explanation import decision_of
from evenhand_console.at_once import begin
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.queue_numbers import every_queue, partition_named, requested_partition
from evenhand_console.reading import unless_absent
from evenhand_console.view import View
from evenhand_console.views.decisions import state_of

KEPT_MAX: Final = 50
"""The largest number of reservations for which the page reads the explanation of the ask that holds the reservation."""
ROWS_MAX: Final = 200
"""Largest number of promises on a page."""


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built. There is an explanation for each ask for which a node is kept."""

    tree: inspect_pb2.QueueTree
    partitions: Sequence[inspect_pb2.Partition]
    decisions: Sequence[decisions_pb2.Decision]
    nodes: Sequence[inspect_pb2.Node] | None
    """The nodes of the partition; None if the caller may not see nodes."""
    kept: Sequence[explain_pb2.ExplainResponse]


@dataclass(frozen=True, slots=True)
class Timer:
    """A queue above its max: the instant at which its max is enforced, or the reason why the max is not enforced."""

    queue: str
    over: Mapping[str, int]
    due_ms: int
    in_ms: int
    why_not: str


@dataclass(frozen=True, slots=True)
class Promise:
    """Capacity that an open decision promises to an ask."""

    decision_id: str
    key: str
    name: str
    queue: str
    node: str
    amounts: Mapping[str, int]
    state: str
    victims: str
    until_ms: int
    in_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A reservation: a node that is kept for an ask, without an eviction."""

    key: str
    name: str
    queue: str
    node: str
    since_ms: int
    until_ms: int
    in_ms: int
    missing: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    partition: str
    partitions: tuple[str, ...]
    now_ms: int
    timers: tuple[Timer, ...]
    promises: Part[Promise]
    kept: tuple[Kept, ...] | None
    reservations: int
    """The number of all reservations and decisions that keep capacity on nodes."""


def read(core: Core, query: Query) -> Read:
    """Read the tree, the open decisions, and the asks for which nodes are kept.

    Raises Fault if the core does not answer or refuses.
    """
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    decisions = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    partition = query["partition"]
    of_tree = inspect_pb2.GetQueueTreeRequest(partition=partition)
    name = requested_partition(partition)
    opened = decisions_pb2.ListDecisionsRequest(partition=name, open_only=True)
    of_list = begin(lambda: core.ask(inspect.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    read_tree = begin(lambda: core.ask(inspect.GetQueueTree, of_tree))
    decided = begin(
        lambda: every(core, decisions.ListDecisions, opened, lambda page: page.decisions)
    )
    tree, partitions = read_tree.result().tree, of_list.result().partitions
    nodes = _keeping_nodes(core, partition_named(partitions, tree.partition))
    return Read(
        tree,
        partitions,
        decided.result(),
        nodes,
        _kept_for(core, tree.partition, [one.node_id for one in nodes or () if one.reservations]),
    )


def _keeping_nodes(core: Core, partition: inspect_pb2.Partition) -> list[inspect_pb2.Node] | None:
    """Read the nodes, if capacity on any node is kept for an ask. Return None if the caller may not see nodes."""
    if not partition.counts.commitments and not partition.visible_queue:
        return []
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    listed = inspect_pb2.ListNodesRequest(partition=partition.name)
    return unless_absent(
        lambda: every(core, stub.ListNodes, listed, lambda page: page.nodes, PAGE_SIZE_MAX)
    )


def _kept_for(
    core: Core, partition: str, nodes: Sequence[str]
) -> list[explain_pb2.ExplainResponse]:
    stub = explain_pb2_grpc.ExplainServiceStub(core.channel)

    def explained(keys: Iterable[str]) -> list[explain_pb2.ExplainResponse]:
        asked = [explain_pb2.ExplainRequest(partition=partition, key=key) for key in keys]
        answers = [begin(partial(core.ask, stub.Explain, one)) for one in asked]
        return [one.result() for one in answers]

    keys = [key for one in explained(nodes[:KEPT_MAX]) for key in one.node.pledged_to]
    return explained(keys[:KEPT_MAX])


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page, each list sorted by the instant at which an entry is due."""
    now = found.tree.taken_at_ms
    promises = sorted(
        _promises(found.decisions, now), key=lambda one: (one.until_ms or NEVER, one.decision_id)
    )
    kept = sorted(_kept(found.kept, now), key=lambda one: (one.until_ms or NEVER, one.name))
    return Page(
        partition=found.tree.partition,
        partitions=tuple(one.name for one in found.partitions),
        now_ms=now,
        timers=tuple(_timers(found.tree, now)),
        promises=part_of(promises, query["start"], ROWS_MAX),
        kept=None if found.nodes is None else tuple(kept),
        reservations=sum(one.reservations for one in found.nodes or ()),
    )


def _timers(tree: inspect_pb2.QueueTree, now: int) -> list[Timer]:
    found = [
        Timer(
            queue=one.path,
            over=one.over_max,
            due_ms=one.quota_due_ms,
            in_ms=one.quota_due_ms - now,
            why_not=one.not_enforced,
        )
        for one in every_queue(tree.root)
        if one.quota_due_ms or one.not_enforced
    ]
    return sorted(found, key=lambda one: (one.due_ms or NEVER, one.queue))


def _promises(decisions: Sequence[decisions_pb2.Decision], now: int) -> Iterator[Promise]:
    for one in decisions:
        for each in one.beneficiaries:
            yield Promise(
                decision_id=one.decision_id,
                key=each.allocation_key,
                name=each.name or each.allocation_key,
                queue=each.queue,
                node=each.node_id,
                amounts=each.resources,
                state=state_of(one),
                victims=words.counted_victims(one),
                until_ms=one.expires_ms,
                in_ms=one.expires_ms - now,
            )


def _kept(answers: Sequence[explain_pb2.ExplainResponse], now: int) -> Iterator[Kept]:
    """Yield the reservations. Capacity that decisions keep is left out, because the page lists it under promises."""
    for one in answers:
        held = one.waiting.reservation
        if held.node_id and not decision_of(held):
            yield Kept(
                key=one.key,
                name=one.name or one.key,
                queue=one.waiting.queue,
                node=held.node_id,
                since_ms=held.since_ms,
                until_ms=held.until_ms,
                in_ms=held.until_ms - now,
                missing=held.short,
            )


NEVER: Final = 1 << 62
"""The instant that entries without an instant get for sorting, so that they come after all other entries."""

PARAMETERS: Final = {"partition": "", "start": ""}
VIEW: Final = View("timers", "Timers", "/timers", read, shape, PARAMETERS, pause_s=2.0)
