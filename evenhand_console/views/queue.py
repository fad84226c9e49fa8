"""One queue: its amounts, waits and settings, its usage of the last hour, and the work lost by preemption."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import (
    decisions_pb2,
    decisions_pb2_grpc,
    history_pb2,
    history_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    reports_pb2,
    reports_pb2_grpc,
)
from evenhand_cli.connect import Core
from evenhand_cli.output import word
from evenhand_cli.paging import every
from evenhand_cli.render.queue_settings import Line as Setting
from evenhand_cli.render.queue_settings import setting_lines
from evenhand_console.at_once import begin
from evenhand_console.lines import Chart, chart
from evenhand_console.query import Query
from evenhand_console.queue_numbers import Numbers, at_path, capacity_in, kinds_of, numbers
from evenhand_console.reading import unless_absent
from evenhand_console.view import View

DECISIONS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built. The history is None if the core keeps no history."""

    tree: inspect_pb2.QueueTree
    partitions: Sequence[inspect_pb2.Partition]
    settings: Sequence[inspect_pb2.QueueSettings]
    lost: reports_pb2.GetLostWorkResponse | None
    decisions: Sequence[decisions_pb2.Decision]
    history: history_pb2.GetQueueHistoryResponse | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """The work that preemption for one of two queues has destroyed in the other queue since the core started.

    One of these queues is the queue of the page.
    """

    other: str
    policy: str
    victims: int
    ran_ms: int


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A decision that concerns the queue."""

    decision_id: str
    at_ms: int
    policy: str
    state: str
    summary: str


@dataclass(frozen=True, slots=True)
class UsageChart:
    """The usage of the queue in one resource type over the last hour."""

    kind: str
    chart: Chart


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page of a queue."""

    partition: str
    now_ms: int
    queue: inspect_pb2.Queue
    state: str
    above: tuple[str, ...]
    children: tuple[str, ...]
    numbers: tuple[Numbers, ...]
    charts: tuple[UsageChart, ...] | None
    waits: history_pb2.WaitSummary | None
    took: tuple[Exchange, ...]
    gave: tuple[Exchange, ...]
    lost_since_ms: int
    decisions: tuple[DecisionLine, ...]
    settings: tuple[Setting, ...]


def read(core: Core, query: Query) -> Read:
    """Read the tree, the settings, the lost work, the decisions and the history of a queue.

    Raises Fault if there is no such queue, or if the core does not answer or refuses.
    """
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    partition, path = query["partition"], query["queue"]
    asked = inspect_pb2.GetQueueTreeRequest(partition=partition)
    listed = begin(lambda: core.ask(inspect.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    of_tree = begin(lambda: core.ask(inspect.GetQueueTree, asked))
    about = _begin_about(core, partition, path) if path else None
    tree = of_tree.result().tree
    known = at_path(tree.root, {}, path).queue.path
    about = about or _begin_about(core, partition, known)
    return Read(
        tree,
        listed.result().partitions,
        about.settings.result().queues,
        about.lost.result(),
        about.decisions.result(),
        about.history.result(),
    )


@dataclass(frozen=True, slots=True)
class _About:
    """The reads that concern one queue alone."""

    settings: Future[inspect_pb2.ListQueueSettingsResponse]
    lost: Future[reports_pb2.GetLostWorkResponse | None]
    decisions: Future[list[decisions_pb2.Decision]]
    history: Future[history_pb2.GetQueueHistoryResponse | None]


def _begin_about(core: Core, partition: str, path: str) -> _About:
    """Begin the reads that concern the queue at a path."""
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    reports = reports_pb2_grpc.ReportServiceStub(core.channel)
    decisions = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    history = history_pb2_grpc.HistoryServiceStub(core.channel)
    settings = inspect_pb2.ListQueueSettingsRequest(partition=partition, queue=path, page_size=1)
    lost = reports_pb2.GetLostWorkRequest(partition=partition, queue=path)
    decided = decisions_pb2.ListDecisionsRequest(partition=partition, queue=path)
    past = history_pb2.GetQueueHistoryRequest(partition=partition, queue=path)
    return _About(
        begin(lambda: core.ask(inspect.ListQueueSettings, settings)),
        begin(lambda: unless_absent(lambda: core.ask(reports.GetLostWork, lost))),
        begin(lambda: every(core, decisions.ListDecisions, decided, lambda page: page.decisions)),
        begin(lambda: unless_absent(lambda: core.ask(history.GetQueueHistory, past))),
    )


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page of a queue. Raises Fault for a queue that does not exist."""
    capacity = capacity_in(found.partitions, found.tree.partition)
    one = at_path(found.tree.root, capacity, query["queue"])
    path = one.queue.path
    parts = path.split(".")
    lost = found.lost.lines if found.lost is not None else ()
    latest = found.decisions[: -DECISIONS_MAX - 1 : -1]
    return Page(
        partition=found.tree.partition,
        now_ms=found.tree.taken_at_ms,
        queue=one.queue,
        state=word(inspect_pb2.QueueState.DESCRIPTOR, one.queue.state),
        above=tuple(".".join(parts[:count]) for count in range(1, len(parts))),
        children=tuple(child.path for child in one.queue.children),
        numbers=tuple(numbers(one, kind) for kind in kinds_of(one)),
        charts=None if found.history is None else _charts(found.history),
        waits=None if found.history is None else found.history.waits,
        took=tuple(_exchange(line, line.victim) for line in lost if _is_in(line.claimant, path)),
        gave=tuple(_exchange(line, line.claimant) for line in lost if _is_in(line.victim, path)),
        lost_since_ms=0 if found.lost is None else found.lost.since_ms,
        decisions=tuple(_decision(one) for one in latest),
        settings=tuple(setting_lines(found.settings[0].settings)) if found.settings else (),
    )


def _is_in(queue: str, path: str) -> bool:
    return queue == path or queue.startswith(f"{path}.")


def _exchange(line: reports_pb2.LostWork, other: str) -> Exchange:
    return Exchange(other, line.policy, line.victims, line.ran_ms)


def _decision(one: decisions_pb2.Decision) -> DecisionLine:
    state = word(decisions_pb2.DecisionState.DESCRIPTOR, one.state)
    return DecisionLine(one.decision_id, one.at_ms, one.policy, state, one.summary)


def _charts(history: history_pb2.GetQueueHistoryResponse) -> tuple[UsageChart, ...]:
    """Return the lines of each resource type. An interval without samples is a gap in a line."""
    charts: list[UsageChart] = []
    for series in history.series:
        points = list(series.points)
        if not series.resource_type or not any(one.covered_ms for one in points):
            continue
        named = [
            (name, [getattr(one, name) if one.covered_ms else None for one in points])
            for name in ("usage", "guaranteed", "deserved", "promised", "waiting")
        ]
        some = [(name, values) for name, values in named if name == "usage" or any(values)]
        charts.append(UsageChart(series.resource_type, chart([one.at_ms for one in points], some)))
    return tuple(charts)


PARAMETERS: Final = {"queue": "", "partition": ""}
VIEW: Final = View("queue", "Queue", "/queue", read, shape, PARAMETERS, pause_s=2.0, in_menu=False)
