"""OpenTelemetry meters over decisions and reports.

Everything is counted per slice, never per object. Gauges are looked up when somebody asks: `Metrics.refresh` runs in
the event loop between two ticks; exporters, whichever thread they live in, only see what it left.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

from server.core import inspect
from server.core.core import Core
from server.model.decisions import (
    ApplicationRejected,
    AskRejected,
    AskReleased,
    Decision,
    NodeRejected,
    Placed,
    Released,
    is_barrier,
)
from server.model.reports import QueueReport

QUEUES_MAX: Final = 1_000
"""Queues whose usage is exported, in path order; a scrape is no listing."""

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_REJECTIONS: Final[Mapping[type, str]] = {
    AskRejected: "ask",
    ApplicationRejected: "application",
    NodeRejected: "node",
}

Depths = Callable[[], Mapping[tuple[str, str], int]]
"""Objects that wait for each stream, by manager and kind of stream."""
Records = Callable[[], Mapping[str, tuple[int, str]]]
"""By record: lines that it lost, and why it cannot be written now, empty when it can."""
Labels = Mapping[str, str]


class Metrics:
    """Counts decisions; an observer of the pump. `text` is what a Prometheus server reads."""

    def __init__(
        self,
        core: Core,
        depths: Depths,
        readers: Iterable[MetricReader] = (),
        records: Records = dict,
    ) -> None:
        """``readers``: where the metrics go besides `text`."""
        self._core = core
        self._depths = depths
        self._records = records
        self._registry = CollectorRegistry()
        prometheus = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        self._provider = MeterProvider(
            [prometheus, *readers], resource=Resource.create({"service.name": "evenhand"})
        )
        meter = self._provider.get_meter("evenhand")
        self._placed = meter.create_counter("evenhand.placements", description="Asks placed")
        self._released = meter.create_counter(
            "evenhand.releases", description="Allocations and asks released by the core"
        )
        self._rejected = meter.create_counter("evenhand.rejections", description="Objects refused")
        self._events = meter.create_counter("evenhand.events", description="Events taken")
        self._tick = meter.create_histogram(
            "evenhand.tick",
            unit="s",
            description="Time of one slice: events, tick, answers",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._gauges: dict[str, list[Observation]] = {}
        for name, description in _GAUGES.items():
            meter.create_observable_gauge(
                f"evenhand.{name}", callbacks=[self._callback(name)], description=description
            )

    def decided(self, decisions: Sequence[Decision], _now: int) -> None:
        """Counts a slice's decisions."""
        kinds = Counter(map(type, decisions))
        if Placed in kinds:
            partitions = Counter(one.partition for one in decisions if isinstance(one, Placed))
            for partition, count in partitions.items():
                self._placed.add(count, {"partition": partition})
        if Released in kinds or AskReleased in kinds:
            for (partition, why), count in Counter(_releases(decisions)).items():
                self._released.add(count, {"partition": partition, "termination": why})
        for kind, word in _REJECTIONS.items():
            if kind in kinds:
                self._rejected.add(sum(_counts(one, kind) for one in decisions), {"kind": word})

    def sliced(self, events: int, seconds: float, _now: int) -> None:
        """Measures a slice."""
        self._tick.record(seconds)
        if events:
            self._events.add(events)

    def idle(self) -> None:
        """Nothing to do."""

    def text(self) -> bytes:
        """All metrics in Prometheus' text form. Call it in the event loop."""
        self.refresh()
        return generate_latest(self._registry)

    def refresh(self) -> None:
        """Looks the gauges up, for the next export. Call it in the event loop."""
        gauges: dict[str, list[Observation]] = {name: [] for name in _GAUGES}

        def observe(name: str, value: int, **labels: str) -> None:
            gauges[name].append(Observation(value, labels))

        for report in inspect.partitions(self._core):
            for code, count in report.waiting.items():
                observe("waiting_asks", count, partition=report.name, code=code)
            observe("nodes", report.nodes, partition=report.name)
            observe("applications", report.applications, partition=report.name)
            observe("allocations", report.allocations, partition=report.name)
            for queue in _first(inspect.queue_tree(self._core, report.name)):
                where = {"partition": report.name, "queue": queue.path}
                for name, amounts in _of_queue(queue):
                    for kind, amount in amounts.items():
                        observe(name, amount, **where, resource=kind)
        for name, value, labels in self._around():
            observe(name, value, **labels)
        self._gauges = gauges

    def _around(self) -> Iterator[tuple[str, int, Labels]]:
        """What is to be seen around the core."""
        for (manager, stream), depth in self._depths().items():
            yield "stream_depth", depth, {"manager": manager, "stream": stream}
        for name, (lost, failing) in self._records().items():
            yield "record_lost", lost, {"record": name}
            yield "record_failing", int(bool(failing)), {"record": name}

    def close(self) -> None:
        """Ends the exporters."""
        self._provider.shutdown()

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self._gauges.get(name, ())


_GAUGES: Final = {
    "waiting_asks": "Waiting asks by the code of the reason",
    "nodes": "Nodes",
    "applications": "Applications",
    "allocations": "Allocations of this scheduler",
    "queue_usage": "What a queue uses of a resource type",
    "queue_guaranteed": "What a queue is owed of a resource type",
    "queue_max": "What a queue may use at most of a resource type",
    "stream_depth": "Objects that wait for a stream",
    "record_lost": "Lines of a record that could not be written",
    "record_failing": "1 while a record cannot be written",
}


def _counts(one: Decision, kind: type) -> bool:
    return type(one) is kind and not is_barrier(one)


def _of_queue(queue: QueueReport) -> Iterator[tuple[str, Mapping[str, int]]]:
    yield "queue_usage", queue.usage
    yield "queue_guaranteed", queue.guaranteed
    yield "queue_max", queue.max


def _releases(decisions: Sequence[Decision]) -> Iterator[tuple[str, str]]:
    for one in decisions:
        if isinstance(one, Released | AskReleased):
            yield one.partition, one.termination.name.lower()


def _first(root: QueueReport) -> Sequence[QueueReport]:
    """The queue and those below it, as many as are exported."""
    found, level = [root], [root]
    while level and len(found) < QUEUES_MAX:
        level = [child for queue in level for child in queue.children]
        found += level
    return found[:QUEUES_MAX]
