"""The turn of a shadow. After a live round has planned, the shadow makes plans under its own settings, and reports the differences.

Both the live side and the shadow plan on the state at the start of the live round.

Between `plan` and `told` the live side writes its decisions. The shadow's plans are never carried out, and change only what the
shadow itself has recorded. Therefore the decisions of the live side are the same as without a shadow, byte for byte.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from server.core.preemption import apply_plan, due, pacing, refusals, rounds
from server.core.preemption.beside_claims import Part
from server.core.preemption.claim_chunks import SEARCH_MOST
from server.core.preemption.deficits import Shortage
from server.core.shadow import comparing, side, standing
from server.core.shadow.comparing import Why
from server.model.decisions import Decided, Decision, ShadowDecided
from server.model.parts import Parts
from server.model.policies import Shrinks
from server.model.shadow import Choice, Difference, ShadowRecord, Sum, difference
from server.preemption.policy import Plan
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk
from server.state import snapshotting
from server.state.partition import Partition
from server.state.shadow import HELD_MAX, Shadow

LIVE, SHADOW = "live", "shadow"


def begin(partition: Partition, now: int, budget: int) -> "Turn | None":
    """Return the turn of the partition's shadow at this instant. Return None if there is no shadow.

    Each ask that is tried costs at least one step of the budget. If the budget has no step left for an ask, the ask is tried in
    the next tick.
    """
    if not partition.spec.preemption.shadow and partition.shadow is None:
        return None
    known = side.memory(partition, now)
    return None if known is None else Turn(partition, known, now, budget)


class Turn:
    """One turn of a shadow: its planning, and its report.

    The caller calls `plan` with the plans of the live round before they are written, and then `told` with the round's result.
    """

    def __init__(self, partition: Partition, known: Shadow, now: int, budget: int) -> None:
        self._partition = partition
        self._known = known
        self._now = now
        self._budget = budget
        self._seen = side.seen(partition, known)
        self._result = rounds.RoundResult()
        self._ended: dict[str, str] = {}
        self._drafts: list[ShadowRecord] = []

    def plan(self, live: Trial | None) -> Parts[None]:
        """Make decisions under the shadow's settings, and compare them with the plans of the live side.

        Changes of the state since the last snapshot are written to the columns in parts.

        ``live`` is None if no ask was due for the live side.
        """
        known, now = self._known, self._now
        self._ended = standing.sweep(self._partition, known)
        mine: dict[str, Choice] = {}
        called = live is not None or due.is_called_for(self._seen, now)
        if called and not self._pauses:
            due.begin(self._seen)
            mine = yield from self._decide(live)
        theirs = self._choices(self._partition, live, LIVE, 0)
        self._drafts = [
            one
            for key in dict.fromkeys((*theirs, *mine, *self._ended))
            if (one := self._draft(key, theirs.get(key), mine.get(key))) is not None
        ]

    def told(self, live: rounds.RoundResult | None) -> list[Decision]:
        """Return the records to report, and store them. The caller calls this method once the live side's decisions have their ids."""
        notes = () if live is None else live.notes
        ids = dict(_ids(notes))
        self._known.round.open = self._result.cut or (live is not None and live.more)
        self._known.round.goes_on = self._result.cut
        standing.yield_to_live(self._partition, self._known)
        found: list[Decision] = []
        for draft in self._drafts:
            record = _with_id(draft, ids.get(draft.key, ""))
            self._known.keep(record)
            found.append(ShadowDecided(self._partition.owner, record))
        return found

    # Deciding -----------------------------------------------------------------------------------------

    @property
    def _pauses(self) -> bool:
        """Return whether the shadow makes no new decisions in this turn.

        The shadow makes none if more groups of equal asks wait than a shadow examines in one turn.
        """
        return self._partition.classes.groups > SEARCH_MOST

    def _decide(self, live: Trial | None) -> Parts[dict[str, Choice]]:
        """Apply the shadow's standing decisions to a Trial, make new decisions on it, and return the new ones by ask or queue."""
        other, known, now = self._seen, self._known, self._now
        with side.settled(other) as shortage:
            asks = due.claimants(other, shortage, Part(other, now).groups, now)
            trims = due.may_trim(other, now)
            if not (self._is_for_others(asks) or trims or standing.is_due(known, now)):
                return {}
            rounds.begin(other, asks, now, trims=trims)
            yield from snapshotting.catch_up_in_parts(other)
            trial = Trial(snapshotting.take(other, now, due=asks), shortage.known)
        standing.lay(other, known, trial, self._ended)
        _leave_out_served(trial)
        laid = len(trial.plans)

        def runs(trial: Trial, _result: rounds.RoundResult) -> None:
            _lay_runs(trial, live)

        at = rounds.PlanningSide(other, now, self._budget, runs, watched=False)
        if len(known.held) < HELD_MAX:
            rounds.decide(at, trial, self._result, trims=trims)
        found = self._choices(other, trial, SHADOW, laid)
        for plan in trial.plans[laid:]:
            self._keep(trial, plan)
        return found

    def _is_for_others(self, asks: snapshotting.Due) -> bool:
        """Return whether an ask is due for which the shadow has no standing decision."""
        served = {name for one in self._known.held.values() for name in one.subjects}
        members = (ask for one in asks.gangs for ask in one.members)
        due = (*asks.claiming, *asks.requiring, *asks.replacing, *members)
        return any(one.key not in served for one in due)

    def _keep(self, trial: Trial, plan: Plan) -> None:
        """Store a decision of the shadow. In observe mode, the decision is only recorded as shown, as live decisions are (P8)."""
        other, names = self._seen, comparing.subjects(plan)
        if not names:
            return
        if not apply_plan.is_shown(other, plan):
            pacing.record(other, trial, plan, self._now)
        if other.spec.preemption.observe_only:
            refusals.stamp(other, plan, self._now)
            apply_plan.show(other, plan)
        else:
            self._known.held[names[0]] = standing.held(plan)

    def _choices(
        self, partition: Partition, trial: Trial | None, whose: str, laid: int
    ) -> dict[str, Choice]:
        """Return the decisions that one side made in this turn, by ask or queue, and add them to the totals."""
        found: dict[str, Choice] = {}
        for plan in () if trial is None else trial.plans[laid:]:
            assert trial is not None
            mine = dict(comparing.choices(partition, trial, plan, self._now))
            shown = apply_plan.is_shown(partition, plan)
            if mine and not shown:
                self._count(plan.policy, whose, next(iter(mine.values())))
            if shown and whose == LIVE:
                mine = {key: self._shown_before(key, one) for key, one in mine.items()}
            found |= mine
        return found

    def _shown_before(self, key: str, choice: Choice) -> Choice:
        """Return the live side's choice with the decision id that it had when it was first shown in observe mode (P8).

        If that id is not known, the returned choice has the id "".
        """
        before = self._known.records.get(key)
        known = None if before is None else before.live
        return replace(choice, decision_id="" if known is None else known.decision_id)

    def _count(self, policy: str, whose: str, choice: Choice) -> None:
        sums = self._known.sums
        sums[policy, whose] = comparing.added(sums.get((policy, whose), Sum()), choice)

    # Comparing ----------------------------------------------------------------------------------------

    def _draft(self, key: str, live: Choice | None, mine: Choice | None) -> ShadowRecord | None:
        """Return the record of this turn about the ask or queue ``key``.

        Return None if the record would be the same as before.

        If one side made no decision in this turn, the last decision of that side is used if it is still open.
        """
        before = self._known.records.get(key)
        if before is not None and not before.ended_ms:
            stands = self._stands(key, before)
            fresh = live is not None
            live = live or (before.live if stands else None)
            mine = mine or (before.shadow if self._is_mine(key, fresh or not stands) else None)
        if live is None and mine is None:
            return self._over(key, before)
        how = difference(live, mine)
        known = before is not None and not before.ended_ms and before.difference is how
        if known and _is_same(before, live, mine):
            return None
        return self._record(key, how, live, mine)

    def _stands(self, key: str, before: ShadowRecord) -> bool:
        """Return whether the live side's last decision for the ask or queue ``key`` is still open.

        In observe mode, return whether the decision is still recorded as shown.
        """
        if before.live is None:
            return False
        if self._partition.spec.preemption.observe_only:
            return key in self._partition.round.observed
        return before.live.decision_id in self._partition.decisions.open

    def _is_mine(self, key: str, has_changed: bool) -> bool:  # noqa: FBT001
        """Return whether the shadow's last choice for the ask or queue ``key`` is still valid.

        The choice is valid while the shadow's decision is standing, or while the live decision is unchanged (``has_changed`` is
        False). In observe mode, the choice is valid while it is recorded as shown.
        """
        if self._seen.spec.preemption.observe_only:
            return key in self._known.round.observed
        return not has_changed or any(key in one.subjects for one in self._known.held.values())

    def _over(self, key: str, before: ShadowRecord | None) -> ShadowRecord | None:
        """If a decision that only the shadow made has ended, return its record with the instant and the reason of the end.

        Return None if the shadow made no such decision, or if the decision is still standing.
        """
        if before is None or before.ended_ms or before.difference is not Difference.ONLY_SHADOW:
            return None
        if key not in self._ended:
            return None
        return replace(before, ended_ms=self._now, end_reason=self._ended[key])

    def _record(
        self, key: str, how: Difference, live: Choice | None, mine: Choice | None
    ) -> ShadowRecord:
        why = self._why(key, how, live, mine)
        name, now = self._partition.name, self._now
        ask = self._partition.asks.get(key)
        if ask is None:
            return ShadowRecord(name, key, "queue", key, now, how, live, mine, *why)
        application = ask.application
        path, spec = application.leaf.path, ask.spec
        return ShadowRecord(
            name,
            key,
            "ask",
            path,
            now,
            how,
            live,
            mine,
            *why,
            application.application_id,
            spec.resource,
            spec.priority,
        )

    def _why(self, key: str, how: Difference, live: Choice | None, mine: Choice | None) -> Why:
        if how is Difference.ONLY_LIVE and live is not None:
            if len(self._known.held) >= HELD_MAX:
                return Why("", f"{HELD_MAX} of its decisions stand, the most there may be")
            return self._nothing(self._seen, key, live)
        if how is Difference.ONLY_SHADOW and mine is not None:
            return self._nothing(self._partition, key, mine)
        return Why()

    def _nothing(self, partition: Partition, key: str, choice: Choice) -> Why:
        if self._pauses and partition is self._seen:
            return Why("", f"it pauses while asks of more than {SEARCH_MOST} kinds wait")
        return comparing.why_nothing(partition, Shortage(partition), key, choice.policy, self._now)


def _is_same(before: ShadowRecord | None, live: Choice | None, mine: Choice | None) -> bool:
    if before is None:
        return False
    return comparing.is_alike(before.live, live) and comparing.is_alike(before.shadow, mine)


def _leave_out_served(trial: Trial) -> None:
    """Remove the asks for which the shadow has a standing decision.

    Asks whose decision just ended are kept, so that the shadow plans for them again.
    """
    snapshot = trial.snapshot

    def left(asks: Iterable[WaitingAsk]) -> tuple[WaitingAsk, ...]:
        return tuple(one for one in asks if not trial.is_served(one.key))

    trial.snapshot = replace(
        snapshot,
        claims=left(snapshot.claims),
        daemons=left(snapshot.daemons),
        replacing=left(snapshot.replacing),
        gangs=tuple(one for one in snapshot.gangs if len(left(one.members)) == len(one.members)),
    )


def _lay_runs(trial: Trial, live: Trial | None) -> None:
    """Apply the quota runs of the live side to the shadow's Trial.

    The shadow then counts the victims of these runs as gone, as the live side does.
    """
    for plan in () if live is None else live.plans:
        if plan.facts.shrinks is Shrinks.QUEUE:
            left = tuple(one for one in plan.releases if trial.stands(one.row))
            trial.apply(replace(plan, releases=left))


def _ids(notes: list[Decision] | tuple[Decision, ...]) -> Iterator[tuple[str, str]]:
    """Yield each ask or queue for which the live side made a decision, with the id of the decision."""
    for one in notes:
        if isinstance(one, Decided):
            record = one.record
            for beneficiary in record.beneficiaries:
                yield beneficiary.key, record.decision_id
            if record.shrink is not None:
                yield record.shrink.queue, record.decision_id


def _with_id(record: ShadowRecord, decision_id: str) -> ShadowRecord:
    if record.live is None or not decision_id or record.live.decision_id:
        return record
    return replace(record, live=replace(record.live, decision_id=decision_id))
