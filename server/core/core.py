"""The core of the scheduler, synchronous and single-threaded, without I/O.

`handle` applies an event, `tick` decides, and `next_due` returns when to call again.

``now`` is an instant in Unix milliseconds and never decreases. Equal events in equal order and at equal instants always give
equal results, byte for byte. A budget counts steps (placements and candidates examined), never time (design 1.3).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from server.core.events import (
    applications,
    asks,
    asks_fast,
    configuration,
    excluded_nodes,
    gang_size,
    lifecycle,
    managers,
    moving,
    nodes,
    placeholders,
    plan_answers,
    recovery,
    releases_fast,
    sessions,
)
from server.core.preemption import (
    decision_events,
    open_decisions,
    plan_checks,
    rounds,
    shares,
    thrash_guard,
    withdrawal,
)
from server.core.shadow import side, turn
from server.core.state import Manager, State, Timer
from server.core.wait_reasons import notices, reservations
from server.model import events
from server.model.decisions import Decision, Tick
from server.model.parts import Parts, whole
from server.model.quota import Configuration
from server.model.revisions import Beginning
from server.scheduling import batch_fast, cycle, yielding
from server.scheduling import placeholders as scheduling_placeholders
from server.state import pending, reranking, sharing, snapshotting
from server.state.applications import Ask
from server.state.digest import digest
from server.state.invariants.check import validate
from server.state.partition import Partition

_STATE: Final = attrgetter("application.state")

BUDGET = 20_000
"""The step budget of one tick, unless the caller passes another."""
AFTER_CHANGE: Final = 100
"""The step budget of a tick that also does a step of the change of a partition to the configuration in force."""
PLANNING: Final = 1_100
"""The largest number of steps of one tick that a preemption round, or a shadow's turn, may use.

A planning step takes longer than a step of placement.
"""
CATCH_UP_ALLOCATIONS: Final = 2_000
"""If at least this many allocations have changed during a sync, they are written to the columns before the sync ends.

Writing this many allocations takes about 6 ms.
"""
RANKED_ALONE: Final = 15_000
"""A tick that ranks at least this many queues and applications does no other work.

Ranking 20,000 queues and applications takes 45 ms.
"""

Handler = Callable[[State, Any, int], list[Decision]]


_HANDLERS: dict[type, Handler] = {
    events.AskAdded: asks_fast.add,
    events.AllocationAdded: asks.add_allocation,
    events.ForeignAdded: asks.add_foreign,
    events.ReleaseRequested: asks.release,
    events.VictimVetoed: open_decisions.vetoed,
    events.PlanChecked: plan_answers.answered,
    events.DisruptionsAllowed: lambda state, event, _now: managers.allow_disruptions(state, event),
    events.ApplicationAdded: applications.add,
    events.ApplicationRetagged: lambda state, event, _now: applications.retag(state, event),
    events.ApplicationRemoved: applications.remove,
    events.NodeAdded: nodes.add,
    events.NodeUpdated: nodes.change,
    events.NodeDrained: nodes.change,
    events.NodeEnabled: nodes.change,
    events.NodeRemoved: nodes.change,
    events.ManagerRegistered: lambda state, event, now: whole(managers.register(state, event, now)),
    events.ManagerForgotten: lambda state, event, _now: managers.forget(state, event),
    events.ManagerWiped: managers.wipe_part,
    events.SyncCompleted: managers.complete_sync,
    events.LeadershipTaken: lambda state, event, _now: managers.take_leadership(state, event),
    events.SessionResumed: sessions.resume,
    events.MessagesTaken: lambda state, event, _now: sessions.take_messages(state, event),
    events.PartitionMoving: moving.move,
    events.ConfigurationApplied: lambda state, event, now: whole(
        configuration.change(state, event, now)
    ),
}
_IN_PARTS: dict[type, Callable[[State, Any, int], Parts[list[Decision]]]] = {
    events.ManagerRegistered: managers.register,
    events.ConfigurationApplied: configuration.change,
}
"""The handlers of the events that take long and can be handled in parts."""
TAKEN_IN_PARTS: Final = frozenset(_IN_PARTS)
"""The events that take long and that `Core.take_in_parts` handles in parts."""


def _decision_expired(state: State, partition: Partition, subject: str, now: int) -> list[Decision]:
    del state
    commitment = partition.decisions.open.get(subject)
    if commitment is None or commitment.expires_ms > now:
        return []
    if commitment.replaces:
        return placeholders.expired(partition, commitment)
    if commitment.facts.reserves:
        return reservations.expired(partition, commitment, now)
    return open_decisions.expired(partition, commitment, now)


def _avoid_over(state: State, partition: Partition, subject: str, now: int) -> list[Decision]:
    del state
    excluded_nodes.over(partition, subject, now)
    return []


def _veto_over(state: State, partition: Partition, subject: str, now: int) -> list[Decision]:
    del state, now
    open_decisions.veto_over(partition, subject)
    return []


Alarm = Callable[[State, Partition, str, int], list[Decision]]

_ALARMS: dict[str, Alarm] = {
    "ask-timeout": asks.timed_out,
    excluded_nodes.TIMER: _avoid_over,
    "decision": _decision_expired,
    "veto": _veto_over,
    plan_checks.TIMER: lambda _state, partition, subject, now: plan_answers.overdue(
        partition, subject, now
    ),
    placeholders.TIMER: placeholders.timed_out,
    moving.TIMER: lambda state, partition, _subject, now: moving.given_up(state, partition, now),
    "failed": lambda _state, partition, subject, now: lifecycle.failed(partition, subject, now),
    "completing": lambda _state, partition, subject, now: lifecycle.completed(
        partition, subject, now
    ),
}
"""The action of each kind of timer.

Each action checks whether its timer is still valid. An action does nothing if its timer is outdated.
"""


class Core:
    """The state of all partitions, changed only by events and ticks."""

    def __init__(
        self, configuration: Configuration | None = None, beginning: Beginning | None = None
    ) -> None:
        """Start with the given configuration, or with the default configuration until a registration brings a configuration.

        The default configuration allows any queue name. Without a ``beginning``, the configuration is revision 1. A given
        configuration is recorded as coming from a file. For the default configuration, no source is recorded.
        """
        self.state = State(configuration, beginning)
        self._seen_ms = 0
        self._stirred = True
        self._put_off: list[Partition] = []
        """The partitions in which this tick placed all asks that fit, and whose preemption rounds are put off to later ticks.

        The round of the first of these partitions begins in the next tick.
        """
        self.is_amid = False
        """Whether work that is done in parts has begun and has not ended yet.

        Until this work has ended, the state is inconsistent, and no caller may read the state.
        """

    @property
    def managers(self) -> Mapping[str, Manager]:
        """Return the registered resource managers by id."""
        return self.state.managers

    def handle(self, event: events.Event, now: int) -> list[Decision]:
        """Enqueue unqueued asks, apply one event to the state, and return the replies.

        Invalid input gets a reply and never raises an exception.
        """
        self._take_in_fresh()
        return self._handle(event, now)

    def count_sent(self, decisions: Sequence[Decision]) -> None:
        """Count the decisions that `take` or `tick` returned, because sessions that can be resumed need the count (design 7.5)."""
        sessions.count(self.state, decisions)

    def become(self, other: "Core") -> None:
        """Take over the state of another core, which must not be used after this call."""
        self.state, self._seen_ms, self._stirred = other.state, other._seen_ms, other._stirred

    def prepare(self, brought: Configuration) -> Iterator[None]:
        """Make, in pieces, the objects that a configuration needs.

        The event that applies the configuration then takes less time.

        The preparation does not change any decision.
        """
        return configuration.prepare(self.state, brought)

    def drop_prepared(self) -> Iterator[None]:
        """Free, in pieces, the prepared objects that were not used, and the queues and partitions that the configuration removed."""
        return configuration.drop_prepared(self.state)

    def take(self, events: Sequence[events.Event], now: int) -> list[Decision]:
        """Apply many events, in order, before a tick, and return the replies.

        The tick then places the plain asks (see `AskSpec.is_plain`) among them in a batch. Plain asks stay unqueued, that is,
        in no group, until that tick. Plain asks are enqueued earlier if an event needs them in their groups, or if too many
        asks are unqueued.
        """
        state, at = self.state, 0
        decisions: list[Decision] = []
        self._stirred |= bool(events)
        while True:
            before, at = at, asks_fast.take(state, events, at, now)
            at = releases_fast.take(state, events, at, decisions)
            if at == len(events):
                whole(self._catch_up())
                return decisions
            if at == before:
                event = events[at]
                answer = self._handle if releases_fast.leaves_alone(state, event) else self.handle
                decisions += answer(event, now)
                at += 1

    def take_in_parts(self, event: events.Event, now: int) -> Parts[list[Decision]]:
        """Take one event as `take` does, in parts if handling the event may take long.

        The caller must not use the core for anything else before the last part.
        """
        handler = _IN_PARTS.get(type(event))
        if handler is None:
            return self.take([event], now)
        self._take_in_fresh()
        self._stirred = self.is_amid = True
        decisions = yield from handler(self.state, event, now)
        decisions = self._complete(event, decisions, now)
        yield from self._catch_up()
        self.is_amid = False
        return decisions

    def _catch_up(self) -> Parts[None]:
        """During a sync, write changed allocations to the columns of snapshots if many have changed.

        The end of the sync then takes less time.
        """
        for partition in self.state.partitions.values():
            many = len(partition.columns.changed) >= CATCH_UP_ALLOCATIONS
            if many and not self.state.synced(partition):
                yield from snapshotting.catch_up_in_parts(partition)

    def _take_in_fresh(self) -> None:
        """Enqueue unqueued asks. Code that is called afterwards may assume that each ask is in a group."""
        for partition in self.state.partitions.values():
            pending.enqueue_unqueued(partition)

    def _handle(self, event: events.Event, now: int) -> list[Decision]:
        self._stirred = True
        decisions = _HANDLERS[type(event)](self.state, event, now)
        return self._complete(event, decisions, now)

    def _complete(self, event: events.Event, decisions: list[Decision], now: int) -> list[Decision]:
        """Return the decisions of an event's handler, then the changes of open decisions, then the notes of the state."""
        state = self.state
        if isinstance(event, events.ConfigurationApplied):
            thrash_guard.configured(state, decisions)
        for partition in state.partitions.values():
            if partition.decisions.moves:
                decisions = [*decisions, *decision_events.moves(partition, now)]
            if partition.gangs.came:
                gang_size.note(partition, now)
        if state.notes:
            decisions = [*decisions, *state.take_notes()]
        return decisions

    def tick(self, now: int, budget: int = BUDGET) -> Tick:
        """Make all decisions that are possible now, within a budget of steps.

        If ``more`` is set in the result, the caller must call this method again at once. If only a shadow has work, the tick
        changes only what the shadow itself has recorded.
        """
        return whole(self.tick_in_parts(now, budget))

    def tick_in_parts(self, now: int, budget: int) -> Parts[Tick]:
        """Tick as `tick` does.

        Three kinds of work are done in parts: the ranking of queues, the change of a partition to the configuration in force, and
        the writing of the columns that a snapshot needs. The caller must not use the core for anything else before the last part.
        """
        if self._is_for_shadows(now):
            self._seen_ms = now
            return (yield from self._tick_shadows(now, budget))
        self._seen_ms = now
        self.is_amid = True
        if self.state.timers and self.state.timers[0][0] <= now:
            self._take_in_fresh()
        decisions = self._timers(now)
        more = changes = bool(self.state.outdated)
        self._put_off.clear()
        if changes:
            self._take_in_fresh()
            decisions += yield from configuration.change_next(self.state, now)
            budget = min(budget, AFTER_CHANGE)
        for partition in self.state.partitions.values():
            # Decisions that a timer ended are reported before the decisions of this tick.
            decisions += decision_events.moves(partition, now)
            if not self._may_burst(partition):
                pending.enqueue_unqueued(partition)
            if self._ticks(partition):
                more |= yield from self._tick_partition(partition, now, budget, decisions)
            decisions += decision_events.moves(partition, now)
            gang_size.note(partition, now)
        if self._put_off and not changes:
            self._put_off[0].round.is_put_off = False
        yield from configuration.drop_retired(self.state)
        self.is_amid = False
        self._stirred = more
        return Tick(decisions, more or self._shadows_go_on())

    def next_due(self) -> int | None:
        """Return the next instant at which `tick` could decide something without an event.

        Return None if the core has no decision to make without an event. The result is valid until the next event. The caller
        must not use the result if the last tick set ``more``.
        """
        live, shadows = self._live_due(), self._shadow_due()
        return min((one for one in (live, shadows) if one is not None), default=None)

    def _live_due(self) -> int | None:
        dues = [self.state.timers[0][0]] if self.state.timers else []
        for partition in self._ticking():
            found = (rounds.next_due(partition, self._seen_ms), gang_size.next_due(partition))
            dues += [one for one in found if one is not None]
        return min(dues, default=None)

    def _ticks(self, partition: Partition) -> bool:
        """Return whether ticks include the partition: the partition is configured, and asks may be placed in it (`State.synced`)."""
        return not partition.retired and self.state.synced(partition)

    def _may_burst(self, partition: Partition) -> bool:
        """Return whether asks may stay unqueued until placement, which then places them in a batch.

        The result is False in five cases: ticks leave the partition out, shares follow weights, decisions from before a restart
        still have to be reopened, asks wait for placeholders, or gangs wait for members.
        """
        if sharing.is_shared_out(partition):
            return False
        others = partition.decisions.marks or partition.gangs.holding or partition.gangs.gathering
        return self._ticks(partition) and not others

    def _ticking(self) -> list[Partition]:
        return [one for one in self.state.partitions.values() if self._ticks(one)]

    # Shadows ------------------------------------------------------------------------------------------

    def _shadow_due(self) -> int | None:
        known = self._ticking()
        dues = [side.next_due(one, self._seen_ms) for one in known if one.shadow is not None]
        return min((one for one in dues if one is not None), default=None)

    def _shadows_go_on(self) -> bool:
        """Return whether a shadow's turn has to continue, because the budget ended it early.

        A partition that ticks leave out gets no turn for its shadow.
        """
        known = (one.shadow for one in self._ticking())
        return any(one is not None and one.round.goes_on for one in known)

    def _is_for_shadows(self, now: int) -> bool:
        """Return whether only a shadow has work. If so, the tick must leave the live state unchanged."""
        if self._stirred:
            return False
        live, shadows = self._live_due(), self._shadow_due()
        if live is not None and live <= now:
            return False
        return self._shadows_go_on() or (shadows is not None and shadows <= now)

    def _tick_shadows(self, now: int, budget: int) -> Parts[Tick]:
        decisions: list[Decision] = []
        self.is_amid = True
        for partition in self._ticking():
            mine = turn.begin(partition, now, min(budget, PLANNING))
            if mine is not None:
                yield from mine.plan(None)
                decisions += mine.told(None)
        self.is_amid = False
        return Tick(decisions, self._shadows_go_on())

    def validate(self) -> None:
        """Enqueue unqueued asks, and assert every invariant of the state (design 5).

        The message of an AssertionError names the broken invariant.
        """
        self._take_in_fresh()
        for partition in self.state.partitions.values():
            validate(partition)

    def digest(self) -> str:
        """Enqueue unqueued asks, and return a hash of the state in hexadecimal.

        For each timer, the hash covers the kind, the instant, and the object that the timer is about. The hash leaves out
        earlier configurations, the caches of partitions, and state that can be computed from the included state
        (`server.state.digest`). The core itself does not call this method: like `validate`, the method is for tests and tools
        that check a core.
        """
        self._take_in_fresh()
        state = self.state
        text = hashlib.sha256(state.configuration.digest.encode())
        text.update(repr((state.revision, sorted(state.given.items()))).encode())
        timers = sorted((due, *subject) for due, _, *subject in state.timers)
        text.update(repr(timers).encode("utf-8", "surrogatepass"))
        if state.outdated:
            left = [
                (name, one.is_in_force, one.before is None) for name, one in state.outdated.items()
            ]
            text.update(repr(left).encode())
        for name in sorted(self.state.partitions):
            text.update(digest(self.state.partitions[name]).encode())
        for rm_id in sorted(self.state.managers):
            text.update(repr(self.state.managers[rm_id]).encode())
        text.update(moving.digest_of(state))
        return text.hexdigest()

    def _tick_partition(
        self, partition: Partition, now: int, budget: int, decisions: list[Decision]
    ) -> Parts[bool]:
        if partition.ranking_stale and (yield from _rank(partition)):
            return True
        if shares.refresh(partition):
            open_decisions.abort_unfit(partition, now)
        gang_size.count(partition, now)
        if partition.decisions.marks:
            recovered, expiring = recovery.rebuild(partition, now, all_known=False)
            decisions += recovered
            self.state.expect(partition, expiring)
        placements = partition.placements
        left = self._place(partition, now, budget, decisions)
        most = notices.TELL_BESIDE_MAX if partition.placements > placements else notices.TELL_MAX
        decisions += decision_events.moves(partition, now) + plan_checks.settle(
            partition, all_planned=False
        )
        if left <= 0 or self._puts_off(partition):
            return True
        partition.round.cycles += (
            1  # everything was tried: each ask that still waits missed an opportunity (P2)
        )
        partition.disruptions = self.state.disruptions(partition)
        left = min(left, PLANNING)
        mine = turn.begin(partition, now, left)
        ended = partition.round.pledges_ended
        result = yield from rounds.run(partition, now, left, None if mine is None else mine.plan)
        decisions += result.notes
        if mine is not None:
            decisions += mine.told(result)
        self._expect(partition, result)
        # Decisions that ended are reported first, and then the victims that stay because these decisions ended.
        decisions += decision_events.moves(partition, now) + plan_checks.settle(
            partition, all_planned=not (result.more or result.searching)
        )
        stays = [] if result.more else withdrawal.withdraw(partition)
        told, unfinished = notices.tell(self.state, partition, now, most)
        decisions += [*stays, *told]
        # If a plan took a reserved node, the ask that had the reservation looks for another node in
        # the next tick.
        displaced = partition.round.pledges_ended > ended
        stale = bool(cycle.stale_gangs(partition)) or scheduling_placeholders.waits(partition)
        return result.more or result.searching or unfinished or stale or displaced or bool(stays)

    def _puts_off(self, partition: Partition) -> bool:
        """Return whether the round of a partition is put off to a later tick.

        If the round is put off, record that this tick placed all asks of the partition that fit.
        """
        if partition.round.is_put_off:
            self._put_off.append(partition)
        return partition.round.is_put_off

    def _expect(self, partition: Partition, result: rounds.RoundResult) -> None:
        """Set timers for the expiry of the decisions that the round made, and for the overdue answers to its plan checks."""
        self.state.expect(partition, result.expiring)
        for instant, check_id in result.asked:
            self.state.at(instant, plan_checks.TIMER, partition.name, check_id)

    def _place(self, partition: Partition, now: int, budget: int, decisions: list[Decision]) -> int:
        """Place every ask that fits, and return the remaining budget.

        While asks of parked classes still have to be requeued, place only asks with pledges, and return 0.
        """
        placed: list[Ask] = []
        cycle.open_tick(partition, now, placed)
        told = len(placed)
        # The placements are announced before any of these asks can be evicted.
        self._announce(partition, placed, now, decisions)
        if cycle.is_reviving(partition):
            pending.enqueue_unqueued(partition)
            return 0
        decisions += placeholders.replace(self.state, partition, now)
        left = batch_fast.run(partition, now, budget, placed)
        left = cycle.run(partition, now, left, placed)
        left = yielding.run(partition, now, left, placed)
        self._announce(partition, placed[told:], now, decisions)
        return left

    def _announce(
        self, partition: Partition, placed: list[Ask], now: int, decisions: list[Decision]
    ) -> None:
        running, told = lifecycle.RUNNING, lifecycle.placed(partition, placed)
        if list(map(_STATE, placed)).count(running) == len(placed):
            decisions += told
            return
        for ask, one in zip(placed, told, strict=True):
            decisions.append(one)
            if ask.application.state is not running:
                decisions += lifecycle.allocated(partition, ask.application, now)

    def _timers(self, now: int) -> list[Decision]:
        decisions: list[Decision] = []
        # A timer may set another timer that is due at once.
        while timers := self.state.due(now):
            for timer in timers:
                decisions += self._fire(timer, now)
        return decisions + self.state.take_notes()

    def _fire(self, timer: Timer, now: int) -> list[Decision]:
        """Carry out the action of a timer that is due.

        During a sync in which the manager's new reports are compared with its earlier reports, keep the timer until the end of
        the sync. While the partition is being moved to another group of cores, keep the timer, because the move may be given up
        and the partition may then stay here.
        """
        _, _, kind, name, subject = timer
        partition = self.state.partitions.get(name)
        if partition is None:
            return []
        if partition.resumption is not None:
            partition.resumption.timers.append(timer)
            return []
        leaving = self.state.leaving.get(name)
        if leaving is not None and kind != moving.TIMER:
            leaving.timers.append(timer)
            return []
        return _ALARMS[kind](self.state, partition, subject, now)


def _rank(partition: Partition) -> Parts[bool]:
    """Rank the queues of a partition in parts. Return whether there are so many queues that the tick does no work besides the ranking."""
    yield from reranking.rebuild_in_parts(partition)
    return len(partition.queues) + len(partition.applications) >= RANKED_ALONE
