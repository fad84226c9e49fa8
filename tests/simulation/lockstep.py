"""A configuration that is simulated and then applied: what happens must agree with the forecast.

The core comes from a random run that was stopped in the middle (`lockstep_lives`). The configuration is applied at
the instant of the simulation, the clock moves to the instants of `next_due`, and evicted pods end at once. The
forecast must name equal decisions at equal instants, with equal victims in equal order, equal placements and ends,
and equal numbers of queues at its end.
"""

from collections import Counter
from typing import Final, NamedTuple
from unittest.mock import patch

from server.core.core import BUDGET, Core
from server.core.queries import forecast as forecasts
from server.core.queries import queue_reports
from server.core.queries.forecast import forecast
from server.model.decisions import (
    AskRejected,
    AskReleased,
    Decided,
    Decision,
    Noted,
    Placed,
    PlanCheckRequested,
    Released,
    Termination,
    Withdrawn,
)
from server.model.events import (
    ConfigurationApplied,
    DisruptionsAllowed,
    PlanChecked,
    ReleaseRequested,
)
from server.model.forecast import Forecast
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.records import DecisionRecord
from server.model.reports import QueueReport
from server.rpc.limits import TICK_BUDGET
from tests.simulation.lockstep_lives import Life

INSTANTS_MOST: Final = 20_000
TICKS_MOST: Final = 100
"""Maximum number of ticks of a forecast, lower than in production, so that some are cut; those are compared up to there."""
WATCHED: Final = 0.12
"""The fraction of complete forecasts after which it is checked that nothing else happens."""
WATCHED_MS: Final = 1_800_000
WATCHED_INSTANTS: Final = 150
"""Number of instants after a complete forecast at which nothing may happen."""


class Happened(NamedTuple):
    """A decision, reduced to what is compared."""

    after_ms: int
    partition: str
    policy: str
    beneficiaries: tuple[tuple[str, str], ...]
    victims: tuple[str, ...]
    observed: bool


class Live:
    """The real core with the new configuration, and a cluster that carries out its orders at once."""

    def __init__(self, core: Core, now: int, budget: int) -> None:
        self.core = core
        self.budget = budget
        self.now = self.start = now
        self.decided: dict[tuple[str, str], tuple[int, DecisionRecord]] = {}
        self.placed: list[tuple[int, str, str]] = []
        self.ended: list[tuple[int, str]] = []
        self.seen: Counter[str] = Counter()
        self.going: dict[tuple[str, str], Termination] = {}
        self.asked: list[PlanCheckRequested] = []
        for name, partition in core.state.partitions.items():
            for key, ask in partition.asks.items():
                if ask.node is not None and ask.is_replaced:
                    self.going[name, key] = Termination.PLACEHOLDER_REPLACED
                elif ask.node is not None and ask.releasing:
                    self.going[name, key] = Termination.PREEMPTED_BY_SCHEDULER

    def apply(self, configuration: Configuration) -> None:
        """Apply a configuration."""
        self._hear(self.core.handle(ConfigurationApplied(configuration, "lock-step"), self.now))

    def until(self, instant: int, most: int = INSTANTS_MOST) -> None:
        """Move the clock to this instant, but at most over `most` instants at which something is due."""
        for _ in range(most):
            self._settle()
            due = self.core.next_due()
            if due is None or due > instant:
                return
            self.now = due
        assert most < INSTANTS_MOST, "it does not end"

    def _settle(self) -> None:
        more = True
        while more:
            tick = self.core.tick(self.now, self.budget)
            self._hear(tick.decisions)
            more = tick.more or self._agree() or self._end()

    def _agree(self) -> bool:
        """Agree to all plans about which the core asked, as a forecast assumes; return whether there were any."""
        asked, self.asked = self.asked, []
        for one in asked:
            answer = PlanChecked(one.rm_id, one.partition, one.check_id, fits=True)
            self._hear(self.core.handle(answer, self.now))
        self.seen["plan checks"] += len(asked)
        return bool(asked)

    def _end(self) -> bool:
        """End all pods that were ordered to end; return whether there were any."""
        going, self.going = self.going, {}
        ended = False
        for (name, key), why in going.items():
            ask = self.core.state.partitions[name].asks.get(key)
            if ask is None or ask.node is None or not (ask.releasing or ask.is_replaced):
                continue
            ended = True
            groups, rm_id = ask.spec.disruption_groups, ask.rm_id
            event = ReleaseRequested(rm_id, ask.application.application_id, key, name, why)
            self._hear(self.core.handle(event, self.now))
            if why is Termination.PREEMPTED_BY_SCHEDULER:
                self._use_up(rm_id, groups)
            elif why is not Termination.PLACEHOLDER_REPLACED:
                self.ended.append((self.now - self.start, key))
        return ended

    def _use_up(self, rm_id: str, groups: tuple[str, ...]) -> None:
        for group in groups:
            left = self.core.managers[rm_id].disruptions_allowed.get(group, 0)
            if left > 0:
                self._hear(self.core.handle(DisruptionsAllowed(rm_id, group, left - 1), self.now))

    def _hear(self, decisions: list[Decision]) -> None:
        after = self.now - self.start
        self.asked += [one for one in decisions if isinstance(one, PlanCheckRequested)]
        for one in decisions:
            if isinstance(one, Decided):
                record = one.record
                self.decided[record.partition, record.decision_id] = (after, record)
            elif isinstance(one, Released):
                self.going[one.partition, one.key] = one.termination
            elif isinstance(one, Withdrawn):
                self.going.pop((one.partition, one.key), None)
            elif isinstance(one, Placed):
                self.placed.append((after, one.key, one.node_id))
                self.seen["gang members placed"] += bool(one.spec.gang_key)
            elif isinstance(one, (AskReleased, AskRejected)):
                self.ended.append((after, one.key))
            elif isinstance(one, Noted) and one.code in {Code.RESERVED, Code.RESERVATION_DROPPED}:
                self.seen[one.code.value] += 1

    def happened(self) -> list[Happened]:
        """Return all decisions by partition, each as it was last planned."""
        found = [_as_people_compare(after, record) for after, record in self.decided.values()]
        return sorted(found, key=lambda one: one.partition)


def _as_people_compare(after: int, record: DecisionRecord) -> Happened:
    gets = tuple((each.key, each.node_id) for each in record.beneficiaries)
    victims = tuple(each.key for each in record.victims)
    observed = record.state.value == "observed"
    return Happened(after, record.partition, record.policy, gets, victims, observed)


def foreseen(found: Forecast) -> list[Happened]:
    """Return the decisions of a forecast by partition."""
    return [
        _as_people_compare(one.after_ms, one.record)
        for part in found.partitions
        for one in part.decisions
    ]


# One life -------------------------------------------------------------------------------------------------------------


def compare(seed: int) -> Counter[str]:
    """Simulate a change, apply it, and compare; return counts of what occurred."""
    life = Life(seed)
    cut_off = life.middle()
    configuration, kinds = life.changed()
    before = life.core.digest()
    with patch.object(forecasts, "TICKS_MAX", TICKS_MOST):
        found = forecast(life.core, configuration, life.now)
    assert life.core.digest() == before, "the simulation changed the core"
    live = Live(life.core, life.now, life.draw.choice((BUDGET, TICK_BUDGET)))
    live.apply(configuration)
    live.until(life.now + found.until_ms)
    _agree(found, live)
    seen = Counter({"lives": 1, "complete": found.complete, "begun in mid-tick": cut_off})
    seen["partial budgets"] = life.budget < BUDGET
    seen.update(f"change: {kind}" for kind in set(kinds))
    seen += live.seen + _counted(found)
    if found.complete and life.draw.random() < WATCHED:
        _is_quiet(live)
        seen["watched for longer"] += 1
    return seen


def _agree(found: Forecast, live: Live) -> None:
    said, happened = foreseen(found), live.happened()
    if found.cut:  # The instant at which the forecast was cut is only partly known.
        said = [one for one in said if one.after_ms <= found.until_ms]
        assert said == happened, f"foreseen {said}, happened {happened}"
        return
    assert said == happened, f"foreseen {said}, happened {happened}"
    places = [
        (one.after_ms, one.key, one.node_id) for part in found.partitions for one in part.placements
    ]
    assert sorted(places) == sorted(live.placed), f"{sorted(places)} and {sorted(live.placed)}"
    ends = [(one.after_ms, one.key) for part in found.partitions for one in part.ends]
    assert sorted(ends) == sorted(live.ended), f"{sorted(ends)} and {sorted(live.ended)}"
    for part in found.partitions:
        partition = live.core.state.partitions.get(part.partition)
        now = {} if partition is None else _numbers(queue_reports.queue_report(partition))
        after = {
            one.queue: (one.after.allocations, one.after.waiting, one.after.held)
            for one in part.queues
            if one.after is not None
        }
        assert after == now, f"{part.partition}: {after} and {now}"


def _numbers(report: QueueReport) -> dict[str, tuple[int, int, dict[str, int]]]:
    """Return, by queue, how many pods run and how many asks wait, and what pods that are not being evicted use."""
    held = {kind: used - report.releasing.get(kind, 0) for kind, used in report.usage.items()}
    own = {kind: used for kind, used in held.items() if used}
    found = {report.path: (report.allocations, report.pending_asks, own)}
    for child in report.children:
        found |= _numbers(child)
    return found


def _is_quiet(live: Live) -> None:
    """Assert that nothing new happens after a complete forecast; a partition that only observes repeats itself."""
    before = _what(live), len(live.placed), len(live.ended)
    live.until(live.now + WATCHED_MS, WATCHED_INSTANTS)
    after = _what(live), len(live.placed), len(live.ended)
    assert before == after, (
        f"more happens after the end: {live.decided}, {live.placed[before[1] :]}"
    )


def _what(live: Live) -> set[Happened]:
    """Return the decisions, observed ones without their instants; each one that evicts counts by itself."""
    return {one._replace(after_ms=0) if one.observed else one for one in live.happened()}


def _counted(found: Forecast) -> Counter[str]:
    decisions = foreseen(found)
    seen = Counter(one.policy for one in decisions)
    seen["decisions"] = len(decisions)
    seen["delayed decisions"] = sum(one.after_ms > 0 for one in decisions)
    seen["decisions for several"] = sum(len(one.beneficiaries) > 1 for one in decisions)
    seen["victims"] = sum(len(one.victims) for one in decisions)
    seen["lives with victims"] = seen["victims"] > 0
    seen["placements"] = sum(len(part.placements) for part in found.partitions)
    seen["ends"] = sum(len(part.ends) for part in found.partitions)
    seen["retired partitions"] = sum(part.removed for part in found.partitions)
    return seen
