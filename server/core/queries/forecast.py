"""The forecast of a configuration change.

A copy of the core runs under the new configuration until the copy makes no more decisions.

The copy (see `state.copying`) has the whole state of the live core. This includes open decisions, quota timers, waiting times,
back-offs, the pace, frozen pairs, reservations, gangs that wait for members, and disruption budgets. The copy takes the
configuration as an event at ``now`` and ticks at each instant that `queries.settling` finds. The decisions of the copy are made
by the same code as the decisions of the live core. The behaviour of the cluster during the forecast is assumed (ASSUMPTIONS).
The copy has no shadow, because a shadow changes nothing.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from server.core.core import BUDGET, Core
from server.core.preemption import due_claims
from server.core.queries import queue_reports, settling, simulated_quotas
from server.model.decisions import (
    ApplicationUpdated,
    AskRejected,
    AskReleased,
    Decided,
    Decision,
    DecisionMoved,
    Placed,
    PlanCheckRequested,
    Released,
    Termination,
    Withdrawn,
)
from server.model.events import (
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    PlanChecked,
    ReleaseRequested,
)
from server.model.forecast import (
    Forecast,
    ForeseenDecision,
    ForeseenEnd,
    ForeseenPlacement,
    PartitionForecast,
    QueueForecast,
    QueueNumbers,
)
from server.model.phrases import span
from server.model.quota import Configuration
from server.model.records import DecisionRecord, DecisionState, QueueSimulation, Shrink
from server.model.reports import QueueReport
from server.preemption.policy import ShrinkIntent
from server.preemption.quota import enforcement
from server.preemption.trial import Trial
from server.state import quota_timers, snapshotting
from server.state.copying import Captured, dismantle
from server.state.partition import Partition
from server.state.queues import QueueState

ASSUMPTIONS: Final = (
    "nothing arrives, and nothing ends or changes by itself",
    "an evicted pod ends at once, uses up its disruption budget, and is not created again",
    "every pod that gets a node is bound",
)
RESERVING: Final = "reservations that end and are made again go on alike"
"""The text of the assumption for partitions in which reservations repeatedly end and are made again (see `queries.settling`)."""
AGREEING: Final = "resource managers agree to evictions for pods that they have to check first"
"""The text of the assumption for forecasts in which evictions follow plan checks (design 1.8)."""
_UNCHANGED: Final = "what would be evicted without the change was simulated only until"
HORIZON_MS: Final = 24 * 3_600_000
"""The longest time that a forecast looks ahead. A longer forecast is cut off."""
TICKS_MAX: Final = 5_000
"""The largest number of ticks of one forecast. A longer forecast is cut off."""
_TOO_MANY_TICKS: Final = f"a simulation ends after {TICKS_MAX:,} ticks of the core"

_GONE_FOR_GOOD: Final = (AskReleased, AskRejected)
_CHANGES: Final = (
    Decided,
    DecisionMoved,
    Placed,
    Released,
    Withdrawn,
    ApplicationUpdated,
    *_GONE_FOR_GOOD,
)


def forecast(core: Core, configuration: Configuration, now: int) -> Forecast:
    """Return the forecast of the effects that the configuration would have if it were applied at ``now``.

    The live core is not changed.

    If pods would be evicted, a second copy runs without the change. The second copy shows which victims would be evicted
    without the change, too.
    """
    captured = Captured(core)
    copy = captured.rebuild()
    change = _Course(copy, now)
    quotas = {
        name: simulated_quotas.over(partition, configuration, now)
        for name, partition in copy.state.partitions.items()
    }
    change.apply(configuration)
    change.run()
    found = change.forecast(quotas)
    special = ((change.reserves_in_turns, RESERVING), (change.agreed, AGREEING))
    found = replace(found, assumptions=tuple(text for holds, text in special if holds))
    dismantle(copy)
    if any(one.record.victims for part in found.partitions for one in part.decisions):
        copy = captured.rebuild()
        rest = _Course(copy, now)
        rest.run()
        found = _compared(found, rest)
        dismantle(copy)
    return found


def _compared(found: Forecast, rest: "_Course") -> Forecast:
    """Return the forecast, with a flag on each victim that would also be evicted without the change.

    ``rest`` is the run without the change.
    """
    cut = (f"{_UNCHANGED} {span(rest.until_ms)} from now",) if rest.cut else ()
    return replace(
        found,
        partitions=tuple(
            replace(part, decisions=tuple(_marked(one, rest.evicted) for one in part.decisions))
            for part in found.partitions
        ),
        assumptions=(*found.assumptions, *cut),
    )


def _marked(one: ForeseenDecision, evicted: set[tuple[str, str]]) -> ForeseenDecision:
    name = one.record.partition
    same = frozenset(each.key for each in one.record.victims if (name, each.key) in evicted)
    return replace(one, unchanged=same)


# The run of the copy --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """The events of one partition during a forecast."""

    before: QueueReport
    applied: QueueReport | None = None
    decisions: list[tuple[int, DecisionRecord]] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)
    """The instant of each decision whose waiting time began before the change, by decision id (see `_Course._began_before`)."""
    outcomes: dict[str, DecisionState] = field(default_factory=dict)
    beneficiaries: dict[str, str] = field(default_factory=dict)
    placements: list[ForeseenPlacement] = field(default_factory=list)
    ends: list[ForeseenEnd] = field(default_factory=list)
    shrinks: dict[str, Shrink | None] = field(default_factory=dict)


class _Course:
    """The run of one copy of the core that begins at ``now``.

    Apart from the change of the configuration, the run has only two kinds of events: the ends of pods whose release was
    ordered, and consents of managers to plan checks.
    """

    def __init__(self, copy: Core, now: int) -> None:
        self._core = copy
        self._start = self._now = self._changed_ms = now
        self._ticks = 0
        self.cut = ""
        self.until_ms = 0
        self.reserves_in_turns = self.agreed = False
        self._quotas_due = {
            name: dict(partition.quota_due) for name, partition in copy.state.partitions.items()
        }
        self._going: dict[tuple[str, str], Termination] = {}
        self._asked: list[PlanCheckRequested] = []
        self._found = {
            name: _Found(queue_reports.queue_report(partition))
            for name, partition in copy.state.partitions.items()
        }
        self._observed: set[tuple[object, ...]] = set()
        self.evicted: set[tuple[str, str]] = set()
        for name, partition in copy.state.partitions.items():
            self._is_gone(name, partition)

    def _is_gone(self, name: str, partition: Partition) -> None:
        """Record the allocations whose release was ordered before the forecast began.

        Like later victims, these allocations end at once.
        """
        for ask in partition.asks.values():
            if ask.node is not None and ask.is_replaced:
                self._going[name, ask.key] = Termination.PLACEHOLDER_REPLACED
            elif ask.node is not None and ask.releasing:
                self._going[name, ask.key] = Termination.PREEMPTED_BY_SCHEDULER

    def apply(self, configuration: Configuration) -> None:
        """Apply the configuration to the copy of the core."""
        event = ConfigurationApplied(_without_shadows(configuration), "a simulation")
        self._hear(self._core.handle(event, self._now))
        for name, partition in self._core.state.partitions.items():
            found = self._found.get(name)
            if found is not None and not partition.retired:
                found.applied = queue_reports.queue_report(partition)

    def run(self) -> None:
        """Advance time until the copy of the core has no more decisions to make, or until a limit of the forecast is reached."""
        while not self.cut:
            shrinking = self._shrinking()
            self._instant()
            if self.cut:
                return
            self._count_shrinks(shrinking)
            self.until_ms = self._now - self._start
            due = settling.next_instant(self._core, self._now, self._changed_ms)
            if due is None:
                partitions = self._core.state.partitions.values()
                self.reserves_in_turns = any(map(settling.reserves_in_turns, partitions))
                return
            if due - self._start > HORIZON_MS:
                self.until_ms = HORIZON_MS
                self.cut = f"a simulation looks {HORIZON_MS // 3_600_000} hours ahead"
            elif self._ticks >= TICKS_MAX:
                self.cut = _TOO_MANY_TICKS
            else:
                self._now = due

    def _instant(self) -> None:
        """Tick the copy of the core and end the evicted pods, until the copy makes no more decisions at this instant."""
        while not self.cut:
            tick = self._core.tick(self._now, BUDGET)
            self._ticks += 1
            self._hear(tick.decisions)
            if not tick.more:
                events = self._ends()
                if not events:
                    return
                self._hear(self._core.take(events, self._now))
            if self._ticks >= TICKS_MAX:
                self.cut = _TOO_MANY_TICKS

    # The decisions of the copy ----------------------------------------------------------------------------------------

    def _hear(self, decisions: list[Decision]) -> None:
        for one in decisions:
            if isinstance(one, _CHANGES) and not self._is_repeated(one):
                self._changed_ms = self._now
            if isinstance(one, Released):
                self._going[one.partition, one.key] = one.termination
            elif isinstance(one, Withdrawn):
                self._going.pop((one.partition, one.key), None)
            elif isinstance(one, PlanCheckRequested):
                self._asked.append(one)
            else:
                self._note(one)

    def _is_repeated(self, one: Decision) -> bool:
        """Return whether the decision repeats an earlier decision of a partition in observe mode.

        In observe mode a decision does not change the state, so the same decision may be made several times.
        """
        if not isinstance(one, Decided) or one.record.state is not DecisionState.OBSERVED:
            return False
        record = one.record
        keys = (tuple(each.key for each in some) for some in (record.beneficiaries, record.victims))
        what = (record.partition, record.policy, *keys)
        known = what in self._observed
        self._observed.add(what)
        return known

    def _note(self, one: Decision) -> None:
        """Record the parts of a decision that the forecast shows."""
        if isinstance(one, Decided):
            self._decided(one.record)
        elif isinstance(one, Placed):
            self._placed(one)
        elif isinstance(one, DecisionMoved) and one.partition in self._found:
            self._found[one.partition].outcomes[one.decision_id] = one.state
        elif isinstance(one, _GONE_FOR_GOOD) and one.partition in self._found:
            why = one.reason if isinstance(one, AskRejected) else one.message
            self._end(one.partition, one.key, one.application_id, why)

    def _decided(self, record: DecisionRecord) -> None:
        found = self._found.get(record.partition)
        if found is None:
            return
        known = [
            at
            for at, (_, one) in enumerate(found.decisions)
            if one.decision_id == record.decision_id
        ]
        line = (self._now - self._start, record)
        if known:  # an open decision that is planned again is still one decision
            found.decisions[known[0]] = line
        else:
            found.decisions.append(line)
        if self._began_before(record):
            found.fixed[record.decision_id] = self._now
        found.outcomes[record.decision_id] = record.state
        found.beneficiaries |= {one.key: record.decision_id for one in record.beneficiaries}

    def _began_before(self, record: DecisionRecord) -> bool:
        """Return whether the waiting time before the decision (a delay, a back-off or a quota timer) began before the change."""
        if self._now == self._start:
            return False
        partition = self._core.state.partitions[record.partition]
        if record.shrink is not None:
            return self._quotas_due[record.partition].get(record.shrink.queue) == self._now
        asks = [partition.asks.get(one.key) for one in record.beneficiaries]
        first = next((one for one in asks if one is not None and one.group is not None), None)
        if first is None:
            return False
        until_ms, is_backoff = due_claims.awaits(partition, first, record.policy)
        began_ms = until_ms - due_claims.backoff_of(partition, first) if is_backoff else 0
        return until_ms > self._start > began_ms

    def _placed(self, one: Placed) -> None:
        found = self._found.get(one.partition)
        if found is not None:
            decision = found.beneficiaries.get(one.key, "")
            where = (one.application_id, one.queue, one.node_id)
            found.placements.append(
                ForeseenPlacement(self._now - self._start, one.key, *where, decision)
            )

    def _end(self, partition: str, key: str, application_id: str, why: str) -> None:
        end = ForeseenEnd(self._now - self._start, key, application_id, why)
        self._found[partition].ends.append(end)

    # The assumed events of the cluster --------------------------------------------------------------------------------

    def _ends(self) -> list[Event]:
        """Return the events that follow from the decisions of the copied core: the ends of pods, and consents to plan checks.

        Every pod that was ordered to end is released, and the end of a victim of preemption lowers its disruption budgets by
        one.
        """
        events: list[Event] = [
            PlanChecked(one.rm_id, one.partition, one.check_id, fits=True) for one in self._asked
        ]
        self.agreed |= bool(self._asked)
        self._asked.clear()
        for (name, key), why in self._going.items():
            partition = self._core.state.partitions.get(name)
            ask = partition.asks.get(key) if partition is not None else None
            if ask is None or ask.node is None or not (ask.releasing or ask.is_replaced):
                continue
            application_id = ask.application.application_id
            events.append(ReleaseRequested(ask.rm_id, application_id, key, name, why))
            if why is Termination.PREEMPTED_BY_SCHEDULER:
                self.evicted.add((name, key))
                events += self._used_up(ask.rm_id, ask.spec.disruption_groups, events)
            elif why is not Termination.PLACEHOLDER_REPLACED and name in self._found:
                self._end(name, key, application_id, "a placeholder that nothing needs")
        self._going.clear()
        return events

    def _used_up(
        self, rm_id: str, groups: tuple[str, ...], before: list[Event]
    ) -> Iterator[DisruptionsAllowed]:
        manager = self._core.state.managers.get(rm_id)
        allowed = {} if manager is None else dict(manager.disruptions_allowed)
        for one in before:
            if isinstance(one, DisruptionsAllowed) and one.rm_id == rm_id:
                allowed[one.group] = one.allowed or 0
        for group in groups:
            if allowed.get(group, 0) > 0:
                yield DisruptionsAllowed(rm_id, group, allowed[group] - 1)

    # Quota runs -------------------------------------------------------------------------------------------------------

    def _shrinking(self) -> list[tuple[str, str]]:
        """Return the queues whose quota runs are due at this instant, as (partition, queue) pairs."""
        return [
            (name, path)
            for name, partition in self._core.state.partitions.items()
            for path in quota_timers.due(partition, self._now)
        ]

    def _count_shrinks(self, due: list[tuple[str, str]]) -> None:
        """Record the results of runs without a decision. The result of a run is None if the queue was within its maximum."""
        for name, path in due:
            partition = self._core.state.partitions[name]
            queue = partition.queues.get(path)
            beyond = queue is not None and quota_timers.over(partition, queue)
            shrink = None
            if beyond:
                trial = Trial(snapshotting.take(partition, self._now))
                shrink = enforcement.plan(trial, ShrinkIntent(enforcement.NAME, path)).shrink
            self._found[name].shrinks[path] = shrink

    # The result -------------------------------------------------------------------------------------------------------

    def forecast(self, quotas: dict[str, list[QueueSimulation]]) -> Forecast:
        """Return the forecast with all recorded events."""
        partitions = tuple(
            self._partition(name, found, quotas.get(name, []))
            for name, found in sorted(self._found.items())
        )
        return Forecast(partitions, self.until_ms, self._ticks, self.cut)

    def _partition(
        self, name: str, found: _Found, quotas: list[QueueSimulation]
    ) -> PartitionForecast:
        partition = self._core.state.partitions.get(name)
        stays = partition is not None and not partition.retired
        after = queue_reports.queue_report(partition) if partition is not None else None
        decisions = tuple(
            ForeseenDecision(
                at,
                record,
                found.outcomes[record.decision_id],
                at_ms=found.fixed.get(record.decision_id, 0),
            )
            for at, record in found.decisions
        )
        runs = {one.record.shrink.queue: one.record for one in decisions if one.record.shrink}
        return PartitionForecast(
            name,
            decisions,
            tuple(found.placements),
            tuple(found.ends),
            _queues(found, after),
            tuple(
                simulated_quotas.with_run(one, runs.get(one.queue), found.shrinks) for one in quotas
            ),
            removed=not stays,
            observed=partition is not None and partition.spec.preemption.observe_only,
            unsynced=partition is not None and not self._core.state.synced(partition),
        )


def _without_shadows(configuration: Configuration) -> Configuration:
    return replace(
        configuration,
        partitions=tuple(
            replace(spec, preemption=replace(spec.preemption, shadow={}))
            for spec in configuration.partitions
        ),
    )


# Queues ---------------------------------------------------------------------------------------------------------------


def _queues(found: _Found, after: QueueReport | None) -> tuple[QueueForecast, ...]:
    """Return a forecast for each queue that exists before or after the change, sorted by path."""
    before, applied, last = _numbers(found.before), _numbers(found.applied), _numbers(after)
    return tuple(
        QueueForecast(path, before.get(path), applied.get(path), last.get(path))
        for path in sorted({*before, *applied, *last})
    )


def _numbers(report: QueueReport | None) -> dict[str, QueueNumbers]:
    if report is None:
        return {}
    found = {report.path: _of_queue(report)}
    for child in report.children:
        found |= _numbers(child)
    return found


def _of_queue(report: QueueReport) -> QueueNumbers:
    shares = report.proportional
    going = Counter(report.releasing)
    return QueueNumbers(
        {kind: used - going[kind] for kind, used in report.usage.items() if used - going[kind]},
        report.guaranteed,
        report.max,
        report.weight,
        report.allocations,
        report.pending_asks,
        None if shares is None else shares.deserved,
        None if shares is None else shares.entitled,
        report.state == QueueState.DRAINING.value,
    )
