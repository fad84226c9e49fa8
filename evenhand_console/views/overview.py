"""The overview: the present problems, the events that are due, and the latest changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from evenhand.v1 import (
    decisions_pb2,
    decisions_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    watch_pb2,
    watch_pb2_grpc,
)
from evenhand_cli.connect import Core
from evenhand_cli.output import word
from evenhand_cli.paging import every
from evenhand_cli.render.amounts import in_order
from evenhand_console.at_once import begin
from evenhand_console.bars import Bar, bar
from evenhand_console.checks import Checks
from evenhand_console.query import Query
from evenhand_console.queue_numbers import every_queue, partition_named, unmet_of
from evenhand_console.reading import unless_absent
from evenhand_console.view import View

CHECKS: Final = Checks()
CHANGES_MAX: Final = 20
DUE_MAX: Final = 20
KINDS: Final = ("configuration", "decision", "manager", "node", "rejected")
"""The kinds of events that are listed as changes of the cluster. Placements are left out, because there are too many."""
SEVERITIES: Final = {
    inspect_pb2.FINDING_SEVERITY_ERROR: "error",
    inspect_pb2.FINDING_SEVERITY_WARNING: "warning",
}


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the overview is built."""

    info: inspect_pb2.ServerInfoResponse
    partitions: Sequence[inspect_pb2.Partition]
    tree: inspect_pb2.QueueTree
    checked: inspect_pb2.CheckConsistencyResponse | None
    decisions: Sequence[decisions_pb2.Decision]
    events: Sequence[watch_pb2.EventRecord] | None


@dataclass(frozen=True, slots=True)
class Wrong:
    """A problem: its severity, its message, its place, the advice, and the page with more details."""

    severity: str
    subject: str
    message: str
    advice: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Due:
    """An event that is expected at an instant, unless something else happens before."""

    at_ms: int
    in_ms: int
    text: str
    queue: str = ""
    decision_id: str = ""


@dataclass(frozen=True, slots=True)
class Amounts:
    """A resource type of the partition, with its bar."""

    kind: str
    capacity: int
    used: int
    foreign: int
    promised: int
    waiting: int
    bar: Bar


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the overview."""

    partition: str
    partitions: tuple[str, ...]
    now_ms: int
    info: inspect_pb2.ServerInfoResponse
    counts: inspect_pb2.ClusterCounts
    amounts: tuple[Amounts, ...]
    wrong: tuple[Wrong, ...]
    is_checked: bool
    """Whether the core's checks have been answered, or the role may not see the answer."""
    due: tuple[Due, ...]
    due_left_out: int
    changes: tuple[watch_pb2.EventRecord, ...] | None


def read(core: Core, query: Query) -> Read:
    """Read the state of a partition, its findings, its open decisions and the latest events."""
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    decisions = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    partition = query["partition"]
    open_only = decisions_pb2.ListDecisionsRequest(partition=partition, open_only=True)
    asked = inspect_pb2.GetQueueTreeRequest(partition=partition)
    info = begin(lambda: core.ask(inspect.ServerInfo, inspect_pb2.ServerInfoRequest()))
    listed = begin(lambda: core.ask(inspect.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    tree = begin(lambda: core.ask(inspect.GetQueueTree, asked))
    opened = begin(
        lambda: every(core, decisions.ListDecisions, open_only, lambda page: page.decisions)
    )
    events = begin(lambda: unless_absent(lambda: _latest_events(core)))
    CHECKS.begin(core, partition)
    found, partitions = tree.result().tree, listed.result().partitions
    pods = sum(one.counts.allocations + one.counts.waiting_asks for one in partitions)
    return Read(
        info.result(),
        partitions,
        found,
        CHECKS.answer(core, partition, found.taken_at_ms, pods),
        opened.result(),
        events.result(),
    )


def _latest_events(core: Core) -> list[watch_pb2.EventRecord]:
    stub = watch_pb2_grpc.WatchServiceStub(core.channel)
    request = watch_pb2.WatchEventsRequest(kinds=KINDS, held_only=True)
    answers = core.follow(stub.WatchEvents, request, core.timeout_s)
    return list(chain.from_iterable(one.events for one in answers))[-CHANGES_MAX:]


def shape(found: Read, query: Query) -> Page:
    """Return the values of the overview."""
    name = query["partition"] or found.tree.partition
    partition = partition_named(found.partitions, name)
    now = found.tree.taken_at_ms
    due = _due(found, now)
    return Page(
        partition=name,
        partitions=tuple(one.name for one in found.partitions),
        now_ms=now,
        info=found.info,
        counts=partition.counts,
        amounts=_amounts(partition),
        wrong=tuple(_wrong(found)),
        is_checked=found.checked is None or bool(found.checked.checked_at_ms),
        due=tuple(due[:DUE_MAX]),
        due_left_out=max(0, len(due) - DUE_MAX),
        changes=None if found.events is None else tuple(reversed(found.events)),
    )


def _amounts(partition: inspect_pb2.Partition) -> tuple[Amounts, ...]:
    rows: list[Amounts] = []
    for kind in in_order((*partition.capacity, *partition.usage, *partition.pending)):
        capacity = partition.capacity.get(kind, 0)
        used, foreign = partition.usage.get(kind, 0), partition.foreign_usage.get(kind, 0)
        promised, waiting = partition.promised.get(kind, 0), partition.pending.get(kind, 0)
        shown = {"used": used + foreign, "promised": promised, "capacity": capacity}
        drawn = bar(kind, shown, capacity)
        rows.append(Amounts(kind, capacity, used, foreign, promised, waiting, drawn))
    return tuple(rows)


def _wrong(found: Read) -> list[Wrong]:
    """Return the problems, the most severe first: findings of the core's checks, then unmet guarantees."""
    checked = found.checked.findings if found.checked is not None else ()
    problems = [
        Wrong(
            SEVERITIES.get(one.severity, "note"), one.subject, one.message, one.advice, _queue(one)
        )
        for one in checked
    ]
    named = {one.queue for one in problems}
    for one in every_queue(found.tree.root):
        if one.leaf and one.pending and unmet_of(one) and one.path not in named:
            text = "has less than it is guaranteed while its pods wait"
            problems.append(Wrong("warning", f"queue {one.path}", text, "", one.path))
    order = ("error", "warning", "note")
    return sorted(problems, key=lambda one: order.index(one.severity))


def _queue(finding: inspect_pb2.Finding) -> str:
    kind, _, name = finding.subject.partition(" ")
    return name if kind == "queue" else ""


def _due(found: Read, now: int) -> list[Due]:
    """Return the events that are due, the earliest first."""
    due = [
        Due(
            one.quota_due_ms,
            one.quota_due_ms - now,
            f"pods of {one.path} above its max are evicted",
            queue=one.path,
        )
        for one in every_queue(found.tree.root)
        if one.quota_due_ms
    ]
    due += [
        Due(
            one.expires_ms,
            one.expires_ms - now,
            f"{one.summary} ({word(decisions_pb2.DecisionState.DESCRIPTOR, one.state)}; given up at this instant)",
            decision_id=one.decision_id,
        )
        for one in found.decisions
    ]
    return sorted(due, key=lambda one: (one.at_ms or NEVER, one.text))


NEVER: Final = 1 << 62
"""The instant that a decision without expiry gets for sorting, so that it comes after all other decisions."""

VIEW: Final = View("overview", "Overview", "/", read, shape, {"partition": ""}, pause_s=2.0)
