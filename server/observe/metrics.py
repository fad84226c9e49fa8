"""OpenTelemetry meters of decisions and reports.

Everything is counted per slice (a batch of events), never per object. Gauges are computed when a client asks for metrics.
`Metrics.refresh` computes the gauges in the event loop, between two ticks. Exporters may run in other threads, and only read
the results of `Metrics.refresh`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple, Self

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

from server.core.core import Core
from server.core.queries import inspect, known_decisions
from server.core.queries.lost_work import lost_work
from server.model.decisions import (
    ApplicationRejected,
    ApplicationUpdateRejected,
    AskRejected,
    AskReleased,
    Decided,
    Decisions,
    NodeRejected,
    Noted,
    Placed,
    Released,
    ShadowDecided,
    Withdrawn,
    is_barrier,
)
from server.model.reasons import Code
from server.model.records import DecisionRecord
from server.model.reports import PartitionReport, QueueReport
from server.model.shadow import ShadowRecord
from server.observe.durations import Durations
from server.observe.histograms import Histogram

QUEUES_MAX: Final = 1_000
"""The largest number of queues whose usage is exported, upper levels first. A scrape need not list all queues."""

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PARTITION: Final = attrgetter("partition")
_TERMINATION: Final = attrgetter("termination")
_PLANNED: Final = (Decided, ShadowDecided, Withdrawn)
"""The decisions of preemption, their withdrawals, and the decisions of shadows."""
_NOTICES: Final = frozenset(
    {
        Code.PREEMPTION_REFUSED,
        Code.DECISION_ABORTED,
        Code.DECISION_EXPIRED,
        Code.VICTIM_VETOED,
        Code.RELEASE_OVERDUE,
        Code.LAW_BROKEN,
        Code.PREEMPTION_STORM,
        Code.QUOTA_RUN,
        Code.QUOTA_DROPPED,
        Code.QUOTA_NOT_ENFORCED,
    }
)
"""The codes of the notes that are counted, because administrators may want alerts on them."""
_REJECTIONS: Final[
    Mapping[type[AskRejected | ApplicationRejected | ApplicationUpdateRejected | NodeRejected], str]
] = {
    AskRejected: "ask",
    ApplicationRejected: "application",
    ApplicationUpdateRejected: "application",
    NodeRejected: "node",
}

Depths = Callable[[], Mapping[tuple[str, str], int]]
"""The number of objects that wait for each stream, by manager and kind of stream."""
Records = Callable[[], Mapping[str, tuple[int, str, int]]]
"""The state of each record, by name: the number of lines that it lost, why it cannot be written now, and the number of its gaps.

The reason is empty if the record can be written. A gap is a series of consecutive lines that were lost.
"""
Managers = Callable[[], Mapping[str, tuple[bool, int]]]
"""The state of each registered resource manager: whether one of its streams is open, and the seconds since its last message."""
Secrets = Callable[[], tuple[int, Mapping[str, str], int | None]]
"""The state of the secrets: the number of reloads, the files that are not in force, and the expiry of the certificate.

For each secret whose newer file is not in force, the mapping has the reason. The expiry is in Unix milliseconds.
"""
Labels = Mapping[str, str]


class Around(NamedTuple):
    """The sources of the metrics that are not about the core itself. ``now`` returns the time in Unix milliseconds."""

    depths: Depths = dict
    records: Records = dict
    managers: Managers = dict
    secrets: Secrets = lambda: (0, {}, None)
    now: Callable[[], int] = int


ALONE: Final = Around()


class Metrics:
    """The meters of decisions and reports.

    The pump (see docs/glossary.md) calls this object for each batch of decisions. `text` returns the metrics in the form that a
    Prometheus server reads.
    """

    def __init__(
        self, core: Core, around: Around = ALONE, readers: Iterable[MetricReader] = ()
    ) -> None:
        """Create all meters. The method `text` returns the metrics, and ``readers`` get them, too."""
        self._core = core
        self._around = around
        self._durations = Durations(core)
        self._sources: list[Callable[[], Iterable[tuple[str, float, Labels]]]] = []
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
        self._decisions = meter.create_counter(
            "evenhand.decisions", description="Decisions of preemption"
        )
        self._victims = meter.create_counter(
            "evenhand.victims", description="Allocations that decisions of preemption released"
        )
        self._withdrawn = meter.create_counter(
            "evenhand.withdrawals", description="Marked victims whose eviction is no longer needed"
        )
        self._notices = meter.create_counter(
            "evenhand.notices", description="What preemption has to tell administrators"
        )
        self._shadows = meter.create_counter(
            "evenhand.shadow", description="What shadows and the live side decided, by difference"
        )
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

        for name, description in _SUMS.items():
            meter.create_observable_counter(
                f"evenhand.{name}", callbacks=[self._callback(name)], description=description
            )

    @property
    def histograms(self) -> Sequence[Histogram]:
        """The histograms by queue."""
        return self._durations.histograms

    def add(self, source: Callable[[], Iterable[tuple[str, float, Labels]]]) -> Self:
        """Add a function that yields name, value and labels of further gauges and sums.

        The tables of this module name these gauges and sums. Return the meters.
        """
        self._sources.append(source)
        return self

    def decided(self, decisions: Decisions, now: int) -> None:
        """Add the decisions of a slice to the counters."""
        kinds = decisions.kinds
        self._durations.decided(decisions, now)
        if Placed in kinds:
            self._placements(decisions.of(Placed))
        if Released in kinds or AskReleased in kinds:
            self._releases(decisions.of(Released, AskReleased))
        if not kinds.isdisjoint(_PLANNED):
            self._planned(decisions)
        if Noted in kinds:
            self._noted(decisions.of(Noted))
        for kind, word in _REJECTIONS.items():
            if kind in kinds:
                refused = [one for one in decisions.of(kind) if not is_barrier(one)]
                self._rejected.add(len(refused), {"kind": word})

    def _planned(self, decisions: Decisions) -> None:
        """Count the decisions and withdrawals of preemption, and the decisions of shadows."""
        self._preempted(one.record for one in decisions.of(Decided))
        self._beside(one.record for one in decisions.of(ShadowDecided))
        self._spared(decisions.of(Withdrawn))

    def _placements(self, placed: Iterable[Placed]) -> None:
        for partition, count in Counter(map(_PARTITION, placed)).items():
            self._placed.add(count, {"partition": partition})

    def _releases(self, ended: Sequence[Released | AskReleased]) -> None:
        """Count releases. A slice may have tens of thousands of releases, mostly of one partition and for one reason."""
        partitions, reasons = list(map(_PARTITION, ended)), list(map(_TERMINATION, ended))
        where, why = partitions[0], reasons[0]
        alike = len(ended) == partitions.count(where) == reasons.count(why)
        counts = (
            {(where, why): len(ended)} if alike else Counter(zip(partitions, reasons, strict=True))
        )
        for (partition, reason), count in counts.items():
            told = {"partition": partition, "termination": reason.name.lower()}
            self._released.add(count, told)

    def _spared(self, stays: Iterable[Withdrawn]) -> None:
        for partition, count in Counter(map(_PARTITION, stays)).items():
            self._withdrawn.add(count, {"partition": partition})

    def _preempted(self, records: Iterable[DecisionRecord]) -> None:
        made: Counter[tuple[str, str]] = Counter()
        going: Counter[tuple[str, str]] = Counter()
        for record in records:
            where = (record.partition, record.policy)
            made[where] += 1
            if record.state.is_open:
                going[where] += len(record.victims)
        for counter, counts in ((self._decisions, made), (self._victims, going)):
            for (partition, policy), many in counts.items():
                counter.add(many, {"partition": partition, "policy": policy})

    def _beside(self, records: Iterable[ShadowRecord]) -> None:
        told = Counter((one.partition, one.difference) for one in records if not one.ended_ms)
        for (partition, difference), count in told.items():
            self._shadows.add(count, {"partition": partition, "difference": difference.value})

    def _noted(self, notes: Iterable[Noted]) -> None:
        told = Counter((one.partition, one.code) for one in notes if one.code in _NOTICES)
        for (partition, code), count in told.items():
            self._notices.add(count, {"partition": partition, "code": code.value})

    def sliced(self, events: int, seconds: float, now: int) -> None:
        """Count a slice and its events, and record its duration."""
        self._durations.sliced(now)
        self._tick.record(seconds)
        if events:
            self._events.add(events)

    def idle(self) -> None:
        """Count the placements that were collected while decisions were made."""
        self._durations.idle()

    def prepare(self) -> None:
        """Count the placements collected since the last count, and free the lines of removed queues.

        After this method, `text` may run in a copy of this process.
        """
        self._durations.prepare()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text form. Call this method in the event loop, or in a copy of this process."""
        self.prepare()
        self.refresh()
        return generate_latest(self._registry) + self._durations.text().encode()

    def refresh(self) -> None:
        """Recompute the gauges, for the next export. Call this method in the event loop.

        If the core is in the middle of work that it does in parts, the gauges keep their earlier values.
        """
        if not self._core.is_amid:
            self._gauges = self._observed()

    def _observed(self) -> dict[str, list[Observation]]:
        """Return the gauges of this moment."""
        gauges: dict[str, list[Observation]] = {name: [] for name in (*_GAUGES, *_SUMS)}

        def observe(name: str, value: float, **labels: str) -> None:
            gauges[name].append(Observation(value, labels))

        for report in inspect.partitions(self._core):
            sums = _lost(self._core, report.name)
            for name, value, labels in chain(self._of_partition(report), sums):
                observe(name, value, **labels, partition=report.name)
            for queue in _first(inspect.queue_tree(self._core, report.name)):
                where = {"partition": report.name, "queue": queue.path}
                for name, amounts in _of_queue(queue):
                    for kind, amount in amounts.items():
                        observe(name, amount, **where, resource=kind)
        added = chain.from_iterable(source() for source in self._sources)
        for name, value, labels in chain(self._outside(), self._of_durations(), added):
            observe(name, value, **labels)
        return gauges

    def _of_partition(self, report: PartitionReport) -> Iterator[tuple[str, float, Labels]]:
        """Yield the gauges of one partition as a whole."""
        for code, count in report.waiting.items():
            yield "waiting_asks", count, {"code": code}
        yield "nodes", report.nodes, {}
        yield "applications", report.applications, {}
        yield "allocations", report.allocations, {}
        frozen = self._core.state.partitions[report.name].thrashing.active(self._around.now())
        yield "frozen_pairs", len(frozen), {}
        for policy, count in _open_decisions(self._core, report.name).items():
            yield "open_decisions", count, {"policy": policy}

    def _of_durations(self) -> Iterator[tuple[str, float, Labels]]:
        """Yield the unmet guarantees of at most QUEUES_MAX queues, and the use of the histograms' limits."""
        for partition, queue, since_ms in islice(self._durations.unmet(), QUEUES_MAX):
            labels = {"partition": partition, "queue": queue}
            yield "guarantee_unmet_since_timestamp_seconds", since_ms / 1_000, labels
        for one in self.histograms:
            yield "metric_lines", len(one), {"metric": one.name}
            yield "metric_folded", one.folded, {"metric": one.name}

    def _outside(self) -> Iterator[tuple[str, int, Labels]]:
        """Yield the gauges that are not about the core itself."""
        for (manager, stream), depth in self._around.depths().items():
            yield "stream_depth", depth, {"manager": manager, "stream": stream}
        synced = {one.rm_id: one.synced for one in self._core.state.managers.values()}
        for manager, (connected, silent_s) in self._around.managers().items():
            yield "manager_connected", int(connected), {"manager": manager}
            yield "manager_synced", int(synced.get(manager, False)), {"manager": manager}
            yield "manager_silent_seconds", silent_s, {"manager": manager}
        for name, (lost, failing, gaps) in self._around.records().items():
            yield "record_lost", lost, {"record": name}
            yield "record_gaps", gaps, {"record": name}
            yield "record_failing", int(bool(failing)), {"record": name}
        reloads, refused, expires_ms = self._around.secrets()
        yield "secret_reloads", reloads, {}
        for name, problem in refused.items():
            yield "secret_failing", int(bool(problem)), {"kind": name}
        if expires_ms is not None:
            yield "certificate_expires_seconds", expires_ms // 1000, {}

    def close(self) -> None:
        """Shut down all exporters of these metrics."""
        self._provider.shutdown()

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self._gauges.get(name, ())


_GAUGES: Final = {
    "waiting_asks": "Waiting asks by the code of the reason",
    "nodes": "Nodes",
    "applications": "Applications",
    "allocations": "Allocations of this scheduler",
    "queue_usage": "What a queue uses of a resource type",
    "queue_guaranteed": "The amount of a resource type to which a queue is entitled",
    "queue_max": "What a queue may use at most of a resource type",
    "queue_over_max": "What a queue uses beyond its max of a resource type",
    "queue_promised": "What open decisions and reservations promise a queue",
    "queue_deserved": "What a queue deserves in proportion to weights",
    "queue_entitled": "What a queue may claim in proportion to weights, and keeps",
    "queue_preempting": "What others have of what a queue deserves",
    "queue_releasing": "The amount that ordered releases will free in a queue",
    "open_decisions": "Decisions of preemption that are not done",
    "frozen_pairs": "Pairs of queues whose claims the thrashing monitor stopped",
    "stream_depth": "Objects that wait for a stream",
    "manager_connected": "1 while a resource manager has a stream open",
    "manager_synced": "1 when a resource manager has completed its sync",
    "manager_silent_seconds": "Seconds since a resource manager's last message, or its registration",
    "record_lost": "Lines of a record that could not be written",
    "guarantee_unmet_since_timestamp_seconds": "When a guarantee was found unmet, in Unix seconds",
    "metric_lines": "Lines of a histogram by queue, without those of other queues",
    "record_failing": "1 while a record cannot be written",
    "secret_failing": "1 while a newer file of a secret cannot be used and the one before is in force",
    "certificate_expires_seconds": "When the server's certificate expires, in Unix seconds",
    "replica_state": "1 for the state of this core among several, 0 for the other states",
    "replica_position": "Events and ticks that this core has got",
    "replica_leader_position": "Events and ticks that the leader of this core is known to have got",
    "replica_lag_inputs": "Events and ticks by which this core is known to be behind its leader",
    "replica_lag_seconds": "Seconds since this core had all input that its leader had sent",
    "core_group": "1 for the group of this core, 0 for the other groups in its table of cores that have partitions",
    "followers": "Cores that follow this one",
    "follower_lag_inputs": "Events and ticks that were not sent to a follower yet",
    "follower_backlog_bytes": "Bytes of input that wait to be sent to a follower",
}


_SUMS: Final = {
    "secret_reloads": "Times that certificates, roles or tokens were read again",
    "replica_joins": "Times that this core took over the state of a leader",
    "replica_differences": "Times that this core decided otherwise than its leader",
    "followers_cut_off": "Followers that were too slow and had to join again",
    "record_gaps": "Rows of lines of a record that could not be written",
    "metric_folded": "Values that a histogram counts under the queue other",
    "follower_waits": "Slices with decisions that were to wait for a follower, by what came of it",
    "lost_core_seconds": "Core-seconds that victims had done when their eviction was ordered",
    "lost_pod_seconds": "Seconds that victims had run when their eviction was ordered",
}


def _lost(core: Core, partition: str) -> Iterator[tuple[str, float, Labels]]:
    """Yield the lost work for each combination of policy, preempting queue and victims' queue, at most QUEUES_MAX lines."""
    for line in lost_work(core, partition)[:QUEUES_MAX]:
        labels = {"policy": line.policy, "claimant": line.claimant, "victim": line.victim}
        yield "lost_core_seconds", line.lost.millicore_ms / 1_000_000, labels
        yield "lost_pod_seconds", line.lost.ran_ms / 1_000, labels


def _of_queue(queue: QueueReport) -> Iterator[tuple[str, Mapping[str, int]]]:
    yield "queue_usage", queue.usage
    yield "queue_guaranteed", queue.guaranteed
    yield "queue_max", queue.max
    yield "queue_over_max", queue.over_max
    yield "queue_promised", queue.promised
    yield "queue_releasing", queue.releasing
    if queue.proportional is not None:
        yield "queue_deserved", queue.proportional.deserved
        yield "queue_entitled", queue.proportional.entitled
        yield "queue_preempting", queue.proportional.preempting


def _open_decisions(core: Core, partition: str) -> Counter[str]:
    return Counter(one.policy for one in known_decisions.decisions(core, partition, open_only=True))


def _first(root: QueueReport) -> Sequence[QueueReport]:
    """Return the queue and the queues below it, upper levels first, at most QUEUES_MAX."""
    found, level = [root], [root]
    while level and len(found) < QUEUES_MAX:
        level = [child for queue in level for child in queue.children]
        found += level
    return found[:QUEUES_MAX]
